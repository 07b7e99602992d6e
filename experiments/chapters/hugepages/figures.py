"""The charts of the chapter about page sizes, one function a figure."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from experiments.article.charts import (
    PRICES,
    TIMES,
    Figure,
    lines_axis,
    log_scale,
    marks,
    ns_axis,
    price_scale,
    reaches,
    series_chart,
    time_scale,
    working_set,
)
from experiments.article.render import PALETTE
from experiments.chapters.hugepages.analysis import PAGES, published_times
from experiments.inference.curves import PAGE
from experiments.inference.splinter import MOST_LINES
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

# A page size has the same colour in every figure.
COLOURS = dict(zip(PAGES, PALETTE, strict=False))
_SPLINTER = {"4k": "base pages", "2m": "2 MiB pages of the pool", "thp": "transparent 2 MiB pages"}
_RATES = (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)


def _scale(kinds: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(kinds), range=[COLOURS[one] for one in kinds])


def _ordered(frame: pd.DataFrame) -> list[str]:
    return [pages for pages in PAGES if (frame["pages"] == pages).any()]


def _by_pages(data: pd.DataFrame, title: str, scale: alt.Scale, ticks: Sequence[float], entries: Sequence[int]) -> alt.LayerChart:
    """A line a page size against the working set, with the reach of each TLB level."""
    chart = series_chart(data, working_set(), title, scale, ticks, _scale(_ordered(data)), "pages")
    return chart + marks([(n * PAGE, label) for n, label in reaches(entries)], "working_set_bytes") if entries else chart


def _ends(data: pd.DataFrame) -> pd.DataFrame:
    """The row of each page size at its largest size, from small pages to large."""
    return data.sort_values("lines").groupby("pages").tail(1).set_index("pages").loc[_ordered(data)]


def page_sizes(curves: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """ns per access of the spread chase against working set, a line a page size; a frame of `huge.curves`."""
    data = curves.assign(working_set_bytes=curves["lines"] * PAGE)
    chart = _by_pages(data, "ns per access", time_scale(data), TIMES, entries)
    told = ", ".join(f"{row['median']:.0f} ns on {one} at {format_size(int(row['working_set_bytes']))}"
                     for one, row in _ends(data).iterrows())
    return Figure(chart, "page_sizes", f"Line chart on logarithmic axes, a line a page size. They end at {told}.",
                  data[["pages", "lines", "working_set_bytes", "median", "low", "high", "coverage", "n", "spread", "unstable"]])


def page_prices(prices: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """The price of translation against working set, a line a page size; a frame of `huge.prices`."""
    data = prices.assign(working_set_bytes=prices["lines"] * PAGE, n=prices["n_spread"])
    chart = _by_pages(data, "ns per access for translation", price_scale(data), PRICES, entries)
    told = ", ".join(f"{one} {row['median']:z.1f} ns" for one, row in _ends(data).iterrows())
    return Figure(chart, "page_prices", f"The price of translation by page size, at the largest size of each: {told}.",
                  data[["pages", "lines", "working_set_bytes", "median", "low", "high", "n", "unstable"]])


def splinter(prices: pd.DataFrame, large: str, entries: Sequence[int]) -> Figure:
    """The price of one line to each 4 KiB, on base pages and on `large` ones. Raises Unavailable("too-few-points")."""
    near = prices[prices["pages"].isin(["4k", large]) & (prices["lines"] <= MOST_LINES)]
    if near.empty:
        raise Unavailable("too-few-points", "nothing was measured on both page sizes")
    data = near.assign(series=near["pages"].map(_SPLINTER), n=near["n_spread"])
    names = [_SPLINTER[one] for one in ("4k", large)]
    colours = alt.Scale(domain=names, range=[COLOURS["4k"], COLOURS[large]])
    x = alt.X("lines:Q", axis=lines_axis("Lines touched, one to each 4 KiB"), scale=log_scale())
    chart = series_chart(data, x, "ns per access for translation", price_scale(data), PRICES, colours, "series")
    if entries:
        chart += marks(reaches(entries), "lines")
    at = data.sort_values("lines").groupby("series").tail(1).set_index("series")["median"]
    told = ", ".join(f"{name} {at[name]:z.1f} ns" for name in names if name in at)
    return Figure(chart, "splinter", f"The price of translation on base pages and on large ones over the same lines. At the right: {told}.",
                  data[["series", "lines", "median", "low", "high", "n"]])


def touch(ours: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """ns per random read against the array's bytes: here, and as published (columns pages, array_bytes, score)."""
    if ours.empty:
        raise Unavailable("too-few-points", "no random touches were measured")
    theirs = published_times(published).rename(columns={"score": "median"})
    both = pd.concat([ours.assign(where="here"), theirs.assign(where="published")], ignore_index=True)
    data = both[["where", "pages", "array_bytes", "median", "low", "high", "n"]]
    kinds = _ordered(data)
    scale = alt.Scale(type="log", nice=False, domain=[data["median"].min() * 0.8, data[["median", "high"]].max().max() * 1.3])
    x = alt.X("array_bytes:Q", scale=alt.Scale(type="log", base=10, nice=False), axis=alt.Axis(
        title="Bytes of the array", format="~s", values=sorted(set(data["array_bytes"]))))
    ticks = [t for t in (1, 2, 3, 5, 8, 12, 20, 30, 50, 100, 200) if data["median"].min() * 0.8 <= t <= data["median"].max() * 1.3]
    base = alt.Chart(data).encode(
        x=x, y=alt.Y("median:Q", scale=scale, axis=ns_axis("ns per random read", ticks)),
        color=alt.Color("pages:N", sort=kinds, scale=_scale(kinds)),
        strokeDash=alt.StrokeDash("where:N", sort=["here", "published"], scale=alt.Scale(
            domain=["here", "published"], range=[[1, 0], [5, 4]]), legend=alt.Legend(symbolType="stroke", symbolSize=420)))
    bars = alt.Chart(data[data["where"] == "here"]).mark_rule().encode(
        x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=alt.Color("pages:N", sort=kinds, scale=_scale(kinds)))
    tips = [alt.Tooltip("pages:N"), alt.Tooltip("where:N"), alt.Tooltip("array_bytes:Q", format=","),
            alt.Tooltip("median:Q", format=".3~r", title="ns")]
    ends = ours[ours["array_bytes"] == ours["array_bytes"].max()]
    told = ", ".join(f"{row.median:.1f} ns on {row.pages}" for row in ends[["pages", "median"]].itertuples(index=False))
    return Figure(base.mark_line() + bars + base.mark_point().encode(tooltip=tips), "touch",
                  f"Time per random read against the size of the array. At {int(ours['array_bytes'].max()):,} bytes here: {told}.", data)


