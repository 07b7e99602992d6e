"""The charts of the chapter about walks, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.walk_anatomy.analysis import AT_RANDOM, EVENLY, Analysis
from experiments.walk_anatomy.grid import COLLIDING
from tlb.prose import count, listed
from tlb.reasons import if_available, required
from tlb.report import axes, charts
from tlb.report.render import Figure

BESIDE = ("staircase",)  # with the reference machine's curves behind a switch

NAMES = {1: "of the lowest level", 2: "of the second", 3: "of the third"}
_FIELDS = ["median", "low", "high", "coverage", "n", "unstable"]


def _series(
    data: pd.DataFrame, x: str, x_title: str, y_title: str, series: str, **how: object
) -> alt.LayerChart:
    """Draw medians from zero over a logarithmic count, a line each series."""
    axis = axes.lines_axis(x_title)
    return charts.series_chart(
        data,
        alt.X(f"{x}:Q", axis=axis, scale=axes.log_scale()),
        y_title,
        axes.colours(list(dict.fromkeys(data[series]))),
        series,
        scale=axes.zero_scale(data),
        ticks=axes.PRICES,
        columns=1,
        **how,
    )


def staircase(a: Analysis) -> Figure:
    """ns a miss against the tables of a level, a line a level."""
    named = {NAMES[level]: curve for level, curve in a.prices.items()}
    data = charts.stacked(named, "no tables were swept", "level")
    data["tables"] = data["lines"]
    title = "Page tables that the walks go through"
    ends = listed(
        f"tables {name}, from {curve.intervals[0].value:.1f} to {curve.last.value:.1f} ns"
        for name, curve in named.items()
    )
    return Figure(
        _series(data, "tables", title, "ns a miss", "level"),
        "What a miss of the TLB costs by the page tables that its walks go through, from few to "
        f"many: {ends}.",
        data[["level", "tables", *_FIELDS]],
    )


def parts(a: Analysis) -> Figure:
    """What a miss costs as one level's cache after another gives way: bars that add up."""
    rows, so_far = [("the lowest entry, and the look-ups", 0.0, a.first_ns.value)], a.first_ns.value
    for level, curve in a.prices.items():
        added = curve.last.value - so_far
        rows.append((f"many tables {NAMES[level]}", so_far, so_far + added))
        so_far += added
    data = pd.DataFrame(rows, columns=["part", "begins_ns", "ends_ns"])
    data["ns"] = data["ends_ns"] - data["begins_ns"]
    order = data["part"].tolist()
    chart = alt.Chart(data).properties(height=30 * len(data)).mark_bar(size=18)
    chart = chart.encode(
        y=alt.Y("part:N", sort=order, axis=alt.Axis(title=None, labelLimit=260)),
        x=alt.X("begins_ns:Q", axis=axes.ns_axis("ns a miss")),
        x2="ends_ns:Q",
        color=alt.Color("part:N", sort=order, scale=axes.colours(order), legend=None),
        tooltip=["part:N", alt.Tooltip("ns:Q", format=".3~r")],
    )
    largest = data.loc[data["ns"].idxmax()]
    return Figure(
        chart,
        f"What a miss is made of: {largest['part']} is the largest part, with {largest['ns']:.1f} "
        f"of {so_far:.1f} ns.",
        data,
    )


def collisions(a: Analysis) -> Figure:
    """ns a visit of as many pages a page, a table's span, a directory's span apart: exactly, and at
    random places."""
    data = required(a.collisions, "no pages were set apart").copy()
    y = alt.Y("median:Q", axis=axes.ns_axis("ns a visit"))
    colour = axes.colour("places", [EVENLY, AT_RANDOM])
    processes = alt.Tooltip("n:Q", title="processes")
    even = data[data["places"] == EVENLY]
    ends = listed(f"{row.median:.1f} ns {row.apart} apart" for row in even.itertuples())
    random = data[data["places"] == AT_RANDOM]["median"]
    most = f" At random places none takes more than {random.max():.1f}." if len(random) else ""
    return Figure(
        charts.bars(data, charts.group_x(data, "apart", "Apart"), y, colour, processes, size=26),
        f"Time per visit of {COLLIDING} pages by their distance. Exactly so far apart they take "
        f"{ends}.{most}",
        data[["apart", "places", *_FIELDS]],
    )


def strides(a: Analysis) -> Figure:
    """ns a visit of as many pages by the stride from one to the next: powers of two, and a page
    more."""
    required(a.strides, "no strides were measured")
    named = {"a power of two of pages": a.strides, "a page more": a.padded}
    data = charts.stacked(named, "no strides were measured")
    title, joined = "Pages from one to the next", [data["series"].iloc[0]]
    chart = _series(data, "lines", title, "ns a visit", "series", joined=joined)
    rises = "."
    if fit := if_available(lambda: a.fit):
        label = f"widest that fits: {count(fit.widest)}"
        chart = charts.layered(chart, charts.marks([(fit.widest, label)], "lines"))
        rises = f", and rises past {count(fit.widest)} pages."
    first, last = a.strides.intervals[0].value, a.strides.last.value
    return Figure(
        chart,
        f"Time per visit of {COLLIDING} pages by the stride between them: it goes from {first:.1f} "
        f"ns side by side to {last:.1f} at the widest{rises}",
        data[["series", "lines", *_FIELDS]],
    )
