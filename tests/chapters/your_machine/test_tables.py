"""The chapter's tables: of machines that state much or nothing, of a survey, and of words that are
an attack."""

from __future__ import annotations

import pytest
from support.pages import Elements
from support.your_machine import host, hostile, stating

from experiments.your_machine import Analysis, figures, tables
from tlb.reasons import Unavailable

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
def test_without_a_survey_its_tables_have_its_reason_and_the_others_stay(code: str):
    def lacks():
        raise Unavailable(code, "a detail")

    a = Analysis(lacks, stating(host()).about)
    for make in (tables.levels_table, figures.staircase, figures.added):
        with pytest.raises(Unavailable, match="a detail") as why:
            make(a)
        assert why.value.code == code
    assert all(make(a).text for make in STATED) and figures.address_bits(a).svg()
