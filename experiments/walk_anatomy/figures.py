"""The charts of the chapter about walks, one function a figure."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from experiments.walk_anatomy.analysis import Analysis
from experiments.walk_anatomy.grid import COLLIDING_PAGES
from tlb.report import charts
from tlb.report.render import Figure
from tlb.system.prose import count, listed
from tlb.system.reasons import if_available, required

NAMES = {1: "tables of level 1 (lowest)", 2: "tables of level 2", 3: "tables of level 3"}


def _series(
    data: pd.DataFrame, x: str, x_title: str, y_title: str, series: str, **how: Any
) -> alt.LayerChart:
    """Draw medians from zero over a logarithmic count, a line each series."""
    return charts.series_chart(
        data,
        alt.X(f"{x}:Q", axis=charts.lines_axis(x_title), scale=charts.log_scale()),
        y_title,
        charts.colours(list(dict.fromkeys(data[series]))),
        series,
        scale=charts.zero_scale(data),
        ticks=range(0, 1000, 10),
        columns=1,
        **how,
    )


def staircase(a: Analysis) -> Figure:
    named = {NAMES[level]: curve for level, curve in a.prices.items()}
    data = charts.stacked(named, "no tables were swept", "level")
    data["tables"] = data["lines"]
    title = "Page tables that the walks go through"
    ends = listed(
        f"{name}, from {curve.intervals[0].value:.1f} to {curve.last.value:.1f} ns"
        for name, curve in named.items()
    )
    return Figure(
        _series(data, "tables", title, "ns per miss", "level"),
        "What a miss of the TLB costs by the page tables that its walks go through, from few to "
        f"many: {ends}.",
        data[["level", "tables", *charts.FIELDS]],
    )


def strides(a: Analysis) -> Figure:
    required(a.strides, "no strides were measured")
    named = {"a power of two": a.strides, "a power of two plus one page": a.padded}
    data = charts.stacked(named, "no strides were measured")
    title, joined = "Stride, in pages", [data["series"].iloc[0]]
    chart = _series(data, "lines", title, "ns per visit", "series", joined=joined, banded=joined)
    rises = "."
    if widest := if_available(lambda: a.widest):
        label = f"last that fits: {count(widest)}"
        chart = charts.layered(chart, charts.marks([(widest, label)], "lines"))
        rises = f", and rises past {count(widest)} pages."
    first, last = a.strides.intervals[0].value, a.strides.last.value
    return Figure(
        chart,
        f"Time per visit of {COLLIDING_PAGES} pages by the stride between them: it goes from {first:.1f} "
        f"ns side by side to {last:.1f} at the widest{rises}",
        data[["series", "lines", *charts.FIELDS]],
    )
