"""The charts of the chapter about churn, one function a figure."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from experiments.churn.analysis import NEW, PHASES, Analysis
from experiments.churn.grid import FEW
from experiments.churn.tables import CALL_WORDS
from experiments.churn.touch_figure import in_us
from experiments.churn.touch_figure import touches as touches
from tlb.inference.curves import Curve
from tlb.page_sizes import words
from tlb.prose import extremes, in_words, listed
from tlb.reasons import required
from tlb.report import charts
from tlb.report.render import MUTED, Figure

BESIDE = ("calls",)  # with the reference machine's curves behind a switch

_FIELDS = ["median", "low", "high", "coverage", "n", "unstable"]
KINDS = {
    "alone": "no switch",
    "thread": "thread switch",
    "process": "process switch",
    NEW: "new process",
}
LAYOUTS = {"spread": "spread: one line a page", "packed": "packed: the same lines side by side"}
COLLAPSED = {
    "none": "nothing",
    "other": "other memory",
    "address": "its own, by address",
    "random": "its own, in random order",
}
_LONG = tuple(digit * 10**power for power in range(6) for digit in (1, 3))
_PRICES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def _named(curves: dict[str, Curve], names: dict[str, str], x: str) -> pd.DataFrame:
    return pd.concat(
        [
            curve.table.assign(series=names[key], lines=curve.table[curve.x])[
                ["series", "lines", *_FIELDS]
            ]
            for key, curve in curves.items()
        ],
        ignore_index=True,
    ).rename(columns={"lines": x})


def _dashed(
    data: pd.DataFrame,
    x: alt.X,
    title: str,
    names: Sequence[str],
    dashes: tuple[str, Sequence[str]],
    tooltip: list[alt.Tooltip],
    legend: str | None = None,
    ticks: Sequence[float] = _LONG,
) -> alt.Chart:
    """Lines of `series` by colour, and by a second column, named first in `dashes`, by dash;
    legend: the title of the colours'."""
    values = [tick for tick in ticks if data["low"].min() * 0.5 <= tick <= data["high"].max() * 1.1]
    column, kinds = dashes
    return (
        alt.Chart(data)
        .mark_line(point=alt.OverlayMarkDef(size=24))
        .encode(
            x=x,
            y=alt.Y("median:Q", axis=charts.ns_axis(title, values), scale=charts.time_scale(data)),
            color=alt.Color(
                "series:N",
                sort=list(names),
                scale=charts.colours(names),
                legend=alt.Legend(title=legend, columns=1),
            ),
            strokeDash=alt.StrokeDash(
                f"{column}:N", sort=list(kinds), legend=charts.line_legend(columns=1)
            ),
            tooltip=["series:N", f"{column}:N", *tooltip],
        )
    )


def _ns(unit: str = "ns") -> alt.Tooltip:
    return alt.Tooltip("median:Q", format=".3~r", title=unit)


def calls(a: Analysis) -> Figure:
    """Draw µs a call by the pages that it removes, alone and beside threads on other CPUs."""
    required(a.calls_alone, "no calls were measured")
    sides = {"on one CPU": a.calls_alone, f"on {in_words(a.most_others + 1)} CPUs": a.calls_beside}
    tables = [
        _named(curves, CALL_WORDS, "lines").assign(where=where)
        for where, curves in sides.items()
        if curves
    ]
    data = in_us(pd.concat(tables, ignore_index=True))
    axis = charts.lines_axis("Pages removed by the call", sorted(set(data["lines"])))
    x = alt.X("lines:Q", axis=axis, scale=charts.log_scale())
    tooltip = [alt.Tooltip("lines:Q", title="pages"), _ns("µs")]
    names = [CALL_WORDS[call] for call in a.calls_alone]
    least = data[data["lines"] == data["lines"].min()]
    times = listed(f"{row.series} {row.where} {row.median:.1f} µs" for row in least.itertuples())
    return Figure(
        _dashed(data, x, "µs a call", names, ("where", list(sides)), tooltip),
        "Time per call by how many pages it removes, on one CPU and on more. Of one page it takes: "
        f"{times}.",
        data[["series", "where", "lines", *_FIELDS]].rename(columns={"lines": "pages"}),
    )


