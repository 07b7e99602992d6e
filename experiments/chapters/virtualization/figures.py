"""The charts of the chapter about guests, one function a figure."""

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
from experiments.article.render import MUTED, PALETTE
from experiments.chapters.virtualization import analysis as virtual
from experiments.inference.curves import PAGE
from experiments.inference.splinter import MOST_LINES
from experiments.lab.grid import GUEST_PAGES, HOST_PAGES, STEPS_OF
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

OUTSIDE = "no guest"
# From cheap to dear one colour grows denser: whatever it lies on, paper or dark, ink is read on it.
_DENSITY = (0.06, 0.5)
_RATIOS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 8, 12, 20, 30, 50, 100)


def series(guest: str, host: str) -> str:
    return virtual.cell_name(guest, host) if guest else f"{OUTSIDE}, {host}"


# A cell has its colour in each figure of lines; the plain process's are those of the chapter about page sizes where it has one.
_SERIES = [series("", host) for host in ("4k", "thp")] + [series(*one) for one in STEPS_OF]
_COLOURS = dict(zip(_SERIES, (MUTED, PALETTE[4], *PALETTE[:4]), strict=True))


def matrix(frame: pd.DataFrame) -> Figure:
    """The heat map: ns per access of the spread chase by guest's page and size, and by host's page; the plain process beside them."""
    found = virtual.matrix(frame)
    lines = virtual.sizes(found)
    plain = virtual.outside(frame)
    same = {guest: virtual.alike(frame, guest) for guest in GUEST_PAGES}
    beside = [plain[plain["pages"] == pages].assign(guest=guest, host=OUTSIDE) for guest, pages in same.items()
              if pages and guest in set(found["guest"])]
    data = pd.concat([found, *beside], ignore_index=True)
    data = data[data["lines"].isin(lines)][["guest", "host", "lines", "median", "low", "high"]]
    data["row"] = [f"{format_size(n * PAGE)}, guest {guest}" for guest, n in zip(data["guest"], data["lines"], strict=True)]
    rows = [f"{format_size(n * PAGE)}, guest {guest}" for n in lines for guest in GUEST_PAGES]
    hosts = [*HOST_PAGES, OUTSIDE]
    base = alt.Chart(data).encode(
        x=alt.X("host:N", sort=hosts, axis=alt.Axis(title="Host's pages", orient="top", labelAngle=0, labelOverlap=False)),
        y=alt.Y("row:N", sort=rows, axis=alt.Axis(title=None)))
    tips = [alt.Tooltip("row:N", title="size"), alt.Tooltip("host:N"), alt.Tooltip("median:Q", format=".3~r", title="ns"),
            alt.Tooltip("low:Q", format=".3~r"), alt.Tooltip("high:Q", format=".3~r")]
    dense = alt.FillOpacity("median:Q", legend=None, scale=alt.Scale(type="log", nice=False, range=list(_DENSITY)))
    chart = (base.mark_rect(fill=PALETTE[0]).encode(fillOpacity=dense, tooltip=tips)
             + base.mark_text(fontSize=14).encode(text=alt.Text("median:Q", format=".3~r"))).properties(height=30 * len(set(data["row"])))
    here = virtual.at(found)
    worst, best = (here.loc[getattr(here["median"], name)()] for name in ("idxmax", "idxmin"))
    told = f"from {best['median']:.0f} ns on {virtual.cell_name(best['guest'], best['host'])} to {worst['median']:.0f} ns on " \
           f"{virtual.cell_name(worst['guest'], worst['host'])}" if len(here) > 1 else f"{best['median']:.0f} ns"
    return Figure(chart, "guest_matrix", f"Table of times coloured by size. At {format_size(int(here['lines'].iloc[0]) * PAGE)} a load "
                  f"takes {told}.", data[["guest", "host", "lines", "median", "low", "high"]])


