"""Compare two machines' profiles: each quantity that both have, its ratio, and whether they differ.

The rule is that of `tlb compare`, but a profile does not know how much the runs of a machine
differ: what differs here may be the hour, and the rows of a point, compared below it, decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

from experiments.overview.profile import PARTS, Profile, Quantity, is_current, read
from tlb.inference.intervals import Interval
from tlb.lab.store import Store
from tlb.prose import listed
from tlb.reasons import REASONS, if_available
from tlb.report.verdicts import LEAST_COVERAGE

MOST_HIDDEN = 0.2  # the effect that the rule of verdicts has to find in nine cases of ten
DIFFERS, SAME, UNKNOWN = "differs", "no difference", "cannot tell"
COLUMNS = ["profile", "A", "B", "B/A", "verdict"]  # of `rows`
Machine = tuple[Store, str]


class QuantityPair(NamedTuple):
    """A quantity of two machines. ratio: B over A, as wide as one of all that are compared needs;
    None if there is none."""

    a: Quantity
    b: Quantity
    ratio: Interval | None
    verdict: str


def compare_profiles(a: Profile, b: Profile) -> list[QuantityPair]:
    """Return what both have a value of, in the order of the profile."""
    theirs = {quantity.name: quantity for quantity in b.quantities}
    both = [(one, theirs[one.name]) for one in a.quantities if one.name in theirs]
    both = [(x, y) for x, y in both if x.interval and y.interval and x.unit == y.unit]
    among = max(1, sum(_can_tell(*pair) for pair in both))
    return [_compared(*pair, among) for pair in both]


def of_machines(a: Machine, b: Machine) -> list[QuantityPair]:
    """Compare two machines whose profiles are those of their rows; [] if one has none."""
    known = [_current(*side) for side in (a, b)]
    return compare_profiles(*known) if all(known) else []  # type: ignore[arg-type]


def _current(store: Store, machine: str) -> Profile | None:
    known = if_available(read, store, machine)
    return known if known and is_current(store, known) else None


def _can_tell(a: Quantity, b: Quantity) -> bool:
    return min(a.coverage or 0.0, b.coverage or 0.0) >= LEAST_COVERAGE


def _compared(a: Quantity, b: Quantity, among: int) -> QuantityPair:
    ratio = if_available(lambda: b.interval / a.interval)
    if ratio is None:
        return QuantityPair(a, b, None, UNKNOWN)
    is_exact = ratio.low == ratio.value == ratio.high
    shown, verdict = ratio if is_exact else ratio.widened(among), UNKNOWN
    hidden = max(shown.high / shown.value, shown.value / shown.low if shown.low > 0 else inf) - 1
    if _can_tell(a, b):
        if shown.low > 1 or shown.high < 1:
            verdict = DIFFERS
        elif hidden <= MOST_HIDDEN and shown.modes == 1:
            verdict = SAME
    return QuantityPair(a, b, shown, verdict)


def lacking(a: Machine, b: Machine) -> Iterator[str]:
    """Yield sentences on quantities that one profile lacks and the other has, with the reason; or
    on why there is no profile."""
    sides = dict(zip("AB", (a, b), strict=True))
    known = {letter: if_available(read, *side) for letter, side in sides.items()}
    missing = [
        f"{letter} has no profile to compare: translation.json of {machine} "
        f"{'is of other rows' if known[letter] else 'is not there or of another version'}."
        for letter, (store, machine) in sides.items()
        if _current(store, machine) is None
    ]
    yield from missing
    for letter, other in () if missing else (("A", "B"), ("B", "A")):
        theirs = {each.name for each in known[other].quantities if each.value is not None}
        for (code, detail), quantities in known[letter].lacking.items():
            words = [_words(each) for each in quantities if each.name in theirs]
            if words:
                why = REASONS[code].sentence if code in REASONS else detail
                yield f"{letter} has no value of {listed(words)}. {why}"


def _words(quantity: Quantity) -> str:
    return f"{PARTS[quantity.part]}: {quantity.words}"


def rows(found: list[QuantityPair]) -> Iterator[tuple[str, ...]]:
    """Yield quantity, A, B, B/A and verdict, in words."""
    for a, b, ratio, verdict in found:
        words = "no ratio" if ratio is None else f"{ratio:.2f}"
        yield _words(a), _value(a), _value(b), words, verdict


def _value(quantity: Quantity) -> str:
    interval = quantity.interval
    assert interval is not None  # both have one
    if quantity.unit == "entries" and interval.low == interval.high:
        return f"{interval.value:,.0f}"
    size = abs(interval.value)
    text = f"{interval:{'.0f' if size >= 100 else '.1f' if size >= 10 else '.2f'}}"
    return f"{text} ns" if quantity.unit == "ns" else text


def as_json(found: list[QuantityPair]) -> list[dict[str, Any]]:
    """Return all of it; a bound that is open, and a ratio that does not exist, are null."""
    ends, listed = ("value", "low", "high", "coverage"), []
    for a, b, ratio, verdict in found:
        values = zip(ends, ratio or (), strict=False)
        known = {end: value if abs(value) < inf else None for end, value in values}
        one = {"name": a.name, "unit": a.unit, "verdict": verdict}
        sides = {"a": a.model_dump(include={*ends}), "b": b.model_dump(include={*ends})}
        listed.append(one | sides | {"ratio": known or None})
    return listed
