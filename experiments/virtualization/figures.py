"""The charts of the chapter about guests, one function each; they show the rows of the Analysis
that they are given."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.virtualization.analysis import OUTSIDE, Analysis, cell_name
from experiments.virtualization.grid import GUEST_PAGES, HOST_PAGES, STEPS_OF
from tlb.inference.splinter import MOST_LINES
from tlb.page_sizes import hardware
from tlb.prose import extremes
from tlb.reasons import Unavailable, required
from tlb.report import axes, charts
from tlb.report.render import MUTED, PALETTE, Figure
from tlb.units import format_size

BESIDE = ("guest_lines",)  # with the reference machine's curves behind a switch

# From cheap to dear one colour grows denser: whatever it lies on, paper or dark, ink is read on it.
_DENSITY = (0.06, 0.5)
_RATIOS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 8, 12, 20, 30, 50, 100)
_RATIO = ["over_alike", "over_alike_low", "over_alike_high"]
# A chase has its colour in each figure of lines; the plain process's are those of the chapter about
# page sizes where it has one.
_COLOURS = dict(
    zip(
        [cell_name(*chase) for chase in (("", "4k"), ("", "thp"), *STEPS_OF)],
        (MUTED, PALETTE[4], *PALETTE[:4]),
        strict=True,
    )
)


def guest_matrix(a: Analysis) -> Figure:
    """The heat map: ns per access of the spread chase by guest's page and size, and by host's page;
    the plain process beside them."""
    plain = a.chases[a.chases["guest"] == ""]
    beside = [
        plain[plain["host"] == a.alike(guest)].assign(guest=guest, host=OUTSIDE)
        for guest in GUEST_PAGES
        if guest in set(a.matrix["guest"])
    ]
    data = pd.concat([a.matrix, *beside], ignore_index=True)
    data = data[data["lines"].isin(a.sizes)][["guest", "host", "lines", "median", "low", "high"]]
    sizes = [format_size(lines * a.base_page_bytes) for lines in a.sizes]
    ends = dict.fromkeys(
        f"{end.median:.0f} ns on {end.cell}"
        for end in a.far.sort_values("median").iloc[[0, -1]].itertuples()
    )
    return Figure(
        _heat_map(data, (data["lines"] * a.base_page_bytes).map(format_size), sizes),
        f"Table of times coloured by size. At {sizes[-1]} a load takes {' to '.join(ends)}.",
        data,
    )


def _heat_map(data: pd.DataFrame, size: pd.Series, sizes: list[str]) -> alt.LayerChart:
    drawn = data.assign(row=size + ", guest " + data["guest"])
    host = alt.Axis(title="Host's pages", orient="top", labelAngle=0, labelOverlap=False)
    order = [f"{size}, guest {guest}" for size in sizes for guest in GUEST_PAGES]
    base = alt.Chart(drawn).encode(
        x=alt.X("host:N", sort=[*HOST_PAGES, OUTSIDE], axis=host),
        y=alt.Y("row:N", sort=order, axis=alt.Axis(title=None)),
    )
    scale = alt.Scale(type="log", nice=False, range=list(_DENSITY))
    rectangles = base.mark_rect(fill=PALETTE[0]).encode(
        fillOpacity=alt.FillOpacity("median:Q", legend=None, scale=scale),
        tooltip=axes.tips(alt.Tooltip("row:N", title="size"), "host:N"),
    )
    numbers = base.mark_text(fontSize=14).encode(text=alt.Text("median:Q", format=".3~r"))
    return (rectangles + numbers).properties(height=30 * drawn["row"].nunique())


def _lines(a: Analysis, chases: pd.DataFrame, lacking: str, title: str, **how: bool) -> Figure:
    """The chases of _COLOURS as lines, with their ends in words after a title. Raises
    Unavailable("too-few-points")."""
    data = chases[chases["cell"].isin(_COLOURS)].rename(columns={"cell": "series"})
    data = required(data, lacking).assign(working_set_bytes=data["lines"] * a.base_page_bytes)
    data = data[["series", "lines", "working_set_bytes", "median", "low", "high", "n"]]
    last = data.sort_values("lines").groupby("series")["median"].last()
    shown = {series: colour for series, colour in _COLOURS.items() if series in last}
    scheme = alt.Scale(domain=list(shown), range=list(shown.values()))
    ends = ", ".join(f"{series} {last[series]:z.1f} ns" for series in shown)
    return Figure(
        charts.chase_chart(data, scheme, "series", a.entries, a.base_page_bytes, columns=3, **how),
        f"{title} {extremes({series: last[series] for series in shown})} At the right: {ends}.",
        data,
    )


def guest_lines(a: Analysis) -> Figure:
    """ns per access of the spread chase against working set: in the guest and outside."""
    title = "Line chart on logarithmic axes, in a guest and outside."
    return _lines(a, a.chases, "nothing was measured", title)


def guest_steps(a: Analysis) -> Figure:
    """The price of translation over few lines, where it shows what an entry spans."""
    near = a.chases[a.chases["lines"] <= MOST_LINES].dropna(subset="price")
    prices = near.assign(median=near["price"], low=near["price_low"], high=near["price_high"])
    title = "The price of translation by guest's page on host's page."
    return _lines(
        a, prices, "nothing was measured with its control", title, is_price=True, by_lines=True
    )


def guest_ratios(a: Analysis) -> Figure:
    """Guest over native on the guest's page size, a point a cell and size, with its interval."""
    data = a.matrix[a.matrix["lines"].isin(a.sizes) & a.matrix["over_alike"].notna()]
    if data.empty:
        raise Unavailable("too-few-points", "no page size was measured both in a guest and outside")
    data = data.assign(size=(data["lines"] * a.base_page_bytes).map(format_size))
    most = data.loc[data["over_alike"].idxmax()]
    return Figure(
        _ratios(data, list(dict.fromkeys(data.sort_values("lines")["size"]))),
        "Ratios of a guest's time to a plain process's. The largest is "
        f"{most['over_alike']:.2f}, on {most['cell']} at {most['size']}.",
        data[["guest", "host", "lines", *_RATIO, "over_4k", "over_4k_low", "over_4k_high"]],
    )


