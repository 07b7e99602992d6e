"""The chart of first touches by the mode of defrag."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.churn.analysis import Analysis
from experiments.churn.housekeeping import FRAGMENTS, FREE, NEVER, ON_BASE
from tlb.report import charts
from tlb.report.render import Figure

MEMORIES = {FREE: "free", FRAGMENTS: "fragmented"}
QUANTILES = {
    "p50": "median first touch",
    "p999": "one touch in a thousand",
    "longest": "the longest touch",
}


def in_us(data: pd.DataFrame) -> pd.DataFrame:
    """Return nanoseconds in microseconds, for what takes thousands."""
    return data.assign(**{name: data[name] / 1e3 for name in ("median", "low", "high")})


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
    data = in_us(rows)[["row", "where", "memory", "of", "median", "low", "high"]]
    places = {mode: place for place, mode in enumerate(dict.fromkeys(modes))}
    order = data.sort_values("where", key=lambda modes: modes.map(places), kind="stable")
    names = list(order["row"].unique())
    axis = charts.ns_axis("µs a touch", (0.1, 1, 10, 100, 1000, 10_000, 100_000))
    scale, legend = charts.time_scale(data), alt.Legend(columns=1)
    kinds = list(QUANTILES.values())
    base = alt.Chart(data).encode(
        y=charts.row("row", names),
        color=alt.Color("of:N", sort=kinds, scale=charts.colours(kinds), legend=legend),
    )
    points = base.mark_point(filled=True, size=60).encode(
        x=alt.X("median:Q", axis=axis, scale=scale),
        shape=alt.Shape("of:N", sort=kinds, scale=alt.Scale(domain=kinds), legend=legend),
        tooltip=["row:N", "of:N", alt.Tooltip("median:Q", format=".3~r", title="µs")],
    )
    rules = base.mark_rule(strokeWidth=2)
    rules = rules.encode(x=alt.X("low:Q", axis=axis, scale=scale), x2="high:Q")
    longest = data.loc[data["median"].idxmax()]
    return Figure(
        charts.rows("row", names, rules, points),
        "First touches by the mode of defrag and on base pages, in free and in fragmented memory. "
        f"The longest take {longest['median']:,.0f} µs, with {longest['where']} in "
        f"{longest['memory']} memory.",
        data,
    )
