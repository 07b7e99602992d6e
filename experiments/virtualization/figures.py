"""The charts and tables of the chapter about guests, one function each; they show the rows of the
Analysis that they are given."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.virtualization.analysis import OUTSIDE, Analysis, cell_name
from experiments.virtualization.grid import GUEST_PAGES, HOST_PAGES, STEPS_OF
from tlb.inference.splinter import MOST_LINES
from tlb.lab.declaration import LINE_BYTES
from tlb.page_sizes import hardware
from tlb.prose import extremes
from tlb.reasons import Unavailable, required
from tlb.report import charts
from tlb.report.render import MUTED, PALETTE, Figure, Html, data_table
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
    beside = [
        a.chases[(a.chases["guest"] == "") & (a.chases["host"] == a.alike(guest))].assign(
            guest=guest, host=OUTSIDE
        )
        for guest in GUEST_PAGES
        if guest in set(a.matrix["guest"])
    ]
    data = pd.concat([a.matrix, *beside], ignore_index=True)
    data = data[data["lines"].isin(a.sizes)][["guest", "host", "lines", "median", "low", "high"]]
    drawn = data.assign(
        row=(data["lines"] * a.base_page_bytes).map(format_size) + ", guest " + data["guest"]
    )
    sizes = [format_size(lines * a.base_page_bytes) for lines in a.sizes]
    base = alt.Chart(drawn).encode(
        x=alt.X(
            "host:N",
            sort=[*HOST_PAGES, OUTSIDE],
            axis=alt.Axis(title="Host's pages", orient="top", labelAngle=0, labelOverlap=False),
        ),
        y=alt.Y(
            "row:N",
            sort=[f"{size}, guest {guest}" for size in sizes for guest in GUEST_PAGES],
            axis=alt.Axis(title=None),
        ),
    )
    tips = [
        alt.Tooltip("row:N", title="size"),
        "host:N",
        alt.Tooltip("median:Q", format=".3~r", title="ns"),
        *(alt.Tooltip(bound, format=".3~r") for bound in ("low:Q", "high:Q")),
    ]
    dense = alt.FillOpacity(
        "median:Q", legend=None, scale=alt.Scale(type="log", nice=False, range=list(_DENSITY))
    )
    chart = (
        base.mark_rect(fill=PALETTE[0]).encode(fillOpacity=dense, tooltip=tips)
        + base.mark_text(fontSize=14).encode(text=alt.Text("median:Q", format=".3~r"))
    ).properties(height=30 * drawn["row"].nunique())
    told = dict.fromkeys(
        f"{end.median:.0f} ns on {end.cell}"
        for end in a.far.sort_values("median").iloc[[0, -1]].itertuples()
    )
    return Figure(
        chart,
        f"Table of times coloured by size. At {sizes[-1]} a load takes {' to '.join(told)}.",
        data,
    )


def _lines(a: Analysis, chases: pd.DataFrame, lacking: str, title: str, **axes: bool) -> Figure:
    """The chases of _COLOURS as lines, with their ends in words after a title. Raises
    Unavailable("too-few-points")."""
    data = chases[chases["cell"].isin(_COLOURS)].rename(columns={"cell": "series"})
    if data.empty:
        raise Unavailable("too-few-points", lacking)
    data = data.assign(working_set_bytes=data["lines"] * a.base_page_bytes)[
        ["series", "lines", "working_set_bytes", "median", "low", "high", "n"]
    ]
    ends = data.sort_values("lines").groupby("series")["median"].last()
    shown = {series: colour for series, colour in _COLOURS.items() if series in ends}
    scheme = alt.Scale(domain=list(shown), range=list(shown.values()))
    told = ", ".join(f"{series} {ends[series]:z.1f} ns" for series in shown)
    return Figure(
        charts.chase_chart(data, scheme, "series", a.entries, a.base_page_bytes, columns=3, **axes),
        f"{title} {extremes({series: ends[series] for series in shown})} At the right: {told}.",
        data,
    )


def guest_lines(a: Analysis) -> Figure:
    """ns per access of the spread chase against working set: in the guest and outside."""
    return _lines(
        a,
        a.chases,
        "nothing was measured",
        "Line chart on logarithmic axes, in a guest and outside.",
    )


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
    cells, sizes = (
        list(dict.fromkeys(data["cell"])),
        list(dict.fromkeys(data.sort_values("lines")["size"])),
    )
    ends = [
        min(0.9, data[_RATIO].min(axis=None) * 0.9),
        max(3.3, data[_RATIO].max(axis=None) * 1.1),
    ]
    scale = alt.Scale(type="log", nice=False, domain=ends)
    ticks = [ratio for ratio in _RATIOS if ends[0] <= ratio <= ends[1]]
    base = alt.Chart(data).encode(
        y=alt.Y("cell:N", sort=cells, axis=alt.Axis(title="Guest's page on host's page")),
        yOffset=alt.YOffset("size:N", sort=sizes),
    )
    colour = alt.Color(
        "size:N",
        sort=sizes,
        scale=alt.Scale(domain=sizes, range=[PALETTE[k % len(PALETTE)] for k in range(len(sizes))]),
    )
    axis = charts.ns_axis("Time in the guest over time outside, on the same page size", ticks)
    points = base.mark_point().encode(
        x=alt.X("over_alike:Q", scale=scale, axis=axis),
        color=colour,
        shape=alt.Shape("size:N", sort=sizes, scale=alt.Scale(domain=sizes)),
        tooltip=[
            "cell:N",
            "size:N",
            *(
                alt.Tooltip(f"{name}:Q", format=".3f", title=title)
                for name, title in zip(_RATIO, ("ratio", "low", "high"), strict=True)
            ),
        ],
    )
    bars = base.mark_rule().encode(
        x=alt.X("over_alike_low:Q", scale=scale), x2="over_alike_high:Q", color=colour
    )
    rules = (
        alt.Chart(pd.DataFrame({"over_alike": [1.0, 2.0, 3.0]}))
        .mark_rule(strokeDash=[4, 4], color=MUTED)
        .encode(x=alt.X("over_alike:Q", scale=scale))
    )
    chart = (rules + bars + points).properties(height=max(34 * len(cells), 90))
    most = data.loc[data["over_alike"].idxmax()]
    return Figure(
        chart,
        f"Ratios of a guest's time to a plain process's. The largest is {most['over_alike']:.2f}, "
        f"on {most['cell']} at "
        f"{most['size']}.",
        data[["guest", "host", "lines", *_RATIO, "over_4k", "over_4k_low", "over_4k_high"]],
    )


def guest_references(a: Analysis) -> Figure:
    """The measured price against the references that a walk could need, a point a cell."""
    counts = {"cold, by the formula": a.priced["formula"], "warm, simulated": a.priced["warm"]}
    data = pd.concat(
        [
            a.priced.assign(references=count.astype(float), series=name)
            for name, count in counts.items()
        ],
        ignore_index=True,
    )
    labels = list(counts)
    x = alt.X(
        "references:Q",
        axis=charts.ns_axis("Loads of page-table entries"),
        scale=alt.Scale(domain=[0, 26], nice=False),
    )
    y = alt.Y("price:Q", axis=charts.ns_axis("Price of translation, ns per access"))
    base = alt.Chart(data).encode(
        x=x, y=y, color=alt.Color("series:N", sort=labels, scale=charts.colours(labels))
    )
    points = base.mark_point(size=70).encode(
        shape=alt.Shape("series:N", sort=labels, scale=alt.Scale(domain=labels)),
        tooltip=[
            "cell:N",
            "series:N",
            alt.Tooltip("references:Q", format=".3~r"),
            alt.Tooltip("price:Q", format=".3~r", title="ns"),
        ],
    )
    bars = base.mark_rule().encode(y="price_low:Q", y2="price_high:Q")
    # Pairs that change places need as many references, so one is named on the left and one on the
    # right; of two kinds of 2 MiB pages one name does for both.
    named = data[
        (data["series"] == labels[0])
        & ~((data["host"] == "thp") & data["guest"].isin(data.loc[data["host"] == "2m", "guest"]))
    ]
    left = (
        named["guest"].map(GUEST_PAGES.index) < named["host"].map(hardware).map(GUEST_PAGES.index)
    ) | (named["formula"] == named["formula"].min())
    names = [
        alt.Chart(named[mine]).mark_text(align=align, dx=dx, dy=-7).encode(x=x, y=y, text="cell:N")
        for mine, align, dx in ((left, "right", -7), (~left, "left", 7))
        if mine.any()
    ]
    most = a.priced.loc[a.priced["price"].idxmax()]
    return Figure(
        alt.layer(bars, points, *names),
        f"Price against references. {most['cell']} pays most: {most['price']:z.0f} ns, "
        f"{most['formula']} references when cold.",
        data[["cell", "series", "references", "price", "price_low", "price_high"]],
    )


# --- tables


def _table(frame: pd.DataFrame, decimals: int = 1, **columns: str) -> Html:
    """The columns named, under their titles."""
    return data_table(frame[list(columns)].set_axis(list(columns.values()), axis=1), decimals)


def guest_counts(a: Analysis) -> Html:
    """The references of each cell beside its price."""
    return _table(
        a.references,
        cell="guest on host",
        formula="by the formula",
        simulated="simulated, cold",
        warm="simulated, warm, per load",
        shadow="of a shadow table",
        price="price here, ns",
    )


def guest_depths(a: Analysis) -> Html:
    """The most references, base pages on base pages, by the levels of the guest's tables (rows) and
    of the host's."""
    table = (
        pd.Series(a.depths)
        .unstack()
        .rename("guest, {} levels".format)
        .rename("host, {} levels".format, axis=1)
    )
    return data_table(table.rename_axis("").reset_index())


def guest_touches(a: Analysis) -> Html:
    """What a line's first touch costs by cell."""
    touches = required(a.touches, "no first touch was timed in a guest")
    return _table(
        touches,
        0,
        guest="guest's page",
        host="host's page",
        median="first touch, ns a line",
        low="low",
        high="high",
    )


def containers(a: Analysis) -> Html:
    """Namespaces and the plain process, point by point."""
    line_bytes = a.containers["layout"].map({"spread": a.base_page_bytes, "packed": LINE_BYTES})
    return _table(
        a.containers.assign(
            size=(a.containers["lines"] * line_bytes).map(format_size),
            lines=a.containers["lines"].map("{:,}".format),
        ),
        2,
        layout="layout",
        lines="lines",
        size="working set",
        plain="plain, ns",
        inside="in namespaces, ns",
        difference="difference, ns",
        low="low",
        high="high",
    )
