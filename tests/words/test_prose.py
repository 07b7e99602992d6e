"""Sentences: a machine's own words stay words, and a comparison chooses its sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pages import myst

from experiments.inference.intervals import Interval
from experiments.words.prose import choose, count, escape_markdown, listed, side

# Letters, signs and blanks of every script; control characters never come out of a Host's own reading.
SIGNS = "`\\{}[]()<>$|*_!#&:%+-=~ax \t"
# What would begin a block at the start of a line.
BLOCKS = ["~~~ x", "+++", "% x", "(x)=", "- x", "1. x", "# x", "> x", ":::{x}", "***", "[x]: y", "$$", "<!--"]
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"])) | st.text(SIGNS, max_size=30)


def pieces(markdown: str) -> list[tuple[str, str]]:
    """(kind, text) of each inline token of one paragraph."""
    blocks = [token for token in myst().parse(markdown) if token.type != "front_matter"]
    assert [token.type for token in blocks] in ([], ["paragraph_open", "inline", "paragraph_close"]), markdown
    return [(token.type, token.content) for block in blocks for token in block.children or []]


@given(TEXTS | st.sampled_from(BLOCKS))
def test_escaped_text_is_that_text_and_nothing_else(text):
    found = pieces(escape_markdown(text))
    assert {kind for kind, _ in found} <= {"text", "text_special"}
    assert "".join(content for _, content in found) == " ".join(text.split())


@pytest.mark.parametrize(("low", "high", "slack", "where"), [
    (1.2, 1.4, 0, "above"), (0.6, 0.9, 0, "below"), (0.9, 1.1, 0, "open"), (1.0, 1.1, 0, "open"), (0.9, 1.0, 0, "open"),
    (1.2, 1.4, 0.3, "open"), (1.31, 1.4, 0.3, "above"), (0.6, 0.69, 0.3, "below"), (0.6, 0.71, 0.3, "open")])
def test_an_interval_lies_above_a_line_or_below_it_or_leaves_that_open(low: float, high: float, slack: float, where: str):
    interval = Interval((low + high) / 2, low, high)
    assert side(interval, 1.0, slack) == where
    assert choose(interval, {"above": "above", "below": "below", "open": "open"}, 1.0, slack) == where
    assert choose(interval, {}, 1.0, slack) == ""


def test_a_list_has_commas_and_one_word_before_the_last():
    assert [listed("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert listed("ab", "or") == "a or b"


def test_a_count_has_thousands_and_no_decimals():
    assert count(3071.6) == "3,072" and count(72) == "72"
