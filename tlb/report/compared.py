"""What a verdict compares, as its row shows it: each interval beside its band, and why they do not
decide it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from math import isfinite
from typing import NamedTuple

from markupsafe import Markup

from tlb.units import digits_apart, significant

DIGITS = 3


class Bounds(NamedTuple):
    """The ends of an interval and of the band that it has to lie in; infinite where they are open."""

    low: float
    high: float
    least: float
    most: float

    @property
    def band(self) -> tuple[float, float]:
        return self.least, self.most


def range_words(low: float, high: float, digits: int = DIGITS) -> str:
    """Return "1 to 2", "1 or more", "up to 2", "2", or "any value"."""
    least, most = (_short(end, digits) if isfinite(end) else "" for end in (low, high))
    if least and most:
        return least if low == high else f"{least} to {most}"
    return f"{least} or more" if least else f"up to {most}" if most else "any value"


def _short(value: float, digits: int) -> str:
    """Return a number without trailing zeros."""
    text = significant(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text else text


def compared(bounds: Iterable[Bounds]) -> Markup:
    """Return "Interval 0.95 to 1.02; band 1 or more.", with the numbers as printed in attributes of
    each interval.

    There are as many digits as it takes for no end of an interval to be printed on another side of
    its band's ends.
    """
    told = []
    for band, group in groupby(bounds, lambda one: one.band):
        found = list(group)
        digits = digits_apart((end for one in found for end in (one.low, one.high)), band, DIGITS)
        shown = Markup(", ").join(_interval(one, digits) for one in found)
        told.append(
            Markup("Interval{} {}; band {}.").format(
                "s" if len(found) > 1 else "", shown, range_words(*band, digits)
            )
        )
    return Markup(" ").join(told)


def _interval(one: Bounds, digits: int) -> Markup:
    numbers = [significant(end, digits) if isfinite(end) else "" for end in one]
    values = [number.replace(",", "") for number in numbers]
    low, high = numbers[:2]
    words = (
        f"{low} to {high}"
        if low and high
        else f"{low} or more"
        if low
        else f"up to {high}"
        if high
        else "any value"
    )
    return Markup(
        '<span class="tlb-effect" data-low="{}" data-high="{}" data-least="{}" data-most="{}">{}</span>'
    ).format(*values, words)
