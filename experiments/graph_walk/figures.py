"""The charts of the chapter about the graph, one function a figure."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt
import pandas as pd

from experiments.graph_walk.analysis import SIZE_COLUMN, Analysis, largest_page_size
from tlb.report import charts
from tlb.report.chapter import literature
from tlb.report.render import INK, MUTED, PALETTE, Figure
from tlb.stats.curves import at_largest_shared
from tlb.system.page_sizes import BASE, rank, words
from tlb.system.prose import extremes
from tlb.system.reasons import if_available, required
from tlb.system.units import format_size, rounded

_SERIES = {"p50": "median", "p95": "95th percentile"}
RIDGE_PX, OVERLAP = 25, 1.7  # from one ridge's foot to the next; how many of those a ridge is high
STEP = 0.01  # of that: what is drawn in 0.3 px
_SIZES = alt.X(f"{SIZE_COLUMN}:Q", axis=charts.bytes_axis("Working set"), scale=charts.log_scale())
_PROCESSES = alt.Tooltip("n:Q", title="processes")
_DASHES = ([1, 0], [5, 4], [2, 3])


def _pages(a: Analysis, data: pd.DataFrame) -> alt.Color:
    scale = charts.page_colours(data["pages"])
    return charts.colour("pages", scale, labelExpr=charts.label_expression(a.page_labels))


def _dashes(names: Iterable[str]) -> alt.StrokeDash:
    return charts.dash("series", dict.fromkeys(names), _DASHES)


def _ns_per_hop(data: pd.DataFrame) -> alt.Y:
    ns = data["median"]
    ticks = charts.within(charts.TIMES, ns.min() * 0.5, ns.max() * 1.3)
    axis = charts.ns_axis("ns per hop", ticks)
    return alt.Y("median:Q", scale=charts.time_scale(data), axis=axis)


def _quantiles(a: Analysis) -> pd.DataFrame:
    """Of 4 KiB pages and of the largest that reach as far: each page size would add four lines.
    Below one tick of the clock a quantile is no measurement, and is not drawn."""
    shown, tick = (
        {BASE, if_available(largest_page_size, a.p50)},
        a.walks(1)["clock_step_ns"].median(),
    )
    tables = [
        part.assign(pages=pages, series=_SERIES[name], where="here")
        for name, curves in (("p50", a.p50), ("p95", a.p95))
        for pages, curve in curves.items()
        if pages in shown and len(part := curve.table[curve.table["median"] >= tick])
    ]
    lacking = "no walk was timed hop by hop, or every hop is too short for this clock"
    ours = pd.concat(required(tables, lacking))
    ours = ours.sort_values(["pages", SIZE_COLUMN], key=rank, kind="stable")
    quantile_columns = [f"{name}_ns_per_hop" for name in _SERIES]
    published = literature("graph_walk_quantiles")
    published = published.melt(["pages", SIZE_COLUMN], quantile_columns, "series", "median")
    published["series"] = published["series"].str[:3].map(_SERIES)
    theirs = published[published["pages"].isin(ours["pages"])].assign(where="published")
    columns = ["where", "pages", "series", SIZE_COLUMN, *charts.FIELDS]
    return pd.concat([ours, theirs], ignore_index=True)[columns]


def quantiles(a: Analysis) -> Figure:
    data = _quantiles(a)
    ours = data[data["where"] == "here"]
    y = _ns_per_hop(data)
    measured, faint = (
        alt.Chart(data[data["where"] == where]).encode(x=_SIZES, y=y, color=_pages(a, data))
        for where in ("here", "published")
    )
    tips = [*charts.tips("pages:N", "series:N", f"{SIZE_COLUMN}:Q"), _PROCESSES]
    dash = _dashes(_SERIES.values())
    chart = measured.mark_line().encode(strokeDash=dash)
    chart += measured.mark_point().encode(tooltip=tips)
    if len(ours) < len(data):
        faint = charts.published(faint)
        chart += faint.mark_line(opacity=0.6, strokeWidth=1).encode(strokeDash=dash)
        chart += faint.mark_point(opacity=0.5, shape="diamond").encode(tooltip=tips[:4])
    shown = {
        f"the median hop on {words(pages)}": curve
        for pages, curve in a.p50.items()
        if pages in set(ours["pages"])
    }
    size, medians = at_largest_shared(shown)
    return Figure(
        chart,
        "Median and 95th percentile of a hop against the working set. In "
        f"{format_size(int(size))}: {extremes(medians)}",
        data,
    )


def ridges(a: Analysis) -> Figure:
    """Draw the distribution of a hop's time, a ridge each working set, smallest on top, all
    processes together. Of points at one height, the ends are drawn."""
    full = required(a.ridges, "no walk on base pages was timed hop by hop")
    shares = full["share_per_ns"].map(lambda share: rounded(share, 3))
    data = full.assign(ns=full["ns"].map(rounded), share_per_ns=shares)
    sizes = list(dict.fromkeys(data[SIZE_COLUMN]))
    names = "[" + ", ".join(f"'{format_size(size)}'" for size in sizes) + "]"
    labels, places = f"{names}[datum.value]", list(range(len(sizes)))
    axis = alt.Axis(title="Working set", grid=False, values=places, labelExpr=labels)
    scale = alt.Scale(domain=[0, len(sizes) - 1 + OVERLAP], nice=False)
    x = alt.X(
        "ns:Q",
        axis=charts.ns_axis("ns per hop, without the clock's own cost"),
        scale=alt.Scale(nice=False, domain=[data["ns"].min(), data["ns"].max()]),
    )
    y = alt.Y("top:Q", axis=axis, scale=scale)
    layers, shown, peaks = [], [], {}
    for place, (size, part) in enumerate(data.groupby(SIZE_COLUMN, sort=False)):
        share = part["share_per_ns"] / max(part["share_per_ns"].max(), 1e-12)
        height = (share * OVERLAP / STEP).round() * STEP
        bends = (height != height.shift()) | (height != height.shift(-1))
        peaks[size] = max(part["ns"][height.idxmax()], 0)
        shown.append(part[bends])
        ridge = pd.DataFrame({"ns": part["ns"], "top": (place + height).round(2)})[bends]
        outline = {"color": INK, "strokeWidth": 0.8}
        area = alt.Chart(ridge).mark_area(color=PALETTE[0], opacity=0.75, line=outline)
        layers.append(area.encode(x=x, y=y, y2=alt.Y2Datum(place)))
    chart = alt.layer(*reversed(layers), *_peak_rules(a))  # lower ones in front
    last, first = sizes[-1], sizes[0]
    return Figure(
        chart.properties(height=int(RIDGE_PX * (len(sizes) + OVERLAP))),
        "A ridge for each working set, the distribution of a hop's time. The highest mode lies "
        f"at {peaks[last]:.0f} ns at {format_size(last)} and "
        f"at {peaks[first]:.0f} ns at {format_size(first)}.",
        pd.concat(shown)[[SIZE_COLUMN, "ns", "share_per_ns"]],
    )


def _peak_rules(a: Analysis) -> list[alt.Chart]:
    found = if_available(lambda: a.peaks[BASE])
    if not found or not found.peaks_ns:
        return []
    places = pd.DataFrame({"ns": [peak.value for peak in found.peaks_ns]})
    places["label"] = range(1, len(places) + 1)
    named = alt.Chart(places).encode(x="ns:Q")
    text = named.mark_text(align="left", dx=4, baseline="top", color=MUTED)
    return [
        named.mark_rule(strokeDash=[4, 4], color=MUTED),
        text.encode(text="label:N", y=alt.value(0)),
    ]
