"""The charts of the chapter about getting pages, one function a figure."""

from __future__ import annotations

import altair as alt

from experiments.keeping_pages.analysis import Analysis
from tlb.report import charts
from tlb.report.render import Figure
from tlb.system.page_sizes import SWEPT
from tlb.system.prose import extremes, listed
from tlb.system.reasons import required

_RATES = (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)


def prefault(a: Analysis) -> Figure:
    rates = required(a.faults[a.faults["pages"].isin(SWEPT)], "prefault", "engine-lacks")
    many = rates["threads"].map(lambda n: "" if n == 1 else f", {n} threads")
    data = rates.assign(
        label=rates["pages"].map(a.page_labels),
        way=rates["mode"] + many,
        fast=a.base_page_bytes / rates["low"],
        slow=a.base_page_bytes / rates["high"],
    )
    ways = list(dict.fromkeys(data.sort_values(["threads", "mode"])["way"]))
    low, high = data["gb_per_s"].min() * 0.7, data["gb_per_s"].max() * 1.3
    ticks = charts.within(_RATES, low, high)
    y = alt.Y(
        "gb_per_s:Q",
        scale=alt.Scale(type="log", nice=False, domain=[low, high]),
        axis=charts.ns_axis("GB/s made ready", ticks),
    )
    x = charts.group_x(a.page_labels.values(), "label", "Pages")
    base = alt.Chart(data).encode(x=x, xOffset=alt.XOffset("way:N", sort=ways))
    colour = charts.colour("way", ways)
    rate, count = alt.Tooltip("gb_per_s:Q", format=".3~r"), alt.Tooltip("n:Q", title="processes")
    points = base.mark_point(size=80).encode(
        y=y,
        color=colour,
        shape=charts.shape("way", ways),
        tooltip=["pages:N", "way:N", rate, count],
    )
    bars = base.mark_rule().encode(y="slow:Q", y2="fast:Q", color=colour)
    best = data.groupby("pages", sort=False)["gb_per_s"].max()
    ready = extremes(
        best.rename(a.page_labels).to_dict(), "GB/s", "are made ready fastest", "slowest"
    )
    each = listed(f"{a.page_labels[pages]} {rate:.1f} GB/s" for pages, rate in best.items())
    columns = ["pages", "mode", "threads", "gb_per_s", "slow", "fast", "free_ns", "one_byte_bytes"]
    return Figure(
        (bars + points).properties(height=260),
        "Rates at which memory is made ready, by page size. "
        f"{ready} The fastest way of each: {each}.",
        data[[*columns, "n"]],
    )
