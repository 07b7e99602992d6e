"""The charts of the chapter about code, one function a figure."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import pandas as pd

from experiments.code.analysis import Analysis
from experiments.code.grid import JUMP_KINDS, LARGE_TEXT
from tlb.report import charts
from tlb.report.render import MUTED, Figure
from tlb.system.page_sizes import BASE
from tlb.system.prose import count, listed
from tlb.system.reasons import required

_FIELDS = ["lines", *charts.FIELDS]
NAMES = {"direct": "direct", "learned": "indirect, repeated", "random": "indirect, random"}
_TIMES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)
_PAGES = alt.X(
    "lines:Q", axis=charts.lines_axis("Lines of code, a jump in each"), scale=charts.log_scale()
)


def _ends(a: Analysis) -> alt.LayerChart | None:
    ends = zip(a.stated, ("L1 iTLB", "L2 iTLB"), strict=False)
    return charts.marks([(n, f"{name}: {n:,}") for n, name in ends], "lines") if a.stated else None


def jumps(a: Analysis) -> Figure:
    required(a.spread, "no jumps were measured")
    tables = [
        curves[kind].table.reindex(columns=_FIELDS).assign(kind=NAMES[kind], where=where)
        for kind in JUMP_KINDS
        for where, curves in (("spread", a.spread), ("packed", a.packed))
        if kind in curves
    ]
    data = pd.concat(tables, ignore_index=True)
    colour = charts.colour(
        "kind", [NAMES[kind] for kind in JUMP_KINDS if kind in a.spread], columns=1
    )
    y, by = charts.median_y(data, "ns per jump", _TIMES), ("where", ["spread", "packed"])
    lines = alt.Tooltip("lines:Q", format=",")
    chart = charts.dashed(data, _PAGES, y, colour, by, lines, size=18)
    last = data[data["lines"] == data["lines"].max()]
    slowest = last.loc[last["median"].idxmax()]
    ends = []
    for kind, rows in last.groupby("kind", sort=False):
        ns_by_layout = (f"{row.median:.1f} ns {row.where}" for row in rows.itertuples())
        ends.append(f"{kind}, {listed(ns_by_layout)}")
    return Figure(
        charts.layered(chart, _ends(a)),
        f"Time per jump against lines of code. At {count(last['lines'].iloc[0])} lines the slowest "
        f"is {slowest['kind']}, {slowest['where']}. All: {'; '.join(ends)}.",
        data[["kind", "where", *_FIELDS]],
    )


def texts(a: Analysis) -> Figure:
    rows = required(a.texts, "no large text was measured")
    rows = rows.assign(group=rows["mib"].map("{} MiB".format))
    named = {a.page_labels[BASE]: "base", a.page_labels[LARGE_TEXT]: "large"}
    colours = charts.page_colours((BASE, LARGE_TEXT), a.page_labels)
    return _bars(rows, named, "Code, all of it jumped to", "the size of the code", colours)


def hot(a: Analysis) -> Figure:
    rows = required(a.hot, "no text was measured of which a part is hot")
    rows = rows.assign(group=rows["share"].map("{:.0%} hot".format))
    base, large = a.page_labels[BASE], a.page_labels[LARGE_TEXT]
    named = {
        f"in every page, {base}": "spread",
        f"in every page, {large}": "large",
        f"side by side, {base}": "packed",
    }
    title = f"Of {rows['mib'].iloc[0]} MiB of code"
    shown = [charts.PAGE_COLOURS[BASE], charts.PAGE_COLOURS[LARGE_TEXT], MUTED]
    colours = alt.Scale(domain=list(named), range=shown)
    return _bars(rows, named, title, "the share of the code that is hot", colours)


def _bars(
    rows: pd.DataFrame, named: Mapping[str, str], title: str, by: str, colours: alt.Scale
) -> Figure:
    """Draw a bar for each group (words, a column of that name) and series (its name: a column of
    intervals)."""
    bars = [
        (row["group"], name, *row[column].value_and_bounds)
        for _, row in rows.iterrows()
        for name, column in named.items()
    ]
    data = pd.DataFrame(bars, columns=["group", "series", "median", "low", "high"]).dropna()
    x = charts.group_x(data["group"], "group", title)
    y = alt.Y("median:Q", axis=alt.Axis(title="ns per jump", format=",f", tickCount=5))
    colour = charts.colour("series", colours, columns=1)
    ends = []
    for group in (data["group"].iloc[0], data["group"].iloc[-1]):
        ns = data[data["group"] == group].itertuples()
        ends.append(f"with {group}, {listed(f'{row.median:.0f} ns {row.series}' for row in ns)}")
    return Figure(
        charts.bars(data, x, y, colour, size=16),
        f"Time per random jump by {by}: it takes {'; '.join(ends)}.",
        data,
    )
