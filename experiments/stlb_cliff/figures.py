"""The charts of the chapter about the cliff, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from experiments.stlb_cliff.analysis import Analysis
from tlb.inference.counts import why_not_counted
from tlb.inference.curves import Curve
from tlb.prose import climb, extremes, listed
from tlb.reasons import Unavailable, if_available, required
from tlb.report import axes, charts
from tlb.report.render import PALETTE, Figure
from tlb.units import format_ns, format_size

BESIDE = ("cliff",)  # with the reference machine's curves behind a switch

_POINT = ["lines", "median", "low", "high"]
_STORES = {
    "load": "load",
    "store": "store",
    "load-clean": "load, bits cleared before",
    "store-clean": "store, bits cleared before",
}


def _by_bytes(
    a: Analysis, series: Mapping[str, pd.DataFrame], column: str, fields: list[str]
) -> pd.DataFrame:
    """Concatenate tables, each named in `column`, and add the memory that their pages span."""
    named = [
        table.reindex(columns=fields).assign(**{column: name}) for name, table in series.items()
    ]
    data = pd.concat(named, ignore_index=True)
    return data.assign(working_set_bytes=data["lines"] * a.base_page_bytes)


def cliff(a: Analysis) -> Figure:
    """Draw ns per access against working set, spread and packed."""
    fields = ["median", "low", "high", "coverage", "n", "spread", "unstable", "outliers"]
    required(a.price, "no chase over lines spread and packed was measured")
    layouts = {"spread": a.spread, "packed": a.packed}
    medians = {name: curve.table for name, curve in layouts.items()}
    processes = {name: curve.processes for name, curve in layouts.items()}
    data = _by_bytes(a, medians, "layout", ["lines", *fields])
    dots = _by_bytes(a, processes, "layout", ["lines", "median"])
    chart = charts.chase_chart(
        data, axes.LAYOUTS, "layout", a.entries, a.base_page_bytes, processes=dots
    )
    least, most = (format_size(n * a.base_page_bytes) for n in (a.spread.xs[0], a.spread.xs[-1]))
    low, high = a.spread.medians.iloc[[0, -1]].map(format_ns)
    near, far = a.packed.medians.iloc[[0, -1]].map(format_ns)
    shown = ["layout", "lines", "working_set_bytes", *fields]
    return Figure(
        chart,
        f"Line chart on logarithmic axes. One line per page takes {low} an access at {least}, "
        f"rising in steps to {high} at {most}. The same lines packed: {near}, rising to {far}.",
        pd.concat([data, dots.assign(n=1)], ignore_index=True)[shown],
    )


def _sides(curve: Curve) -> pd.DataFrame:
    """Return a price's table, with the number of processes of both layouts."""
    table = curve.table.rename(columns={"n_left": "n_spread", "n_right": "n_packed"})
    return table.reindex(columns=[*_POINT, "coverage", "n_spread", "n_packed", "unstable", "n"])


def price(a: Analysis) -> Figure:
    """Draw the price of translation, spread minus packed, against working set."""
    most, least, ns, name = a.largest, a.price.xs[0], a.price.medians, "spread - packed"
    data = _by_bytes(a, {name: _sides(a.price)}, "series", [*_sides(a.price)])
    chart = charts.chase_chart(
        data, axes.colours([name]), "series", a.entries, a.base_page_bytes, is_price=True
    )
    return Figure(
        chart,
        f"The price of translation goes from {ns[least]:z.1f} ns an access at {least} pages to "
        f"{ns[most]:z.0f} at {most:,} pages{climb(np.log1p(ns.clip(lower=0)))}.",
        data.drop(columns=["series", "n"]),
    )


def first_knee(a: Analysis) -> Figure:
    """Draw the price within an octave of the first level's entries."""
    return _knee(a, a.known_entries[0], _sides(a.price), {}, "ns per access for translation")


def second_knee(a: Analysis) -> Figure:
    """Draw what rises within an octave of the last level's entries, counted walks or the price,
    with what models of that TLB predict."""
    _, entries = a.two_levels()
    if a.is_counted:
        walks = a.rise.table[[*_POINT, "coverage", "n"]]
        return _knee(a, entries, walks, a.models, "walks per access")
    return _knee(a, entries, _sides(a.price), a.models, "ns per access for translation")


