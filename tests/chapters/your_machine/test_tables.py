"""The chapter's tables: of machines that state much or nothing, of a survey, and of words that are
an attack."""

import pytest
from support.pages import Elements
from support.synthetic import tlbs
from support.your_machine import host, hostile, stating

from experiments.your_machine import Analysis, figures, tables
from tlb.system.reasons import Unavailable

STATED = (tables.reach_table, tables.machine_table, tables.tlb_table, tables.advice_list)


def test_no_table_or_figure_of_a_hostile_machine_holds_an_element_of_its_own():
    of = stating(hostile())
    for text in [*(make(of).markup for make in STATED), figures.address_bits(of).html()]:
        seen = Elements(text)
        assert seen.tags.count("script") <= 1 and "img" not in seen.tags
        assert not [name for name, _ in seen.attributes if name.startswith("on")]
    for make in (tables.tlb_table, tables.machine_table, tables.advice_list):
        assert "alert(1)" in "".join(Elements(make(of).markup).text)


@pytest.mark.parametrize("code", ["engine-lacks", "no-data", "no-step", "not-linux"])
def test_without_a_survey_its_tables_have_its_reason_and_the_others_stay(code):
    def lacks():
        raise Unavailable(code, "a detail")

    a = Analysis(lacks, stating(host()).about)
    for make in (tables.levels_table, figures.staircase, figures.added):
        with pytest.raises(Unavailable, match="a detail") as why:
            make(a)
        assert why.value.code == code
    assert all(make(a).text for make in STATED) and figures.address_bits(a).svg()


def test_where_the_host_splinters_huge_pages_they_reach_no_farther_than_base_pages():
    both = tuple(tlb.model_copy(update={"pages": ("4k", "2m")}) for tlb in tlbs())
    a = stating(host(tlb=both))
    assert "on this machine" not in tables.reach_table(a).text
    a.is_splintered = True
    _, small, large, *_ = (line.split("\t") for line in tables.reach_table(a).text.splitlines())
    assert small[-2:] == ["256 KiB", "256 KiB"] and large[-2:] == ["128 MiB", "256 KiB"]
