"""Compare machines by their quantities: each one's ratio to the first machine, and whether they
differ.

The intervals are as wide as one of all ratios that are compared needs (`Interval.widened`). Two
values *differ* where such an interval excludes 1. There is *no difference* if it would have shown
one of MOST_HIDDEN; else, and of fewer mappings than decide, one *cannot tell*. The mappings of one
machine share the conditions of a day, so a difference may also be one between two days.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from math import exp, inf, isfinite, log
from typing import Any, Literal, NamedTuple

import pandas as pd

from tlb.machine import background, doctor
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import machine_states
from tlb.measure.store import OWN_MACHINE_PREFIX, Store, data_root
from tlb.report import notebooks
from tlb.report.quantities import (
    FEWEST_MAPPINGS_WITH_INTERVAL,
    QUANTITIES_DOCUMENT,
    Quantities,
    Quantity,
    StoredQuantity,
)
from tlb.stats.intervals import UNKNOWN_VALUES_BY_REPEAT, Interval
from tlb.system.reasons import Unavailable, none_if_unavailable

DifferenceVerdict = Literal["differs", "no difference", "cannot tell", ""]
DIFFERS_VERDICT: DifferenceVerdict = "differs"
NO_DIFFERENCE_VERDICT: DifferenceVerdict = "no difference"
CANNOT_TELL_VERDICT: DifferenceVerdict = "cannot tell"
MOST_HIDDEN = 0.2  # the effect that the rule of verdicts has to find in nine cases of ten
# Lines of a description that differ by themselves, or that no time depends on.
_IGNORED = {"load, one minute", "memory", "memory limit", "family, model, stepping", "counters"}
_IGNORED |= {"boot id"}


class Machine(NamedTuple):
    """identity: the machine's id. state: that its quantities are of, "" for the last one. quantities: by
    chapter."""

    identity: str
    store: Store
    state: str
    quantities: dict[str, Quantities]


class Difference(NamedTuple):
    """A machine's quantity beside the first machine's. ratio: other over first, None if there is none.
    verdict: "" where one of the two has no value."""

    chapter: str
    name: str
    machine: str
    first: Quantity
    other: Quantity
    ratio: Interval | None
    verdict: DifferenceVerdict = ""


class Comparison(NamedTuple):
    """machines: by name as asked for. differences: of each quantity that two machines have. among: the
    number of ratios that could differ. descriptions: what the machines' descriptions say differently, a
    row a label with a column a machine."""

    machines: dict[str, Machine]
    differences: list[Difference]
    among: int
    descriptions: pd.DataFrame


def compare(names: Sequence[str], chapters: Sequence[str] = ()) -> Comparison:
    """Compare the first machine with each other one, in all chapters or some.

    names: folders of data/, `own/NAME` of data/own/, `reference` or `this`; with `@STATE` the
    quantities of one state of a computer that was measured here. Raises Unavailable:
    bad-parameter for fewer than two machines, for one named twice and for an unknown chapter;
    no-data for a machine without quantities; no-data.
    """
    if len(names) < 2:
        raise Unavailable("bad-parameter", "name two machines or more")
    known = _declared()
    if unknown := sorted({*chapters} - known.keys()):
        why = f"there is no chapter '{unknown[0][:80]}' with quantities; there are"
        raise Unavailable("bad-parameter", f"{why} {', '.join(known)}")
    machines = {name: _machine(name) for name in names}
    identities = {(one.store.root, one.identity, one.state) for one in machines.values()}
    if len(identities) < len(names):
        raise Unavailable("bad-parameter", "a machine cannot be compared with itself")
    quantities = {name: machine.quantities for name, machine in machines.items()}
    differences, among = compare_quantities(quantities, chapters or [*known])
    if not differences:
        raise Unavailable(
            "no-data",
            "the machines have no quantity in common",
            "Measure the same chapters of all of them, as `make book` does.",
        )
    return Comparison(machines, differences, among, _descriptions(machines))


def compare_quantities(
    machines: Mapping[str, Mapping[str, Quantities]], chapters: Iterable[str]
) -> tuple[list[Difference], int]:
    """Return the differences of all quantities that two machines or more have, in the order of the
    chapters and of their declarations, and the number of ratios that could differ.

    machines: the quantities by chapter, by name.
    """
    found = []
    for chapter in chapters:
        kept = {name: one[chapter] for name, one in machines.items() if chapter in one}
        declared = next(iter(kept.values())).declared if kept else {}
        for one in declared.values():
            lacking = one.restore(StoredQuantity())
            values = {name: kept[name].of(one) if name in kept else lacking for name in machines}
            (_, first), *others = values.items()
            if sum(value.interval is not None for value in values.values()) > 1:
                found += [
                    Difference(chapter, one.name, name, first, other, _ratio(first, other))
                    for name, other in others
                ]
    among = max(1, sum(_can_tell(one.ratio) for one in found))
    return [_judged(one, among) for one in found], among


def _ratio(first: Quantity, other: Quantity) -> Interval | None:
    """Return other / first; coverage 0 if one is of fewer mappings than decide."""
    a, b = first.interval, other.interval
    ratio = none_if_unavailable(lambda: b / a) if a and b else None
    if ratio and any(0 < one.mappings < FEWEST_MAPPINGS_WITH_INTERVAL for one in (first, other)):
        return replace(ratio, coverage=0.0)
    return ratio


def _can_tell(ratio: Interval | None) -> bool:
    """Whether it is a measured ratio that enough mappings are behind."""
    return ratio is not None and ratio.coverage > 0 and ratio.low < ratio.high


def _judged(one: Difference, among: int) -> Difference:
    """Return a difference with its verdict, its ratio as wide as that needs."""
    first, other, ratio = one.first.interval, one.other.interval, one.ratio
    if first is None or other is None:
        return one
    if ratio is None:  # of zero or of a negative number
        are_exact = first.low == first.high and other.low == other.high
        are_equal = first.value == other.value
        verdict = (
            (NO_DIFFERENCE_VERDICT if are_equal else DIFFERS_VERDICT)
            if are_exact
            else CANNOT_TELL_VERDICT
        )
        return one._replace(verdict=verdict)
    if ratio.low == ratio.high:  # stated or counted
        return one._replace(verdict=NO_DIFFERENCE_VERDICT if ratio.value == 1 else DIFFERS_VERDICT)
    if not ratio.coverage:
        return one._replace(verdict=CANNOT_TELL_VERDICT)
    wide = widened_ratio(ratio, among)
    if wide.low > 1 or wide.high < 1:
        return one._replace(ratio=wide, verdict=DIFFERS_VERDICT)
    hidden = max(wide.high / wide.value, wide.value / wide.low if wide.low > 0 else inf) - 1
    is_same = hidden <= MOST_HIDDEN and wide.modes == 1
    return one._replace(
        ratio=wide, verdict=NO_DIFFERENCE_VERDICT if is_same else CANNOT_TELL_VERDICT
    )


def widened_ratio(ratio: Interval, among: int) -> Interval:
    """Return a ratio with the bounds that one of `among` needs, widened in logarithms, so that A
    over B is decided as B over A is."""
    low = log(ratio.low) if ratio.low > 0 else -inf
    logs = Interval(log(ratio.value), low, log(ratio.high), ratio.coverage, ratio.modes)
    wide = logs.widened(among)
    return replace(ratio, low=exp(wide.low), high=exp(wide.high), repeats=UNKNOWN_VALUES_BY_REPEAT)


# --- machines


@cache
def _declared() -> dict[str, type[Quantities]]:
    """Return the quantities that each chapter declares, in the order of the contents."""
    declared = {}
    for name in notebooks.chapter_names_in_order():
        chapter = none_if_unavailable(
            notebooks.load_book_module, name
        )  # pages of all machines have no package
        if chapter and hasattr(chapter, "Quantities"):
            declared[name] = chapter.Quantities
    return declared


def _machine(name: str) -> Machine:
    """Raises Unavailable: bad-parameter, no-data."""
    data = Store(data_root())
    asked, _, state = name.removeprefix(OWN_MACHINE_PREFIX).partition("@")
    this = hosts.machine_id(hosts.inspect_machine()) if asked == "this" else ""
    is_own = (
        bool(this)
        or name.startswith(OWN_MACHINE_PREFIX)
        or asked in set(data.own.machines()) - {*data.machines()}
    )
    store = data.own if is_own else data
    if is_own and asked == "reference":
        raise Unavailable("bad-parameter", f"'{name}' is no machine")
    identity, document = store.resolve(asked, this), QUANTITIES_DOCUMENT
    if state:
        own = [one.partition("-") for one in store.documents(identity)]
        kept_states = {of for name, _, of in own if name == QUANTITIES_DOCUMENT and of}
        state = machine_states.state_by_name(store, identity, state, kept_states)
        document = f"{document}-{state}"
    kept = none_if_unavailable(store.read_document, identity, document)
    if kept is None:
        made = "`tlb book` makes them" if is_own else "`tlb refresh` makes them"
        raise Unavailable("no-data", f"{name[:80]} has no quantities yet; {made}")
    quantities = {
        chapter: kind(kept[chapter]) for chapter, kind in _declared().items() if chapter in kept
    }
    return Machine(identity, store, state, quantities)


def _description(machine: Machine) -> Host:
    if machine.state:
        return machine_states.description_of_state(machine.store, machine.identity, machine.state)
    return machine_states.latest_description(machine.store, machine.identity)


def _descriptions(machines: Mapping[str, Machine]) -> pd.DataFrame:
    """Return what `tlb inspect` says differently of the machines."""
    columns: dict[str, pd.Series] = {}
    for name, machine in machines.items():
        described = pd.DataFrame(doctor.host_description(_description(machine)))
        columns[name] = described.groupby(0, sort=False)[1].agg("; ".join)
    said = pd.concat(columns, axis=1, sort=False).rename_axis("description")
    # Earlier versions of descriptions have fewer background tasks, or none.
    tasks = said.index.isin({task.name for task in background.TASKS}) & said.isna().any(axis=1)
    said = said[~said.index.isin(_IGNORED) & ~tasks].fillna("not stated")
    return said[said.nunique(axis=1) > 1].reset_index()


# --- as tables and as JSON


def tables(comparison: Comparison) -> Iterator[str | pd.DataFrame]:
    """Yield a table of what the descriptions say differently, a sentence about the rule, and the table
    of quantities."""
    first, *others = comparison.machines
    if len(comparison.descriptions):
        yield comparison.descriptions
    yield (
        f"{comparison.among:,} ratios to {first} are compared, and each interval is widened for "
        "that number. A difference may also be one between two days of measuring."
    )
    rows = []
    for (chapter, _), differences in groupby(comparison.differences, lambda one: one[:2]):
        of_others = [*differences]
        one = of_others[0].first
        cells = [text for each in of_others for text in (each.other.cell, _words(each))]
        rows.append([chapter.replace("_", " "), one.label, one.cell, *cells])
    columns = [text for other in others for text in (other, f"{other} over {first}")]
    yield pd.DataFrame(rows, columns=["chapter", "quantity", first, *columns])


def _words(difference: Difference) -> str:
    ratio = difference.ratio
    if ratio is None:
        return difference.verdict or "–"
    is_exact = ratio.low == ratio.high or not ratio.coverage
    number = f"{ratio.value:.2f}" if is_exact else f"{ratio:.2f}"
    return f"{number}, {difference.verdict}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return all of it. Bounds that are open, and ratios that do not exist, are null."""
    return {
        "machines": {name: one.identity for name, one in comparison.machines.items()},
        "among": comparison.among,
        "descriptions": comparison.descriptions.to_dict("records"),
        "differences": [_difference_json(one) for one in comparison.differences],
    }


def _difference_json(one: Difference) -> dict[str, Any]:
    texts = {"label": one.first.label, "unit": one.first.unit}
    values = {"first": one.first.kept, "other": one.other.kept}
    ratio = one.ratio and {
        name: end if isfinite(end) else None for name, end in one.ratio.as_dict().items()
    }
    return {
        **{name: getattr(one, name) for name in ("chapter", "name", "machine", "verdict")},
        **texts,
        **{name: value.model_dump(exclude_defaults=True) for name, value in values.items()},
        "ratio": ratio,
    }
