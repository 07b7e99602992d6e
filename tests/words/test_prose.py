"""Sentences by data: on which side an interval lies, lists in words, and a machine's own words made harmless."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from experiments.inference.intervals import UNKNOWN, Interval
from experiments.words.prose import Prose, choose, climb, count, escape_markdown, extremes, in_words, listed, side


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


def test_what_was_not_measured_is_open():
    assert side(UNKNOWN) == "open"


def test_a_sentence_is_chosen_by_the_side_and_none_where_the_table_has_none():
    table = {"above": "faster", "below": "slower"}
    assert choose(Interval(2, 1.5, 3), table) == "faster" and choose(Interval(0.5, 0.2, 0.9), table) == "slower"
    assert choose(Interval(1, 0.5, 2), table) == "" and choose(Interval(1, 0.5, 2), table | {"open": "unclear"}) == "unclear"
    assert choose(Interval(2, 1.5, 3), table, line=4.0) == "slower" and choose(Interval(2, 1.5, 3), table, 1.0, 0.6) == ""


@pytest.mark.parametrize(("items", "text"), [
    ([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c"), ("abcd", "a, b, c and d")])
def test_a_list_in_words(items, text: str):
    assert listed(items) == listed(iter(items)) == text
    assert listed(items, "or") == text.replace(" and ", " or ")


@pytest.mark.parametrize(("heights", "words"), [
    ({16: 1.0, 2048: 2.0, 3072: 30.0, 4096: 31.0}, ", most steeply from 2,048 to 3,072 pages"),
    ({16: 2.0, 32: 2.0, 64: 1.0}, ""), ({16: 1.0}, ""), ({}, "")])
def test_a_curve_climbs_where_it_rises_most_or_nowhere(heights: dict[float, float], words: str):
    assert climb(heights) == words


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (72, "72"), (3072, "3,072"), (1e6, "1,000,000"), (2.6, "3")])
def test_a_count_is_whole_and_grouped(number: float, text: str):
    assert count(number) == text


def test_small_numbers_have_words():
    assert [in_words(n) for n in (0, 1, 2, 6, 7, 1234)] == ["no", "one", "two", "six", "7", "1,234"]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40) | st.text("*_`[](){}<>&#!|~$\\- x1.", max_size=40))
def test_a_machine_s_own_words_are_a_markdown_paragraph_that_reads_as_they_do(text: str):
    shown = MarkdownIt("commonmark").enable("table").parse(f"It is {escape_markdown(text)} here.")
    assert [token.type for token in shown] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in shown[1].children} <= {"text", "text_special"}
    assert "".join(child.content for child in shown[1].children).split() == f"It is {text} here.".split()


def test_lines_of_a_machine_s_words_become_one():
    assert escape_markdown("a\n\n  b\tc ") == "a b c" and escape_markdown(6.1) == r"6\.1"


def test_prose_is_text_that_is_glued_as_markdown():
    assert Prose("a") == "a" and isinstance(Prose("a"), str)


def test_extremes_name_the_largest_and_the_smallest_whatever_their_order():
    for values in ({"one": 1.0, "two": 2.0, "three": 3.0}, {"three": 3.0, "one": 1.0, "two": 2.0}):
        said = extremes(values, "ms")
        assert said.startswith("Three ") and re.findall(r"\d", said) == ["3", "1"] and "two" not in said and "3 ms" in said
    assert re.findall(r"\d", extremes({"one": 1.0})) == ["1"]
