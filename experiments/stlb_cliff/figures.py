"""The charts and tables of the chapter about the cliff, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd

from experiments.stlb_cliff.analysis import Analysis
from tlb.inference.counts import why_not_counted
from tlb.inference.curves import Curve
from tlb.inference.intervals import JUMP, Interval
from tlb.prose import climb, extremes, listed
from tlb.reasons import Unavailable, if_available, required
from tlb.report import charts
from tlb.report.bibliography import sources
from tlb.report.chapter import literature
from tlb.report.render import PALETTE, Figure, Html, data_table
from tlb.units import format_ns, format_size

BESIDE = ("cliff",)  # with the reference machine's curves behind a switch

_POINT = ["lines", "median", "low", "high"]
_DASHES = ([1, 0], [6, 3], [2, 3], [8, 3, 2, 3])
# Ticks of a count per access, and of cycles per access, on axes that begin at zero.
_COUNTS = (0, 0.2, 0.4, 0.6, 0.8, 1)
_CYCLES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def _by_bytes(
    a: Analysis, series: Mapping[str, pd.DataFrame], column: str, fields: list[str]
) -> pd.DataFrame:
    """Tables by lines one below the other, each named in `column`, with the memory that as many
    pages span."""
    named = [
        table.reindex(columns=fields).assign(**{column: name}) for name, table in series.items()
    ]
    data = pd.concat(named, ignore_index=True)
    return data.assign(working_set_bytes=data["lines"] * a.base_page_bytes)


def cliff(a: Analysis) -> Figure:
    """ns per access against working set, spread and packed."""
    fields = ["median", "low", "high", "coverage", "n", "spread", "unstable", "outliers"]
    required(a.price, "no chase over lines spread and packed was measured")
    data = _by_bytes(
        a, {"spread": a.spread.table, "packed": a.packed.table}, "layout", ["lines", *fields]
    )
    dots = _by_bytes(
        a,
        {"spread": a.spread.processes, "packed": a.packed.processes},
        "layout",
        ["lines", "median"],
    )
    chart = charts.chase_chart(
        data, charts.LAYOUTS, "layout", a.entries, a.base_page_bytes, processes=dots
    )
    least, most = (format_size(n * a.base_page_bytes) for n in (a.spread.xs[0], a.spread.xs[-1]))
    (low, high), (near, far) = (
        curve.medians.iloc[[0, -1]].map(format_ns) for curve in (a.spread, a.packed)
    )
    return Figure(
        chart,
        f"Line chart on logarithmic axes. One line per page takes {low} an access at {least}, rising in steps to {high} "
        f"at {most}. The same lines packed: {near}, rising to {far}.",
        pd.concat([data, dots.assign(n=1)], ignore_index=True)[
            ["layout", "lines", "working_set_bytes", *fields]
        ],
    )


def _sides(curve: Curve) -> pd.DataFrame:
    """A price's table, with the processes of both layouts."""
    fields = [*_POINT, "coverage", "n_spread", "n_packed", "unstable"]
    return curve.table.rename(columns={"n_left": "n_spread", "n_right": "n_packed"}).reindex(
        columns=[*fields, "n"]
    )


def price(a: Analysis) -> Figure:
    """The price of translation, spread minus packed, against working set."""
    most, (least, *_), ns, name = a.largest, a.price.xs, a.price.medians, "spread - packed"
    data = _by_bytes(a, {name: _sides(a.price)}, "series", [*_sides(a.price)])
    chart = charts.chase_chart(
        data, charts.colours([name]), "series", a.entries, a.base_page_bytes, is_price=True
    )
    return Figure(
        chart,
        f"The price of translation goes from {ns[least]:z.1f} ns an access at {least} pages to {ns[most]:z.0f} at "
        f"{most:,} pages{climb(np.log1p(ns.clip(lower=0)))}.",
        data.drop(columns=["series", "n"]),
    )


def first_knee(a: Analysis) -> Figure:
    """The price within an octave of the first level's entries."""
    return _knee(a, a.known_entries[0], _sides(a.price), {}, "ns per access for translation")


def second_knee(a: Analysis) -> Figure:
    """What rises within an octave of the last level's entries, counted walks or the price, with
    what models of that TLB predict."""
    table, title = (
        (a.rise.table[[*_POINT, "coverage", "n"]], "walks per access")
        if a.is_counted
        else (_sides(a.price), "ns per access for translation")
    )
    return _knee(a, a.two_levels()[1], table, a.models, title)


