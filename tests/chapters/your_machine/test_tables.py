"""The chapter's tables: of machines that state much or nothing, of a survey, and of words that are an attack."""

from __future__ import annotations

import re

import pytest
from support.host import inspect
from support.pages import Elements
from support.your_machine import ARM, COUNTERS, KINDS, SURVEYS, host, hostile, kind, stating, surveyed

from experiments.chapters.your_machine import Analysis, figures, tables
from experiments.machine.doctor import advice
from experiments.words.reasons import REASONS, Unavailable

STATED = (tables.reach_table, tables.outgrow_table, tables.machine_table, tables.tlb_table, tables.advice_list)
PUBLISHED = (tables.hit_costs, tables.disagreements)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_machine_has_every_table(name: str):
    for make in STATED + PUBLISHED:
        table = make(kind(name))
        assert table.text and not re.search(r"\b(None|nan)\b", table.text + table.markup)


def test_the_tables_multiply():
    assert "2\t4 KiB\t1536\t6 MiB" in tables.reach_table(kind("guest")).text.splitlines()
    assert tables.outgrow_table(kind("guest")).text.splitlines()[1:] == ["L1\t32 KiB\t16 MiB", "L2\t1 MiB\t512 MiB"]


def test_a_tlb_stands_in_its_table_with_the_leaf_that_states_it():
    assert tables.tlb_table(kind("guest")).text.splitlines()[1:] == [
        "1\tdata\t4 KiB\t64\tfull\tCPUID 0x18", "2\tunified\t4 KiB\t1536\t12\tCPUID 0x18"]


def test_where_nothing_is_stated_each_table_says_what_is_lacking():
    of = stating(host(**ARM))
    lacking = REASONS["no-cpuid"].sentence
    assert lacking in tables.reach_table(of).text and lacking in tables.tlb_table(of).text
    assert "Nothing states the caches" in tables.outgrow_table(kind("no caches")).text


def test_the_advice_is_the_doctors_each_with_its_remedy(tmp_path):
    of = inspect(tmp_path, {"proc/loadavg": "2.50 1 1 1/1 1\n"})
    shown = tables.advice_list(stating(of))
    assert shown.text.splitlines() == [f"{item.topic}: {item.finding} {item.remedy}" for item in advice(of)]
    assert any("something else is running" in line for line in shown.text.splitlines())
    seen = Elements(shown.markup)
    assert seen.tags.count("li") == len(advice(of)) and "".join(seen.text).count("`") == 0
    assert REASONS["not-linux"].sentence in tables.advice_list(kind("not Linux")).text


def test_a_command_keeps_its_letters_and_may_break_after_its_slashes():
    markup = tables.advice_list(kind("THP never")).markup
    assert "tee /<wbr>sys/<wbr>kernel/<wbr>mm/<wbr>transparent_hugepage/<wbr>enabled</code>" in markup
    command = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    assert command in "".join(Elements(markup).text)


def test_where_there_is_nothing_to_mend_that_is_said():
    pools = [{"page": page, "total": 9, "free": 9, "reserved": 0, "surplus": 0} for page in ("2m", "1g")]
    quiet = host(mthp={"64k": "madvise"}, hypervisor="none", pmu=COUNTERS, pools=pools)
    shown = tables.advice_list(stating(quiet))
    assert "li" not in Elements(shown.markup).tags and shown.text.startswith("Nothing was found")


def test_no_table_or_figure_of_a_hostile_machine_holds_an_element_of_its_own():
    of = stating(hostile())
    for text in [*(make(of).markup for make in STATED), figures.address_bits(of).html()]:
        seen = Elements(text)
        assert seen.tags.count("script") <= 1 and "img" not in seen.tags
        assert not [name for name, _ in seen.attributes if name.startswith("on")]
    for make in (tables.tlb_table, tables.machine_table, tables.advice_list):
        assert "alert(1)" in "".join(Elements(make(of).markup).text)


@pytest.mark.parametrize("name", SURVEYS)
def test_every_survey_has_both_tables(name: str):
    frame, found = SURVEYS[name]
    for make, rows in ((tables.levels_table, len(found.levels)), (tables.walks_table, len(found.walks))):
        table = make(surveyed(frame, found))
        assert Elements(table.markup).tags.count("tr") == rows + 1
        assert not re.search(r"\b(None|nan)\b", table.text)


@pytest.mark.parametrize("code", ["engine-lacks", "no-data", "no-step", "not-linux"])
def test_without_a_survey_its_tables_have_its_reason_and_the_others_stay(code: str):
    def lacks():
        raise Unavailable(code, "a detail")

    a = Analysis(lacks, stating(host()).about)
    for make in (tables.levels_table, tables.walks_table, figures.staircase):
        with pytest.raises(Unavailable, match="a detail") as why:
            make(a)
        assert why.value.code == code
    assert all(make(a).text for make in STATED + PUBLISHED) and figures.address_bits(a).svg()