def shares(a: Analysis) -> Figure:
    """Draw what other CPUs add to a call on one page, in µs, as bars: busy with other processes,
    and with threads of the program."""
    a.require_others(a.shootdowns, "no calls beside other threads were measured")
    rows = [
        (CALL_WORDS[call], name, interval.value, interval.low, interval.high)
        for call, told in a.shootdowns.items()
        for name, interval in (
            ("other processes", a.beside_processes(call) - a.calls_alone[call].get(FEW)),
            ("threads of the program", told.get(FEW)),
        )
    ]
    data = in_us(pd.DataFrame(rows, columns=["call", "beside", "median", "low", "high"]).dropna())
    order = list(dict.fromkeys(data["beside"]))
    base = alt.Chart(data).encode(
        x=alt.X("call:N", sort=list(CALL_WORDS.values()), axis=alt.Axis(title=None, labelAngle=0)),
        xOffset=alt.XOffset("beside:N", sort=order),
    )
    bars = base.mark_bar(size=22).encode(
        y=alt.Y("median:Q", axis=charts.ns_axis("µs added to a call on one page")),
        color=alt.Color(
            "beside:N",
            sort=order,
            scale=charts.colours(order),
            legend=alt.Legend(title="on the other CPUs", columns=1),
        ),
        tooltip=["call:N", "beside:N", alt.Tooltip("median:Q", format=".3~r", title="µs")],
    )
    chart = bars + base.mark_rule(strokeWidth=2).encode(
        y="low:Q", y2="high:Q", color=alt.value(MUTED)
    )
    worst = data.loc[data["median"].idxmax()]
    return Figure(
        chart,
        f"Time that other CPUs add to a call on one page, by what runs on them. {worst['call']} "
        "takes "
        f"{worst['median']:.1f} µs longer beside {worst['beside']}, the most of all.",
        data,
    )


def collapses(a: Analysis) -> Figure:
    """ns a hop before, during and after pages are collapsed: the median of slices and their 99.9th
    percentile, a line a way."""
    a.require_others(a.collapses, "no chase over collapsed pages was measured")
    data = a.collapses.assign(series=a.collapses["mode"].map(COLLAPSED))
    names = [name for mode, name in COLLAPSED.items() if (data["mode"] == mode).any()]
    dashes = {"p50": "median", "p999": "99.9th percentile"}
    data["of"] = data["quantile"].map(dashes)
    x = alt.X("phase:N", sort=list(PHASES), axis=alt.Axis(title=None, labelAngle=0))
    tooltip = [alt.Tooltip("phase:N"), alt.Tooltip("median:Q", format=".3~r", title="ns")]
    chart = _dashed(
        data, x, "ns a hop", names, ("of", list(dashes.values())), tooltip, legend="collapsed"
    )
    worst = data.loc[data["median"].idxmax()]
    return Figure(
        chart,
        "Time per hop before, during and after pages are collapsed. The longest is "
        f"{worst['median']:,.0f} ns, the "
        f"{worst['of']} {worst['phase']}, where what is collapsed is {worst['series']}.",
        data[["series", "phase", "of", "median", "low", "high"]],
    )


def switches(a: Analysis) -> Figure:
    """ns a hop for translation, after each kind of switch, over the pages chased."""
    after = required(
        {kind: price for kind, price in a.after.items() if len(price)}, "no rounds were measured"
    )
    data = _named(after, KINDS, "lines")
    x = alt.X(
        "lines:Q",
        axis=charts.lines_axis("Pages chased after each switch", sorted(set(data["lines"]))),
        scale=charts.log_scale(),
    )
    names = [KINDS[kind] for kind in after]
    chart = charts.series_chart(
        data,
        x,
        "ns a hop for translation",
        charts.price_scale(data),
        _PRICES,
        charts.colours(names),
        "series",
        columns=1,
    )
    values = {KINDS[kind]: price.last.value for kind, price in after.items()}
    return Figure(
        chart,
        "What translation costs a hop after each kind of switch, over the most pages: "
        f"{extremes(values)}",
        data.rename(columns={"lines": "pages"}),
    )


