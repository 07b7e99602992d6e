"""The charts of the chapter about page sizes, one function a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from experiments.hugepages import calculator as model
from experiments.hugepages.analysis import Analysis
from experiments.hugepages.tables import published_reads
from tlb.inference.curves import Curve
from tlb.page_sizes import BASE, PAGES, ordered, words
from tlb.prose import extremes
from tlb.reasons import required
from tlb.report import charts
from tlb.report.render import MUTED, Figure
from tlb.units import format_size

BESIDE = ("page_sizes",)  # with the reference machine's curves behind a switch

_READS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200)
_DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3], [4, 2])
ASKED_LOG2, ASKED_PAGES = (
    30,
    "2m",
)  # what the static calculator answers: 1 GiB on the pages most asked about
_UNMEASURED = "This size was not measured on these pages."


def _stacked(
    a: Analysis, curves: Mapping[str, Curve], lacking: str, series: str = "pages"
) -> pd.DataFrame:
    """Curves under each other. Raises Unavailable("too-few-points") where nothing was measured."""
    tables = [curve.table.assign(**{series: name}) for name, curve in curves.items() if len(curve)]
    data = pd.concat(required(tables, lacking), ignore_index=True)
    return data.assign(working_set_bytes=data["lines"] * a.base_page_bytes)


def _ends(curves: Mapping[str, Curve]) -> str:
    return ", ".join(
        f"{name} {curve.last.value:z.1f} ns" for name, curve in curves.items() if len(curve)
    )


def _extremes(curves: Mapping[str, Curve]) -> str:
    return extremes(
        {
            words(name) if name in PAGES else name: curve.last.value
            for name, curve in curves.items()
            if len(curve)
        },
        most="pay most",
        least="least",
    )


def _within(ticks: Sequence[float], low: float, high: float) -> list[float]:
    return [tick for tick in ticks if low <= tick <= high]


def page_sizes(a: Analysis) -> Figure:
    """ns per access of the spread chase against working set, a line a page size."""
    data = _stacked(a, a.spread, "no chase was measured")
    told = ", ".join(
        f"{a.spread[pages].last.value:.0f} ns on {pages} at {format_size(a.spread[pages].xs[-1] * a.base_page_bytes)}"
        for pages in a.kinds
    )
    last = {f"a load on {words(pages)}": a.spread[pages].last.value for pages in a.kinds}
    dots = pd.concat(
        [curve.processes.assign(pages=pages) for pages, curve in a.spread.items()],
        ignore_index=True,
    )
    dots = dots.reindex(columns=["lines", "median", "pages"]).assign(
        working_set_bytes=lambda rows: rows["lines"] * a.base_page_bytes
    )
    return Figure(
        charts.chase_chart(
            data,
            charts.page_colours(data["pages"]),
            "pages",
            a.entries,
            a.base_page_bytes,
            processes=dots,
        ),
        f"A line a page size. {extremes(last)} They end at {told}.",
        pd.concat([data, dots.assign(n=1)], ignore_index=True)[
            [
                "pages",
                "lines",
                "working_set_bytes",
                "median",
                "low",
                "high",
                "coverage",
                "n",
                "spread",
                "unstable",
            ]
        ],
    )


def page_prices(a: Analysis) -> Figure:
    """The price of translation against working set, a line a page size."""
    data = _stacked(a, a.price, "no chase was measured with its packed control")
    scheme = charts.page_colours(data["pages"])
    return Figure(
        charts.chase_chart(data, scheme, "pages", a.entries, a.base_page_bytes, is_price=True),
        f"The price of translation by page size. {_extremes(a.price)} At the largest size of each: {_ends(a.price)}.",
        data[["pages", "lines", "working_set_bytes", "median", "low", "high", "n", "unstable"]],
    )


def splinter(a: Analysis) -> Figure:
    """The price of one line to each base page, on base pages and on 2 MiB pages."""
    near = {words(pages): a.price[pages].between(0, a.most_lines) for pages in (BASE, a.large)}
    data = _stacked(a, near, "nothing was measured on both page sizes", "series")
    scheme = alt.Scale(
        domain=list(near), range=[charts.PAGE_COLOURS[BASE], charts.PAGE_COLOURS[a.large]]
    )
    return Figure(
        charts.chase_chart(
            data, scheme, "series", a.entries, a.base_page_bytes, is_price=True, by_lines=True
        ),
        f"The price of translation on base pages and on large ones over the same lines. {_extremes(near)} At the right: "
        f"{_ends(near)}.",
        data[["series", "lines", "median", "low", "high", "n"]],
    )


def touch(a: Analysis) -> Figure:
    """ns per random read against the array's bytes: here, and as published."""
    here = required(a.touches, "no random touches were measured")
    published = published_reads().rename(columns={"score": "median"})
    data = pd.concat(
        [here.assign(where="here"), published.assign(where="published")], ignore_index=True
    )[["where", "pages", "array_bytes", "median", "low", "high", "n"]]
    low, high = data["median"].min() * 0.8, data[["median", "high"]].max().max() * 1.3
    scale = alt.Scale(type="log", nice=False, domain=[low, high])
    x = alt.X(
        "array_bytes:Q",
        scale=charts.log_scale(10),
        axis=alt.Axis(
            title="Bytes of the array", format="~s", values=sorted(set(data["array_bytes"]))
        ),
    )
    colour = alt.Color(
        "pages:N", sort=ordered(data["pages"]), scale=charts.page_colours(data["pages"])
    )
    base = charts.published(alt.Chart(data), "datum.where != 'published'").encode(
        x=x,
        y=alt.Y(
            "median:Q",
            scale=scale,
            axis=charts.ns_axis("ns per random read", _within(_READS, low, high)),
        ),
        color=colour,
        strokeDash=alt.StrokeDash(
            "where:N",
            sort=["here", "published"],
            scale=alt.Scale(domain=["here", "published"], range=[[1, 0], [5, 4]]),
            legend=alt.Legend(symbolType="stroke", symbolSize=420),
        ),
    )
    bars = (
        alt.Chart(data[data["where"] == "here"])
        .mark_rule()
        .encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=colour)
    )
    tips = [
        "pages:N",
        "where:N",
        alt.Tooltip("array_bytes:Q", format=","),
        alt.Tooltip("median:Q", format=".3~r", title="ns"),
    ]
    most = here["array_bytes"].max()
    largest = {
        f"a read on {words(row.pages)}": row.median
        for row in here[here["array_bytes"] == most].itertuples()
    }
    told = ", ".join(
        f"{row.median:.1f} ns on {row.pages}"
        for row in here[here["array_bytes"] == most].itertuples()
    )
    return Figure(
        base.mark_line() + bars + base.mark_point().encode(tooltip=tips),
        f"Time per random read against the size of the array. {extremes(largest)} At {most:,} bytes here: {told}.",
        data,
    )