def _knee(
    a: Analysis, entries: int, table: pd.DataFrame, models: Mapping[str, pd.DataFrame], title: str
) -> Figure:
    near = a.near(entries, Curve(table)).table.assign(series="measured")
    predicted = [table.assign(series=kind) for kind, table in models.items()]
    data = pd.concat([near, *predicted], ignore_index=True)
    ticks = [round(entries * 2 ** (k / 4)) for k in range(-3, 5)]
    x = alt.X(
        "lines:Q",
        axis=alt.Axis(title="Pages touched", values=ticks, format=","),
        scale=axes.log_scale(domain=tuple(entries * end for end in a.window)),
    )
    y = alt.Y("median:Q", axis=axes.ns_axis(title))
    colour, dash = _lines(["measured", *models], columns=2)
    lines = alt.Chart(data).mark_line(clip=True).encode(x=x, y=y, color=colour, strokeDash=dash)
    measured = alt.Chart(near).encode(x=x, color=colour)
    pages = alt.Tooltip("lines:Q", format=",")
    points = measured.mark_point(clip=True)
    points = points.encode(y=y, tooltip=axes.tips(pages, unit=title, bounds=False))
    bars = measured.mark_rule(clip=True).encode(y="low:Q", y2="high:Q")
    rule = charts.marks([(entries, f"{entries:,} entries by {a.entries_source}")], "lines")
    first, last = near.iloc[[0, -1]].itertuples()
    return Figure(
        lines + bars + points + rule,
        f"Around {entries:,} pages the curve of {title} goes from {first.median:z.2g} at "
        f"{first.lines:,} pages to {last.median:z.2g} at {last.lines:,}"
        f"{climb(near.set_index('lines')['median'])}"
        f"{f', beside {listed(models)}' if models else ''}.",
        data,
    )


def _lines(names: list[str], columns: int) -> tuple[alt.Color, alt.StrokeDash]:
    """Return a colour and a dash for each series, with one legend for both."""
    legend, scale = axes.line_legend(columns=columns), axes.colours(names)
    colour = alt.Color("series:N", sort=names, legend=legend, scale=scale)
    return colour, axes.dash("series", names, columns=columns)


def orders(a: Analysis) -> Figure:
    """Draw the price of translation by order of visits, and 1 - C/M fitted to the random one."""
    prices = required(a.by_order, "no order of visits was measured spread and packed")
    tables = [price.table[[*_POINT, "n"]].assign(order=order) for order, price in prices.items()]
    data = pd.concat(tables, ignore_index=True)
    fitted = if_available(lambda: a.random_fit)
    x = alt.X("lines:Q", axis=axes.lines_axis("Pages touched"), scale=axes.log_scale())
    scale, ticks = axes.price_scale(data), axes.PRICES
    chart = charts.series_chart(
        data,
        x,
        "ns per access for translation",
        axes.ORDERS,
        "order",
        scale=scale,
        ticks=ticks,
        joined=["cycle", "sequential"] if fitted else None,
    )
    if fitted:
        fit, part = fitted
        first, last = part.xs[0], part.xs[-1]
        places = {round(first * 2 ** (k / 8)) for k in range(8 * 40)}  # eight to an octave
        lines = sorted(n for n in places if n <= last)
        model = pd.DataFrame({"lines": lines, "median": fit.predict(lines)})
        line = alt.Chart(model).mark_line(color=PALETTE[1])
        chart += line.encode(x=x, y=alt.Y("median:Q", scale=scale))
        data = pd.concat([data, model.assign(order="random, 1 - C/M fitted")], ignore_index=True)
    ends = " ".join(
        f"{order.capitalize()}: {price.last.value:z.0f} ns at {price.xs[-1]:,} pages."
        for order, price in prices.items()
    )
    last_ns = {f"the {order} order": price.last.value for order, price in prices.items()}
    ranking = extremes(last_ns, most="pays most", least="least")
    return Figure(chart, f"The price of translation by order of visits. {ranking} {ends}", data)


def latency_throughput(a: Analysis) -> Figure:
    """Draw the dependent chase, the independent gather, and the published run at as many pages."""
    n = required(a.in_flight.xs, "no size was measured in both loops")[-1]
    theirs = "published gather"
    series = {
        "dependent chase": a.spread.table,
        "independent gather": a.gather.table,
        theirs: a.published.rename(columns={"pages": "lines", "ns_per_access": "median"}),
    }
    data = _by_bytes(a, series, "series", [*_POINT, "n"])
    scheme = alt.Scale(domain=list(series), range=[PALETTE[0], PALETTE[1], PALETTE[3]])
    x = axes.working_set(a.base_page_bytes)
    chart = charts.series_chart(data, x, "ns per access", scheme)
    return Figure(
        charts.published(chart, f"datum.series != '{theirs}'"),
        f"Line chart on logarithmic axes. At {n:,} pages a dependent load takes "
        f"{a.spread.get(n).value:.0f} ns beside the {a.gather.get(n).value:.1f} ns of an "
        "independent one, which the core overlaps.",
        data,
    )


