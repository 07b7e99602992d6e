"""What a verdict compares, as its row prints it: each interval with its band."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from math import isfinite
from typing import NamedTuple

from markupsafe import Markup

from tlb.system.units import digits_apart, significant

DIGITS = 3


class Bounds(NamedTuple):
    """The ends of an interval and of the band that it must lie in; infinite if they are open."""

    low: float
    high: float
    least: float
    most: float

    @property
    def band(self) -> tuple[float, float]:
        return self.least, self.most


def range_words(low: float, high: float, digits: int = DIGITS) -> str:
    """Return "1 to 2", "1 or more", "up to 2", "2", or "any value", without trailing zeros."""
    texts = [significant(end, digits) if isfinite(end) else "" for end in (low, high)]
    least, most = (text.rstrip("0").rstrip(".") if "." in text else text for text in texts)
    return least if least and low == high else _words(least, most)


def _words(low: str, high: str) -> str:
    if low and high:
        return f"{low} to {high}"
    return f"{low} or more" if low else f"up to {high}" if high else "any value"


def compared(bounds: Iterable[Bounds]) -> Markup:
    """Return "Interval 0.95 to 1.02; band 1 or more.", with each printed number as an attribute.

    There are enough digits that no end of an interval is printed on the other side of a band's end.
    """
    sentences = []
    for (least, most), group in groupby(bounds, lambda one: one.band):
        found = list(group)
        ends = (end for one in found for end in (one.low, one.high))
        digits = digits_apart(ends, (least, most), DIGITS)
        shown = Markup(", ").join(_interval(one, digits) for one in found)
        plural = "s" if len(found) > 1 else ""
        sentence = Markup("Interval{} {}; band {}.")
        sentences.append(sentence.format(plural, shown, range_words(least, most, digits)))
    return Markup(" ").join(sentences)


def _interval(one: Bounds, digits: int) -> Markup:
    numbers = [significant(end, digits) if isfinite(end) else "" for end in one]
    names = ("low", "high", "least", "most")
    attributes = Markup(" ").join(
        Markup('data-{}="{}"').format(name, number.replace(",", ""))
        for name, number in zip(names, numbers, strict=True)
    )
    return Markup('<span class="tlb-effect" {}>{}</span>').format(attributes, _words(*numbers[:2]))
