"""The charts of the chapter about strides, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.strides.analysis import PARTS, STRIDE, Analysis
from tlb.prose import listed
from tlb.reasons import required
from tlb.report import axes, charts
from tlb.report.render import MUTED, Figure
from tlb.units import format_size

BESIDE = ("strides",)  # with the reference machine's curves behind a switch

_TIMES = (0.2, 0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200)
_FIELDS = ["median", "low", "high", "coverage", "n", "unstable"]
_STRIDES = alt.X(f"{STRIDE}:Q", axis=axes.bytes_axis("Stride"), scale=axes.log_scale())
_LISTS = {
    ("spread", "cycle"): "spread, shuffled",
    ("spread", "sequential"): "spread, in order",
    ("packed", "cycle"): "packed, shuffled",
    ("packed", "sequential"): "packed, in order",
}


def strides(a: Analysis) -> Figure:
    """ns an access of the published loop against the stride, a line a page size, with the published
    times as squares."""
    data = charts.stacked(a.times, "no stride was measured", "pages")
    data[STRIDE] = data["lines"]
    names = {"stride_bytes": STRIDE, "ns_per_access": "median"}
    theirs = a.published.rename(columns=names)[[STRIDE, "median"]]
    scale, scheme = axes.time_scale(pd.concat([data, theirs])), axes.page_colours(data["pages"])
    chart = charts.series_chart(
        data, _STRIDES, "ns per access", scheme, "pages", scale=scale, ticks=_TIMES
    )
    squares = charts.published(alt.Chart(theirs)).mark_point(shape="square", size=70, color=MUTED)
    median = alt.Tooltip("median:Q", title="published, ns")
    y, tooltip = alt.Y("median:Q", scale=scale), [f"{STRIDE}:Q", median]
    medians = (a.base if len(a.base) else next(iter(a.times.values()))).medians
    return Figure(
        chart + squares.encode(x=_STRIDES, y=y, tooltip=tooltip),
        f"Time per access against the stride over {format_size(a.array_bytes)}. On base pages it "
        f"rises from {medians.iloc[0]:.2f} ns at {format_size(int(medians.index[0]))} to "
        f"{medians.max():.1f} ns at most, at {format_size(int(medians.idxmax()))}. Squares: the "
        "published times.",
        data[["pages", STRIDE, *_FIELDS]],
    )


def waterfall(a: Analysis) -> Figure:
    """The parts of each stride's time on base pages, as stacked bars."""
    data = required(a.parts, "no stride was measured with all of its controls").copy()
    data["stride"] = data[STRIDE].map(lambda stride: format_size(int(stride)))
    order = list(dict.fromkeys(data["stride"]))
    named = [part for part in PARTS if (data["part"] == part).any()]
    chart = alt.Chart(data).mark_bar(strokeWidth=1, size=16)
    chart = chart.encode(
        x=charts.group_x(data, "stride", "Stride"),
        xOffset=alt.XOffset("part:N", sort=named),
        y=alt.Y("begins_ns:Q", axis=axes.ns_axis("ns per access")),
        y2="ends_ns:Q",
        color=axes.colour("part", named, columns=2),
        tooltip=["stride:N", "part:N", alt.Tooltip("ns:Q", format=".3~r")],
    )
    wide = data[data["stride"] == order[min(1, len(order) - 1)]]
    each = listed(f"{row.part} {row.ns:z.2f} ns" for row in wide.itertuples())
    return Figure(
        chart,
        "Bars that add up to the time of a load on base pages, by stride. The largest part at "
        f"{wide['stride'].iloc[0]} is {wide.loc[wide['ns'].idxmax(), 'part']}: {each}.",
        data[[STRIDE, "part", "ns", "begins_ns", "ends_ns"]],
    )


def orders(a: Analysis) -> Figure:
    """The lines of each stride read by a list: spread and packed, in order and shuffled."""
    named = {name: a.lists[layout][order] for (layout, order), name in _LISTS.items()}
    data = charts.stacked(named, "no list was read")
    data[STRIDE] = data["lines"]
    scheme = axes.colours(list(dict.fromkeys(data["series"])))
    chart = charts.series_chart(data, _STRIDES, "ns per access", scheme, ticks=_TIMES, columns=2)
    last = data[data[STRIDE] == data[STRIDE].max()]
    each = listed(f"{row.series} {row.median:.1f} ns" for row in last.itertuples())
    return Figure(
        chart,
        "Time per access of the lines of each stride by a list. At "
        f"{format_size(int(data[STRIDE].max()))} the slowest is "
        f"{last.loc[last['median'].idxmax(), 'series']}. All: {each}.",
        data[["series", STRIDE, *_FIELDS]],
    )
