"""A comparison in sentences and tables, and as one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from math import isfinite
from typing import Any

import pandas as pd

from experiments.overview import profile_comparison
from experiments.overview.compare import (
    CANNOT_TELL,
    DIFFERS,
    NO_DIFFERENCE,
    UNITS,
    Compared,
    Comparison,
)
from tlb.measure import kernels
from tlb.stats.intervals import Interval
from tlb.system.units import with_unit

MOST_ROWS = 30  # on a screen, of all chapters together
LEAST_ROWS = 2  # of each
_COLUMNS = ["A", "B", "B/A", "verdict"]


def told(comparison: Comparison) -> Iterator[str | pd.DataFrame]:
    """Yield what differs about the computers, what to know, how many quantities of each chapter
    differ, and its largest differences."""
    a, b = comparison.a.name, comparison.b.name
    yield facts_table(comparison) if comparison.facts else f"{a} and {b} are described alike."
    yield from comparison.explained
    if comparison.profiles:
        pairs = map(profile_comparison.row, comparison.profiles)
        yield pd.DataFrame(pairs, columns=profile_comparison.COLUMNS)
        yield (
            "A profile does not know how much a machine's runs differ: what differs in it may be "
            "the hour. For the points below, that is counted."
        )
    yield from comparison.notes
    yield from comparison.lacking
    chapters = _by_chapter(comparison)
    yield counts_table(comparison)
    most = max(LEAST_ROWS, MOST_ROWS // len(chapters))
    rows: list[tuple[str, ...]] = []
    for chapter, found in chapters.items():
        names = [chapter] + [""] * len(found)
        rows += [(name, *row(each)) for name, each in zip(names, found[:most], strict=False)]
    yield pd.DataFrame(rows, columns=["chapter", "largest differences", *_COLUMNS])
    if any(len(found) > most for found in chapters.values()):
        yield "`--json` has all quantities."


def facts_table(comparison: Comparison) -> pd.DataFrame:
    """Return what differs about the computers, what it can touch, and how many of the compared
    quantities that it can touch differ."""
    rows = []
    for fact in comparison.facts:
        of = f"{fact.differ:,} of {fact.compared:,}" if fact.compared else "none compared"
        rows.append((*fact[:4], of))
    sides = f"A: {comparison.a.name}", f"B: {comparison.b.name}"
    return pd.DataFrame(
        rows, columns=["what differs", *sides, "it can affect", "quantities that differ"]
    )


def _by_chapter(comparison: Comparison) -> dict[str, list[Compared]]:
    groups = groupby(comparison.quantities, key=lambda compared: compared.chapter)
    return {chapter: list(found) for chapter, found in groups}


def counts_table(comparison: Comparison) -> pd.DataFrame:
    """Return how many quantities of each chapter differ."""
    rows = []
    for chapter, found in _by_chapter(comparison).items():
        words = Counter(each.verdict for each in found)
        logs = [each.pair.logs.value for each in found if each.verdict == DIFFERS]
        higher, lower = sum(log > 0 for log in logs), sum(log < 0 for log in logs)
        rows.append((chapter, len(found), higher, lower, words[NO_DIFFERENCE], words[CANNOT_TELL]))
    columns = ["chapter", "compared", "higher on B", "lower on B", NO_DIFFERENCE, CANNOT_TELL]
    return pd.DataFrame(rows, columns=columns)


def row(compared: Compared) -> tuple[str, ...]:
    """Return point, A, B, B/A and verdict, in words."""
    ratio = "no ratio" if compared.ratio is None else f"{compared.ratio:.2f}"
    sides = (_value(compared, side) for side in (compared.pair.a, compared.pair.b))
    return point_words(compared), *sides, ratio, verdict_words(compared)


def verdict_words(compared: Compared) -> str:
    """Return the verdict, with what it leaves open."""
    least = f"one of {compared.would_show:.0%} would have shown"
    if compared.verdict == DIFFERS:
        return DIFFERS
    if compared.verdict == NO_DIFFERENCE:
        return f"{NO_DIFFERENCE}, and {least}"
    if compared.pair.ratio is None:
        why = "no ratio to nothing"
    elif not compared.can_tell:
        few = min(compared.pair.processes)
        why = f"only {few} process{'es' * (few != 1)}"
    elif compared.pair.logs.modes > 1:
        why = "of two modes"
    else:
        why = f"only {least}" if isfinite(compared.would_show) else "no difference would show"
    return f"{compared.verdict}: {why}"


def point_words(compared: Compared) -> str:
    """Return a point by what is not its kernel's default, such as "page_chase 4k spread random
    4,096 lines", and a quantity that is no time."""
    point, kernel = compared.point, kernels.CATALOGUE.get(compared.point["kernel"])
    defaults = kernel.options if kernel else {}
    options = {
        name: point[name] for name in point if point[name] != defaults.get(name, point[name])
    }
    engine = point["engine"] if point["engine"] != "c" else ""
    words = [point["kernel"], engine, point["mode"], point["pages"]]
    if not kernel or kernel.is_chase:
        words += [point["layout"], point["order"]]
    if not kernel or kernel.size not in options:
        words += [f"{point['lines']:,} lines"]
    words += [f"{point['stride_pages']:,} pages apart"] if point["stride_pages"] > 1 else []
    words += [f"{name} {value:,.0f}" for name, value in options.items()]
    unit = UNITS[compared.quantity]
    return " ".join(filter(None, words)) + (f": {unit}" if unit != "ns" else "")


def _value(compared: Compared, interval: Interval) -> str:
    shown = format(interval, profile_comparison.digits(interval.value))
    return with_unit(shown, "ns") if UNITS[compared.quantity] == "ns" else shown


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return all of it. A bound that is open, and a ratio that does not exist, are null."""
    document: dict[str, Any] = {}
    for letter, side in (("a", comparison.a), ("b", comparison.b)):
        document[letter] = {
            "name": side.name,
            "machine": side.machine,
            "states": sorted({*side.rows["state"]}),
            "rows": len(side.rows),
        }
    lines = [dict(zip(("what", "a", "b"), line, strict=True)) for line in comparison.computers]
    return document | {
        "computers": lines,
        "notes": comparison.notes,
        "facts": [fact._asdict() for fact in comparison.facts],
        "explained": comparison.explained,
        "lacking": comparison.lacking,
        "profile": [*map(profile_comparison.as_json, comparison.profiles)],
        "quantities": [*map(_quantity_json, comparison.quantities)],
    }


def _quantity_json(compared: Compared) -> dict[str, Any]:
    pair, ratio = compared.pair, compared.ratio
    return {
        "chapter": compared.chapter,
        **compared.point,
        "quantity": compared.quantity,
        "unit": UNITS[compared.quantity],
        "a": _bounds(pair.a),
        "b": _bounds(pair.b),
        "ratio": _bounds(ratio) if ratio else None,
        "among": compared.among,
        "processes": pair.processes,
        "runs": pair.runs,
        "runs_differ_by": _number(pair.spread - 1),
        "verdict": compared.verdict,
        "would_show": _number(compared.would_show),
    }


def _bounds(interval: Interval) -> dict[str, float | None]:
    return {name: _number(value) for name, value in interval.as_dict().items()}


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
