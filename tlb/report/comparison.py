"""Compare machines by their quantities: each one's ratio to the first machine, and whether they
differ.

The intervals are as wide as one of all ratios that are compared needs (`Interval.widened`). Two
values *differ* where such an interval excludes 1. There is *no difference* if it would have shown
one of MOST_HIDDEN; else, and of fewer mappings than decide, one *cannot tell*. The mappings of one
machine share the conditions of a day, so a difference may also be one between two days.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import exp, inf, isfinite, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import pandas as pd
from markupsafe import Markup

from tlb.machine import background, doctor
from tlb.machine import host as hosts
from tlb.machine.host import Host
from tlb.measure import states
from tlb.measure.store import OWN_MACHINE_PREFIX, Store, data_root
from tlb.report import discovery, publish
from tlb.report.quantities import (
    FEWEST_MAPPINGS_WITH_INTERVAL,
    QUANTITIES_DOCUMENT,
    Quantities,
    Quantity,
)
from tlb.report.render import join_html
from tlb.stats.intervals import UNKNOWN_REPEATS, Interval
from tlb.system.reasons import Unavailable, none_if_unavailable

DifferenceVerdict = Literal["differs", "no difference", "cannot tell"]
DIFFERS: DifferenceVerdict = "differs"
NO_DIFFERENCE: DifferenceVerdict = "no difference"
CANNOT_TELL: DifferenceVerdict = "cannot tell"
MOST_HIDDEN = 0.2  # the effect that the rule of verdicts has to find in nine cases of ten
# Lines of a description that differ by themselves, or that no time depends on.
_IGNORED = {"load, one minute", "memory", "memory limit", "family, model, stepping", "counters"}
_IGNORED |= {"boot id"}


class Machine(NamedTuple):
    """name: as asked for. identity: the machine's id. document: where its quantities are kept, by
    chapter."""

    name: str
    identity: str
    store: Store
    document: str
    quantities: dict[str, Quantities]


class Difference(NamedTuple):
    """Another machine's value of a quantity over the first machine's. ratio: None if there is
    none."""

    ratio: Interval | None
    verdict: DifferenceVerdict


class Compared(NamedTuple):
    """A quantity that at least two machines have. values: of each machine. differences: of each
    machine but the first; None where one of the two has no value."""

    chapter: str
    name: str
    values: list[Quantity]
    differences: list[Difference | None]


class Comparison(NamedTuple):
    """among: the number of ratios that could differ. descriptions: what the machines' descriptions
    say differently, a row a label with a column a machine."""

    machines: list[Machine]
    quantities: list[Compared]
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
        why = (
            f"there is no chapter '{unknown[0][:80]}' with quantities; there are {', '.join(known)}"
        )
        raise Unavailable("bad-parameter", why)
    machines = [_machine(name) for name in names]
    places = {(machine.store.root, machine.identity, machine.document) for machine in machines}
    if len(places) < len(machines):
        raise Unavailable("bad-parameter", "a machine cannot be compared with itself")
    found = compare_quantities([machine.quantities for machine in machines], chapters or [*known])
    if not found[0]:
        raise Unavailable(
            "no-data",
            "the machines have no quantity in common",
            "Measure the same chapters of all of them, as `make book` does.",
        )
    return Comparison(machines, *found, _descriptions(machines))


def compare_quantities(
    machines: Sequence[dict[str, Quantities]], chapters: Iterable[str]
) -> tuple[list[Compared], int]:
    """Return the quantities that two machines or more have, in the order of the chapters and of
    their declarations, and the number of ratios that could differ."""
    rows = []
    for chapter in chapters:
        kept = [machine[chapter] for machine in machines if chapter in machine]
        for name, declared in (kept[0].declared if kept else {}).items():
            empty = Quantity(declared.label, declared.unit, declared.decimals)
            values = [one[chapter].of(declared) if chapter in one else empty for one in machines]
            if sum(value.interval is not None for value in values) > 1:
                rows.append((chapter, name, values))
    ratios = [[_ratio(values[0], other) for other in values[1:]] for _, _, values in rows]
    among = max(1, sum(one is not None and _can_tell(one) for row in ratios for one in row))
    compared = [
        Compared(*row, [_difference(row[2][0], *pair, among) for pair in zip(row[2][1:], found, strict=True)])
        for row, found in zip(rows, ratios, strict=True)
    ]  # fmt: skip
    return compared, among


def _ratio(first: Quantity, other: Quantity) -> Interval | None:
    """Return other / first; coverage 0 if one is of fewer mappings than decide."""
    a, b = first.interval, other.interval
    ratio = none_if_unavailable(lambda: b / a) if a and b else None
    if ratio and any(0 < one.mappings < FEWEST_MAPPINGS_WITH_INTERVAL for one in (first, other)):
        return replace(ratio, coverage=0.0)
    return ratio


def _can_tell(ratio: Interval) -> bool:
    """Whether it is a measured ratio that enough mappings are behind."""
    return ratio.coverage > 0 and ratio.low < ratio.high


def _difference(
    first: Quantity, other: Quantity, ratio: Interval | None, among: int
) -> Difference | None:
    if first.interval is None or other.interval is None:
        return None
    if ratio is None:  # of zero or of a negative number
        are_exact = all(one.low == one.high for one in (first.interval, other.interval))
        are_equal = first.interval.value == other.interval.value
        return Difference(
            None, (NO_DIFFERENCE if are_equal else DIFFERS) if are_exact else CANNOT_TELL
        )
    if ratio.low == ratio.high:  # stated or counted
        return Difference(ratio, NO_DIFFERENCE if ratio.value == 1 else DIFFERS)
    if not ratio.coverage:
        return Difference(ratio, CANNOT_TELL)
    wide = widened_ratio(ratio, among)
    if wide.low > 1 or wide.high < 1:
        return Difference(wide, DIFFERS)
    hidden = max(wide.high / wide.value, wide.value / wide.low if wide.low > 0 else inf) - 1
    is_same = hidden <= MOST_HIDDEN and wide.modes == 1
    return Difference(wide, NO_DIFFERENCE if is_same else CANNOT_TELL)


def widened_ratio(ratio: Interval, among: int) -> Interval:
    """Return a ratio with the bounds that one of `among` needs, widened in logarithms, so that A
    over B is decided as B over A is."""
    low = log(ratio.low) if ratio.low > 0 else -inf
    logs = Interval(log(ratio.value), low, log(ratio.high), ratio.coverage, ratio.modes)
    wide = logs.widened(among)
    return replace(ratio, low=exp(wide.low), high=exp(wide.high), repeats=UNKNOWN_REPEATS)


# --- machines


@cache
def _declared() -> dict[str, type[Quantities]]:
    """Return the quantities that each chapter declares, in the order of the contents."""
    declared = {}
    for name in discovery.table_of_contents():
        chapter = none_if_unavailable(discovery.load, name)  # pages of all machines have no package
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
    identity = store.resolve(asked, this)
    document = QUANTITIES_DOCUMENT
    if state:
        documents = store.documents(identity)
        prefix = f"{QUANTITIES_DOCUMENT}-"
        there = {one.removeprefix(prefix) for one in documents if one.startswith(prefix)}
        document = prefix + states.chosen(store, identity, state, there)
    kept = none_if_unavailable(store.read_document, identity, document)
    if kept is None:
        made = "`tlb book` makes them" if is_own else "`tlb refresh` makes them"
        raise Unavailable("no-data", f"{name[:80]} has no quantities yet; {made}")
    quantities = {
        chapter: kind(kept[chapter]) for chapter, kind in _declared().items() if chapter in kept
    }
    return Machine(name, identity, store, document, quantities)


def _description(machine: Machine) -> Host:
    state = machine.document.removeprefix(QUANTITIES_DOCUMENT).removeprefix("-")
    if state:
        return states.description_of_state(machine.store, machine.identity, state)
    return states.latest_description(machine.store, machine.identity)


def _descriptions(machines: Sequence[Machine]) -> pd.DataFrame:
    """Return what `tlb inspect` says differently of the machines."""
    said: list[dict[str, str]] = []
    for machine in machines:
        lines: dict[str, str] = {}
        for label, text in doctor.host_description(_description(machine)):
            text = "".join(letter if letter.isprintable() else " " for letter in text)
            lines[label] = f"{lines[label]}; {text}" if label in lines else text
        said.append(lines)
    labels = [*dict.fromkeys(label for lines in said for label in lines if label not in _IGNORED)]
    # Earlier versions of descriptions have fewer background tasks, or none.
    tasks = {task.name for task in background.TASKS}
    labels = [one for one in labels if one not in tasks or all(one in lines for lines in said)]
    rows = [(label, *(lines.get(label, "not stated") for lines in said)) for label in labels]
    differing = [row for row in rows if len({*row[1:]}) > 1]
    return pd.DataFrame(differing, columns=["description", *(one.name for one in machines)])


# --- as charts

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{0}</title>
<style>body {{ max-width: 45rem; margin: auto; font-family: sans-serif; }}</style></head>
<body><h1>{0}</h1>{1}</body></html>
"""
_SECTION = "<h2>{}</h2>{}"
_CHART = '<figure id="{}">{}<figcaption>{}</figcaption></figure>'


