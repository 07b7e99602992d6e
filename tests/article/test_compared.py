"""Intervals beside their bands, as rows of verdicts print them."""

from __future__ import annotations

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from support.common import About
from support.synthetic import Stated
from support.verdict_rows import rows

from experiments.article.analysis import Analysis
from experiments.article.compared import Bounds, compared, range_words
from experiments.article.verdicts import Answer, Claim, Effect, inside, judge, verdict_table
from experiments.front.judged import Judged
from experiments.inference.intervals import Interval

A = Analysis(pd.DataFrame(), About(Stated().host()))
NEAR = st.sampled_from([1.0, 2.0]).flatmap(lambda mark: st.sampled_from([mark, mark * (1 - 1e-7), mark * (1 + 1e-5)])) | st.floats(0.5, 2.5)


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    low, value, high = sorted(draw(NEAR) for _ in range(3))
    coverage, modes, among = draw(st.sampled_from([0.75, 0.9375])), draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 7]))
    return inside(Interval(value, low, high, coverage, modes), 1.0, draw(st.sampled_from([2.0, float("inf")])), among)


@given(st.lists(effects(), min_size=1, max_size=3))
def test_what_is_printed_of_a_verdict_does_not_contradict_it(compared: list[Effect]):
    def decide(a: Analysis) -> Answer:
        return compared, "Evidence."

    verdict = judge(Claim("made-up", "boncz1999", "Says.", decide, None), A)
    (row,) = rows(BeautifulSoup(verdict_table([verdict]).markup, "html.parser"))
    assert row.contradictions() == [] and len(row.effects) == len(compared)
    kept = Judged.of(verdict)
    assert [decide_by(bounds) for bounds in kept.bounds] == [decide_by(bounds) for bounds in verdict.bounds]


def decide_by(bounds: Bounds) -> tuple[bool, ...]:
    low, high, least, most = bounds
    return low < least, low == least, high < least, low > most, high == most, high > most


@pytest.mark.parametrize(("bounds", "words"), [
    ([(0.95, 1.02, 1, float("inf"))], "Interval 0.950 to 1.02; band 1 or more."),
    ([(0.99997, 1.0, 1, 1.5)], "Interval 0.99997 to 1.0000; band 1 to 1.5."),
    ([(52.04, 52.31, 22.5, 37.5), (30, float("inf"), 22.5, 37.5)], "Intervals 52.0 to 52.3, 30.0 or more; band 22.5 to 37.5."),
    ([(1, 2, 0, 3), (1, 2, 0, 4)], "Interval 1.00 to 2.00; band 0 to 3. Interval 1.00 to 2.00; band 0 to 4."), ([], "")])
def test_intervals_of_one_band_share_it_and_have_the_digits_that_it_takes(bounds: list, words: str):
    assert compared([Bounds(*one) for one in bounds]).striptags() == words


def test_a_band_without_ends_is_any_value():
    assert range_words(-float("inf"), float("inf")) == "any value"
