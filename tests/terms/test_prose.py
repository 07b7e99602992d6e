"""Words for sentences: where a curve climbs, and a machine's own words made harmless."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tlb.prose import climb, escape_markdown


@pytest.mark.parametrize(
    ("heights", "words"),
    [
        ({16: 1.0, 2048: 2.0, 3072: 30.0, 4096: 31.0}, ", most steeply from 2,048 to 3,072 pages"),
        ({16: 2.0, 32: 2.0, 64: 1.0}, ""),
        ({16: 1.0}, ""),
        ({}, ""),
    ],
)
def test_a_curve_climbs_where_it_rises_most_or_nowhere(heights: dict[float, float], words: str):
    assert climb(heights) == words


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40)
    | st.text("*_`[](){}<>&#!|~$\\- x1.", max_size=40)
)
def test_a_machine_s_own_words_are_a_markdown_paragraph_that_reads_as_they_do(text: str):
    shown = MarkdownIt("commonmark").enable("table").parse(f"It is {escape_markdown(text)} here.")
    assert [token.type for token in shown] == ["paragraph_open", "inline", "paragraph_close"]
    assert {child.type for child in shown[1].children} <= {"text", "text_special"}
    assert (
        "".join(child.content for child in shown[1].children).split()
        == f"It is {text} here.".split()
    )
