"""The charts of the chapter about page faults, one function a figure."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.page_faults.analysis import WAYS, Analysis
from experiments.page_faults.grid import LARGE
from tlb.page_sizes import BASE, words
from tlb.prose import count, listed
from tlb.reasons import required
from tlb.report import charts
from tlb.report.chapter import literature
from tlb.report.render import MUTED, Figure

BESIDE = ("churn",)  # with the reference machine's curves behind a switch

_SHARES = alt.Axis(title="Share of the touches", format="%")
_TICKS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
LEVELS = {4: "four levels", 5: "five levels"}
MODES = {"unmap": "mapped for each record", "keep": "kept"}
SEEN = 0.002  # of the touches: a bar that is less high is none
DIFFERENT = 10  # functions that are drawn: those whose shares differ the most


def touches(a: Analysis) -> Figure:
    """The share of first touches by what they took, an area a kind of memory."""
    every = required(a.histograms, "no touch was timed by itself")
    data = every[every["share"] >= SEEN]
    named = [name for name in WAYS.values() if (data["way"] == name).any()]
    low, high = data["low_ns"].min(), data["high_ns"].max()
    x = alt.X(
        "low_ns:Q",
        scale=charts.log_scale(10, (low, high)),
        axis=charts.ns_axis("ns a touch", [tick for tick in _TICKS if low <= tick <= high]),
    )
    chart = (
        alt.Chart(data)
        .mark_bar(opacity=0.55)
        .encode(
            x=x,
            x2="high_ns:Q",
            y=alt.Y("share:Q", stack=None, axis=_SHARES),
            y2=alt.datum(0),
            color=alt.Color(
                "way:N",
                sort=named,
                scale=charts.colours(named),
                legend=alt.Legend(title=None, columns=1),
            ),
            tooltip=[
                "way:N",
                alt.Tooltip("ns:Q", format=",.3~r"),
                alt.Tooltip("share:Q", format=".2%"),
            ],
        )
    )
    peaks = data.loc[data.groupby("way")["share"].idxmax()].set_index("way")
    told = listed(f"about {peaks.loc[name, 'ns']:,.0f} ns of {name}" for name in named)
    return Figure(
        chart,
        f"How long first touches take, as shares by time on a logarithmic axis. The fullest bars are at {told}.",
        every[["way", "low_ns", "high_ns", "share"]],
    )


def published_buckets(a: Analysis) -> Figure:
    """The share of the published faults by bucket, a bar each for four and five levels."""
    data = a.published_buckets.assign(levels=a.published_buckets["page_table_levels"].map(LEVELS))
    data["bucket"] = [
        f"{low:,} to {high:,}" for low, high in zip(data["from_ns"], data["to_ns"], strict=True)
    ]
    data = data[data["from_ns"] <= 2048]  # the rest are thousandths
    order = list(dict.fromkeys(data.sort_values("from_ns")["bucket"]))
    chart = (
        alt.Chart(data)
        .mark_bar(size=18)
        .encode(
            x=alt.X(
                "bucket:N",
                sort=order,
                axis=alt.Axis(title="ns a fault, as published", labelAngle=0),
            ),
            xOffset=alt.XOffset("levels:N", sort=list(LEVELS.values())),
            y=alt.Y("share:Q", axis=alt.Axis(title="Share of the faults", format="%")),
            color=alt.Color(
                "levels:N",
                sort=list(LEVELS.values()),
                scale=charts.colours(list(LEVELS.values())),
                legend=alt.Legend(title=None),
            ),
            tooltip=[
                "levels:N",
                "bucket:N",
                alt.Tooltip("share:Q", format=".1%"),
                alt.Tooltip("fault_count:Q", format=","),
            ],
        )
    )
    means = listed(
        f"{a.published_means[levels]:.2f} ns with {name}" for levels, name in LEVELS.items()
    )
    return Figure(
        chart,
        "Published faults by bucket. The fullest lies one bucket higher with five levels than with four, and the means "
        f"are {means}.",
        data[["levels", "from_ns", "to_ns", "fault_count", "share"]],
    )


def published_profile(a: Analysis) -> Figure:
    """What five levels add to each function's share of the published samples, in percentage points."""
    rows = literature("page_fault_profile")
    data = pd.DataFrame(
        {
            "symbol": rows["symbol"],
            "four": rows["four_levels_share_ratio"],
            "five": rows["five_levels_share_ratio"],
        }
    )
    return _differences(
        data.assign(points=100 * (data["five"] - data["four"])),
        "Percentage points of all samples, five levels less four",
        "The published difference of two profiles, by function",
        "five levels than with four",
    )


def own_profile(a: Analysis) -> Figure:
    """What large pages take off each function's share of this machine's samples, in percentage
    points."""
    rows = required(a.profiles, "no profile was taken", a.side.lacking.get("profiles", "no-data"))
    data = rows.head(DIFFERENT).copy()
    data["symbol"] = data["symbol"].str.removeprefix("[k] ").str.removeprefix("[.] ")
    return _differences(
        data,
        "Percentage points of all samples, huge pages less base pages",
        "The difference of two profiles of this machine, by function",
        "huge pages than on base pages",
    )


