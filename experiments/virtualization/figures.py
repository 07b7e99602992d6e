"""The charts of the chapter about guests, one function each; they show the rows of the Analysis
that they are given."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from experiments.virtualization.analysis import Analysis, cell_name
from tlb.report import charts
from tlb.report.render import MUTED, Figure
from tlb.system.prose import extremes
from tlb.system.reasons import required

_REACHED, _WALK = "between the two TLB levels", "past both levels"


def one_test(a: Analysis) -> Figure:
    found = {_REACHED: a.reached, _WALK: a.walks}
    rows = [
        (_row_name(*chase), where, *share.value_and_bounds)
        for where, shares in found.items()
        for chase, share in shares.items()
    ]
    required(rows, "no chase on larger pages has a counterpart on 4 KiB")
    data = pd.DataFrame(rows, columns=["pages", "where", *charts.INTERVAL])
    names = list(dict.fromkeys(_row_name(*chase) for shares in found.values() for chase in shares))
    title = "Price of translation divided by that on 4 KiB pages"
    x: dict[str, Any] = {
        "axis": charts.ns_axis(title, [0, 0.5, 1, 1.5]),
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
        color=charts.colour("where", list(found), title=None),
        shape=charts.shape("where", list(found), title=None),
    )
    rule = alt.Chart(pd.DataFrame({"median": [1.0]})).mark_rule(strokeDash=[4, 4], color=MUTED)
    walks = {_row_name(*chase): share.value for chase, share in a.walks.items()}
    ranking = extremes(walks, "times", "costs most", "costs least") if walks else ""
    chart = rule.encode(x=alt.X("median:Q", **x)) + chart
    return Figure(
        chart.properties(height=charts.ROW_PX * len(names)),
        f"Price of translation on larger pages divided by that on 4 KiB pages. {ranking}",
        data,
    )


def _row_name(guest: str, host: str) -> str:
    name = cell_name(guest, host)
    return f"guest inside: {name}" if guest else f"this machine: {name.removeprefix('no guest, ')}"


def first_touches(a: Analysis) -> Figure:
    """What the first touch of a line adds to a load in a guest, a row a pair of page sizes."""
    data = required(a.touches, "no first touch was timed in a guest")
    names = [cell_name(*pair) for pair in zip(data["guest"], data["host"], strict=True)]
    data = data.assign(pages=names)[["pages", *charts.INTERVAL]]
    title = "First touch minus a later load, ns for each 4 KiB"
    scale = alt.Scale(domain=[min(0, data["low"].min()), 1.05 * data["high"].max()], nice=False)
    x = {"axis": charts.ns_axis(title), "scale": scale}
    ranking = extremes(dict(zip(names, data["median"], strict=True)), "ns")
    chart = charts.medians_in_rows(data, "pages", names, x, "pages:N", width=2, size=70)
    return Figure(chart, f"First touches in a guest, by page sizes. {ranking}", data)
