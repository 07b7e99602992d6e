"""The charts of the chapter about churn, one function a figure."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from experiments.churn.analysis import NEW, PHASES, Analysis
from experiments.churn.grid import FEW
from experiments.churn.housekeeping import FRAGMENTS, FREE, NEVER, ON_BASE
from experiments.churn.tables import CALL_WORDS
from tlb.inference.curves import Curve
from tlb.page_sizes import words
from tlb.prose import extremes, in_words, listed
from tlb.reasons import required
from tlb.report import axes, charts
from tlb.report.render import Figure

BESIDE = ("calls",)  # with the reference machine's curves behind a switch

_POINT = ["median", "low", "high"]
_FIELDS = [*_POINT, "coverage", "n", "unstable"]
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
MEMORIES = {FREE: "free", FRAGMENTS: "fragmented"}
QUANTILES = {
    "p50": "median first touch",
    "p999": "one touch in a thousand",
    "longest": "the longest touch",
}
_LONG = tuple(digit * 10**power for power in range(6) for digit in (1, 3))


def _named(curves: Mapping[str, Curve], names: Mapping[str, str]) -> pd.DataFrame:
    named = {names[key]: curve for key, curve in curves.items()}
    return charts.stacked(named, "nothing was measured")[["series", "lines", *_FIELDS]]


def _in_us(data: pd.DataFrame) -> pd.DataFrame:
    """Return nanoseconds in microseconds, for what takes thousands."""
    return data.assign(**{name: data[name] / 1e3 for name in _POINT})


def _pages(data: pd.DataFrame, title: str) -> alt.X:
    axis = axes.lines_axis(title, sorted(set(data["lines"])))
    return alt.X("lines:Q", axis=axis, scale=axes.log_scale())


def calls(a: Analysis) -> Figure:
    """Draw µs a call by the pages that it removes, alone and beside threads on other CPUs."""
    required(a.calls_alone, "no calls were measured")
    sides = {"on one CPU": a.calls_alone, f"on {in_words(a.most_others + 1)} CPUs": a.calls_beside}
    tables = [
        _named(curves, CALL_WORDS).assign(where=where) for where, curves in sides.items() if curves
    ]
    data = _in_us(pd.concat(tables, ignore_index=True))
    x, y = _pages(data, "Pages removed by the call"), axes.median_y(data, "µs a call", _LONG)
    colour = axes.colour("series", [CALL_WORDS[call] for call in a.calls_alone], columns=1)
    pages = alt.Tooltip("lines:Q", title="pages")
    least = data[data["lines"] == data["lines"].min()]
    times = listed(f"{row.series} {row.where} {row.median:.1f} µs" for row in least.itertuples())
    return Figure(
        charts.dashed(data, x, y, colour, ("where", sides), pages, unit="µs"),
        "Time per call by how many pages it removes, on one CPU and on more. Of one page it takes: "
        f"{times}.",
        data[["series", "where", "lines", *_FIELDS]].rename(columns={"lines": "pages"}),
    )


def shares(a: Analysis) -> Figure:
    """Draw what other CPUs add to a call on one page, in µs, as bars: busy with other processes,
    and with threads of the program."""
    a.require_others(a.shootdowns, "no calls beside other threads were measured")
    rows = []
    for call, threads in a.shootdowns.items():
        processes = a.beside_processes(call) - a.calls_alone[call].get(FEW)
        rows.append((CALL_WORDS[call], "other processes", *processes[:3]))
        rows.append((CALL_WORDS[call], "threads of the program", *threads.get(FEW)[:3]))
    data = _in_us(pd.DataFrame(rows, columns=["call", "beside", *_POINT]).dropna())
    x = charts.group_x(data, "call", None)
    y = alt.Y("median:Q", axis=axes.ns_axis("µs added to a call on one page"))
    order = list(dict.fromkeys(data["beside"]))
    colour = axes.colour("beside", order, title="on the other CPUs", columns=1)
    worst = data.loc[data["median"].idxmax()]
    return Figure(
        charts.bars(data, x, y, colour, unit="µs", size=22),
        f"Time that other CPUs add to a call on one page, by what runs on them. {worst['call']} "
        f"takes {worst['median']:.1f} µs longer beside {worst['beside']}, the most of all.",
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
    y, colour = (
        axes.median_y(data, "ns a hop", _LONG),
        axes.colour("series", names, title="collapsed", columns=1),
    )
    worst = data.loc[data["median"].idxmax()]
    return Figure(
        charts.dashed(data, x, y, colour, ("of", dashes.values()), alt.Tooltip("phase:N")),
        "Time per hop before, during and after pages are collapsed. The longest is "
        f"{worst['median']:,.0f} ns, the {worst['of']} {worst['phase']}, where what is collapsed "
        f"is {worst['series']}.",
        data[["series", "phase", "of", *_POINT]],
    )


def switches(a: Analysis) -> Figure:
    """ns a hop for translation, after each kind of switch, over the pages chased."""
    after = {kind: price for kind, price in a.after.items() if len(price)}
    required(after, "no rounds were measured")
    data = _named(after, KINDS)
    chart = charts.series_chart(
        data,
        _pages(data, "Pages chased after each switch"),
        "ns a hop for translation",
        axes.colours([KINDS[kind] for kind in after]),
        scale=axes.price_scale(data),
        ticks=axes.PRICES[:-1],
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
    x = alt.X("lines:Q", axis=axis, scale=axes.log_scale())
    scheme = axes.colours(list(data["series"].unique()))
    spread = data[data["layout"] == "spread"]
    medians = (spread if len(spread) else data)["median"]
    return Figure(
        charts.series_chart(data, x, "ns a hop", scheme, columns=1),
        "Time per hop by the round of a new process: it falls from "
        f"{medians.iloc[0]:.1f} ns in the first to {medians.iloc[-1]:.1f} in the last.",
        data[["number", "series", *_POINT]],
    )


def forks(a: Analysis) -> Figure:
    """µs a fork by what is resident, a line a page size."""
    required(a.fork_ns, "no forks were measured")
    names = {pages: words(pages) for pages in a.fork_ns}
    data = _in_us(_named(a.fork_ns, names))
    data["working_set_bytes"] = data["lines"] * a.base_page_bytes
    range_ = [axes.PAGE_COLOURS[pages] for pages in names]
    scheme = alt.Scale(domain=list(names.values()), range=range_)
    axis = axes.bytes_axis("Resident", sorted(set(data["working_set_bytes"])))
    x = alt.X("working_set_bytes:Q", axis=axis, scale=axes.log_scale())
    ends = listed(
        f"{curve.last.value / 1e3:,.0f} µs on {names[pages]}" for pages, curve in a.fork_ns.items()
    )
    return Figure(
        charts.series_chart(data, x, "µs a fork", scheme, ticks=_LONG, columns=1),
        f"Time per fork by what is resident. At the largest size it takes {ends}, rising from the "
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
    x = alt.X("lines:Q", scale=axes.log_scale(), axis=axis)
    y = axes.median_y(data, "ns a hop")
    colour, mib = (
        axes.colour("series", list(LAYOUTS.values()), columns=1),
        alt.Tooltip("mib:Q", title="MiB"),
    )
    least, most = a.loaded.intervals[0].value, a.loaded.last.value
    return Figure(
        charts.dashed(data, x, y, colour, ("of", dashes.values()), mib),
        "Time per hop beside a thread that streams memory. What translation costs of it goes from "
        f"{least:.0f} ns beside one that only runs to {most:.0f} beside {a.loaded.xs[-1]:.0f} MiB.",
        data[["series", "of", "mib", *_FIELDS]],
    )


def touches(a: Analysis) -> Figure:
    """Draw three quantiles of first touches in µs, a row for each mode of defrag, and base pages,
    in free and in fragmented memory."""
    a.runs(FREE, NEVER)
    modes = a.touches["mode"].map(
        lambda mode: f"defrag={mode}" if mode != ON_BASE else "base pages"
    )
    memories, quantiles = a.touches["memory"].map(MEMORIES), a.touches["quantile"].map(QUANTILES)
    rows = a.touches.assign(where=modes, memory=memories, of=quantiles)
    rows["row"] = rows["where"] + ", " + rows["memory"]
    data = _in_us(rows)[["row", "where", "memory", "of", *_POINT]]
    places = {mode: place for place, mode in enumerate(dict.fromkeys(modes))}
    order = data.sort_values("where", key=lambda modes: modes.map(places), kind="stable")
    axis = axes.ns_axis("µs a touch", (0.1, 1, 10, 100, 1000, 10_000, 100_000))
    kinds = list(QUANTILES.values())
    chart = charts.medians_in_rows(
        data,
        "row",
        list(order["row"].unique()),
        {"axis": axis, "scale": axes.time_scale(data)},
        *("row:N", "of:N"),
        unit="µs",
        width=2,
        size=60,
        color=axes.colour("of", kinds, columns=1),
        shape=axes.shape("of", kinds, columns=1),
    )
    longest = data.loc[data["median"].idxmax()]
    return Figure(
        chart,
        "First touches by the mode of defrag and on base pages, in free and in fragmented memory. "
        f"The longest take {longest['median']:,.0f} µs, with {longest['where']} in "
        f"{longest['memory']} memory.",
        data,
    )
