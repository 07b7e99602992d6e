"""The chapter's tables: of machines that state much or nothing, of a survey, and of words that are
an attack."""

from __future__ import annotations

import pytest
from support.pages import Elements
from support.your_machine import ARM, host, hostile, kind, stating

from experiments.your_machine import Analysis, figures, tables
from tlb.reasons import REASONS, Unavailable

STATED = (
    tables.reach_table,
    tables.outgrow_table,
    tables.machine_table,
    tables.tlb_table,
    tables.advice_list,
)
PUBLISHED = (tables.hit_costs, tables.disagreements)


def test_the_tables_multiply():
    assert "2\t4 KiB\t1536\t6 MiB" in tables.reach_table(kind("guest")).text.splitlines()
    assert tables.outgrow_table(kind("guest")).text.splitlines()[1:] == [
        "L1\t32 KiB\t16 MiB",
        "L2\t1 MiB\t512 MiB",
    ]


def test_where_nothing_is_stated_each_table_says_what_is_lacking():
    of = stating(host(**ARM))
    lacking = REASONS["no-cpuid"].sentence
    assert lacking in tables.reach_table(of).text and lacking in tables.tlb_table(of).text
    assert "Nothing states the caches" in tables.outgrow_table(kind("no caches")).text


def test_no_table_or_figure_of_a_hostile_machine_holds_an_element_of_its_own():
    of = stating(hostile())
    for text in [*(make(of).markup for make in STATED), figures.address_bits(of).html()]:
        seen = Elements(text)
        assert seen.tags.count("script") <= 1 and "img" not in seen.tags
        assert not [name for name, _ in seen.attributes if name.startswith("on")]
    for make in (tables.tlb_table, tables.machine_table, tables.advice_list):
        assert "alert(1)" in "".join(Elements(make(of).markup).text)


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
