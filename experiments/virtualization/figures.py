"""The charts of the chapter about guests, one function each; they show the rows of the Analysis
that they are given."""

from __future__ import annotations

import altair as alt
import pandas as pd

from experiments.virtualization.analysis import Analysis, cell_name
from tlb.inference.curves import select
from tlb.prose import extremes
from tlb.reasons import required
from tlb.report import axes, charts
from tlb.report.render import MUTED, PALETTE, Figure
from tlb.units import format_size

_RATIOS = (0.5, 0.7, 1, 1.5, 2, 3, 5, 8, 12, 20, 30, 50, 100)
_RATIO = ["over_alike", "over_alike_low", "over_alike_high"]
_REACHED, _WALK = "between the two TLB levels", "past both levels"


def one_test(a: Analysis) -> Figure:
    found = {_REACHED: a.reached, _WALK: a.walks}
    rows = [
        (_row_name(*chase), where, *share[:3])
        for where, shares in found.items()
        for chase, share in shares.items()
    ]
    required(rows, "no chase on larger pages has a counterpart on 4 KiB")
    data = pd.DataFrame(rows, columns=["pages", "where", *charts.INTERVAL])
    names = list(dict.fromkeys(_row_name(*chase) for shares in found.values() for chase in shares))
    title = "Translation cost over that on 4 KiB pages"
    x = {
        "axis": axes.ns_axis(title, [0, 0.5, 1, 1.5]),
        "scale": alt.Scale(domain=[0, max(1.6, 1.05 * data["high"].max())], nice=False),
    }
    chart = charts.medians_in_rows(
        data,
        "pages",
        names,
        x,
        "pages:N",
        "where:N",
        width=2,
        size=70,
        color=axes.colour("where", list(found), title=None),
        shape=axes.shape("where", list(found), title=None),
    )
    rule = alt.Chart(pd.DataFrame({"median": [1.0]})).mark_rule(strokeDash=[4, 4], color=MUTED)
    walks = {_row_name(*chase): share.value for chase, share in a.walks.items()}
    ranking = extremes(walks, "times", "costs most", "costs least") if walks else ""
    chart = rule.encode(x=alt.X("median:Q", **x)) + chart
    return Figure(
        chart.properties(height=charts.ROW_PX * len(names)),
        f"Translation cost on larger pages over that on 4 KiB pages. {ranking}",
        data,
    )


def _row_name(guest: str, host: str) -> str:
    name = cell_name(guest, host)
    return f"guest inside: {name}" if guest else f"this machine: {name.removeprefix('no guest, ')}"


def guest_ratios(a: Analysis) -> Figure:
    data = select(a.matrix, lines=a.sizes).dropna(subset="over_alike")
    required(data, "no page size was measured both in a guest and outside")
    data = data.assign(size=(data["lines"] * a.base_page_bytes).map(format_size))
    most = data.loc[data["over_alike"].idxmax()]
    return Figure(
        _ratios(data, list(dict.fromkeys(data.sort_values("lines")["size"]))),
        "Ratios of a guest's time to a plain process's. The largest is "
        f"{most['over_alike']:.2f}, on {most['cell']} at {most['size']}.",
        data[["guest", "host", "lines", *_RATIO]],
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
    axis = alt.Axis(title="Guest's page on host's page", labelLimit=220)
    base = alt.Chart(data).encode(
        y=alt.Y("cell:N", sort=cells, axis=axis),
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


def first_touches(a: Analysis) -> Figure:
    """What the first touch of a line adds to a load in a guest, a row a pair of page sizes."""
    data = required(a.touches, "no first touch was timed in a guest")
    names = [cell_name(*pair) for pair in zip(data["guest"], data["host"], strict=True)]
    data = data.assign(pages=names)[["pages", *charts.INTERVAL]]
    title = "First touch minus a later load, ns for each 4 KiB"
    scale = alt.Scale(domain=[min(0, data["low"].min()), 1.05 * data["high"].max()], nice=False)
    x = {"axis": axes.ns_axis(title), "scale": scale}
    ranking = extremes(dict(zip(names, data["median"], strict=True)), "ns")
    chart = charts.medians_in_rows(data, "pages", names, x, "pages:N", width=2, size=70)
    return Figure(chart, f"First touches in a guest, by page sizes. {ranking}", data)