def _joined(frame: pd.DataFrame, priced: bool) -> pd.DataFrame:
    """The chases of _SERIES, their time or their price, with the columns that a chart of series takes. Raises Unavailable."""
    plain = virtual.outside(frame).rename(columns={"pages": "host"}).assign(guest="")
    try:
        inside = virtual.matrix(frame)
    except Unavailable:
        inside = plain[:0]
    data = pd.concat([one for one in (plain, inside) if len(one)] or [plain], ignore_index=True)
    data["series"] = [series(guest, host) for guest, host in zip(data["guest"], data["host"], strict=True)]
    data = data[data["series"].isin(_SERIES)]
    if priced:
        data = data.drop(columns=["median", "low", "high"]).rename(columns={"price": "median", "price_low": "low", "price_high": "high"})
        data = data[data["median"].notna()]
    if data.empty:
        raise Unavailable("too-few-points", "nothing was measured with its control" if priced else "nothing was measured")
    n = data["n"] if "n" in data else float("nan")
    return data.assign(n=n, working_set_bytes=data["lines"] * PAGE)[["series", "lines", "working_set_bytes", "median", "low", "high", "n"]]


def _scale(data: pd.DataFrame) -> alt.Scale:
    there = [one for one in _SERIES if (data["series"] == one).any()]
    return alt.Scale(domain=there, range=[_COLOURS[one] for one in there])


def _last(data: pd.DataFrame) -> str:
    ends = data.sort_values("lines").groupby("series", sort=False).tail(1).set_index("series")["median"]
    return ", ".join(f"{name} {ends[name]:z.1f} ns" for name in _SERIES if name in ends)


