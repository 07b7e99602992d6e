"""The charts of the chapter about strides, one function a figure."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from experiments.strides.analysis import LOAD_TIME_PARTS, STRIDE_COLUMN, Analysis
from experiments.strides.grid import LINE_BYTES
from tlb.report import charts
from tlb.report.render import MUTED, Figure
from tlb.stats.curves import Curve
from tlb.system.prose import listed
from tlb.system.reasons import required
from tlb.system.units import format_size

_TIMES = (0.2, 0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200)
# Every second power of two, among them a page: of all, a narrow chart labels others.
_TICKS = [4**k for k in range(2, 9)]
_STRIDES = alt.X(
    f"{STRIDE_COLUMN}:Q", axis=charts.bytes_axis("Stride", _TICKS), scale=charts.log_scale()
)


def strides(a: Analysis) -> Figure:
    names = {"stride_bytes": STRIDE_COLUMN, "ns_per_access": "median"}
    theirs = a.published.rename(columns=names)[[STRIDE_COLUMN, "median"]]
    named = {"power of two": a.base, f"with {LINE_BYTES} bytes more": a.base_staggered}
    chart, data, scale = _by_stride(named, "no stride was measured", theirs)
    squares = charts.published(alt.Chart(theirs)).mark_point(shape="square", size=70, color=MUTED)
    tooltip = [f"{STRIDE_COLUMN}:Q", alt.Tooltip("median:Q", title="published, ns")]
    y = alt.Y("median:Q", scale=scale)
    medians = (a.base if len(a.base) else a.base_staggered).medians
    staggered, line_more = a.base_staggered.medians, ""
    if len(staggered):
        line_more = f" With a line more to the stride it is {staggered.max():.1f} ns at most."
    return Figure(
        chart + squares.encode(x=_STRIDES, y=y, tooltip=tooltip),
        f"Time per load against the stride over {format_size(a.array_bytes)} on base pages. It "
        f"rises from {medians.iloc[0]:.2f} ns at {format_size(int(medians.index[0]))} to "
        f"{medians.max():.1f} ns at most, at {format_size(int(medians.idxmax()))}.{line_more} "
        "Squares: the published times.",
        data,
    )


def _by_stride(
    named: Mapping[str, Curve], lacking: str, *more: pd.DataFrame
) -> tuple[alt.LayerChart, pd.DataFrame, alt.Scale]:
    """Draw curves over the stride, and single mappings as dots where a median says little; return
    the chart, its data, and its scale of times with room for `more`."""
    data = charts.stacked(named, lacking)
    data[STRIDE_COLUMN] = data["lines"]
    dots = [
        curve.processes.assign(series=name, n=1)
        for name, curve in named.items()
        if len(curve.processes)
    ]
    shown = pd.concat([data, *dots])
    scale = charts.time_scale(pd.concat([shown, *more]))
    scheme = charts.colours(list(dict.fromkeys(data["series"])))
    chart = charts.series_chart(data, _STRIDES, "ns per load", scheme, scale=scale, ticks=_TIMES)
    if dots:
        y, colour = alt.Y("median:Q", scale=scale), charts.colour("series", scheme)
        points = alt.Chart(pd.concat(dots)).mark_circle(size=14)
        chart += points.encode(x=_STRIDES, y=y, color=colour)
    return chart, shown[["series", STRIDE_COLUMN, *charts.FIELDS]], scale


def waterfall(a: Analysis) -> Figure:
    data = required(a.parts, "no stride was measured with all of its controls").copy()
    data["stride"] = data[STRIDE_COLUMN].map(lambda stride: format_size(int(stride)))
    order = list(dict.fromkeys(data["stride"]))
    named = [part for part in LOAD_TIME_PARTS if (data["part"] == part).any()]
    chart = alt.Chart(data).mark_bar(strokeWidth=1, size=16)
    chart = chart.encode(
        x=charts.group_x(data["stride"], "stride", "Stride"),
        xOffset=alt.XOffset("part:N", sort=named),
        y=alt.Y("begins_ns:Q", axis=charts.ns_axis("ns per load")),
        y2="ends_ns:Q",
        color=charts.colour("part", named, columns=2),
        tooltip=["stride:N", "part:N", alt.Tooltip("ns:Q", format=".3~r")],
    )
    wide = data[data["stride"] == order[min(1, len(order) - 1)]]
    each = listed(f"{row.part} {row.ns:z.2f} ns" for row in wide.itertuples())
    return Figure(
        chart.properties(height=220),
        "Bars that add up to the time of a load on base pages, by stride. The largest part at "
        f"{wide['stride'].iloc[0]} is {wide.loc[wide['ns'].idxmax(), 'part']}: {each}.",
        data[[STRIDE_COLUMN, "part", "ns", "begins_ns", "ends_ns"]],
    )
