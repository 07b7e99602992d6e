"""How many entries a TLB level has: as CPUID states them, else as this machine's survey found them,
else nobody knows."""

import pandas as pd
import pytest
from support import geometry
from support.common import About, refusal
from support.geometry import Made
from support.synthetic import Stated, tlbs

from tlb.measure import survey
from tlb.report.analysis import Analysis
from tlb.system.reasons import Unavailable

TWO_LEVELS = Made(geometry.lru(72), geometry.lru(1024))
ONE_LEVEL = Made(geometry.lru(64), geometry.lru(10**9))


def analysis(stated: tuple[int, ...] = (), surveyed: Made | None = TWO_LEVELS) -> Analysis:
    host = Stated(tlb=tlbs(stated, [0] * len(stated))).host()
    rows = {survey.NAME: geometry.rows(surveyed, "4k", 1)} if surveyed else {}
    return Analysis(pd.DataFrame(), About(host, rows=rows))


def test_what_cpuid_states_comes_before_what_a_survey_found():
    a = analysis((64, 1536))
    assert (a.entries, a.stated_entries, a.entries_source) == ([64, 1536], [64, 1536], "CPUID")
    assert a.two_levels() == a.two_stated_levels() == (64, 1536)


def test_where_cpuid_is_silent_the_survey_s_entries_stand_in_and_are_not_called_stated():
    a = analysis()
    assert a.two_levels() == (pytest.approx(72, rel=0.03), pytest.approx(1024, rel=0.03))
    assert a.known_entries == a.entries and a.entries_source != "CPUID" and a.stated_entries == []
    assert refusal(a.two_stated_levels) == "no-geometry"


@pytest.mark.parametrize("surveyed", [None, ONE_LEVEL])
def test_no_survey_and_a_level_that_shows_alone_tell_nobody_s_entries(surveyed):
    a = analysis(surveyed=surveyed)
    assert a.entries == []
    for ask in (lambda: a.known_entries, a.two_levels):
        with pytest.raises(Unavailable):
            ask()