def _differences(data: pd.DataFrame, title: str, what: str, where: str) -> Figure:
    """Bars of a difference of two profiles."""
    order = (
        data.assign(size=data["points"].abs())
        .sort_values("size", ascending=False)["symbol"]
        .tolist()
    )
    chart = (
        alt.Chart(data)
        .mark_bar()
        .encode(
            y=alt.Y("symbol:N", sort=order, axis=alt.Axis(title=None, labelLimit=260)),
            x=alt.X("points:Q", axis=alt.Axis(title=title)),
            color=alt.condition(
                "datum.points > 0",
                alt.value(charts.colours(["a", "b"]).range[1]),
                alt.value(charts.colours(["a"]).range[0]),
            ),
            tooltip=["symbol:N", alt.Tooltip("points:Q", format="+.2f")],
        )
        .properties(height=22 * len(data))
    )
    most, least = (data.loc[data["points"].idxmax()], data.loc[data["points"].idxmin()])
    return Figure(
        chart,
        f"{what}. {most['symbol']} rises the most on {where}, by {most['points']:.2f} percentage points, and "
        f"{least['symbol']} falls the most, by {-least['points']:.2f}.",
        data,
    )


def churn(a: Analysis) -> Figure:
    """Records a second by threads, mapped for each and kept, with the number of CPUs."""
    data = required(a.rates, "no threads mapped memory").assign(
        memory=lambda rows: rows["mode"].map(MODES)
    )
    named, cpus = (
        [name for name in MODES.values() if (data["memory"] == name).any()],
        a.most_real_threads,
    )
    x = alt.X(
        "threads:Q",
        axis=alt.Axis(title="Threads", tickMinStep=1),
        scale=alt.Scale(nice=False, zero=False),
    )
    y = alt.Y(
        "rate:Q",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(
            title="Records a second, all threads",
            format="~s",
            values=[n * 10**power for power in range(2, 8) for n in (1, 3)],
        ),
    )
    base = alt.Chart(data)
    colour = alt.Color(
        "memory:N", sort=named, scale=charts.colours(named), legend=alt.Legend(title=None)
    )
    lines = base.mark_line(point=True).encode(
        x=x,
        y=y,
        color=colour,
        tooltip=[
            "memory:N",
            "threads:Q",
            alt.Tooltip("rate:Q", format=",.4~r"),
            alt.Tooltip("faults:Q", format=",.0f", title="faults a record"),
        ],
    )
    bounds = (
        base.mark_rule(strokeWidth=2, color=MUTED)
        .encode(x=x, y="low:Q", y2="high:Q")
        .transform_filter("isValid(datum.low)")
    )
    beyond = (
        charts.marks([(cpus, f"{cpus} CPUs: threads beyond share them")], "threads")
        if data["is_beyond"].any()
        else None
    )
    last = data[data["threads"] == cpus].set_index("memory")["rate"]
    told = listed(f"{rate:,.0f} where memory is {name}" for name, rate in last.items())
    return Figure(
        charts.layered(lines, bounds, beyond),
        f"Records a second by the number of threads. With {cpus}, as many as have a CPU "
        "each, "
        f"they are {told}, from {count(data['rate'].min())} at the least to {count(data['rate'].max())} at the most.",
        data[["memory", "threads", "rate", "low", "high", "faults", "n", "is_beyond"]],
    )


def again(a: Analysis) -> Figure:
    """ns a base page of memory that is touched again, by how long it was left alone, a colour a
    page size."""
    data = required(a.again, "no memory was left alone").assign(
        size=lambda rows: rows["pages"].map(words)
    )
    data["wait"] = [f"after {ms / 1000:g} s" if ms else "at once" for ms in data["idle_ms"]]
    order, named = (
        list(dict.fromkeys(data.sort_values("idle_ms")["wait"])),
        [words(p) for p in (BASE, LARGE) if (data["pages"] == p).any()],
    )
    base = alt.Chart(data).encode(
        x=alt.X("wait:N", sort=order, axis=alt.Axis(title="Touched again", labelAngle=0)),
        xOffset=alt.XOffset("size:N", sort=named),
    )
    y = alt.Y(
        "median:Q",
        axis=charts.ns_axis("ns a base page", [t for t in _TICKS if t <= data["high"].max() * 1.2]),
        scale=alt.Scale(type="symlog", constant=100, nice=False),
    )
    bars = base.mark_bar(size=20).encode(
        y=y,
        color=alt.Color(
            "size:N", sort=named, scale=charts.colours(named), legend=alt.Legend(title=None)
        ),
        tooltip=[
            "size:N",
            "wait:N",
            alt.Tooltip("median:Q", format=",.3~r", title="ns"),
            alt.Tooltip("first:Q", format=",.3~r"),
        ],
    )
    bars += (
        base.mark_rule(strokeWidth=2, color=MUTED)
        .encode(y="low:Q", y2="high:Q")
        .transform_filter("isValid(datum.low)")
    )
    dear = data.loc[data["median"].idxmax()]
    return Figure(
        bars,
        f"What a base page takes that is touched again, by how long it was left alone. It takes longest {dear['wait']} on "
        f"{dear['size']}, {dear['median']:,.0f} ns, and {data['median'].min():,.0f} ns at the least.",
        data[["size", "idle_ms", "median", "low", "high", "n", "first"]],
    )
