"""The charts of the chapter about blocking, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.tlb_blocking.analysis import (
    AS_PUBLISHED,
    BLOCKED,
    PUBLISHED_BLOCK,
    VERTEX_BYTES,
    Analysis,
    graph_size,
)
from experiments.tlb_blocking.joins import GAIN
from tlb.lab.declaration import ROW_BYTES
from tlb.page_sizes import BASE, words
from tlb.prose import extremes
from tlb.reasons import required
from tlb.report import axes, charts
from tlb.report.chapter import literature
from tlb.report.render import MUTED, Figure
from tlb.units import format_size

BESIDE = ("blocks",)  # with the reference machine's curves behind a switch

# A comma breaks the line.
_REMEDIES = {
    BASE: "4 KiB",
    AS_PUBLISHED: "one block, of 256 MiB",
    BLOCKED: "blocks in, TLB reach",
    "thp": "2 MiB, (THP)",
    "2m": "2 MiB, (hugetlb)",
    "1g": "1 GiB",
}
_QUANTILES = {"p50": "median", "p95": "95th percentile"}
_WHERE = ["here", "published"]
_BLOCK = ["pages", "block_steps", "block_bytes", "block_pages", "visits"]
_COLUMNS = ["median", "low", "high", "coverage", "n", "unstable"]
_PER_ROW = (0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
_PER_HOP = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
_PARTITIONS = axes.lines_axis("Partitions")


def blocks(a: Analysis) -> Figure:
    """ns per hop against the block's bytes, a line a number of steps, on base pages; where the same
    blocks were walked on larger pages too, dashed."""
    data = required(a.blocks, "no walk in blocks was measured")
    data = data.assign(
        steps=data["block_steps"].map(lambda n: f"{n:,} steps"),
        lines=data["block_pages"],
        plain=data["vertices"].map(a.plain.medians).astype(float),
    )
    base, others = data[data["pages"] == BASE], data[data["pages"] != BASE]
    required(base, "no walk in blocks was measured on base pages")
    scheme = axes.colours(list(dict.fromkeys(data.sort_values("block_steps")["steps"])))
    scale = axes.time_scale(pd.concat([data, base.assign(median=base["plain"])]))
    x = alt.X("block_bytes:Q", axis=axes.bytes_axis("Size of a block"), scale=axes.log_scale())
    y = alt.Y("median:Q", scale=scale)
    chart = charts.series_chart(base, x, "ns per hop", scheme, "steps", scale=scale, ticks=_PER_HOP)
    for _, part in others.groupby("pages"):
        line = alt.Chart(part).mark_line(strokeDash=[6, 3])
        chart += line.encode(x=x, y=y, color=axes.colour("steps", scheme))
    plain, without = base["plain"].dropna(), ""
    if len(plain):
        level = pd.DataFrame({"median": [float(plain.iloc[0])], "label": ["without blocks"]})
        level = alt.Chart(level).encode(y=y)
        text = level.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=MUTED)
        chart += level.mark_rule(strokeWidth=1) + text.encode(x=alt.value(0), text="label:N")
        without = f"Without blocks a hop takes {plain.iloc[0]:.1f} ns. "
    best = base.loc[base["median"].idxmin()]
    return Figure(
        charts.layered(chart, charts.capacities(a.entries, "block_bytes", a.base_page_bytes)),
        "Time per hop against the size of a block, a line for each number of steps. "
        f"{without}The least is {best['median']:.1f} ns, with {best['steps']} in each block of "
        f"{format_size(best['block_bytes'])}.",
        data[[*_BLOCK, *_COLUMNS, "plain", *GAIN]],
    )


def block_prices(a: Analysis) -> Figure:
    """ns a hop against the pages of a block, a vertex to each: spread, the same vertices side by
    side, and their difference."""
    curves = {"spread": a.block_spread, "packed": a.block_packed, "price": a.priced_blocks}
    data = charts.stacked(curves, "nothing was measured")
    data = data[["series", "lines", "median", "low", "high"]].assign(pages=data["lines"])
    x = alt.X("pages:Q", axis=axes.lines_axis("Pages in a block"), scale=axes.log_scale())
    scheme = axes.colours(list(curves))
    chart = charts.series_chart(data, x, "ns per hop", scheme, ticks=_PER_HOP)
    (least, near), (most, far) = [*curves["price"]][0], [*curves["price"]][-1]
    return Figure(
        charts.layered(chart, charts.capacities(a.entries, "pages")),
        f"The price of translation of a hop by the pages of a block goes from {near.value:z.1f} ns "
        f"in blocks of {least:,} to {far.value:z.1f} where all {most:,} are one.",
        data[["series", "pages", "median", "low", "high"]],
    )


def prefetch(a: Analysis) -> Figure:
    """ns per hop against the distance of the prefetch, a line a page size."""
    data = required(a.ahead, "no walk with prefetches was measured")
    data = data.assign(lines=data["vertices"] * VERTEX_BYTES // a.base_page_bytes)
    ticks = sorted(set(data["distance"]))
    x = alt.X(
        "distance:Q",
        scale=alt.Scale(type="symlog", constant=1, nice=False),
        axis=alt.Axis(title="Hops ahead (0: no prefetch)", values=ticks, format="d"),
    )
    scheme = axes.page_colours(data["pages"])
    best = data.loc[data.groupby("pages", sort=False)["median"].idxmin()]
    each = ", ".join(
        f"{words(row.pages)} {row.median:.1f} ns at {row.distance}" for row in best.itertuples()
    )
    return Figure(
        charts.series_chart(data, x, "ns per hop", scheme, "pages", ticks=_PER_HOP),
        "Time per hop against how many hops ahead the vertex is asked for. It takes least on "
        f"{each}.",
        data[["pages", "distance", "vertices", *_COLUMNS, *GAIN]],
    )


def mitigations(a: Analysis) -> Figure:
    """P50 and P95 of a hop by remedy: bars, those of the published run pale."""
    ours = required(a.remedies, "no walk on base pages was timed hop by hop")
    data = _remedies(ours)
    blocks = {BLOCKED: "blocks on base pages", AS_PUBLISHED: "one large block"}
    named = [blocks.get(row.remedy, words(row.pages)) for row in ours.itertuples()]
    p95 = dict(zip(named, ours["p95"], strict=True))
    tails = extremes(p95, most="have the longest tail", least="the shortest")
    each = ", ".join(
        f"{label} {row.p50:.0f} and {row.p95:.0f} ns"
        for label, row in zip(data["label"], ours.itertuples(), strict=False)
    )
    return Figure(
        _remedy_bars(data),
        f"Median and 95th percentile of a hop over {graph_size(ours['vertices'].max())} by remedy. "
        f"{tails} All: {each}.",
        data.drop(columns="slot"),
    )


def _remedies(ours: pd.DataFrame) -> pd.DataFrame:
    """Return a row a remedy, place (here, published) and quantile: ns, low, high, label, slot."""
    sizes = {"working_set_bytes": ours["vertices"], "block_bytes": ours["block_vertices"]}
    names = {"mitigation": "remedy"} | {
        f"{quantile}_ns_per_hop": quantile for quantile in _QUANTILES
    }
    here = ours.assign(**{name: count * VERTEX_BYTES for name, count in sizes.items()})
    tables = {"here": here, "published": literature("mitigations").rename(columns=names)}
    parts = []
    for where, table in tables.items():
        for quantile, name in _QUANTILES.items():
            part = table.assign(where=where, quantile=name, ns=table[quantile].astype(float))
            part["low"], part["high"] = (table.get(f"{quantile}_{end}") for end in ("low", "high"))
            parts.append(part.dropna(axis="columns", how="all"))
    columns = ["where", "remedy", "pages", "quantile", "ns", "low", "high"]
    columns += ["working_set_bytes", "block_bytes", "n"]
    data = pd.concat(parts, ignore_index=True).reindex(columns=columns)
    is_published = data["block_bytes"] == PUBLISHED_BLOCK * VERTEX_BYTES
    data["remedy"] = data["remedy"].mask(is_published, AS_PUBLISHED)
    label = data["pages"].where(data["block_bytes"].fillna(0) == 0, data["remedy"])
    return data.assign(label=label.map(_REMEDIES), slot=data["quantile"] + ", " + data["where"])


def _remedy_bars(data: pd.DataFrame) -> alt.LayerChart:
    order = [name for name in _REMEDIES.values() if (data["label"] == name).any()]
    slots = [f"{name}, {where}" for name in _QUANTILES.values() for where in _WHERE]
    split = {"labelAngle": 0, "labelOverlap": False, "labelExpr": "split(datum.label, ', ')"}
    base = charts.published(alt.Chart(data), "datum.where != 'published'").encode(
        x=alt.X("label:N", sort=order, axis=alt.Axis(title="Remedy", **split)),
        xOffset=alt.XOffset("slot:N", sort=slots, scale=alt.Scale(domain=slots)),
    )
    ns = alt.Tooltip("ns:Q", format=".3~r")
    pale = alt.Scale(domain=_WHERE, range=[1, 0.4])
    bars = base.mark_bar().encode(
        y=alt.Y("ns:Q", axis=axes.ns_axis("ns per hop"), scale=alt.Scale(domainMin=0)),
        color=axes.colour("quantile", list(_QUANTILES.values())),
        opacity=alt.Opacity("where:N", sort=_WHERE, scale=pale),
        tooltip=["label:N", "where:N", "quantile:N", ns, alt.Tooltip("n:Q", title="processes")],
    )
    errors = base.transform_filter("datum.low != null").mark_rule(strokeWidth=2)
    return bars + errors.encode(y="low:Q", y2="high:Q")


def fan_out(a: Analysis) -> Figure:
    """ns to partition one row against the number of partitions, a line a page size in one pass,
    crosses in two."""
    every = a.fan_out.assign(lines=a.fan_out["tuples"] * ROW_BYTES // a.base_page_bytes)
    data, twice = every[every["passes"] == 1], every[every["passes"] == 2]
    required(data, "no partitioning in one pass was measured")
    # The label of the last rule needs room on the right.
    room = int(data["partitions"].min()), 4 * int(data["partitions"].max())
    x = alt.X("partitions:Q", axis=_PARTITIONS, scale=axes.log_scale(domain=room))
    scale, scheme = axes.time_scale(every), axes.page_colours(every["pages"])
    chart = charts.series_chart(data, x, "ns per row", scheme, "pages", scale=scale, ticks=_PER_ROW)
    if len(twice):
        crosses = alt.Chart(twice).mark_point(shape="cross", size=90, strokeWidth=2)
        chart += _beside(crosses, scale, scheme, "passes:Q").encode(x=x)
    if a.entries:
        ends = [(n, name.replace("pages", "entries")) for n, name in charts.reaches(a.entries)]
        chart += charts.marks(ends, "partitions")
    each = []
    for pages, part in data.groupby("pages", sort=False):
        few, many = part.sort_values("partitions").iloc[[0, -1]].itertuples()
        each.append(
            f"{words(pages)} from {few.median:.1f} ns with {few.partitions:,} partitions to "
            f"{many.median:.1f} with {many.partitions:,}"
        )
    return Figure(
        chart,
        f"To partition one row takes, by the number of partitions, on {'; '.join(each)}.",
        every[["pages", "partitions", "passes", "tuples", *_COLUMNS, "histogram_ns"]],
    )


def _beside(chart: alt.Chart, scale: alt.Scale, scheme: alt.Scale, field: str) -> alt.Chart:
    """Encode medians by page size that a `series_chart` has not."""
    return chart.encode(
        y=alt.Y("median:Q", scale=scale),
        color=axes.colour("pages", scheme),
        tooltip=axes.tips("pages:N", field, bounds=False),
    )


def join(a: Analysis) -> Figure:
    """ns per row of a whole join against the number of partitions, a line a page size, naive as a
    dashed line across."""
    data = a.joins.assign(lines=a.joins["tuples"] * 6 * ROW_BYTES // a.base_page_bytes)
    parted = data[(data["mode"] == "partitioned") & (data["passes"] == 1)]
    required(parted, "no partitioned join was measured")
    naive = data[data["mode"] == "naive"]
    scale, scheme = axes.time_scale(data), axes.page_colours(data["pages"])
    x = alt.X("partitions:Q", axis=_PARTITIONS, scale=axes.log_scale())
    chart = charts.series_chart(
        parted, x, "ns per row", scheme, "pages", scale=scale, ticks=_PER_ROW
    )
    if len(naive):
        rules = alt.Chart(naive).mark_rule(strokeDash=[6, 4], strokeWidth=2)
        chart += _beside(rules, scale, scheme, "mode:N")
    each = [f"{words(row.pages)} {row.median:.1f} ns naive" for row in naive.itertuples()]
    best = parted.loc[parted.groupby("pages")["median"].idxmin()]
    each += [
        f"{words(row.pages)} {row.median:.1f} ns with {row.partitions:,} partitions"
        for row in best.itertuples()
    ]
    return Figure(
        chart,
        "A join that partitions first beside a naive one, dashed, by the number of partitions. It "
        f"takes {', '.join(each)}.",
        data[["pages", "mode", "partitions", "passes", "tuples", *_COLUMNS, *GAIN]],
    )
