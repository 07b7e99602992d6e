"""Intervals beside their bands, as rows of verdicts print them."""

import json

import pandas as pd
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from support.common import About
from support.synthetic import Stated
from support.verdict_rows import rows

from tlb.report.analysis import Analysis
from tlb.report.answers import EffectBounds, StoredAnswer
from tlb.report.claims import Answer, Claim
from tlb.report.verdicts import does_answer_hold, judge, verdict_table
from tlb.stats.effects import Effect, effect_inside_band
from tlb.stats.intervals import Interval

A = Analysis(pd.DataFrame(), About(Stated().host()))
NEAR = st.sampled_from([1.0, 2.0]).flatmap(
    lambda mark: st.sampled_from([mark, mark * (1 - 1e-7), mark * (1 + 1e-5)])
) | st.floats(0.5, 2.5)


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    low, value, high = sorted(draw(NEAR) for _ in range(3))
    coverage, modes, among = (
        draw(st.sampled_from([0.75, 0.9375])),
        draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([1, 7])),
    )
    return effect_inside_band(
        Interval(value, low, high, coverage, modes),
        1.0,
        draw(st.sampled_from([2.0, float("inf")])),
        among,
    )


@given(st.lists(effects(), min_size=1, max_size=3))
def test_what_is_printed_of_a_verdict_does_not_contradict_it(compared):
    def decide(a: Analysis) -> Answer:
        return compared, "Evidence."

    verdict = judge(Claim("made-up", "boncz1999", "Says.", decide, None), A)
    (row,) = rows(BeautifulSoup(verdict_table([verdict]).markup, "html.parser"))
    assert row.contradictions() == [] and len(row.effects) == len(compared)
    truth = {True: "holds", False: "fails", None: "cannot tell"}[does_answer_hold(compared)]
    kept = StoredAnswer.model_validate_json(json.dumps(verdict.answer.kept)).decide()
    assert (kept.verdict, kept.reason) == (verdict.verdict, verdict.reason)
    assert truth == kept.verdict
    before = [
        EffectBounds(*one.interval.value_and_bounds[1:], one.least, one.most) for one in compared
    ]
    assert [*map(decide_by, kept.bounds)] == [*map(decide_by, before)]


def decide_by(bounds: EffectBounds) -> tuple[bool, ...]:
    low, high, least, most = bounds
    return low < least, low == least, high < least, low > most, high == most, high > most