def counted_walks(a: Analysis) -> Figure:
    """Draw walks per access against working set. Raises Unavailable where none were counted: a
    prediction alone shows nothing of a machine."""
    _must_be_counted(a, "walk")
    data = _by_bytes(a, a.walks, "series", [*_POINT, "n"])
    top = max(1.0, data[["median", "high"]].max().max())
    # The labels of the capacities are above the data.
    scale = alt.Scale(domain=[0, top * 1.15], nice=False)
    return _counters(a, data, "walks per access", scale, axes.SHARES)


def counted_cycles(a: Analysis) -> Figure:
    """Draw core cycles per access against working set: the price, and those with a walk in
    progress. Raises Unavailable without the latter, for the price has a figure of its own."""
    _must_be_counted(a, "walk_cycles")
    data = _by_bytes(a, required(a.cycles, "", "no-clock"), "series", [*_POINT, "n"])
    least, top = min(0.0, data[["median", "low"]].min().min()), data[["median", "high"]].max().max()
    scale = alt.Scale(type="symlog", constant=1, nice=False, domain=[least, top * 2])
    ticks = axes.within(axes.PRICES, 0, top)
    return _counters(a, data, "core cycles per access", scale, ticks)


def _must_be_counted(a: Analysis, quantity: str) -> None:
    if not len(a.counted(quantity)):
        raise Unavailable(why_not_counted(a.counted_rows, quantity, a.host))


def _counters(
    a: Analysis, data: pd.DataFrame, title: str, scale: alt.Scale, ticks: Sequence[float]
) -> Figure:
    """Draw a line for each series; what a model predicts has no points."""
    names = list(dict.fromkeys(data["series"]))
    colour, dash = _lines(names, columns=1)
    y = alt.Y("median:Q", axis=axes.ns_axis(title, ticks), scale=scale)
    base = alt.Chart(data).encode(x=axes.working_set(a.base_page_bytes), color=colour, y=y)
    if any("published" in name for name in names):
        base = charts.published(base, "!test(/published/, datum.series)")
    points = base.transform_filter("!test(/predicted/, datum.series)").mark_point()
    lines = alt.Tooltip("lines:Q", format=",", title="pages")
    tooltip = axes.tips("series:N", lines, bounds=False, unit="median")
    points = points.encode(tooltip=[*tooltip, alt.Tooltip("n:Q", title="processes")])
    sentences = [f"{title[0].upper()}{title[1:]} against the working set."]
    for name, part in data.dropna(subset=["median"]).groupby("series", sort=False):
        heights = part.set_index("lines")["median"]
        sentences.append(
            f"{name[0].upper()}{name[1:]}: they go from {heights.iloc[0]:.3g} at "
            f"{heights.index[0]:,.0f} pages to {heights.iloc[-1]:.3g} at "
            f"{heights.index[-1]:,.0f}{climb(heights)}."
        )
    ends = charts.capacities(a.entries, base_page_bytes=a.base_page_bytes)
    chart = charts.layered(base.mark_line().encode(strokeDash=dash) + points, ends)
    return Figure(chart, " ".join(sentences), data)


def stores(a: Analysis) -> Figure:
    """Draw the price of translation of independent loads and stores, a row each, by the working
    set: medians with their intervals."""
    prices = required(a.stores, "no stores were measured")
    series = {_STORES[mode]: price.table for mode, price in prices.items()}
    data = _by_bytes(a, series, "access", _POINT)
    data["size"] = data["working_set_bytes"].map(format_size)
    sizes = list(dict.fromkeys(data.sort_values("lines")["size"]))
    axis = axes.ns_axis("ns for translation", axes.TIMES)
    named = [name for name in _STORES.values() if (data["access"] == name).any()]
    colours, legend = axes.colours(sizes), axes.line_legend()
    colour = alt.Color("size:N", sort=sizes, scale=colours, legend=legend)
    x, tooltip = {"axis": axis, "scale": axes.time_scale(data)}, ("access:N", "size:N")
    most = data[data["lines"] == data["lines"].max()].set_index("access")["median"]
    ranking = extremes(most.to_dict(), most="costs most", least="least")
    each = listed(f"{ns:.0f} ns a {access}" for access, ns in most.items())
    return Figure(
        charts.medians_in_rows(data, "access", named, x, *tooltip, color=colour),
        "The price of translation of a load and of a store, and of both where they have to set "
        f"bits in the page table. {ranking} Over {sizes[-1]}: {each}.",
        data,
    )
