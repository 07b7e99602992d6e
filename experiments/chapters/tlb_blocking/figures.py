"""The charts of the chapter about blocking, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.article.chapter import literature
from experiments.article.charts import (
    bytes_axis,
    capacities,
    colours,
    layered,
    lines_axis,
    log_scale,
    marks,
    ns_axis,
    page_colours,
    reaches,
    series_chart,
    time_scale,
)
from experiments.article.render import MUTED, PALETTE, Figure
from experiments.chapters.tlb_blocking.analysis import BLOCKED, VERTEX_BYTES, Analysis, graph_size
from experiments.lab.kernels import ROW_BYTES
from experiments.words.pages import BASE, words
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

_COLUMNS = ["median", "low", "high", "coverage", "n", "unstable"]
_GAIN = ["gain", "gain_low", "gain_high"]
_PER_ROW = (0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
_PER_HOP = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)


def _level(ns: float, label: str, scale: alt.Scale) -> alt.LayerChart:
    """A thin line across the chart at a time, labelled at its left."""
    base = alt.Chart(pd.DataFrame({"median": [ns], "label": [label]})).encode(y=alt.Y("median:Q", scale=scale))
    return base.mark_rule(color=MUTED, strokeWidth=1) + base.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=MUTED).encode(
        x=alt.value(0), text="label:N")


def blocks(a: Analysis) -> Figure:
    """ns per hop against the block's bytes, a line a number of steps, on base pages; where the same blocks were walked on larger
    pages too, dashed."""
    data = a.blocks.assign(steps=a.blocks["block_steps"].map(lambda n: f"{n:,} steps"), lines=a.blocks["block_pages"])
    base, others = data[data["pages"] == BASE], data[data["pages"] != BASE]
    if base.empty:
        raise Unavailable("too-few-points", "no walk in blocks was measured on base pages")
    names = list(dict.fromkeys(data.sort_values("block_steps")["steps"]))
    scheme = colours(names)
    plain = base["plain"].dropna()
    scale = time_scale(pd.concat([data, base.assign(median=base["plain"])]))
    x = alt.X("block_bytes:Q", axis=bytes_axis("Size of a block"), scale=log_scale())
    chart = series_chart(base, x, "ns per hop", scale, _PER_HOP, scheme, "steps")
    for _, part in others.groupby("pages"):
        chart += alt.Chart(part).mark_line(strokeDash=[6, 3]).encode(
            x=x, y=alt.Y("median:Q", scale=scale), color=alt.Color("steps:N", scale=scheme, sort=names))
    if len(plain):
        chart += _level(float(plain.iloc[0]), "without blocks", scale)
    chart = layered(chart, capacities(a.entries, "block_bytes", a.base_page_bytes))
    best = base.loc[base["median"].idxmin()]
    before = f"Without blocks a hop takes {plain.iloc[0]:.1f} ns. " if len(plain) else ""
    told = (f"{before}The least is {best['median']:.1f} ns, with {best['steps']} in each block of {format_size(int(best['block_bytes']))}.")
    return Figure(chart, f"Time per hop against the size of a block, a line for each number of steps. {told}",
                  data[["pages", "block_steps", "block_bytes", "block_pages", "visits", *_COLUMNS, "plain", *_GAIN]])


def prefetch(a: Analysis) -> Figure:
    """ns per hop against the distance of the prefetch, a line a page size."""
    data = a.ahead.assign(lines=a.ahead["vertices"] * VERTEX_BYTES // a.base_page_bytes)
    ticks = sorted(set(data["distance"]))
    x = alt.X("distance:Q", scale=alt.Scale(type="symlog", constant=1, nice=False), axis=alt.Axis(
        title="Hops ahead (0: no prefetch)", values=ticks, format="d"))
    chart = series_chart(data, x, "ns per hop", time_scale(data), _PER_HOP, page_colours(data["pages"]), "pages")
    told = []
    for pages, part in data.groupby("pages", sort=False):
        best = part.loc[part["median"].idxmin()]
        told.append(f"{words(pages)} {best['median']:.1f} ns at {int(best['distance'])}")
    return Figure(chart, f"Time per hop against how many hops ahead the vertex is asked for. The least: {', '.join(told)}.",
                  data[["pages", "distance", "vertices", *_COLUMNS, *_GAIN]])


def _label(remedy: str, pages: str) -> str:
    return f"{remedy}, {pages}" if remedy == BLOCKED else pages


def mitigations(a: Analysis) -> Figure:
    """P50 and P95 of a hop by remedy: bars, those of the published run pale."""
    ours, published = a.remedies, literature("mitigations")
    names = {"p50": "median", "p95": "95th percentile"}
    here = pd.concat([pd.DataFrame({
        "where": "here", "remedy": ours["remedy"], "pages": ours["pages"], "quantile": name, "ns": ours[short],
        "low": ours[f"{short}_low"], "high": ours[f"{short}_high"], "working_set_bytes": ours["vertices"] * VERTEX_BYTES,
        "block_bytes": ours["block_vertices"] * VERTEX_BYTES, "n": ours["n"]}) for short, name in names.items()])
    there = pd.concat([pd.DataFrame({
        "where": "published", "remedy": published["mitigation"], "pages": published["pages"], "quantile": name,
        "ns": published[f"{short}_ns_per_hop"].astype(float), "working_set_bytes": published["working_set_bytes"]})
        for short, name in names.items()])
    data = pd.concat([here, there], ignore_index=True)
    data["label"] = [_label(*pair) for pair in zip(data["remedy"], data["pages"], strict=True)]
    order = [one for one in ("4k", f"{BLOCKED}, 4k", "thp", "2m", "1g") if (data["label"] == one).any()]
    quantiles = list(names.values())
    data["slot"] = data["quantile"] + ", " + data["where"]
    slots = [f"{name}, {where}" for name in quantiles for where in ("here", "published")]
    base = alt.Chart(data).encode(x=alt.X("label:N", sort=order, axis=alt.Axis(title="Remedy", labelAngle=0)),
                                  xOffset=alt.XOffset("slot:N", sort=slots, scale=alt.Scale(domain=slots)))
    y = alt.Y("ns:Q", axis=ns_axis("ns per hop"), scale=alt.Scale(domainMin=0))
    bars = base.mark_bar().encode(
        y=y, color=alt.Color("quantile:N", sort=quantiles, scale=alt.Scale(domain=quantiles, range=list(PALETTE[:2]))),
        opacity=alt.Opacity("where:N", sort=["here", "published"], scale=alt.Scale(domain=["here", "published"], range=[1, 0.4])),
        tooltip=[alt.Tooltip("label:N"), alt.Tooltip("where:N"), alt.Tooltip("quantile:N"), alt.Tooltip("ns:Q", format=".3~r"),
                 alt.Tooltip("n:Q", title="processes")])
    errors = base.transform_filter("datum.low != null").mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q"), y2="high:Q")
    told = ", ".join(f"{_label(row.remedy, row.pages)} {row.p50:.0f} and {row.p95:.0f} ns" for row in ours.itertuples())
    size = graph_size(ours["vertices"].max())
    return Figure(bars + errors, f"Median and 95th percentile of a hop over {size} by remedy: {told}.",
                  data.drop(columns="slot"))


def fan_out(a: Analysis) -> Figure:
    """ns to partition one row against the number of partitions, a line a page size in one pass, crosses in two."""
    every = a.fan_out.assign(lines=a.fan_out["tuples"] * ROW_BYTES // a.base_page_bytes)
    data, twice = every[every["passes"] == 1], every[every["passes"] == 2]
    if data.empty:
        raise Unavailable("too-few-points", "no partitioning in one pass was measured")
    x = alt.X("partitions:Q", axis=lines_axis("Partitions"), scale=log_scale())
    scale, scheme = time_scale(every), page_colours(every["pages"])
    chart = series_chart(data, x, "ns per row", scale, _PER_ROW, scheme, "pages")
    if len(twice):
        chart += alt.Chart(twice).mark_point(shape="cross", size=90, strokeWidth=2).encode(
            x=x, y=alt.Y("median:Q", scale=scale), color=alt.Color("pages:N", scale=scheme, sort=scheme.domain),
            tooltip=[alt.Tooltip("pages:N"), alt.Tooltip("passes:Q"), alt.Tooltip("median:Q", format=".3~r", title="ns")])
    if a.entries:
        chart += marks([(n, label.replace("pages", "entries")) for n, label in reaches(a.entries)], "partitions")
    told = []
    for pages, part in data.groupby("pages", sort=False):
        ends = part.sort_values("partitions").iloc[[0, -1]]
        told.append(f"{words(pages)} from {ends['median'].iloc[0]:.1f} ns with {int(ends['partitions'].iloc[0]):,} partitions to "
                    f"{ends['median'].iloc[1]:.1f} with {int(ends['partitions'].iloc[1]):,}")
    return Figure(chart, f"Time to partition one row by the number of partitions: {'; '.join(told)}.",
                  every[["pages", "partitions", "passes", "tuples", *_COLUMNS, "histogram_ns"]])


def join(a: Analysis) -> Figure:
    """ns per row of a whole join against the number of partitions, a line a page size, naive as a dashed line across."""
    data = a.joins.assign(lines=a.joins["tuples"] * 6 * ROW_BYTES // a.base_page_bytes)
    parted, naive = data[(data["mode"] == "partitioned") & (data["passes"] == 1)], data[data["mode"] == "naive"]
    if parted.empty:
        raise Unavailable("too-few-points", "no partitioned join was measured")
    scheme, scale = page_colours(data["pages"]), time_scale(data)
    x = alt.X("partitions:Q", axis=lines_axis("Partitions"), scale=log_scale())
    chart = series_chart(parted, x, "ns per row", scale, _PER_ROW, scheme, "pages")
    if len(naive):
        chart += alt.Chart(naive).mark_rule(strokeDash=[6, 4], strokeWidth=2).encode(
            y=alt.Y("median:Q", scale=scale), color=alt.Color("pages:N", scale=scheme, sort=scheme.domain),
            tooltip=[alt.Tooltip("pages:N"), alt.Tooltip("mode:N"), alt.Tooltip("median:Q", format=".3~r", title="ns")])
    told = [f"{words(row.pages)} {row.median:.1f} ns naive" for row in naive.itertuples()]
    best = parted.loc[parted.groupby("pages")["median"].idxmin()]
    told += [f"{words(row.pages)} {row.median:.1f} ns with {row.partitions:,} partitions" for row in best.itertuples()]
    return Figure(chart, f"Time per row of a join by the number of partitions; dashed, naive. {', '.join(told)}.",
                  data[["pages", "mode", "partitions", "passes", "tuples", *_COLUMNS, *_GAIN]])
