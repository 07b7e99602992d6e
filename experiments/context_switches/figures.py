"""The charts of the chapter about context switches, one function a figure."""

from __future__ import annotations

import altair as alt

from experiments.context_switches.analysis import NEW_PROCESS, Analysis
from tlb.report import charts
from tlb.report.render import Figure
from tlb.stats.curves import at_largest_shared
from tlb.system.prose import count, extremes
from tlb.system.reasons import required

KINDS = {
    "alone": "no switch",
    "thread": "thread switch",
    "process": "process switch",
    NEW_PROCESS: "new process",
}
LAYOUTS = {"spread": "spread: one line per page", "packed": "packed: the same lines side by side"}


def switches(a: Analysis) -> Figure:
    named = {KINDS[kind]: price for kind, price in a.after.items() if len(price)}
    data = charts.stacked(named, "no rounds were measured")[["series", "lines", *charts.FIELDS]]
    axis = charts.lines_axis("Pages chased after each switch", sorted(set(data["lines"])))
    chart = charts.series_chart(
        data,
        alt.X("lines:Q", axis=axis, scale=charts.log_scale()),
        "translation, ns per hop",
        charts.colours(list(named)),
        scale=charts.price_scale(data),
        ticks=charts.PRICES[:-1],
        columns=1,
    )
    lines, values = at_largest_shared(named)
    return Figure(
        chart,
        f"What translation costs a hop after each kind of switch, over {count(lines)} pages: "
        f"{extremes(values)}",
        data.rename(columns={"lines": "pages"}),
    )


def rounds(a: Analysis) -> Figure:
    data = required(a.rounds, "no new processes were measured")
    data = data.assign(lines=data["number"], n=float("nan"), series=data["layout"].map(LAYOUTS))
    axis = alt.Axis(title="Round of a new process", values=sorted(set(data["number"])))
    x = alt.X("lines:Q", axis=axis, scale=charts.log_scale())
    scheme = charts.colours(list(data["series"].unique()))
    spread = data[data["layout"] == "spread"]
    medians = (spread if len(spread) else data)["median"]
    return Figure(
        charts.series_chart(data, x, "ns per hop", scheme, ticks=charts.PRICES[1:], columns=1),
        "Time per hop by the round of a new process: it falls from "
        f"{medians.iloc[0]:.1f} ns in the first to {medians.iloc[-1]:.1f} in the last.",
        data[["number", "series", *charts.INTERVAL]],
    )
