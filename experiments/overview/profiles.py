"""Two machines' profiles side by side: each quantity that both have, its ratio, and whether they
differ.

The rule is that of `tlb compare`, but that a profile does not know how far the runs of a machine
lie apart: so what differs here may be the hour, and the rows of a point, compared below it, decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

from experiments.overview.profile import PARTS, Profile, Quantity, is_current, read
from tlb.inference.intervals import Interval
from tlb.lab.store import Store
from tlb.reasons import if_available
from tlb.report.verdicts import LEAST_COVERAGE

MOST_HIDDEN = 0.2  # the effect that the rule of verdicts has to find in nine cases of ten
DIFFERS, SAME, UNKNOWN = "differs", "no difference", "cannot tell"


class Beside(NamedTuple):
    """A quantity of two machines. ratio: B over A, as wide as one of `among` needs that may not all
    be right; None where there is none."""

    a: Quantity
    b: Quantity
    ratio: Interval | None
    verdict: str


def beside(a: Profile, b: Profile) -> list[Beside]:
    """What both have a value of, in the order of the profile."""
    theirs = {quantity.name: quantity for quantity in b.quantities}
    both = [
        (one, two)
        for one in a.quantities
        if (two := theirs.get(one.name)) and one.interval and two.interval and one.unit == two.unit
    ]
    among = max(1, sum(_can_tell(*pair) for pair in both))
    return [_compared(*pair, among) for pair in both]


def of_machines(a: tuple[Store, str], b: tuple[Store, str]) -> list[Beside]:
    """Of two machines whose profiles are those of their rows; nothing where one has none."""
    known = [profile for profile in (_current(*side) for side in (a, b)) if profile]
    return beside(*known) if len(known) == 2 else []


def _current(store: Store, machine: str) -> Profile | None:
    known = if_available(read, store, machine)
    return known if known and is_current(store, known) else None


def _can_tell(a: Quantity, b: Quantity) -> bool:
    return min(a.coverage or 0.0, b.coverage or 0.0) >= LEAST_COVERAGE


def _compared(a: Quantity, b: Quantity, among: int) -> Beside:
    ratio = if_available(lambda: b.interval / a.interval)
    if ratio is None:
        return Beside(a, b, None, UNKNOWN)
    is_exact = ratio.low == ratio.value == ratio.high
    shown = ratio if is_exact else ratio.widened(among)
    if not _can_tell(a, b):
        return Beside(a, b, shown, UNKNOWN)
    if shown.low > 1 or shown.high < 1:
        return Beside(a, b, shown, DIFFERS)
    hidden = max(shown.high / shown.value, shown.value / shown.low if shown.low > 0 else inf) - 1
    return Beside(a, b, shown, SAME if hidden <= MOST_HIDDEN and shown.modes == 1 else UNKNOWN)


def rows(found: list[Beside]) -> Iterator[tuple[str, ...]]:
    """quantity, A, B, B/A, verdict in words."""
    for pair in found:
        sides = [_shown(side) for side in (pair.a, pair.b)]
        yield (
            f"{PARTS[pair.a.part]}: {pair.a.words}",
            *sides,
            "no ratio" if pair.ratio is None else f"{pair.ratio:.2f}",
            pair.verdict,
        )


def _shown(quantity: Quantity) -> str:
    interval = quantity.interval
    assert interval is not None  # of both there is one
    digits = ".0f" if abs(interval.value) >= 100 else ".1f" if abs(interval.value) >= 10 else ".2f"
    text = (
        f"{interval.value:,.0f}"
        if quantity.unit == "entries" and interval.low == interval.high
        else f"{interval:{digits}}"
    )
    return f"{text} ns" if quantity.unit == "ns" else text


def as_json(found: list[Beside]) -> list[dict[str, Any]]:
    """All of it; a bound that is open, and a ratio that there is not, are null."""
    ends = ("value", "low", "high", "coverage")
    return [
        {
            "name": pair.a.name,
            "unit": pair.a.unit,
            "verdict": pair.verdict,
            **{
                side: quantity.model_dump(include={*ends})
                for side, quantity in (("a", pair.a), ("b", pair.b))
            },
            "ratio": None
            if pair.ratio is None
            else {
                end: value if abs(value) < inf else None
                for end, value in zip(ends, pair.ratio, strict=False)
            },
        }
        for pair in found
    ]
