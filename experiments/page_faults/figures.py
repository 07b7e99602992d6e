"""The charts of the chapter about page faults, one function a figure."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt
import pandas as pd

from experiments.page_faults.analysis import (
    FRESH_LARGE_MEMORY,
    FRESH_MEMORY,
    NAMED_TOUCHES,
    Analysis,
)
from tlb.report import charts
from tlb.report.charts import PAGE_COLOURS
from tlb.report.render import MUTED, PALETTE, Figure
from tlb.system.page_sizes import BASE
from tlb.system.prose import count, listed
from tlb.system.reasons import required

_TICKS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_RATES = [n * 10**power for power in range(2, 8) for n in (1, 3)]
MODES = {"unmap": "memory mapped for each record", "keep": "memory kept"}
SEEN = 0.002  # of the touches: a lower bar cannot be seen
SHOWN = 6  # functions of a profile: those with the largest shares
PROFILED = {"base": "on 4 KiB pages", "large": "on 2 MiB pages"}
# Pages of a file get another colour than fresh pages of the same size.
_COLOURS = {
    NAMED_TOUCHES[FRESH_MEMORY]: PAGE_COLOURS[BASE],
    NAMED_TOUCHES[FRESH_LARGE_MEMORY]: PAGE_COLOURS["thp"],
}


def _present(data: pd.DataFrame, column: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if (data[column] == name).any()]


def touches(a: Analysis) -> Figure:
    every = required(a.histograms, "no touch was timed by itself")
    data = every[every["share"] >= SEEN]
    kinds = _present(data, "way", NAMED_TOUCHES.values())
    low, high = data["low_ns"].min(), data["high_ns"].max()
    scale, axis = charts.log_scale(10, (low, high)), charts.within(_TICKS, low, high)
    shares = alt.Axis(title="Share of the touches", format="%")
    ns, share = alt.Tooltip("ns:Q", format=",.3~r"), alt.Tooltip("share:Q", format=".2%")
    # Side by side in their bucket, because bars on top of each other mix their colours.
    place, width = data["way"].map(kinds.index), data["high_ns"] / data["low_ns"]
    left, right = (data["low_ns"] * width ** ((place + k) / len(kinds)) for k in (0, 1))
    colours = alt.Scale(domain=kinds, range=[_COLOURS.get(kind, PALETTE[1]) for kind in kinds])
    chart = alt.Chart(data.assign(left=left, right=right)).mark_bar()
    chart = chart.encode(
        x=alt.X("left:Q", scale=scale, axis=charts.ns_axis("ns per touch", axis)),
        x2="right:Q",
        y=alt.Y("share:Q", stack=None, axis=shares),
        y2=alt.datum(0),
        color=charts.colour("way", colours, columns=1),
        tooltip=["way:N", ns, share],
    )
    peaks = data.loc[data.groupby("way")["share"].idxmax()].set_index("way")["ns"]
    fullest = listed(f"about {peaks[kind]:,.0f} ns of {kind}" for kind in kinds)
    return Figure(
        (_usual(a, scale) + chart).properties(height=190),
        "How long first touches take, as shares by time on a logarithmic axis. The fullest bars "
        f"are at {fullest}. A band from {a.usual['from_ns'].min()} to {a.usual['to_ns'].max()} ns "
        f"holds {a.usual['share'].sum():.0%} of the published faults.",
        every[["way", "low_ns", "high_ns", "share"]],
    )


def _usual(a: Analysis, scale: alt.Scale) -> alt.LayerChart:
    """Return a band with its label: where most published faults lie."""
    low, high = a.usual["from_ns"].min(), a.usual["to_ns"].max()
    place = pd.DataFrame({"low": [low], "high": [high], "middle": [(low * high) ** 0.5]})
    band = alt.Chart(place).mark_rect(color=MUTED, opacity=0.12)
    band = band.encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    label = alt.Chart(place).mark_text(baseline="top", color=MUTED, dy=4, lineHeight=16)
    text = alt.value(["bare metal,", "published"])
    return band + label.encode(x=alt.X("middle:Q", scale=scale), y=alt.value(0), text=text)


def own_profile(a: Analysis) -> Figure:
    rows = required(a.profiles, "no profile was taken", a.side.lacking.get("profiles", "no-data"))
    most = rows[[*PROFILED]].max(axis=1).sort_values(ascending=False, kind="stable").index[:SHOWN]
    rows = rows.loc[most].rename(columns=PROFILED)
    rows["symbol"] = rows["symbol"].str.replace(r"^\[[k.]\] ", "", regex=True)
    data = rows.melt("symbol", [*PROFILED.values()], "memory", "share")
    order, kinds = list(rows["symbol"]), list(PROFILED.values())
    # In pixels of a row: both bars lie below its name.
    below = alt.Scale(domain=kinds, range=[15, 33], paddingInner=0.1)
    colours = alt.Scale(domain=kinds, range=[PAGE_COLOURS[BASE], PAGE_COLOURS["thp"]])
    bars = alt.Chart(data).mark_bar()
    bars = bars.encode(
        y=charts.row("symbol", order),
        yOffset=alt.YOffset("memory:N", sort=kinds, scale=below),
        x=alt.X("share:Q", axis=alt.Axis(title="Share of all samples", format="%")),
        color=charts.colour("memory", colours, offset=12),
        tooltip=["symbol:N", "memory:N", alt.Tooltip("share:Q", format=".1%")],
    )
    top = listed(
        f"{rows.loc[rows[kind].idxmax(), 'symbol']} with {rows[kind].max():.0%} {kind}"
        for kind in kinds
    )
    return Figure(
        charts.rows("symbol", order, bars).properties(height=43 * len(order)),
        f"Shares of samples by function, on two page sizes. The largest: {top}.",
        data,
    )


def churn(a: Analysis) -> Figure:
    data = required(a.rates, "no threads mapped memory").assign(memory=a.rates["mode"].map(MODES))
    cpus = a.most_real_threads
    rates = alt.Axis(title="Records per second, all threads", format="~s", values=_RATES)
    threads = alt.Axis(title="Threads", tickMinStep=1)
    # Room for the label of the rule above the highest curve.
    ends = [data["rate"].min() * 0.8, data[["rate", "high"]].max().max() * 1.6]
    scale = alt.Scale(type="log", nice=False, domain=ends)
    base = alt.Chart(data).encode(
        x=alt.X("threads:Q", axis=threads, scale=alt.Scale(nice=False, zero=False))
    )
    colour = charts.colour("memory", _present(data, "memory", MODES.values()))
    bounds = base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q", color=colour)
    bounds = bounds.transform_filter("isValid(datum.low)")
    faults = alt.Tooltip("faults:Q", format=",.0f", title="faults a record")
    lines = base.mark_line(point=True).encode(
        y=alt.Y("rate:Q", scale=scale, axis=rates),
        color=colour,
        tooltip=["memory:N", "threads:Q", alt.Tooltip("rate:Q", format=",.4~r"), faults],
    )
    beyond = charts.marks([(cpus, f"{cpus} CPUs: threads beyond share them")], "threads")
    last = data[data["threads"] == cpus].set_index("memory")["rate"]
    named = listed(f"{rate:,.0f} with {name}" for name, rate in last.items())
    return Figure(
        charts.layered(lines, bounds, beyond if data["is_beyond"].any() else None).properties(
            height=180
        ),
        f"Records per second by the number of threads. With {cpus}, as many as have a CPU each, they "
        f"are {named}, from {count(data['rate'].min())} at the least to "
        f"{count(data['rate'].max())} at the most.",
        data[["memory", "threads", "rate", "low", "high", "faults", "n", "is_beyond"]],
    )
