"""Compare two machines' profiles: each quantity that both have, its ratio, and whether they differ.

The rule is that of `tlb compare`, but a profile does not know how much the runs of a machine
differ: what differs here may be the hour, and the rows of a point, compared below it, decide.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, NamedTuple

from experiments.overview.profile import PARTS, Profile, Quantity, is_current, read
from tlb.measure.store import Store
from tlb.report.verdicts import LEAST_COVERAGE
from tlb.stats.intervals import Interval
from tlb.system.reasons import if_available

MOST_HIDDEN = 0.2  # the effect that the rule of verdicts has to find in nine cases of ten
DIFFERS, NO_DIFFERENCE, CANNOT_TELL = "differs", "no difference", "cannot tell"
COLUMNS = ["profile", "A", "B", "B/A", "verdict"]  # of `row`
_ENDS = ("value", "low", "high", "coverage")


class QuantityPair(NamedTuple):
    """A quantity of two machines. ratio: B over A, as wide as one of all that are compared needs;
    None if there is none."""

    a: Quantity
    b: Quantity
    ratio: Interval | None
    verdict: str


def of_machines(a: tuple[Store, str], b: tuple[Store, str]) -> list[QuantityPair]:
    """Compare two machines whose profiles are those of their rows; [] if one has none."""
    known = [if_available(read, *side) for side in (a, b)]
    sides = zip(known, (a, b), strict=True)
    if not all(one and is_current(store, one) for one, (store, _) in sides):
        return []
    return compare_profiles(*known)


def compare_profiles(a: Profile, b: Profile) -> list[QuantityPair]:
    """Return what both have a value of, in the order of the profile."""
    theirs = {quantity.name: quantity for quantity in b.quantities}
    both = [(one, theirs[one.name]) for one in a.quantities if one.name in theirs]
    both = [(x, y) for x, y in both if x.interval and y.interval and x.unit == y.unit]
    among = max(1, sum(_can_tell(*pair) for pair in both))
    return [_compared(*pair, among) for pair in both]


def _can_tell(a: Quantity, b: Quantity) -> bool:
    return min(a.coverage or 0.0, b.coverage or 0.0) >= LEAST_COVERAGE


def _compared(a: Quantity, b: Quantity, among: int) -> QuantityPair:
    ours, theirs = a.interval, b.interval
    ratio = if_available(lambda: theirs / ours) if ours and theirs else None
    if ratio is None:
        return QuantityPair(a, b, None, CANNOT_TELL)
    is_exact = ratio.low == ratio.value == ratio.high
    shown, verdict = ratio if is_exact else ratio.widened(among), CANNOT_TELL
    hidden = max(shown.high / shown.value, shown.value / shown.low if shown.low > 0 else inf) - 1
    if _can_tell(a, b):
        if shown.low > 1 or shown.high < 1:
            verdict = DIFFERS
        elif hidden <= MOST_HIDDEN and shown.modes == 1:
            verdict = NO_DIFFERENCE
    return QuantityPair(a, b, shown, verdict)


def row(pair: QuantityPair) -> tuple[str, ...]:
    """Return quantity, A, B, B/A and verdict, in words."""
    ratio = "no ratio" if pair.ratio is None else f"{pair.ratio:.2f}"
    what = f"{PARTS[pair.a.part]}: {pair.a.words}"
    return what, _value(pair.a), _value(pair.b), ratio, pair.verdict


def _value(quantity: Quantity) -> str:
    interval = quantity.interval
    assert interval is not None  # both have one
    if quantity.unit == "entries" and interval.low == interval.high:
        return f"{interval.value:,.0f}"
    text = format(interval, digits(interval.value))
    return f"{text} ns" if quantity.unit == "ns" else text


def digits(value: float) -> str:
    """Return the format of a number that has three digits."""
    size = abs(value)
    return ",.0f" if size >= 100 else ".1f" if size >= 10 else ".2f"


def as_json(pair: QuantityPair) -> dict[str, Any]:
    """Return all of it; a bound that is open, and a ratio that does not exist, are null."""
    known = {name: getattr(pair.ratio, name) for name in _ENDS} if pair.ratio else {}
    ratio = {name: value if isfinite(value) else None for name, value in known.items()}
    one = {"name": pair.a.name, "unit": pair.a.unit, "verdict": pair.verdict}
    sides = {"a": pair.a.model_dump(include={*_ENDS}), "b": pair.b.model_dump(include={*_ENDS})}
    return one | sides | {"ratio": ratio or None}
