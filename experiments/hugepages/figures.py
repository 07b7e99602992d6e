"""The charts of the chapter about page sizes, one function a figure."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from experiments.hugepages import calculator as model
from experiments.hugepages.analysis import Analysis
from experiments.hugepages.tables import published_reads
from tlb.page_sizes import BASE, ordered, words
from tlb.prose import extremes
from tlb.reasons import required
from tlb.report import axes, charts
from tlb.report.render import MUTED, Figure
from tlb.units import format_size

BESIDE = ("page_sizes",)  # with the reference machine's curves behind a switch

_READS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200)
ASKED_LOG2, ASKED_PAGES = 30, "2m"  # the static calculator answers 1 GiB on 2 MiB pages
_UNMEASURED = "This size was not measured on these pages."
_INTERVAL = ["median", "low", "high"]


def _prices(last: Mapping[str, float], named: Mapping[str, float]) -> tuple[str, str]:
    """Return sentences: which price is the highest, and all of them."""
    ends = ", ".join(f"{name} {ns:z.1f} ns" for name, ns in named.items())
    return extremes(last, most="pay most", least="least"), ends


def page_sizes(a: Analysis) -> Figure:
    """Draw ns per access of the spread chase against working set, a line a page size."""
    data = charts.stacked(a.spread, "no chase was measured", "pages", a.base_page_bytes)
    last = {pages: a.spread[pages].last.value for pages in a.kinds}
    most = extremes({f"a load on {words(pages)}": ns for pages, ns in last.items()})
    ends = ", ".join(
        f"{ns:.0f} ns on {pages} at {format_size(a.spread[pages].xs[-1] * a.base_page_bytes)}"
        for pages, ns in last.items()
    )
    dots = a.mappings.assign(working_set_bytes=a.mappings["lines"] * a.base_page_bytes)
    colours = axes.page_colours(data["pages"])
    columns = ["pages", "lines", "working_set_bytes", *_INTERVAL]
    return Figure(
        charts.chase_chart(data, colours, "pages", a.entries, a.base_page_bytes, processes=dots),
        f"A line a page size. {most} They end at {ends}.",
        pd.concat([data, dots.assign(n=1)], ignore_index=True)[
            [*columns, "coverage", "n", "spread", "unstable"]
        ],
    )


def page_prices(a: Analysis) -> Figure:
    """Draw the price of translation against working set, a line a page size."""
    data = charts.stacked(
        a.price, "no chase was measured with its packed control", "pages", a.base_page_bytes
    )
    colours = axes.page_colours(data["pages"])
    last = {pages: curve.last.value for pages, curve in a.price.items() if len(curve)}
    most, ends = _prices({words(pages): ns for pages, ns in last.items()}, last)
    return Figure(
        charts.chase_chart(data, colours, "pages", a.entries, a.base_page_bytes, is_price=True),
        f"The price of translation by page size. {most} At the largest size of each: {ends}.",
        data[["pages", "lines", "working_set_bytes", *_INTERVAL, "n", "unstable"]],
    )


def splinter(a: Analysis) -> Figure:
    """Draw the price of one line to each base page, on base pages and on 2 MiB pages."""
    kinds = BASE, a.large
    near = {words(pages): a.price[pages].between(0, a.most_lines) for pages in kinds}
    data = charts.stacked(
        near, "nothing was measured on both page sizes", page_bytes=a.base_page_bytes
    )
    colours = alt.Scale(domain=list(near), range=[axes.PAGE_COLOURS[pages] for pages in kinds])
    last = {name: curve.last.value for name, curve in near.items() if len(curve)}
    most, ends = _prices(last, last)
    chart = charts.chase_chart(
        data, colours, "series", a.entries, a.base_page_bytes, is_price=True, by_lines=True
    )
    return Figure(
        chart,
        "The price of translation on base pages and on large ones over the same lines. "
        f"{most} At the right: {ends}.",
        data[["series", "lines", *_INTERVAL, "n"]],
    )


def touch(a: Analysis) -> Figure:
    """Draw ns per random read against the array's bytes: here, and as published."""
    here = required(a.touches, "no random touches were measured")
    published = published_reads().rename(columns={"score": "median"})
    data = pd.concat([here.assign(where="here"), published.assign(where="published")])
    data = data.reset_index(drop=True)[["where", "pages", "array_bytes", *_INTERVAL, "n"]]
    most = here["array_bytes"].max()
    last = here[here["array_bytes"] == most].set_index("pages")["median"]
    longest = extremes({f"a read on {words(pages)}": ns for pages, ns in last.items()})
    ends = ", ".join(f"{ns:.1f} ns on {pages}" for pages, ns in last.items())
    return Figure(
        _reads(data),
        "Time per random read against the size of the array. "
        f"{longest} At {most:,} bytes here: {ends}.",
        data,
    )