def lines(frame: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """ns per access of the spread chase against working set: in the guest and outside."""
    data = _joined(frame, priced=False)
    chart = series_chart(data, working_set(), "ns per access", time_scale(data), TIMES, _scale(data), "series", columns=3)
    if entries:
        chart += marks([(n * PAGE, label) for n, label in reaches(entries)], "working_set_bytes")
    return Figure(chart, "guest_lines", f"Line chart on logarithmic axes, in a guest and outside. At the right: {_last(data)}.", data)


def steps(frame: pd.DataFrame, entries: Sequence[int]) -> Figure:
    """The price of translation over few lines, where it shows what an entry spans."""
    data = _joined(frame, priced=True)
    data = data[data["lines"] <= MOST_LINES]
    if data.empty:
        raise Unavailable("too-few-points", f"nothing was measured up to {MOST_LINES:,} lines")
    x = alt.X("lines:Q", axis=lines_axis("Lines touched, one to each 4 KiB"), scale=log_scale())
    chart = series_chart(data, x, "ns per access for translation", price_scale(data), PRICES, _scale(data), "series", columns=3)
    if entries:
        chart += marks(reaches(entries), "lines")
    return Figure(chart, "guest_steps", f"The price of translation by guest's page on host's page. At the right: {_last(data)}.", data)


def ratios(frame: pd.DataFrame) -> Figure:
    """Guest over native on the guest's page size, a point a cell and size, with its interval."""
    found = virtual.matrix(frame)
    data = found[found["lines"].isin(virtual.sizes(found)) & found["over_alike"].notna()]
    if data.empty:
        raise Unavailable("too-few-points", "no page size was measured both in a guest and outside")
    data = data.assign(cell=[virtual.cell_name(*one) for one in zip(data["guest"], data["host"], strict=True)],
                       size=[format_size(n * PAGE) for n in data["lines"]])
    cells, sizes = list(dict.fromkeys(data["cell"])), [format_size(n * PAGE) for n in sorted(set(data["lines"]))]
    ends = [min(0.9, data[["over_alike", "over_alike_low"]].min().min() * 0.9),
            max(3.3, data[["over_alike", "over_alike_high"]].max().max() * 1.1)]
    scale = alt.Scale(type="log", nice=False, domain=ends)
    ticks = [one for one in _RATIOS if ends[0] <= one <= ends[1]]
    base = alt.Chart(data).encode(y=alt.Y("cell:N", sort=cells, axis=alt.Axis(title="Guest's page on host's page")),
                                  yOffset=alt.YOffset("size:N", sort=sizes))
    colour = alt.Color("size:N", sort=sizes, scale=alt.Scale(domain=sizes, range=[PALETTE[k % len(PALETTE)] for k in range(len(sizes))]))
    points = base.mark_point().encode(
        x=alt.X("over_alike:Q", scale=scale, axis=ns_axis("Time in the guest over time outside, on the same page size", ticks)),
        color=colour, shape=alt.Shape("size:N", sort=sizes, scale=alt.Scale(domain=sizes)),
        tooltip=[alt.Tooltip("cell:N"), alt.Tooltip("size:N"), alt.Tooltip("over_alike:Q", format=".3f", title="ratio"),
                 alt.Tooltip("over_alike_low:Q", format=".3f"), alt.Tooltip("over_alike_high:Q", format=".3f")])
    bars = base.mark_rule().encode(x=alt.X("over_alike_low:Q", scale=scale), x2="over_alike_high:Q", color=colour)
    rules = alt.Chart(pd.DataFrame({"over_alike": [1.0, 2.0, 3.0]})).mark_rule(strokeDash=[4, 4], color=MUTED).encode(
        x=alt.X("over_alike:Q", scale=scale))
    chart = (rules + bars + points).properties(height=max(34 * len(cells), 90))
    most = data.loc[data["over_alike"].idxmax()]
    told = [f"over_{name}{end}" for name in ("alike", "4k") for end in ("", "_low", "_high")]
    return Figure(chart, "guest_ratios", f"Ratios of a guest's time to a plain process's. The largest is {most['over_alike']:.2f}, on "
                  f"{most['cell']} at {most['size']}.", data[["guest", "host", "lines", *told]])


_COUNTS = {"formula": "cold, by the formula", "warm": "warm, simulated"}


def references(counts: pd.DataFrame) -> Figure:
    """The measured price against the references that a walk could need, a point a cell; a frame of `virtual_counts.counted`."""
    known = counts[counts["price"].notna()]
    if known.empty:
        raise Unavailable("too-few-points", "no guest's chase was measured with its packed control")
    labels = list(_COUNTS.values())
    data = pd.concat([known.assign(references=known[name].astype(float), series=label) for name, label in _COUNTS.items()],
                     ignore_index=True)
    colour = alt.Color("series:N", sort=labels, scale=alt.Scale(domain=labels, range=list(PALETTE[:2])))
    x = alt.X("references:Q", axis=ns_axis("Loads of page-table entries"), scale=alt.Scale(domain=[0, 26], nice=False))
    y = alt.Y("price:Q", axis=ns_axis("Price of translation, ns per access"))
    base = alt.Chart(data).encode(x=x, y=y, color=colour)
    tips = [alt.Tooltip("cell:N"), alt.Tooltip("series:N"), alt.Tooltip("references:Q", format=".3~r"),
            alt.Tooltip("price:Q", format=".3~r", title="ns")]
    points = base.mark_point(size=70).encode(shape=alt.Shape("series:N", sort=labels, scale=alt.Scale(domain=labels)), tooltip=tips)
    bars = base.mark_rule().encode(y=alt.Y("price_low:Q"), y2="price_high:Q")
    # Pairs that change places need as many references, so one is named on the left and one on the right; of two kinds of 2 MiB pages
    # one name does for both.
    named = data[(data["series"] == labels[0]) & ~((data["host"] == "thp") & data["guest"].isin(data.loc[data["host"] == "2m", "guest"]))]
    left = (named["guest"].map(GUEST_PAGES.index) < named["host"].map(virtual.hardware).map(GUEST_PAGES.index)) | (
        named["formula"] == named["formula"].min())
    names = [alt.Chart(named[mine]).mark_text(align=align, dx=dx, dy=-7).encode(x=x, y=y, text="cell:N")
             for mine, align, dx in ((left, "right", -7), (~left, "left", 7)) if mine.any()]
    most = known.loc[known["price"].idxmax()]
    return Figure(alt.layer(bars, points, *names), "guest_references",
                  f"Price against references. {most['cell']} pays most: {most['price']:z.0f} ns, {most['formula']} references when cold.",
                  data[["cell", "series", "references", "price", "price_low", "price_high"]])
