"""A comparison for people, in sentences and tables, and for programs, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import isfinite
from typing import Any

import pandas as pd

from experiments.overview import profiles
from experiments.overview.compare import DIFFERS, SAME, UNITS, UNKNOWN, Compared, Comparison
from tlb.inference.intervals import Interval
from tlb.lab import kernels

MOST_ROWS = 30  # on a screen, of all chapters together
LEAST_ROWS = 2  # of each


def told(comparison: Comparison) -> Iterator[str | pd.DataFrame]:
    """What differs about the computers, what to know, how many quantities of each chapter differ,
    and its largest differences."""
    a, b = comparison.a.name, comparison.b.name
    yield facts_table(comparison) if comparison.facts else f"{a} and {b} are described alike."
    yield from comparison.explained
    if comparison.profiles:
        yield pd.DataFrame(
            profiles.rows(comparison.profiles), columns=["profile", "A", "B", "B/A", "verdict"]
        )
        yield (
            "A profile does not know how far a machine's runs lie apart: what differs in it may be the hour. The points below are held "
            "to that too."
        )
    yield from comparison.notes
    yield from comparison.lacking
    chapters = _by_chapter(comparison)
    yield counts_table(comparison)
    rows = max(LEAST_ROWS, MOST_ROWS // len(chapters))
    yield pd.DataFrame(
        [
            ("" if place else chapter, *row(compared))
            for chapter, found in chapters.items()
            for place, compared in enumerate(found[:rows])
        ],
        columns=["chapter", "largest differences", "A", "B", "B/A", "verdict"],
    )
    if any(len(found) > rows for found in chapters.values()):
        yield "`--json` has all quantities."


def facts_table(comparison: Comparison) -> pd.DataFrame:
    """What differs about the computers; what it can touch, and how many of the compared quantities
    that it can differ."""
    rows = [
        (*fact[:4], f"{fact.differ:,} of {fact.compared:,}" if fact.compared else "none compared")
        for fact in comparison.facts
    ]
    return pd.DataFrame(
        rows,
        columns=[
            "differs",
            f"A: {comparison.a.name}",
            f"B: {comparison.b.name}",
            "and touches",
            "of these differ",
        ],
    )


def _by_chapter(comparison: Comparison) -> dict[str, list[Compared]]:
    return {
        chapter: list(found)
        for chapter, found in groupby(comparison.quantities, key=lambda compared: compared.chapter)
    }


def counts_table(comparison: Comparison) -> pd.DataFrame:
    """How many quantities of each chapter differ."""
    return pd.DataFrame(
        [_counts(chapter, found) for chapter, found in _by_chapter(comparison).items()],
        columns=["chapter", "compared", "higher on B", "lower on B", SAME, UNKNOWN],
    )


def _counts(chapter: str, found: list[Compared]) -> tuple[str | int, ...]:
    higher, lower = (
        sum(c.verdict == DIFFERS and sign * c.pair.logs.value > 0 for c in found)
        for sign in (1, -1)
    )
    return (
        chapter,
        len(found),
        higher,
        lower,
        *(sum(c.verdict == word for c in found) for word in (SAME, UNKNOWN)),
    )


def row(compared: Compared) -> tuple[str, ...]:
    ratio = "no ratio" if compared.ratio is None else f"{compared.ratio:.2f}"
    return (
        point_words(compared),
        _side(compared, compared.pair.a),
        _side(compared, compared.pair.b),
        ratio,
        verdict_words(compared),
    )


def verdict_words(compared: Compared) -> str:
    """The verdict, with what it leaves open."""
    least = (
        f"one of {compared.would_show:.0%} would have shown"
        if isfinite(compared.would_show)
        else ""
    )
    if compared.verdict == DIFFERS:
        return DIFFERS
    if compared.verdict == SAME:
        return f"{SAME}, and {least}"
    why = (
        "no ratio to nothing"
        if compared.pair.ratio is None
        else f"{min(compared.pair.processes)} processes"
        if not compared.can_tell
        else "of two modes"
        if compared.pair.logs.modes > 1
        else f"only {least}"
        if least
        else "no difference would show"
    )
    return f"{compared.verdict}: {why}"


def point_words(compared: Compared) -> str:
    """A point by what is not its kernel's default: "page_chase 4k spread random 4,096 lines"; and a
    quantity that is no time."""
    point, kernel = compared.point, kernels.CATALOGUE.get(compared.point["kernel"])
    options = {
        name: value
        for name, value in point.items()
        if kernel and name in kernel.options and value != kernel.options[name]
    }
    parts = [
        point["kernel"],
        point["engine"] if point["engine"] != "c" else "",
        point["mode"],
        point["pages"],
    ]
    if not kernel or kernel.is_chase:
        parts += [point["layout"], point["order"]]
    if not kernel or kernel.size not in options:
        parts += [f"{point['lines']:,} lines"]
    parts += [f"{point['stride_pages']:,} pages apart"] if point["stride_pages"] > 1 else []
    parts += [f"{name} {value:,.0f}" for name, value in options.items()]
    unit = UNITS[compared.quantity]
    return " ".join(filter(None, parts)) + (f": {unit}" if unit != "ns" else "")


def _side(compared: Compared, interval: Interval) -> str:
    most = abs(interval.value)
    shown = (
        f"{interval:,.0f}"
        if most >= 100
        else f"{interval:.1f}"
        if most >= 10
        else f"{interval:.2f}"
    )
    return f"{shown} ns" if UNITS[compared.quantity] == "ns" else shown


def as_json(comparison: Comparison) -> dict[str, Any]:
    """All of it. A bound that is open, and a ratio that there is not, are null."""
    sides = {
        letter: {
            "name": side.name,
            "machine": side.machine,
            "states": sorted({*side.rows["state"]}),
            "rows": len(side.rows),
            "broken_lines": side.broken,
        }
        for letter, side in (("a", comparison.a), ("b", comparison.b))
    }
    return sides | {
        "computers": [
            dict(zip(("what", "a", "b"), line, strict=True)) for line in comparison.computers
        ],
        "notes": comparison.notes,
        "facts": [fact._asdict() for fact in comparison.facts],
        "explained": comparison.explained,
        "lacking": comparison.lacking,
        "profile": profiles.as_json(comparison.profiles),
        "quantities": [
            {
                "chapter": c.chapter,
                **c.point,
                "quantity": c.quantity,
                "unit": UNITS[c.quantity],
                "a": _bounds(c.pair.a),
                "b": _bounds(c.pair.b),
                "ratio": _bounds(c.ratio) if c.ratio else None,
                "among": c.among,
                "processes": c.pair.processes,
                "runs": c.pair.runs,
                "runs_differ_by": _number(c.pair.spread - 1),
                "verdict": c.verdict,
                "would_show": _number(c.would_show),
            }
            for c in comparison.quantities
        ],
    }


def _bounds(interval: Interval) -> dict[str, float | None]:
    return {name: _number(value) for name, value in interval._asdict().items()}


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