def _knee(
    a: Analysis, entries: int, table: pd.DataFrame, models: Mapping[str, pd.DataFrame], title: str
) -> Figure:
    near = a.near(entries, Curve(table)).table.assign(series="measured")
    data = pd.concat(
        [near, *(table.assign(series=kind) for kind, table in models.items())], ignore_index=True
    )
    low, high = a.window
    ticks = [round(entries * 2**k) for k in (-0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1)]
    x = alt.X(
        "lines:Q",
        axis=alt.Axis(title="Pages touched", values=ticks, format=","),
        scale=charts.log_scale(domain=(entries * low, entries * high)),
    )
    y = alt.Y("median:Q", axis=charts.ns_axis(title))
    colour, dash = _lines(["measured", *models], columns=2)
    lines = alt.Chart(data).mark_line(clip=True).encode(x=x, y=y, color=colour, strokeDash=dash)
    points = (
        alt.Chart(near)
        .mark_point(clip=True)
        .encode(
            x=x,
            y=y,
            color=colour,
            tooltip=[
                alt.Tooltip("lines:Q", format=","),
                alt.Tooltip("median:Q", format=".3~r", title=title),
            ],
        )
    )
    bars = (
        alt.Chart(near)
        .mark_rule(clip=True)
        .encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    )
    first, last = near.iloc[[0, -1]].itertuples()
    told = (
        f"Around {entries:,} pages the curve of {title} goes from {first.median:z.2g} at {first.lines:,} pages to "
        f"{last.median:z.2g} at {last.lines:,}{climb(near.set_index('lines')['median'])}"
        + (f", beside {listed(models)}." if models else ".")
    )
    return Figure(
        lines
        + bars
        + points
        + charts.marks([(entries, f"{entries:,} entries by {a.entries_source}")], "lines"),
        told,
        data,
    )


def _lines(names: list[str], columns: int) -> tuple[alt.Color, alt.StrokeDash]:
    """A colour and a dash for each series, with one legend for both."""
    legend = alt.Legend(
        title=None, symbolType="stroke", symbolSize=420, symbolOpacity=1, columns=columns
    )
    return (
        alt.Color("series:N", sort=names, legend=legend, scale=charts.colours(names)),
        alt.StrokeDash(
            "series:N",
            sort=names,
            legend=legend,
            scale=alt.Scale(domain=names, range=list(_DASHES[: len(names)])),
        ),
    )


def orders(a: Analysis) -> Figure:
    """The price of translation of each order of visits, and 1 - C/M fitted to the random one."""
    data = pd.concat(
        [
            price.table[[*_POINT, "n"]].assign(order=order)
            for order, price in required(
                a.by_order, "no order of visits was measured spread and packed"
            ).items()
        ],
        ignore_index=True,
    )
    fitted = if_available(lambda: a.random_fit)
    x, scale = (
        alt.X("lines:Q", axis=charts.lines_axis("Pages touched"), scale=charts.log_scale()),
        charts.price_scale(data),
    )
    joined = ["cycle", "sequential"] if fitted else None
    chart = charts.series_chart(
        data,
        x,
        "ns per access for translation",
        scale,
        charts.PRICES,
        charts.ORDERS,
        "order",
        joined,
    )
    if fitted:
        fit, part = fitted
        lines = sorted(
            {n for k in range(8 * 40) if (n := round(part.xs[0] * 2 ** (k / 8))) <= part.xs[-1]}
        )  # eight to an octave
        model = pd.DataFrame({"lines": lines, "median": fit.predict(lines)})
        chart += (
            alt.Chart(model)
            .mark_line(color=PALETTE[1])
            .encode(x=x, y=alt.Y("median:Q", scale=scale))
        )
        data = pd.concat([data, model.assign(order="random, 1 - C/M fitted")], ignore_index=True)
    told = " ".join(
        f"{order.capitalize()}: {price.last.value:z.0f} ns at {price.xs[-1]:,} pages."
        for order, price in a.by_order.items()
    )
    last = {f"the {order} order": price.last.value for order, price in a.by_order.items()}
    return Figure(
        chart,
        f"The price of translation by order of visits. {extremes(last, most='pays most', least='least')} {told}",
        data,
    )


