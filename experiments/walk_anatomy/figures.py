"""The charts of the chapter about walks, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.walk_anatomy.analysis import AT_RANDOM, EVENLY, Analysis
from experiments.walk_anatomy.grid import COLLIDING
from tlb.prose import count, listed
from tlb.reasons import if_available, required
from tlb.report import charts
from tlb.report.render import MUTED, Figure

BESIDE = ("staircase",)  # with the reference machine's curves behind a switch

NAMES = {1: "of the lowest level", 2: "of the second", 3: "of the third"}
_FIELDS = ["median", "low", "high", "coverage", "n", "unstable"]


def staircase(a: Analysis) -> Figure:
    """ns a miss against the tables of a level, a line a level."""
    required(a.prices, "no tables were swept")
    data = pd.concat(
        [
            curve.table.rename(columns={curve.x: "tables"}).assign(level=NAMES[level])
            for level, curve in a.prices.items()
        ],
        ignore_index=True,
    )
    data["lines"] = data["tables"]
    x = alt.X(
        "tables:Q",
        axis=charts.lines_axis("Page tables that the walks go through"),
        scale=charts.log_scale(),
    )
    scale = alt.Scale(domain=[0.0, float(data["high"].max()) * 1.1], nice=False)
    names = [NAMES[level] for level in a.prices]
    chart = charts.series_chart(
        data, x, "ns a miss", scale, charts.PRICES, charts.colours(names), "level", columns=1
    )
    told = listed(
        f"tables {NAMES[level]}, from {curve.intervals[0].value:.1f} to {curve.last.value:.1f} ns"
        for level, curve in a.prices.items()
    )
    return Figure(
        chart,
        "What a miss of the TLB costs by the page tables that its walks go through, from few to "
        f"many: {told}.",
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
    chart = (
        alt.Chart(data)
        .properties(height=30 * len(data))
        .mark_bar(size=18)
        .encode(
            y=alt.Y("part:N", sort=order, axis=alt.Axis(title=None, labelLimit=260)),
            x=alt.X("begins_ns:Q", axis=charts.ns_axis("ns a miss")),
            x2="ends_ns:Q",
            color=alt.Color("part:N", sort=order, scale=charts.colours(order), legend=None),
            tooltip=["part:N", alt.Tooltip("ns:Q", format=".3~r")],
        )
    )
    largest = data.loc[data["ns"].idxmax()]
    return Figure(
        chart,
        f"What a miss is made of: {largest['part']} is the largest part, with {largest['ns']:.1f} "
        "of "
        f"{so_far:.1f} ns.",
        data,
    )


def collisions(a: Analysis) -> Figure:
    """ns a visit of as many pages a page, a table's span, a directory's span apart: exactly, and at
    random places."""
    data = required(a.collisions, "no pages were set apart").copy()
    scheme, order = charts.colours([EVENLY, AT_RANDOM]), list(dict.fromkeys(data["apart"]))
    x = alt.X("apart:N", sort=order, axis=alt.Axis(title="Apart", labelAngle=0))
    base = alt.Chart(data).encode(
        x=x,
        xOffset=alt.XOffset("places:N", sort=[EVENLY, AT_RANDOM]),
        color=alt.Color(
            "places:N", sort=[EVENLY, AT_RANDOM], scale=scheme, legend=alt.Legend(title=None)
        ),
    )
    bars = base.mark_bar(size=26).encode(
        y=alt.Y("median:Q", axis=charts.ns_axis("ns a visit")),
        tooltip=[
            "apart:N",
            "places:N",
            alt.Tooltip("median:Q", format=".3~r", title="ns"),
            alt.Tooltip("n:Q", title="processes"),
        ],
    )
    chart = bars + base.mark_rule(strokeWidth=2).encode(
        y="low:Q", y2="high:Q", color=alt.value(MUTED)
    )
    even = data[data["places"] == EVENLY]
    told = listed(f"{row.median:.1f} ns {row.apart} apart" for row in even.itertuples())
    random = data[data["places"] == AT_RANDOM]["median"]
    most = f" At random places none takes more than {random.max():.1f}." if len(random) else ""
    return Figure(
        chart,
        f"Time per visit of {COLLIDING} pages by their distance. Exactly so far apart they take "
        f"{told}.{most}",
        data[["apart", "places", *_FIELDS]],
    )


def strides(a: Analysis) -> Figure:
    """ns a visit of as many pages by the stride from one to the next: powers of two, and a page
    more."""
    required(a.strides, "no strides were measured")
    named = {"a power of two of pages": a.strides, "a page more": a.padded}
    data = pd.concat(
        [
            curve.table.rename(columns={curve.x: "lines"}).assign(series=name)
            for name, curve in named.items()
            if len(curve)
        ],
        ignore_index=True,
    )
    x = alt.X(
        "lines:Q", axis=charts.lines_axis("Pages from one to the next"), scale=charts.log_scale()
    )
    scale = alt.Scale(domain=[0.0, float(data["high"].max()) * 1.1], nice=False)
    names = list(dict.fromkeys(data["series"]))
    chart = charts.series_chart(
        data,
        x,
        "ns a visit",
        scale,
        charts.PRICES,
        charts.colours(names),
        "series",
        joined=names[:1],
        columns=1,
    )
    fit = if_available(lambda: a.fit)
    ends = (
        charts.marks([(fit.widest, f"widest that fits: {count(fit.widest)}")], "lines")
        if fit
        else None
    )
    first, last = a.strides.intervals[0].value, a.strides.last.value
    said = (
        f"Time per visit of {COLLIDING} pages by the stride between them: it goes from {first:.1f} "
        f"ns side by side to {last:.1f} "
        "at the widest"
    )
    return Figure(
        charts.layered(chart, ends),
        said + (f", and rises past {count(fit.widest)} pages." if fit else "."),
        data[["series", "lines", *_FIELDS]],
    )