def _reads(data: pd.DataFrame) -> alt.LayerChart:
    ends = data["median"].min() * 0.8, data[["median", "high"]].max().max() * 1.3
    scale = alt.Scale(type="log", nice=False, domain=list(ends))
    sizes = sorted(set(data["array_bytes"]))
    axis = alt.Axis(title="Bytes of the array", format="~s", values=sizes)
    x = alt.X("array_bytes:Q", scale=axes.log_scale(10), axis=axis)
    ticks = axes.ns_axis("ns per random read", axes.within(_READS, *ends))
    colour = axes.colour("pages", axes.page_colours(data["pages"]))
    where = ["here", "published"]
    dash = alt.StrokeDash(
        "where:N",
        sort=where,
        scale=alt.Scale(domain=where, range=[[1, 0], [5, 4]]),
        legend=alt.Legend(symbolType="stroke", symbolSize=420),
    )
    base = charts.published(alt.Chart(data), "datum.where != 'published'").encode(
        x=x, y=alt.Y("median:Q", scale=scale, axis=ticks), color=colour, strokeDash=dash
    )
    bars = alt.Chart(data[data["where"] == "here"]).mark_rule()
    bars = bars.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=colour)
    size = alt.Tooltip("array_bytes:Q", format=",")
    points = base.mark_point().encode(tooltip=axes.tips("pages:N", "where:N", size, bounds=False))
    return base.mark_line() + bars + points


def _choices(rows: pd.DataFrame) -> tuple[list[alt.Parameter], str]:
    """Return the calculator's two menus with the answer to each choice, and the default answer."""
    order, sizes = ordered(rows["pages"]), sorted(set(rows["log2_bytes"]))
    pages = ASKED_PAGES if ASKED_PAGES in order else order[-1]
    size = min(ASKED_LOG2, int(rows.loc[rows["pages"] == pages, "log2_bytes"].max()))
    answers = {
        kind: {str(int(row["log2_bytes"])): model.answer(row) for _, row in part.iterrows()}
        for kind, part in rows.groupby("pages")
    }
    labels = [format_size(2**n) for n in sizes]
    menu = alt.binding_select(options=sizes, labels=labels, name="Working set ")
    parameters = [
        alt.param("size", value=size, bind=menu),
        alt.param("pages", value=pages, bind=alt.binding_select(options=order, name="Pages ")),
        alt.param("answers", value=answers),
        alt.param("readout", expr=f"answers[pages][size] || '{_UNMEASURED}'"),
    ]
    return parameters, answers[pages].get(str(size), _UNMEASURED)


def calculator(a: Analysis) -> Figure:
    """Draw expected ns of a random access against the working set, a line a page size, with a size
    and a page size to choose."""
    rows = model.model(a, model.basis(a))
    parameters, answer = _choices(rows)
    order, ns = ordered(rows["pages"]), rows["ns"]
    data = rows.assign(working_set_bytes=2.0 ** rows["log2_bytes"])
    x = alt.X("working_set_bytes:Q", axis=axes.bytes_axis("Working set"), scale=axes.log_scale())
    ticks = axes.within(axes.TIMES, ns.min() * 0.5, ns.max() * 1.3)
    y = alt.Y(
        "ns:Q",
        scale=axes.time_scale(pd.DataFrame({"median": ns, "high": ns})),
        axis=axes.ns_axis("expected ns per random access", ticks),
    )
    colour = axes.colour("pages", axes.page_colours(order))
    dashes = alt.Scale(domain=order, range=list(axes.DASHES[: len(order)]))
    columns = ["working_set_bytes", "reach_bytes", "walks_per_access", "ns"]
    base = alt.Chart(data[["pages", "log2_bytes", *columns]]).encode(x=x)
    lines = base.mark_line().encode(
        y=y, color=colour, strokeDash=alt.StrokeDash("pages:N", sort=order, scale=dashes)
    )
    chosen = base.transform_filter("datum.pages == pages && datum.log2_bytes == size")
    point = chosen.mark_point(size=140).encode(y=y, color=colour)
    rule = chosen.mark_rule(color=MUTED, strokeDash=[4, 4])
    return Figure(
        alt.layer(lines, rule, point).add_params(*parameters),
        "Expected time of a random access, which takes longer than a hit where it walks, against "
        f"the working set, a line a page size. {answer}",
        data[["pages", *columns]],
    )
