"""The charts of the chapter about page faults, one function a figure."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from experiments.page_faults.analysis import WAYS, Analysis
from experiments.page_faults.grid import LARGE
from tlb.page_sizes import BASE, words
from tlb.prose import count, listed
from tlb.reasons import required
from tlb.report import axes, charts
from tlb.report.chapter import literature
from tlb.report.render import Figure

BESIDE = ("churn",)  # with the reference machine's curves behind a switch

_TICKS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_RATES = [n * 10**power for power in range(2, 8) for n in (1, 3)]
LEVELS = {4: "four levels", 5: "five levels"}
MODES = {"unmap": "mapped for each record", "keep": "kept"}
SEEN = 0.002  # of the touches: a lower bar cannot be seen
DIFFERENT = 10  # functions that are drawn: those whose shares differ the most


def _present(data: pd.DataFrame, column: str, names: Sequence[str]) -> list[str]:
    """Return those names that the column has."""
    return [name for name in names if (data[column] == name).any()]


def touches(a: Analysis) -> Figure:
    """Draw the share of first touches by how long they took, an area a kind of memory."""
    every = required(a.histograms, "no touch was timed by itself")
    data = every[every["share"] >= SEEN]
    kinds = _present(data, "way", WAYS.values())
    low, high = data["low_ns"].min(), data["high_ns"].max()
    ticks = axes.within(_TICKS, low, high)
    shares = alt.Axis(title="Share of the touches", format="%")
    chart = alt.Chart(data).mark_bar(opacity=0.55)
    chart = chart.encode(
        x=alt.X(
            "low_ns:Q",
            scale=axes.log_scale(10, (low, high)),
            axis=axes.ns_axis("ns a touch", ticks),
        ),
        x2="high_ns:Q",
        y=alt.Y("share:Q", stack=None, axis=shares),
        y2=alt.datum(0),
        color=axes.colour("way", kinds, columns=1),
        tooltip=[
            "way:N",
            alt.Tooltip("ns:Q", format=",.3~r"),
            alt.Tooltip("share:Q", format=".2%"),
        ],
    )
    peaks = data.loc[data.groupby("way")["share"].idxmax()].set_index("way")["ns"]
    fullest = listed(f"about {peaks[kind]:,.0f} ns of {kind}" for kind in kinds)
    return Figure(
        chart,
        "How long first touches take, as shares by time on a logarithmic axis. The fullest bars "
        f"are at {fullest}.",
        every[["way", "low_ns", "high_ns", "share"]],
    )


def published_buckets(a: Analysis) -> Figure:
    """Draw the share of the published faults by bucket, a bar each for four and five levels."""
    data = a.published_buckets.assign(levels=a.published_buckets["page_table_levels"].map(LEVELS))
    ends = zip(data["from_ns"], data["to_ns"], strict=True)
    data["bucket"] = [f"{low:,} to {high:,}" for low, high in ends]
    data = data[data["from_ns"] <= 2048]  # the rest are thousandths
    order = list(data.sort_values("from_ns")["bucket"].unique())
    levels = list(LEVELS.values())
    share = alt.Tooltip("share:Q", format=".1%")
    chart = alt.Chart(data).mark_bar(size=18)
    chart = chart.encode(
        x=alt.X(
            "bucket:N", sort=order, axis=alt.Axis(title="ns a fault, as published", labelAngle=0)
        ),
        xOffset=alt.XOffset("levels:N", sort=levels),
        y=alt.Y("share:Q", axis=alt.Axis(title="Share of the faults", format="%")),
        color=axes.colour("levels", levels),
        tooltip=["levels:N", "bucket:N", share, alt.Tooltip("fault_count:Q", format=",")],
    )
    means = listed(f"{a.published_means[n]:.2f} ns with {name}" for n, name in LEVELS.items())
    return Figure(
        chart,
        "Published faults by bucket. The fullest lies one bucket higher with five levels than with "
        f"four, and the means are {means}.",
        data[["levels", "from_ns", "to_ns", "fault_count", "share"]],
    )


def published_profile(a: Analysis) -> Figure:
    """Draw what five levels add to each function's share of the published samples."""
    rows = literature("page_fault_profile")
    four, five = rows["four_levels_share_ratio"], rows["five_levels_share_ratio"]
    data = pd.DataFrame({"symbol": rows["symbol"], "four": four, "five": five})
    return _differences(
        data.assign(points=100 * (five - four)),
        "Percentage points of all samples, five levels less four",
        "The published difference of two profiles, by function",
        "five levels than with four",
    )