def charts_page(names: Sequence[str], chapters: Sequence[str] = ()) -> str:
    """Return a page of HTML with the charts of chapters, by default all, about each machine but the
    first, whose points they have in grey. Raises Unavailable and SystemExit, as
    `publish.execute`."""
    first, *others = names
    sections = []
    for chapter, other in product(chapters or [*_declared()], others):
        with TemporaryDirectory() as folder:
            made = Path(folder) / f"{chapter}.ipynb"
            given = {"machine": other, "beside": first, "minutes": 0.0}
            publish.execute(chapter, made, given)
            cells = json.loads(made.read_text(encoding="utf-8"))["cells"]
        title = f"{chapter.replace('_', ' ')}: {other}, and {first} in grey"
        sections.append((title, join_html(_CHART, _charts(cells))))
    return str(Markup(_PAGE).format(" and ".join(names), join_html(_SECTION, sections)))


def _charts(cells: Iterable[dict[str, Any]]) -> Iterator[tuple[str, Markup, str]]:
    """Yield name, chart and caption of each figure of an executed notebook."""
    for cell in cells:
        figure = cell["metadata"].get("mystnb", {}).get("figure")
        for output in cell.get("outputs", ()) if figure else ():
            chart = "".join(output.get("data", {}).get("text/html", ""))
            if chart:
                yield figure["name"], Markup(chart), figure["caption"]