def latency_throughput(a: Analysis) -> Figure:
    """Dependent chase and independent gather, and the published run at as many pages."""
    n = required(a.in_flight.xs, "no size was measured in both loops")[-1]
    theirs = "published gather"
    series = {
        "dependent chase": a.spread.table,
        "independent gather": a.gather.table,
        theirs: a.published.rename(columns={"pages": "lines", "ns_per_access": "median"}),
    }
    data = _by_bytes(a, series, "series", [*_POINT, "n"])
    scheme = alt.Scale(domain=list(series), range=[PALETTE[0], PALETTE[1], PALETTE[3]])
    x, scale = charts.working_set(a.base_page_bytes), charts.time_scale(data)
    chart = charts.series_chart(data, x, "ns per access", scale, charts.TIMES, scheme, "series")
    chart = charts.published(chart, f"datum.series != '{theirs}'")
    return Figure(
        chart,
        f"Line chart on logarithmic axes. At {n:,} pages a dependent load takes {a.spread.get(n).value:.0f} ns "
        f"beside the {a.gather.get(n).value:.1f} ns of an independent one, which the core overlaps.",
        data,
    )


def counted_walks(a: Analysis) -> Figure:
    """Walks per access against working set. Raises Unavailable where none were counted: a
    prediction alone shows nothing of a machine."""
    _must_be_counted(a, "walk")
    data = _by_bytes(a, a.walks, "series", [*_POINT, "n"])
    top = data[["median", "high"]].max().max()  # above it stand the labels of the capacities
    return _counters(
        a,
        data,
        "walks per access",
        alt.Scale(domain=[0, max(1.15, top * 1.15)], nice=False),
        _COUNTS,
    )


def counted_cycles(a: Analysis) -> Figure:
    """Core cycles per access against working set: the price, and those with a walk in progress.
    Raises Unavailable without the latter, for the price is in a figure of its own."""
    _must_be_counted(a, "walk_cycles")
    data = _by_bytes(a, required(a.cycles, "", "no-clock"), "series", [*_POINT, "n"])
    least, top = min(0.0, data[["median", "low"]].min().min()), data[["median", "high"]].max().max()
    scale = alt.Scale(type="symlog", constant=1, nice=False, domain=[least, top * 2])
    return _counters(
        a, data, "core cycles per access", scale, [tick for tick in _CYCLES if tick <= top]
    )


def _must_be_counted(a: Analysis, quantity: str) -> None:
    if not len(a.counted(quantity)):
        raise Unavailable(why_not_counted(a.counted_rows, quantity, a.host))


_STORES = {
    "load": "load",
    "store": "store",
    "load-clean": "load, bits cleared before",
    "store-clean": "store, bits cleared before",
}


def stores(a: Analysis) -> Figure:
    """The price of translation of independent loads and stores, a row each, by the working set:
    medians with their intervals."""
    data = pd.concat(
        [
            _by_bytes(a, {_STORES[mode]: price.table}, "access", _POINT)
            for mode, price in required(a.stores, "no stores were measured").items()
        ],
        ignore_index=True,
    )
    data["size"] = data["working_set_bytes"].map(format_size)
    sizes = list(dict.fromkeys(data.sort_values("lines")["size"]))
    scale, axis = charts.time_scale(data), charts.ns_axis("ns for translation", charts.TIMES)
    named = [name for name in _STORES.values() if (data["access"] == name).any()]
    base = alt.Chart(data).encode(
        y=charts.row("access", named),
        color=alt.Color(
            "size:N", sort=sizes, scale=charts.colours(sizes), legend=charts.line_legend()
        ),
    )
    intervals = base.mark_rule().encode(x=alt.X("low:Q", axis=axis, scale=scale), x2="high:Q")
    medians = base.mark_point(filled=True).encode(
        x=alt.X("median:Q", axis=axis, scale=scale),
        tooltip=[
            "access:N",
            "size:N",
            *(alt.Tooltip(f"{name}:Q", format=".3~r") for name in ("median", "low", "high")),
        ],
    )
    most = data[data["lines"] == data["lines"].max()].set_index("access")["median"]
    told = listed(f"{ns:.0f} ns a {access}" for access, ns in most.items())
    chart = charts.rows("access", named, intervals, medians)
    return Figure(
        chart,
        "The price of translation of a load and of a store, and of both where they "
        f"have to set bits in the page table. {extremes(most.to_dict(), most='costs most', least='least')} Over {sizes[-1]}: "
        f"{told}.",
        data,
    )


