"""The figures of the chapter about huge pages."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.hugepages import calculator as model
from experiments.hugepages.analysis import Analysis
from tlb.report import charts
from tlb.report.render import Figure
from tlb.stats.curves import at_largest_shared
from tlb.system.page_sizes import BASE, ordered
from tlb.system.prose import count
from tlb.system.units import format_size

ASKED_LOG2, ASKED_PAGES = 30, "2m"  # the static calculator answers 1 GiB on 2 MiB pages
_UNMEASURED = "This size was not measured on these pages."


def page_sizes(a: Analysis) -> Figure:
    data = charts.stacked(a.spread, "no chase was measured", "pages", a.base_page_bytes)
    ends = ", ".join(
        f"{curve.last.value:.0f} ns on {a.page_labels[pages]} at "
        f"{format_size(curve.xs[-1] * a.base_page_bytes)}"
        for pages, curve in a.spread.items()
        if len(curve)
    )
    dots = a.mappings.assign(working_set_bytes=a.mappings["lines"] * a.base_page_bytes)
    data, dots = (rows.assign(pages=rows["pages"].map(a.page_labels)) for rows in (data, dots))
    columns = ["pages", "lines", "working_set_bytes", *charts.INTERVAL]
    return Figure(
        charts.chase_chart(
            data,
            charts.page_colours(a.kinds, a.page_labels),
            "pages",
            a.entries,
            a.base_page_bytes,
            processes=dots,
        ).properties(height=245),
        f"Time per load by page size. The curves end at {ends}.",
        pd.concat([data, dots.assign(n=1)], ignore_index=True)[
            [*columns, "coverage", "n", "spread", "unstable"]
        ],
    )


def splinter(a: Analysis) -> Figure:
    kinds = BASE, a.large
    near = {a.page_labels[pages]: a.price[pages].between(0, a.most_lines) for pages in kinds}
    data = charts.stacked(
        near, "nothing was measured on both page sizes", page_bytes=a.base_page_bytes
    )
    lines, costs = at_largest_shared(near)
    each = ", ".join(f"{ns:z.1f} ns on {name}" for name, ns in costs.items())
    chart = charts.chase_chart(
        data,
        charts.page_colours(kinds, a.page_labels),
        "series",
        a.entries,
        a.base_page_bytes,
        is_price=True,
        by_lines=True,
        last_left=True,
    )
    return Figure(
        chart.properties(height=215),
        "The cost of translation on two page sizes over the same lines. Over "
        f"{count(lines)} lines: {each}.",
        data[["series", "lines", *charts.INTERVAL, "n"]],
    )


def _choices(a: Analysis, rows: pd.DataFrame) -> tuple[list[alt.Parameter], str]:
    """Return the calculator's two menus with the answer to each choice, and the default answer."""
    order, sizes = ordered(rows["pages"]), sorted(set(rows["log2_bytes"]))
    pages = ASKED_PAGES if ASKED_PAGES in order else order[-1]
    size = min(ASKED_LOG2, int(rows.loc[rows["pages"] == pages, "log2_bytes"].max()))
    answers = {
        kind: {
            str(int(row["log2_bytes"])): model.answer(row, a.page_labels[str(kind)])
            for _, row in part.iterrows()
        }
        for kind, part in rows.groupby("pages")
    }
    labels = [format_size(2**n) for n in sizes]
    menu = alt.binding_select(options=sizes, labels=labels, name="Working set ")
    names = [a.page_labels[str(kind)] for kind in order]
    kinds = alt.binding_select(options=order, labels=names, name="Pages ")
    parameters = [
        alt.param("size", value=size, bind=menu),
        alt.param("pages", value=pages, bind=kinds),
        alt.param("answers", value=answers),
        alt.param("readout", expr=f"answers[pages][size] || '{_UNMEASURED}'"),
    ]
    return parameters, answers[pages].get(str(size), _UNMEASURED)


def calculator(a: Analysis) -> Figure:
    """Draw expected ns of a dependent load against the working set, a line a page size, with a size
    and a page size to choose."""
    rows = model.model(a, model.basis(a))
    parameters, answer = _choices(a, rows)
    order, ns = ordered(rows["pages"]), rows["ns"]
    data = rows.assign(
        working_set_bytes=2.0 ** rows["log2_bytes"], label=rows["pages"].map(a.page_labels)
    )
    x = alt.X(
        "working_set_bytes:Q", axis=charts.bytes_axis("Working set"), scale=charts.log_scale()
    )
    ticks = charts.within(charts.TIMES, ns.min() * 0.5, ns.max() * 1.3)
    y = alt.Y(
        "ns:Q",
        scale=charts.time_scale(pd.DataFrame({"median": ns, "high": ns})),
        axis=charts.ns_axis("expected ns per dependent load", ticks),
    )
    names = [a.page_labels[pages] for pages in order]
    scheme = charts.page_colours(order, a.page_labels)
    colour = charts.colour("label", scheme).legend(charts.line_legend(columns=2))
    dashes = charts.dash("label", names, columns=2)
    columns = ["working_set_bytes", "reach_bytes", "walks_per_access", "ns"]
    base = alt.Chart(data[["pages", "label", "log2_bytes", *columns]]).encode(x=x)
    lines = base.mark_line().encode(y=y, color=colour, strokeDash=dashes)
    chosen = base.transform_filter("datum.pages == pages && datum.log2_bytes == size")
    point = chosen.mark_point(size=140).encode(y=y, color=colour)
    return Figure(
        alt.layer(lines, point).add_params(*parameters).properties(height=180),
        f"Expected time of a dependent load against the working set, a line a page size. {answer}",
        data[["pages", *columns]],
    )