def own_profile(a: Analysis) -> Figure:
    """Draw what large pages take off each function's share of this machine's samples."""
    rows = required(a.profiles, "no profile was taken", a.side.lacking.get("profiles", "no-data"))
    symbols = rows["symbol"].str.replace(r"^\[[k.]\] ", "", regex=True)
    return _differences(
        rows.assign(symbol=symbols).head(DIFFERENT),
        "Percentage points of all samples, huge pages less base pages",
        "The difference of two profiles of this machine, by function",
        "huge pages than on base pages",
    )


def _differences(data: pd.DataFrame, title: str, what: str, where: str) -> Figure:
    """Draw a bar for each function's percentage points."""
    order = data.loc[data["points"].abs().sort_values(ascending=False).index, "symbol"].tolist()
    fall, rise = axes.colours(["fall", "rise"]).range
    chart = alt.Chart(data).mark_bar()
    chart = chart.encode(
        y=alt.Y("symbol:N", sort=order, axis=alt.Axis(title=None, labelLimit=260)),
        x=alt.X("points:Q", axis=alt.Axis(title=title)),
        color=alt.condition("datum.points > 0", alt.value(rise), alt.value(fall)),
        tooltip=["symbol:N", alt.Tooltip("points:Q", format="+.2f")],
    )
    most, least = data.loc[data["points"].idxmax()], data.loc[data["points"].idxmin()]
    return Figure(
        chart.properties(height=22 * len(data)),
        f"{what}. {most['symbol']} rises the most on {where}, by {most['points']:.2f} percentage "
        f"points, and {least['symbol']} falls the most, by {-least['points']:.2f}.",
        data,
    )


def churn(a: Analysis) -> Figure:
    """Draw records a second by threads, mapped for each and kept, with the number of CPUs."""
    data = required(a.rates, "no threads mapped memory").assign(memory=a.rates["mode"].map(MODES))
    cpus = a.most_real_threads
    rates = alt.Axis(title="Records a second, all threads", format="~s", values=_RATES)
    threads = alt.Axis(title="Threads", tickMinStep=1)
    base = alt.Chart(data).encode(
        x=alt.X("threads:Q", axis=threads, scale=alt.Scale(nice=False, zero=False))
    )
    bounds = base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q")
    bounds = bounds.transform_filter("isValid(datum.low)")
    faults = alt.Tooltip("faults:Q", format=",.0f", title="faults a record")
    lines = base.mark_line(point=True).encode(
        y=alt.Y("rate:Q", scale=alt.Scale(type="log", nice=False), axis=rates),
        color=axes.colour("memory", _present(data, "memory", MODES.values())),
        tooltip=["memory:N", "threads:Q", alt.Tooltip("rate:Q", format=",.4~r"), faults],
    )
    beyond = charts.marks([(cpus, f"{cpus} CPUs: threads beyond share them")], "threads")
    last = data[data["threads"] == cpus].set_index("memory")["rate"]
    ends = listed(f"{rate:,.0f} where memory is {name}" for name, rate in last.items())
    return Figure(
        charts.layered(lines, bounds, beyond if data["is_beyond"].any() else None),
        f"Records a second by the number of threads. With {cpus}, as many as have a CPU each, they "
        f"are {ends}, from {count(data['rate'].min())} at the least to "
        f"{count(data['rate'].max())} at the most.",
        data[["memory", "threads", "rate", "low", "high", "faults", "n", "is_beyond"]],
    )


def again(a: Analysis) -> Figure:
    """Draw ns a base page of memory that is touched again, by how long it was left alone, a colour
    a page size."""
    data = required(a.again, "no memory was left alone").assign(size=a.again["pages"].map(words))
    data["wait"] = [f"after {ms / 1000:g} s" if ms else "at once" for ms in data["idle_ms"]]
    ticks = axes.within(_TICKS, 0, data["high"].max() * 1.2)
    scale = alt.Scale(type="symlog", constant=100, nice=False)
    x = charts.group_x(data.sort_values("idle_ms"), "wait", "Touched again")
    y = alt.Y("median:Q", axis=axes.ns_axis("ns a base page", ticks), scale=scale)
    colour = axes.colour("size", _present(data, "size", [words(BASE), words(LARGE)]))
    slowest = data.loc[data["median"].idxmax()]
    return Figure(
        charts.bars(data, x, y, colour, alt.Tooltip("first:Q", format=",.3~r")),
        "What a base page takes that is touched again, by how long it was left alone. It takes "
        f"longest {slowest['wait']} on {slowest['size']}, {slowest['median']:,.0f} ns, and "
        f"{data['median'].min():,.0f} ns at the least.",
        data[["size", "idle_ms", "median", "low", "high", "n", "first"]],
    )
