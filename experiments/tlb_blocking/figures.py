"""The charts of the chapter about blocking, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.tlb_blocking.analysis import (
    AS_PUBLISHED,
    BLOCKED,
    GAIN,
    PUBLISHED_BLOCK,
    SMALL_GRAPH,
    VERTEX_BYTES,
    Analysis,
    graph_size,
)
from tlb.lab.declaration import ROW_BYTES
from tlb.page_sizes import BASE
from tlb.reasons import required
from tlb.report import axes, charts
from tlb.report.chapter import literature
from tlb.report.render import MUTED, Figure
from tlb.units import format_size

BESIDE = ("blocks",)  # with the reference machine's curves behind a switch

_REMEDIES = {  # on base pages
    BASE: "",
    AS_PUBLISHED: ", one block of 256 MiB, never left",
    SMALL_GRAPH: ", a graph of 256 MiB, no blocks",
    BLOCKED: ", blocks inside the TLB's reach",
}
_QUANTILES = {"p50": "median", "p95": "95th percentile"}
_WHERE = ["here", "published"]
_BLOCK = ["pages", "block_steps", "block_bytes", "block_pages", "visits"]
_PER_ROW = tuple(range(0, 501, 10))
_PER_HOP = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
_PARTITIONS = axes.lines_axis("Partitions")


def blocks(a: Analysis) -> Figure:
    data = required(a.blocks, "no walk in blocks was measured")
    data = data.assign(
        steps=data["block_steps"].map(lambda n: f"{n:,} steps"),
        lines=data["block_pages"],
        plain=data["vertices"].map(a.plain.medians).astype(float),
    )
    base = required(data[data["pages"] == BASE], "no walk in blocks was measured on base pages")
    scheme = axes.colours(list(dict.fromkeys(data.sort_values("block_steps")["steps"])))
    room = base.assign(high=3 * base[["plain", "high"]].max(axis=1))  # for the labels at the top
    scale = axes.time_scale(room)
    x = alt.X("block_bytes:Q", axis=axes.bytes_axis("Size of a block"), scale=axes.log_scale())
    y = alt.Y("median:Q", scale=scale)
    chart = charts.series_chart(base, x, "ns per hop", scheme, "steps", scale=scale, ticks=_PER_HOP)
    level = pd.DataFrame({"median": base["plain"].dropna()[:1]}).assign(label="without blocks")
    level = alt.Chart(level).encode(y=y)
    text = level.mark_text(align="left", baseline="bottom", dy=-3, color=MUTED)
    chart += level.mark_rule() + text.encode(x=alt.value(110), text="label:N")
    best = base.loc[base["median"].idxmin()]
    return Figure(
        charts.layered(chart, charts.capacities(a.entries, "block_bytes", a.base_page_bytes)),
        "Time per hop against the size of a block, a line for each number of steps. "
        f"The least is {best['median']:.1f} ns, with {best['steps']} in each block of "
        f"{format_size(best['block_bytes'])}.",
        data[[*_BLOCK, *charts.FIELDS, *GAIN]],
    )


def block_prices(a: Analysis) -> Figure:
    curves = {"spread": a.block_spread, "packed": a.block_packed, "price": a.priced_blocks}
    data = charts.stacked(curves, "nothing was measured")
    data = data[["series", "lines", *charts.INTERVAL]].assign(pages=data["lines"])
    x = alt.X("pages:Q", axis=axes.lines_axis("Pages in a block"), scale=axes.log_scale())
    scheme = axes.colours(list(curves))
    scale = axes.time_scale(data.assign(high=2 * data["high"]))  # room for the labels at the top
    chart = charts.series_chart(data, x, "ns per hop", scheme, scale=scale, ticks=_PER_HOP)
    dots = alt.Chart(a.block_spread.processes.rename(columns={"block_vertices": "pages"}))
    dots = dots.mark_circle(size=14, color=scheme.range[0])
    chart += dots.encode(x=x, y=alt.Y("median:Q", scale=scale))
    (least, near), (most, far) = [*curves["price"]][0], [*curves["price"]][-1]
    return Figure(
        charts.layered(chart, charts.capacities(a.entries[-1:], "pages")),
        f"The price of translation of a hop by the pages of a block goes from {near.value:z.1f} ns "
        f"in blocks of {least:,} to {far.value:z.1f} where all {most:,} are one.",
        data[["series", "pages", *charts.INTERVAL]],
    )


def prefetch(a: Analysis) -> Figure:
    data = required(a.ahead, "no walk with prefetches was measured")
    data = data.assign(lines=data["vertices"] * VERTEX_BYTES // a.base_page_bytes)
    ticks = sorted(set(data["distance"]))
    x = alt.X(
        "distance:Q",
        scale=alt.Scale(type="symlog", constant=1, nice=False),
        axis=alt.Axis(title="Hops ahead (0: no prefetch)", values=ticks, format="d"),
    )
    scheme = axes.page_colours(data["pages"], a.page_labels)
    data["pages"] = data["pages"].map(a.page_labels)
    best = data.loc[data.groupby("pages", sort=False)["median"].idxmin()]
    each = ", ".join(
        f"{row.pages} {row.median:.1f} ns at {row.distance}" for row in best.itertuples()
    )
    return Figure(
        charts.series_chart(data, x, "ns per hop", scheme, "pages", ticks=_PER_HOP),
        "Time per hop against how many hops ahead the vertex is prefetched. It takes least on "
        f"{each}.",
        data[["pages", "distance", "vertices", *charts.FIELDS, *GAIN]],
    )


def mitigations(a: Analysis) -> Figure:
    ours = required(a.remedies, "no walk on base pages was timed hop by hop")
    base = f"{a.page_labels[BASE]} pages"
    named = a.page_labels | {remedy: base + how for remedy, how in _REMEDIES.items()}
    data = _remedies(ours, named)
    names = [named[key] for key in (*_REMEDIES, "thp", "2m", "1g")]
    names = [name for name in names if (data["remedy"] == name).any()]
    top = float(data[["median", "high"]].max().max()) * 1.05
    x = {"scale": alt.Scale(domain=[0, top], nice=False), "axis": axes.ns_axis("ns per hop")}
    rows = charts.medians_in_rows(
        data,
        "remedy",
        names,
        x,
        "remedy:N",
        "where:N",
        "quantile:N",
        alt.Tooltip("n:Q", title="processes"),
        width=2,
        size=70,
        color=axes.colour("quantile", list(_QUANTILES.values()), columns=1),
        shape=axes.shape("where", _WHERE, columns=1),
    )
    here = data[data["where"] == "here"].pivot(index="remedy", columns="quantile", values="median")
    each = "; ".join(
        f"{name} {row['median']:.0f} and {row['95th percentile']:.0f} ns"
        for name, row in here.reindex([name for name in names if name in here.index]).iterrows()
    )
    return Figure(
        charts.published(rows, "datum.where != 'published'"),
        f"Median and 95th percentile of a hop over {graph_size(ours['vertices'].max())} by remedy: "
        f"{each}.",
        data,
    )


def _remedies(ours: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """Return a row a remedy, place (here, published) and quantile: median, low and high, ns."""
    theirs = literature("mitigations").rename(columns={"mitigation": "remedy"})
    theirs = theirs.rename(columns=lambda name: name.removesuffix("_ns_per_hop"))
    blocks = theirs["block_bytes"] == PUBLISHED_BLOCK * VERTEX_BYTES
    theirs["remedy"] = theirs["remedy"].mask(blocks, AS_PUBLISHED)
    parts = [
        table.assign(
            where=where,
            quantile=name,
            median=table[short].astype(float),
            low=table.get(f"{short}_low", float("nan")),
            high=table.get(f"{short}_high", float("nan")),
        )
        for where, table in zip(_WHERE, (ours, theirs), strict=True)
        for short, name in _QUANTILES.items()
    ]
    columns = ["where", "remedy", "quantile", *charts.INTERVAL, "n"]
    data = pd.concat([part.reindex(columns=[*columns, "pages"]) for part in parts])
    named = data["remedy"].where(data["remedy"].isin(_REMEDIES), data["pages"])
    return data.assign(remedy=named.map(names))[columns].reset_index(drop=True)


def join(a: Analysis) -> Figure:
    data = a.joins.assign(lines=a.joins["tuples"] * 6 * ROW_BYTES // a.base_page_bytes)
    scheme = axes.page_colours(data["pages"], a.page_labels)
    data["pages"] = data["pages"].map(a.page_labels)
    parted = data[(data["mode"] == "partitioned") & (data["passes"] == 1)]
    required(parted, "no partitioned join was measured")
    naive = data[data["mode"] == "naive"]
    ends = (parted["partitions"].min(), parted["partitions"].max())
    drawn = pd.concat([parted, *(naive.assign(partitions=end) for end in ends)])
    x = alt.X("partitions:Q", axis=_PARTITIONS, scale=axes.log_scale())
    y = axes.median_y(drawn, "ns per row", _PER_ROW, axes.zero_scale(drawn))
    kinds, colour = ("mode", ["partitioned", "naive"]), axes.colour("pages", scheme, columns=1)
    chart = charts.dashed(drawn, x, y, colour, kinds, "partitions:Q")
    best = drawn.loc[drawn.groupby(["pages", "mode"], sort=False)["median"].idxmin()]
    each = ", ".join(f"{row.pages} {row.mode} {row.median:.1f} ns" for row in best.itertuples())
    return Figure(
        chart,
        "Time per row of a join by the number of partitions, and of a naive one, dashed. The least "
        f"is {each}.",
        data[["pages", "mode", "partitions", "passes", "tuples", *charts.FIELDS, *GAIN]],
    )