def _ratios(data: pd.DataFrame, sizes: list[str]) -> alt.LayerChart:
    """Draw a point for each ratio, with rules at one, two and three."""
    cells = list(dict.fromkeys(data["cell"]))
    low, high = data[_RATIO].min(axis=None) * 0.9, data[_RATIO].max(axis=None) * 1.1
    ends = [min(0.9, low), max(3.3, high)]
    scale = alt.Scale(type="log", nice=False, domain=ends)
    title = "Time in the guest over time outside, on the same page size"
    x = alt.X("over_alike:Q", scale=scale, axis=axes.ns_axis(title, axes.within(_RATIOS, *ends)))
    range_ = [PALETTE[k % len(PALETTE)] for k in range(len(sizes))]
    base = alt.Chart(data).encode(
        y=alt.Y("cell:N", sort=cells, axis=alt.Axis(title="Guest's page on host's page")),
        yOffset=alt.YOffset("size:N", sort=sizes),
        color=axes.colour("size", alt.Scale(domain=sizes, range=range_)),
    )
    numbers = [
        alt.Tooltip(f"{name}:Q", format=".3f", title=title)
        for name, title in zip(_RATIO, ("ratio", "low", "high"), strict=True)
    ]
    points = base.mark_point().encode(
        x=x, shape=axes.shape("size", sizes), tooltip=["cell:N", "size:N", *numbers]
    )
    bars = base.mark_rule().encode(x=alt.X("over_alike_low:Q", scale=scale), x2="over_alike_high:Q")
    rules = alt.Chart(pd.DataFrame({"over_alike": [1.0, 2.0, 3.0]}))
    rules = rules.mark_rule(strokeDash=[4, 4]).encode(x=alt.X("over_alike:Q", scale=scale))
    return (rules + bars + points).properties(height=max(34 * len(cells), 90))


def guest_references(a: Analysis) -> Figure:
    """The measured price against the references that a walk could need, a point a cell."""
    counts = {"cold, by the formula": a.priced["formula"], "warm, simulated": a.priced["warm"]}
    tables = [
        a.priced.assign(references=count.astype(float), series=name)
        for name, count in counts.items()
    ]
    data, labels = pd.concat(tables, ignore_index=True), list(counts)
    scale = alt.Scale(domain=[0, 26], nice=False)
    x = alt.X("references:Q", axis=axes.ns_axis("Loads of page-table entries"), scale=scale)
    y = alt.Y("price:Q", axis=axes.ns_axis("Price of translation, ns per access"))
    base = alt.Chart(data).encode(x=x, y=y, color=axes.colour("series", labels))
    numbers = [alt.Tooltip(f"{name}:Q", format=".3~r") for name in ("references", "price")]
    points = base.mark_point(size=70).encode(
        shape=axes.shape("series", labels), tooltip=["cell:N", "series:N", *numbers]
    )
    bars = base.mark_rule().encode(y="price_low:Q", y2="price_high:Q")
    most = a.priced.loc[a.priced["price"].idxmax()]
    return Figure(
        alt.layer(bars, points, *_pair_names(data[data["series"] == labels[0]], x, y)),
        f"Price against references. {most['cell']} pays most: {most['price']:z.0f} ns, "
        f"{most['formula']} references when cold.",
        data[["cell", "series", "references", "price", "price_low", "price_high"]],
    )


def _pair_names(data: pd.DataFrame, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return the names of pairs beside their points. Pairs that change places need as many
    references, so one is named on the left and one on the right; of two kinds of 2 MiB pages one
    name does for both."""
    in_pool = data["guest"].isin(data.loc[data["host"] == "2m", "guest"])
    named = data[~((data["host"] == "thp") & in_pool)]
    guest, host = (
        pages.map(GUEST_PAGES.index) for pages in (named["guest"], named["host"].map(hardware))
    )
    is_left = (guest < host) | (named["formula"] == named["formula"].min())
    return [
        alt.Chart(named[mine]).mark_text(align=align, dx=dx, dy=-7).encode(x=x, y=y, text="cell:N")
        for mine, align, dx in ((is_left, "right", -7), (~is_left, "left", 7))
        if mine.any()
    ]
