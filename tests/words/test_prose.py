"""Sentences by data: on which side an interval lies, lists in words, and a machine's own words made harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from experiments.inference.intervals import Interval
from experiments.words.prose import choose, climb, escape_markdown, side


@pytest.mark.parametrize(("low", "high", "line", "slack", "expected"), [
    (1.1, 1.2, 1.0, 0.0, "above"), (0.8, 0.9, 1.0, 0.0, "below"), (0.9, 1.1, 1.0, 0.0, "open"),
    (1.0, 1.2, 1.0, 0.0, "open"), (0.8, 1.0, 1.0, 0.0, "open"),  # on the line is on neither side
    (1.04, 1.2, 1.0, 0.05, "open"), (1.06, 1.2, 1.0, 0.05, "above"), (0.8, 0.96, 1.0, 0.05, "open"), (0.8, 0.94, 1.0, 0.05, "below"),
    (-9.0, -7.0, -10.0, 0.05, "above"), (-9.6, -7.0, -10.0, 0.05, "open"), (-12.0, -11.0, -10.0, 0.05, "below"),
    (0.1, 0.2, 0.0, 0.05, "above"), (-0.2, -0.1, 0.0, 0.0, "below"),
])
def test_an_interval_is_above_a_line_below_it_or_open(low: float, high: float, line: float, slack: float, expected: str):
    assert side(Interval((low + high) / 2, low, high), line, slack) == expected


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1))
def test_a_line_turned_over_turns_the_side_over(low: float, width: float, line: float, slack: float):
    turned = {"above": "below", "below": "above", "open": "open"}
    interval, mirrored = Interval(low, low, low + width), Interval(-low, -low - width, -low)
    assert side(mirrored, -line, slack) == turned[side(interval, line, slack)]


def test_a_sentence_is_chosen_by_the_side_and_none_where_the_table_has_none():
    table = {"above": "faster", "below": "slower"}
    assert choose(Interval(2, 1.5, 3), table) == "faster" and choose(Interval(0.5, 0.2, 0.9), table) == "slower"
    assert choose(Interval(1, 0.5, 2), table) == "" and choose(Interval(1, 0.5, 2), table | {"open": "unclear"}) == "unclear"
    assert choose(Interval(2, 1.5, 3), table, line=4.0) == "slower" and choose(Interval(2, 1.5, 3), table, 1.0, 0.6) == ""


@pytest.mark.parametrize(("heights", "words"), [
    ({16: 1.0, 2048: 2.0, 3072: 30.0, 4096: 31.0}, ", most steeply from 2,048 to 3,072 pages"),
    ({16: 2.0, 32: 2.0, 64: 1.0}, ""), ({16: 1.0}, ""), ({}, "")])
def test_a_curve_climbs_where_it_rises_most_or_nowhere(heights: dict[float, float], words: str):
    assert climb(heights) == words


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40) | st.text("*_`[](){}<>&#!|~$\\- x1.", max_size=40))
def test_a_machine_s_own_words_are_a_markdown_paragraph_that_reads_as_they_do(text: str):
    shown = MarkdownIt("commonmark").enable("table").parse(f"It is {escape_markdown(text)} here.")
    assert [token.type for token in shown] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in shown[1].children} <= {"text", "text_special"}
    assert "".join(child.content for child in shown[1].children).split() == f"It is {text} here.".split()