def _counters(
    a: Analysis, data: pd.DataFrame, title: str, scale: alt.Scale, ticks: Sequence[float]
) -> Figure:
    """A line a series; what a model predicts has no points."""
    names = list(dict.fromkeys(data["series"]))
    colour, dash = _lines(names, columns=1)
    base = alt.Chart(data).encode(
        x=charts.working_set(a.base_page_bytes),
        color=colour,
        y=alt.Y("median:Q", axis=charts.ns_axis(title, ticks), scale=scale),
    )
    if any("published" in name for name in names):
        base = charts.published(base, "!test(/published/, datum.series)")
    points = (
        base.transform_filter("!test(/predicted/, datum.series)")
        .mark_point()
        .encode(
            tooltip=[
                alt.Tooltip("series:N"),
                alt.Tooltip("lines:Q", format=",", title="pages"),
                alt.Tooltip("median:Q", format=".3~r"),
                alt.Tooltip("n:Q", title="processes"),
            ]
        )
    )
    ends_of = data.dropna(subset=["median"]).groupby("series")
    told = " ".join(
        f"{name[0].upper()}{name[1:]}: they go from {first.median:.3g} at {first.lines:,.0f} pages to {last.median:.3g} at "
        f"{last.lines:,.0f}{climb(ends_of.get_group(name).set_index('lines')['median'])}."
        for name, first, last in zip(
            names,
            ends_of.first().loc[names].itertuples(),
            ends_of.last().loc[names].itertuples(),
            strict=True,
        )
    )
    chart, ends = (
        base.mark_line().encode(strokeDash=dash) + points,
        charts.capacities(a.entries, base_page_bytes=a.base_page_bytes),
    )
    return Figure(
        charts.layered(chart, ends),
        f"{title[0].upper()}{title[1:]} against the working set. {told}",
        data,
    )


# --- tables


def side_by_side(a: Analysis) -> Html:
    """The published run beside this machine's gather and chase, a row each published size."""
    published, here = a.published, a.side_by_side
    return data_table(
        pd.DataFrame(
            {
                "working set": published["working_set_bytes"].map(format_size),
                "pages": published["pages"],
                "published, ns": published["ns_per_access"],
                "published reach": published["reach"],
                "gather here, ns": here["gather"],
                "chase here, ns": here["chase"],
                "chase / gather": here["ratio"],
            }
        )
    )


def walk_costs(a: Analysis) -> Html:
    """The price of translation and, where walks are counted, how many there are and what one costs."""
    costs = a.walk_costs
    prices = [a.price.get(lines) for lines in costs["lines"]]
    ghz = costs["price_cycles"] / costs["price_ns"]
    table = pd.DataFrame(
        {
            "working set": (costs["lines"] * a.base_page_bytes).map(format_size),
            "pages": costs["lines"],
            "price, ns": [_told(price, ".1f") for price in prices],
            "price, cycles": [
                _told(price * each, ".0f") for price, each in zip(prices, ghz, strict=True)
            ],
        }
    )
    if costs["walks"].notna().any():
        table = table.assign(
            **{
                "walks per access": costs["walks"],
                "cycles per walk": costs["per_walk"]
                .where(
                    bool(len(a.counted("walk_cycles")))
                    | np.array([price.low > price.high / JUMP for price in prices])
                )
                .round(),
            }
        )
    table["cycles per walk from"] = (
        "counters" if len(a.counted("walk_cycles")) else "inferred from time"
    )
    return data_table(table, decimals=2)


def _told(interval: Interval, spec: str) -> str:
    return f"{interval:{spec}}" if interval.value == interval.value else "–"


def published_walks(a: Analysis) -> Html:
    """What is published of a walk's cost."""
    stated = literature("walk_costs").query("unit in ['cycles', 'ns']")
    return data_table(
        pd.DataFrame(
            {
                "published": stated["what"],
                "by": stated["source"].map(sources()),
                "value": [*map(_span, stated["value_low"], stated["value_high"])],
                "unit": stated["unit"],
            }
        )
    )


def _span(low: float, high: float) -> str:
    """A range in words: "60 to 250"; "250 and more" where it is open, a dash where there is
    nothing."""
    if pd.isna(low):
        return "–"
    return (
        f"{low:,.0f} and more"
        if pd.isna(high)
        else f"{low:,.0f}"
        if f"{low:.0f}" == f"{high:.0f}"
        else f"{low:,.0f} to {high:,.0f}"
    )


def counter_table(a: Analysis) -> Html:
    """Every counter of the chase at its largest size, or why it has no value."""
    return data_table(a.counters, decimals=3)
