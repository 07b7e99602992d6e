"""Words for sentences: numbers and lists as words, and a machine's own text made harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_WORDS = ("no", "one", "two", "three", "four", "five", "six")


def escape_markdown(text: object) -> str:
    """A machine's own words (a CPU's name, a kernel's release) on one line, for Markdown: no
    markup, HTML or role in them.

    CommonMark lets a backslash stand before any ASCII punctuation, and takes what follows for a
    letter.
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(str(text).split()))


def with_thousands(number: float) -> str:
    """A number of things as prose wants it: 72, 3,072."""
    return f"{number:,.0f}"


def number_in_words(number: int) -> str:
    """A small number as prose wants it: two; the digits of a larger one."""
    return _WORDS[number] if number < len(_WORDS) else f"{number:,}"


def count_in_words(number: int) -> str:
    """How many of several: none, one, two."""
    return number_in_words(number) if number else "none"


def extremes(
    values: Mapping[str, float],
    unit: str = "ns",
    most: str = "takes longest",
    least: str = "is fastest",
) -> str:
    """Which of several named quantities is the largest and which the smallest, in a sentence; of a
    single one, what it is."""
    (high, largest), (low, smallest) = (
        pick(values.items(), key=lambda item: item[1]) for pick in (max, min)
    )
    if len(values) == 1:
        return f"{high[0].upper()}{high[1:]} alone: {largest:z.3g} {unit}."
    first = f"{high[0].upper()}{high[1:]} {most}, with {largest:z.3g} {unit}"
    return f"{first}, and {low} {least}, with {smallest:z.3g}."


def list_in_words(items: Iterable[str], word: str = "and") -> str:
    """A list of words as prose has it: "a", "a and b", "a, b and c"; "" for none."""
    *first, last = [*items] or [""]
    return f"{', '.join(first)} {word} {last}" if first else last