def prefault(rates: pd.DataFrame) -> Figure:
    """GB/s made ready by page size and way; a frame of `huge.prefaults`."""
    if rates.empty:
        raise Unavailable("engine-lacks", "prefault")
    many = rates["threads"].map(lambda n: "" if n == 1 else f", {n} threads")
    data = rates.assign(way=rates["mode"] + many, fast=PAGE / rates["low"], slow=PAGE / rates["high"])
    ways = list(dict.fromkeys(data.sort_values(["threads", "mode"])["way"]))
    colours = alt.Scale(domain=ways, range=list(PALETTE[: len(ways)]))
    ticks = [t for t in _RATES if data["gb_per_s"].min() * 0.7 <= t <= data["gb_per_s"].max() * 1.3]
    y = alt.Y("gb_per_s:Q", scale=alt.Scale(type="log", nice=False, domain=[data["gb_per_s"].min() * 0.7, data["gb_per_s"].max() * 1.3]),
              axis=ns_axis("GB/s made ready", ticks))
    x = alt.X("pages:N", sort=list(PAGES), axis=alt.Axis(title="Pages", labelAngle=0))
    base = alt.Chart(data).encode(x=x, xOffset=alt.XOffset("way:N", sort=ways))
    colour = alt.Color("way:N", sort=ways, scale=colours)
    points = base.mark_point(size=80).encode(
        y=y, color=colour, shape=alt.Shape("way:N", sort=ways, scale=alt.Scale(domain=ways)),
        tooltip=[alt.Tooltip("pages:N"), alt.Tooltip("way:N"), alt.Tooltip("gb_per_s:Q", format=".3~r"),
                 alt.Tooltip("n:Q", title="processes")])
    bars = base.mark_rule().encode(y=alt.Y("slow:Q"), y2="fast:Q", color=colour)
    best = data.groupby("pages")["gb_per_s"].max()
    told = ", ".join(f"{pages} {best[pages]:.1f} GB/s" for pages in _ordered(data))
    return Figure(bars + points, "prefault", f"Rates at which memory is made ready, by page size. The fastest way of each: {told}.",
                  data[["pages", "mode", "threads", "gb_per_s", "slow", "fast", "free_ns", "one_byte_bytes", "n"]])