def calculator(a: Analysis) -> Figure:
    """Expected ns of a random access against the working set, a line a page size, with a size and a
    page size to choose."""
    rows = model.model(a, model.basis(a))
    order, sizes = ordered(rows["pages"]), sorted(set(rows["log2_bytes"]))
    pages = ASKED_PAGES if ASKED_PAGES in order else order[-1]
    size = min(ASKED_LOG2, int(rows.loc[rows["pages"] == pages, "log2_bytes"].max()))
    texts = {
        kind: {str(int(row["log2_bytes"])): model.answer(row) for _, row in part.iterrows()}
        for kind, part in rows.groupby("pages")
    }
    parameters = [
        alt.param(
            "size",
            value=size,
            bind=alt.binding_select(
                options=sizes, labels=[format_size(2**n) for n in sizes], name="Working set "
            ),
        ),
        alt.param("pages", value=pages, bind=alt.binding_select(options=order, name="Pages ")),
        alt.param("answers", value=texts),
        alt.param("readout", expr=f"answers[pages][size] || '{_UNMEASURED}'"),
    ]
    data = rows.assign(
        working_set_bytes=2.0 ** rows["log2_bytes"],
        median=rows["ns"],
        low=rows["ns"],
        high=rows["ns"],
    )
    x = alt.X(
        "working_set_bytes:Q", axis=charts.bytes_axis("Working set"), scale=charts.log_scale()
    )
    y = alt.Y(
        "ns:Q",
        scale=charts.time_scale(data),
        axis=charts.ns_axis(
            "expected ns per random access",
            _within(charts.TIMES, data["ns"].min() * 0.5, data["ns"].max() * 1.3),
        ),
    )
    colour = alt.Color("pages:N", sort=order, scale=charts.page_colours(order))
    base = alt.Chart(
        data[["pages", "log2_bytes", "working_set_bytes", "reach_bytes", "walks_per_access", "ns"]]
    )
    lines = base.mark_line().encode(
        x=x,
        y=y,
        color=colour,
        strokeDash=alt.StrokeDash(
            "pages:N", sort=order, scale=alt.Scale(domain=order, range=list(_DASHES[: len(order)]))
        ),
    )
    chosen = base.transform_filter("datum.pages == pages && datum.log2_bytes == size")
    rule = chosen.mark_rule(color=MUTED, strokeDash=[4, 4]).encode(x=x)
    chart = alt.layer(
        lines, rule, chosen.mark_point(size=140).encode(x=x, y=y, color=colour)
    ).add_params(*parameters)
    default = texts[pages].get(str(size), _UNMEASURED)
    return Figure(
        chart,
        "Expected time of a random access, which takes longer than a hit where it walks, against the working set, a line "
        f"a page size. {default}",
        data[["pages", "working_set_bytes", "reach_bytes", "walks_per_access", "ns"]],
    )
