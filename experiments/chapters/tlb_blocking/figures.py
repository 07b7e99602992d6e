"""The charts of the chapter about blocking, one function a figure."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from experiments.article.charts import (
    Figure,
    bytes_axis,
    lines_axis,
    log_scale,
    marks,
    ns_axis,
    reaches,
    series_chart,
    time_scale,
)
from experiments.article.render import MUTED, PALETTE
from experiments.chapters.hugepages.analysis import PAGES
from experiments.chapters.hugepages.figures import COLOURS
from experiments.chapters.tlb_blocking.analysis import BLOCKED, ROW_BYTES, VERTEX_BYTES, graph_size
from experiments.inference.curves import PAGE
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

_COLUMNS = ["median", "low", "high", "coverage", "n", "unstable"]
_GAIN = ["gain", "gain_low", "gain_high"]
_PER_ROW = (0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
_PER_HOP = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)


def _pages_scale(data: pd.DataFrame) -> alt.Scale:
    kinds = [pages for pages in PAGES if (data["pages"] == pages).any()]
    return alt.Scale(domain=kinds, range=[COLOURS[one] for one in kinds])


def _level(ns: float, label: str, scale: alt.Scale) -> alt.LayerChart:
    """A thin line across the chart at a time, labelled at its left."""
    base = alt.Chart(pd.DataFrame({"median": [ns], "label": [label]})).encode(y=alt.Y("median:Q", scale=scale))
    return base.mark_rule(color=MUTED, strokeWidth=1) + base.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=MUTED).encode(
        x=alt.value(0), text="label:N")


def blocks(found: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """ns per hop against the block's bytes, a line a number of steps, on base pages; where the same blocks were walked on larger
    pages too, dashed. A frame of `blocking.by_block`. Raises Unavailable("too-few-points") without base pages."""
    data = found.assign(steps=found["block_steps"].map(lambda n: f"{n:,} steps in a block"), lines=found["block_pages"])
    base, others = data[data["pages"] == "4k"], data[data["pages"] != "4k"]
    if base.empty:
        raise Unavailable("too-few-points", "no walk in blocks was measured on base pages")
    names = list(dict.fromkeys(data.sort_values("block_steps")["steps"]))
    colours = alt.Scale(domain=names, range=list(PALETTE[: len(names)]))
    plain = base["plain"].dropna()
    scale = time_scale(pd.concat([data, base.assign(median=base["plain"])]))
    x = alt.X("block_bytes:Q", axis=bytes_axis("Size of a block"), scale=log_scale())
    chart = series_chart(base, x, "ns per hop", scale, _PER_HOP, colours, "steps")
    for _, part in others.groupby("pages"):
        chart += alt.Chart(part).mark_line(strokeDash=[6, 3]).encode(
            x=x, y=alt.Y("median:Q", scale=scale), color=alt.Color("steps:N", scale=colours, sort=names))
    if len(plain):
        chart += _level(float(plain.iloc[0]), "without blocks", scale)
    if entries:
        chart += marks([(n * PAGE, label) for n, label in reaches(entries)], "block_bytes")
    best = base.loc[base["median"].idxmin()]
    before = f"Without blocks a hop takes {plain.iloc[0]:.1f} ns. " if len(plain) else ""
    told = (f"{before}The least is {best['median']:.1f} ns, with {best['steps']} of {format_size(int(best['block_bytes']))}.")
    return Figure(chart, "blocks", f"Time per hop against the size of a block, a line for each number of steps. {told}",
                  data[["pages", "block_steps", "block_bytes", "block_pages", "visits", *_COLUMNS, "plain", *_GAIN]])


def prefetch(found: pd.DataFrame) -> Figure:
    """ns per hop against the distance of the prefetch, a line a page size; a frame of `blocking.by_distance`."""
    data = found.assign(lines=found["vertices"] * VERTEX_BYTES // PAGE)
    ticks = sorted(set(data["distance"]))
    x = alt.X("distance:Q", scale=alt.Scale(type="symlog", constant=1, nice=False), axis=alt.Axis(
        title="Hops ahead (0: no prefetch)", values=ticks, format="d"))
    chart = series_chart(data, x, "ns per hop", time_scale(data), _PER_HOP, _pages_scale(data), "pages")
    told = []
    for pages, part in data.groupby("pages", sort=False):
        best = part.loc[part["median"].idxmin()]
        told.append(f"{pages} {best['median']:.1f} ns at {int(best['distance'])}")
    return Figure(chart, "prefetch", f"Time per hop against how many hops ahead the vertex is asked for. The least: {', '.join(told)}.",
                  data[["pages", "distance", "vertices", *_COLUMNS, *_GAIN]])


def _label(remedy: str, pages: str) -> str:
    return f"{remedy}, {pages}" if remedy == BLOCKED else pages


def mitigations(ours: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """P50 and P95 of a hop by remedy: bars, those of the published run pale (columns mitigation, pages,
    p50_ns_per_hop, p95_ns_per_hop); ours is a frame of `blocking.mitigations`."""
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
    return Figure(bars + errors, "mitigations", f"Median and 95th percentile of a hop over {size} by remedy: {told}.",
                  data.drop(columns="slot"))


def fan_out(found: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """ns to partition one row against the number of partitions, a line a page size in one pass, crosses in two; a frame of
    `blocking.by_fan_out`."""
    every = found.assign(lines=found["tuples"] * ROW_BYTES // PAGE)
    data, twice = every[every["passes"] == 1], every[every["passes"] == 2]
    if data.empty:
        raise Unavailable("too-few-points", "no partitioning in one pass was measured")
    x = alt.X("partitions:Q", axis=lines_axis("Partitions"), scale=log_scale())
    scale, colours = time_scale(every), _pages_scale(every)
    chart = series_chart(data, x, "ns per row", scale, _PER_ROW, colours, "pages")
    if len(twice):
        chart += alt.Chart(twice).mark_point(shape="cross", size=90, strokeWidth=2).encode(
            x=x, y=alt.Y("median:Q", scale=scale), color=alt.Color("pages:N", scale=colours, sort=colours.domain),
            tooltip=[alt.Tooltip("pages:N"), alt.Tooltip("passes:Q"), alt.Tooltip("median:Q", format=".3~r", title="ns")])
    if entries:
        chart += marks([(n, label.replace("pages", "entries")) for n, label in reaches(entries)], "partitions")
    told = []
    for pages, part in data.groupby("pages", sort=False):
        ends = part.sort_values("partitions").iloc[[0, -1]]
        told.append(f"{pages} from {ends['median'].iloc[0]:.1f} ns with {int(ends['partitions'].iloc[0]):,} partitions to "
                    f"{ends['median'].iloc[1]:.1f} with {int(ends['partitions'].iloc[1]):,}")
    return Figure(chart, "fan_out", f"Time to partition one row by the number of partitions: {'; '.join(told)}.",
                  every[["pages", "partitions", "passes", "tuples", *_COLUMNS, "histogram_ns"]])


def join(found: pd.DataFrame) -> Figure:
    """ns per row of a whole join against the number of partitions, a line a page size, naive as a dashed line across; a frame of
    `blocking.by_join`."""
    data = found.assign(lines=found["tuples"] * 6 * ROW_BYTES // PAGE)
    parted, naive = data[(data["mode"] == "partitioned") & (data["passes"] == 1)], data[data["mode"] == "naive"]
    if parted.empty:
        raise Unavailable("too-few-points", "no partitioned join was measured")
    colours, scale = _pages_scale(data), time_scale(data)
    x = alt.X("partitions:Q", axis=lines_axis("Partitions"), scale=log_scale())
    chart = series_chart(parted, x, "ns per row", scale, _PER_ROW, colours, "pages")
    if len(naive):
        chart += alt.Chart(naive).mark_rule(strokeDash=[6, 4], strokeWidth=2).encode(
            y=alt.Y("median:Q", scale=scale), color=alt.Color("pages:N", scale=colours, sort=colours.domain),
            tooltip=[alt.Tooltip("pages:N"), alt.Tooltip("mode:N"), alt.Tooltip("median:Q", format=".3~r", title="ns")])
    told = [f"{row.pages} {row.median:.1f} ns naive" for row in naive.itertuples()]
    best = parted.loc[parted.groupby("pages")["median"].idxmin()]
    told += [f"{row.pages} {row.median:.1f} ns with {row.partitions:,} partitions" for row in best.itertuples()]
    return Figure(chart, "join", f"Time per row of a join by the number of partitions; dashed, naive. {', '.join(told)}.",
                  data[["pages", "mode", "partitions", "passes", "tuples", *_COLUMNS, *_GAIN]])