def rounds(a: Analysis) -> Figure:
    """Draw ns a hop by the number of a new process's round, spread and packed."""
    data = required(a.rounds, "no new processes were measured")
    data = data.assign(lines=data["number"], n=float("nan"), series=data["layout"].map(LAYOUTS))
    axis = alt.Axis(title="Round of a new process", values=sorted(set(data["number"])))
    x = alt.X("lines:Q", axis=axis, scale=charts.log_scale())
    colours, scale = charts.colours(list(data["series"].unique())), charts.time_scale(data)
    chart = charts.series_chart(
        data, x, "ns a hop", scale, charts.TIMES, colours, "series", columns=1
    )
    spread = data[data["layout"] == "spread"]
    medians = (spread if len(spread) else data)["median"]
    return Figure(
        chart,
        "Time per hop by the round of a new process: it falls from "
        f"{medians.iloc[0]:.1f} ns in the first to {medians.iloc[-1]:.1f} in the last.",
        data[["number", "series", "median", "low", "high"]],
    )


def forks(a: Analysis) -> Figure:
    """µs a fork by what is resident, a line a page size."""
    required(a.fork_ns, "no forks were measured")
    names = {pages: words(pages) for pages in a.fork_ns}
    data = in_us(_named(a.fork_ns, names, "lines"))
    data["working_set_bytes"] = data["lines"] * a.base_page_bytes
    scheme = alt.Scale(
        domain=list(names.values()), range=[charts.PAGE_COLOURS[pages] for pages in names]
    )
    x = alt.X(
        "working_set_bytes:Q",
        axis=charts.bytes_axis("Resident", sorted(set(data["working_set_bytes"]))),
        scale=charts.log_scale(),
    )
    chart = charts.series_chart(
        data, x, "µs a fork", charts.time_scale(data), _LONG, scheme, "series", columns=1
    )
    told = listed(
        f"{curve.last.value / 1e3:,.0f} µs on {names[pages]}" for pages, curve in a.fork_ns.items()
    )
    return Figure(
        chart,
        f"Time per fork by what is resident. At the largest size it takes {told}, rising from the "
        "smallest.",
        data[["series", "working_set_bytes", *_FIELDS]],
    )


def load(a: Analysis) -> Figure:
    """Draw ns a hop beside streams of several sizes, spread and packed: the median of slices and
    their 99th percentile."""
    a.under_load()
    dashes = {"p50_ns": "median", "p99_ns": "99th percentile"}
    tables = [
        curve.table.assign(series=name, of=quantile)
        for layout, name in LAYOUTS.items()
        for value, quantile in dashes.items()
        if len(curve := a.beside_stream(layout, value))
    ]
    data = pd.concat(tables, ignore_index=True)
    data["lines"] = data["mib"].clip(lower=0.5)  # a logarithmic axis has no place for 0
    labels = "datum.value < 1 ? 'none' : format(datum.value, '~g')"
    streamed = {"values": sorted(set(data["lines"])), "labelExpr": labels}
    axis = alt.Axis(title="MiB streamed by another thread", **streamed)
    x = alt.X("lines:Q", scale=charts.log_scale(), axis=axis)
    tooltip = [alt.Tooltip("mib:Q", title="MiB"), _ns()]
    of = ("of", list(dashes.values()))
    chart = _dashed(data, x, "ns a hop", list(LAYOUTS.values()), of, tooltip, ticks=charts.TIMES)
    least, most = a.loaded.intervals[0].value, a.loaded.last.value
    return Figure(
        chart,
        "Time per hop beside a thread that streams memory. What translation costs of it goes from "
        f"{least:.0f} ns beside one that only runs to {most:.0f} beside {a.loaded.xs[-1]:.0f} MiB.",
        data[["series", "of", "mib", *_FIELDS]],
    )