# --- as tables and as JSON


def tables(comparison: Comparison) -> Iterator[str | pd.DataFrame]:
    """Yield a table of what the descriptions say differently, a sentence about the rule, and the table
    of quantities."""
    first, *others = (machine.name for machine in comparison.machines)
    if len(comparison.descriptions):
        yield comparison.descriptions
    yield (
        f"{comparison.among:,} ratios to {first} are compared, and each interval is widened for "
        "that number. A difference may also be one between two days of measuring."
    )
    rows = []
    for one in comparison.quantities:
        cells = [one.chapter.replace("_", " "), one.values[0].label, one.values[0].cell]
        for value, difference in zip(one.values[1:], one.differences, strict=True):
            cells += [value.cell, _words(difference)]
        rows.append(cells)
    columns = ["chapter", "quantity", first]
    for other in others:
        columns += [other, f"{other} over {first}"]
    yield pd.DataFrame(rows, columns=columns)


def _words(difference: Difference | None) -> str:
    if difference is None:
        return "–"
    ratio = difference.ratio
    if ratio is None:
        return difference.verdict
    is_exact = ratio.low == ratio.high or not ratio.coverage
    number = f"{ratio.value:.2f}" if is_exact else f"{ratio:.2f}"
    return f"{number}, {difference.verdict}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return all of it. Bounds that are open, and ratios that do not exist, are null."""
    return {
        "machines": {one.name: one.identity for one in comparison.machines},
        "among": comparison.among,
        "descriptions": comparison.descriptions.to_dict("records"),
        "quantities": [_quantity_json(comparison.machines, one) for one in comparison.quantities],
    }


def _quantity_json(machines: Sequence[Machine], compared: Compared) -> dict[str, Any]:
    names = [machine.name for machine in machines]
    found: dict[str, Any] = {}
    for name, difference in zip(names[1:], compared.differences, strict=True):
        if difference is not None:
            ratio = difference.ratio
            bounds = ratio and {
                key: end if isfinite(end) else None for key, end in ratio.as_dict().items()
            }
            found[name] = {"ratio": bounds, "verdict": difference.verdict}
    return {
        "chapter": compared.chapter,
        "name": compared.name,
        "label": compared.values[0].label,
        "unit": compared.values[0].unit,
        "values": {
            name: value.kept.model_dump(exclude_defaults=True)
            for name, value in zip(names, compared.values, strict=True)
        },
        f"over {names[0]}": found,
    }
