"""The charts of the chapter about blocking, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.tlb_blocking.analysis import (
    AS_PUBLISHED,
    GAIN_COLUMNS,
    PUBLISHED_BLOCK,
    SMALL_GRAPH,
    TLB_BLOCKING,
    VERTEX_BYTES,
    Analysis,
    graph_size,
)
from tlb.report import charts
from tlb.report.chapter import literature
from tlb.report.render import MUTED, Figure
from tlb.system.page_sizes import BASE
from tlb.system.reasons import required
from tlb.system.units import format_size

_REMEDIES = {  # on base pages
    BASE: "",
    AS_PUBLISHED: ", one block of 256 MiB, never left",
    SMALL_GRAPH: ", a graph of 256 MiB, no blocks",
    TLB_BLOCKING: ", blocks inside the TLB's reach",
}
_QUANTILES = {"p50": "median", "p95": "95th percentile"}
_WHERE = ["here", "published"]
_BLOCK = ["pages", "block_steps", "block_bytes", "block_pages", "visits"]
_LOW_PX = 208  # of a plot with few points
_PER_HOP = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)


def blocks(a: Analysis) -> Figure:
    data = required(a.blocks, "no walk in blocks was measured")
    data = data.assign(
        steps=data["block_steps"].map(lambda n: f"{n:,} steps"),
        lines=data["block_pages"],
        plain=data["vertices"].map(a.plain.medians).astype(float),
    )
    base = required(data[data["pages"] == BASE], "no walk in blocks was measured on base pages")
    scheme = charts.colours(list(dict.fromkeys(data.sort_values("block_steps")["steps"])))
    room = base.assign(high=3 * base[["plain", "high"]].max(axis=1))  # for the labels at the top
    scale = charts.time_scale(room)
    x = alt.X("block_bytes:Q", axis=charts.bytes_axis("Size of a block"), scale=charts.log_scale())
    y = alt.Y("median:Q", scale=scale)
    chart = charts.series_chart(base, x, "ns per hop", scheme, "steps", scale=scale, ticks=_PER_HOP)
    plain = pd.DataFrame({"median": base["plain"].dropna()[:1]}).assign(label="without blocks")
    level = alt.Chart(plain).encode(y=y)
    text = level.mark_text(align="left", baseline="bottom", dy=-3, color=MUTED)
    chart += level.mark_rule() + text.encode(x=alt.value(110), text="label:N")
    best = base.loc[base["median"].idxmin()]
    return Figure(
        charts.layered(
            chart, charts.capacities(a.entries, "block_bytes", a.base_page_bytes)
        ).properties(height=_LOW_PX),
        "Time per hop against the size of a block, a line for each number of steps. "
        f"The least is {best['median']:.1f} ns, with {best['steps']} in each block of "
        f"{format_size(best['block_bytes'])}.",
        data[[*_BLOCK, *charts.FIELDS, *GAIN_COLUMNS]],
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
    scheme = charts.page_colours(data["pages"], a.page_labels)
    data["pages"] = data["pages"].map(a.page_labels)
    best = data.loc[data.groupby("pages", sort=False)["median"].idxmin()]
    each = ", ".join(
        f"{row.pages} {row.median:.1f} ns at {row.distance}" for row in best.itertuples()
    )
    return Figure(
        charts.series_chart(data, x, "ns per hop", scheme, "pages", ticks=_PER_HOP).properties(
            height=_LOW_PX
        ),
        "Time per hop against how many hops ahead the vertex is prefetched. It takes least on "
        f"{each}.",
        data[["pages", "distance", "vertices", *charts.FIELDS, *GAIN_COLUMNS]],
    )


def mitigations(a: Analysis) -> Figure:
    ours = required(a.remedies, "no walk on base pages was timed hop by hop")
    base = f"{a.page_labels[BASE]} pages"
    named = a.page_labels | {remedy: base + how for remedy, how in _REMEDIES.items()}
    data = _remedies(ours, named)
    names = [named[key] for key in (*_REMEDIES, "thp", "2m", "1g")]
    names = [name for name in names if (data["remedy"] == name).any()]
    top = float(data[["median", "high"]].max().max()) * 1.05
    size = f"graph of {graph_size(ours['vertices'].max())}"
    x = {"scale": alt.Scale(domain=[0, top], nice=False), "axis": charts.ns_axis("ns per hop")}
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
        color=charts.colour("quantile", list(_QUANTILES.values()), columns=1),
        shape=charts.shape("where", _WHERE, columns=1),
    )
    here = data[data["where"] == "here"].pivot(index="remedy", columns="quantile", values="median")
    each = "; ".join(
        f"{name} {row['median']:.0f} and {row['95th percentile']:.0f} ns"
        for name, row in here.reindex([name for name in names if name in here.index]).iterrows()
    )
    return Figure(
        charts.published(rows, "datum.where != 'published'"),
        f"Median and 95th percentile of a hop in a {size} by remedy: {each}.",
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
