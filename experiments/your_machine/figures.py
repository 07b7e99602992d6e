"""The chapter's charts: the address as boxes, the cost of a load with its plateaus labelled, and
what translation adds to a load."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from experiments.your_machine import address
from experiments.your_machine.analysis import Analysis
from tlb.report import charts
from tlb.report.render import MUTED, PALETTE, Figure
from tlb.stats.curves import Curve
from tlb.stats.geometry import Geometry
from tlb.stats.geometry_curves import ALIAS_FROM
from tlb.stats.geometry_tables import level_name
from tlb.system.prose import count
from tlb.system.reasons import required

_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
# A price this many times the first plateau belongs to walks in memory, and would flatten the rest.
_MOST_TIMES = 60


def address_bits(a: Analysis) -> Figure:
    return address.drawn(a.split)


def staircase(a: Analysis) -> Figure:
    """Draw cost per access against pages: spread minus packed, and alias, with a rule and a label
    at each level found."""
    levels, unit, data = a.geometry.levels, a.geometry.unit, _points(a)
    bottom, top = data["cost"].min() * 0.7, data["cost"].max() * 1.5
    scale = alt.Scale(type="log", nice=False, domain=[bottom, top])
    x = alt.X("lines:Q", axis=charts.lines_axis("Pages touched"), scale=charts.log_scale())
    axis = charts.ns_axis(f"{unit} per load", charts.within(_TICKS, bottom, top))
    y, series = alt.Y("cost:Q", axis=axis, scale=scale), list(_curves(a))
    base = alt.Chart(data).encode(x=x, y=y, color=charts.colour("series", series))
    tips = [
        alt.Tooltip("series:N"),
        alt.Tooltip("lines:Q", format=",", title="pages"),
        alt.Tooltip("cost:Q", format=".2f", title=unit),
        alt.Tooltip("n:Q", title="processes"),
    ]
    points = base.mark_point(size=24).encode(shape=charts.shape("series", series), tooltip=tips)
    bars = base.mark_rule(clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    plateaus = _plateaus(data, a.geometry)
    names = alt.Chart(plateaus).mark_text(dy=16)
    names = names.encode(x="lines:Q", y=alt.Y("cost:Q", scale=scale), text="label:N")
    ends = " and ".join(f"{count(level.entries.value)} pages" for level in levels)
    spans = "; ".join(
        f"{row.label} from {row.start:,.0f} to {row.end:,.0f} pages"
        for row in plateaus.itertuples()
    )
    return Figure(
        base.mark_line(strokeWidth=1) + bars + points + _levels(a) + names,
        f"The cost of a load rises over pages touched in steps, at {ends}. Plateaus: {spans}.",
        data,
    )


def _levels(a: Analysis) -> alt.LayerChart:
    levels = a.geometry.levels
    entries = [level.entries.value for level in levels]
    together = "both levels" if len(levels) == 2 else "all levels"
    # A level need not hold what another one holds, so walks start past the sum.
    names = [level_name(levels[0]), *(f"to level {n}" for n in range(2, len(levels))), together]
    steps = [f"{name}: {count(n)}" for name, n in zip(names, entries, strict=False)]
    rules = alt.Chart(pd.DataFrame({"lines": entries, "label": steps})).encode(x="lines:Q")
    labels = rules.mark_text(align="right", dx=-5, dy=2, baseline="top", color=MUTED)
    labels = labels.encode(text="label:N", y=alt.value(0))
    return rules.mark_rule(strokeDash=[4, 4]) + labels


def _curves(a: Analysis) -> dict[str, Curve]:
    return {"spread - packed": a.price, "alias": a.alias}


def _points(a: Analysis) -> pd.DataFrame:
    """Return series, lines, cost, low, high, n. The price has the packed chase of the smallest set
    added, so that it is what a load costs where the caches always hit; where noise makes a control
    dearer than its chase, a tenth of that is left."""
    columns, tables = ["series", "lines", "cost", "low", "high", "n"], []
    for name, curve in _curves(a).items():
        table = curve.table.rename(columns={"median": "cost"}).assign(series=name)[columns]
        if curve is a.price and len(curve):
            floor, costs = a.packed.get(curve.xs[0]).value, ["cost", "low", "high"]
            table[costs] = table[costs].clip(lower=-0.9 * floor) + floor
        tables.append(table)
    data = pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)
    is_shown = data["cost"] <= _MOST_TIMES * a.geometry.first_tread
    shown = data[(data["lines"] >= ALIAS_FROM) & is_shown]
    return required(shown, "nothing was measured of the staircase")


def _plateaus(points: pd.DataFrame, found: Geometry) -> pd.DataFrame:
    """Return a row a plateau: its label, and the label's place under the lower of the curves."""
    edges = [edge for level in found.levels for edge in level.rise]
    ends = [float(points["lines"].min()), *edges, float(points["lines"].max())]
    labels = [f"hits in the {level_name(level)}" for level in found.levels]
    labels.append("misses" if found.levels[-1].is_alone else "walks")
    rows = []
    for label, start, end in zip(labels, ends[::2], ends[1::2], strict=True):
        plateau = points[points["lines"].between(start, end)]
        if len(plateau):
            height = float(plateau.groupby("series")["cost"].median().min())
            rows.append((label, float(np.sqrt(start * end)), height, start, end))
    return pd.DataFrame(rows, columns=["label", "lines", "cost", "start", "end"])


def added(a: Analysis) -> Figure:
    found = a.geometry
    rows = [(f"hit in the {level_name(level)}", level.hit_cost) for level in found.levels[1:]]
    rows += [(f"walk, table in {walk.table_in}", walk.cost) for walk in found.walks]
    known = [(name, *cost.interval.value_and_bounds) for name, cost in rows if cost]
    required(known, "no hit and no walk was measured")
    data = pd.DataFrame(known, columns=["answer", "cost", "low", "high"])
    data["label"] = [f"{cost:,.0f}" for cost in data["cost"]]
    title = alt.Axis(title=f"{found.unit} added", tickCount=7)
    x = alt.X("cost:Q", axis=title, scale=alt.Scale(domainMax=data["high"].max() * 1.08))
    y = alt.Y("answer:N", sort=list(data["answer"]), axis=alt.Axis(title=None, labelLimit=200))
    base = alt.Chart(data).encode(y=y)
    numbers = [alt.Tooltip(f"{name}:Q", format=",.1f") for name in ("cost", "low", "high")]
    tips = ["answer:N", *numbers]
    bars = base.mark_bar(color=PALETTE[0], opacity=0.6).encode(x=x, tooltip=tips)
    bounds = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    labels = base.mark_text(align="left", dx=6).encode(x="high:Q", text="label:N")
    each = "; ".join(f"{name}, {cost:,.0f}" for name, cost, *_ in known)
    return Figure(
        (bars + bounds + labels).properties(height=34 * len(data)),
        f"What translation adds to a load, in {found.unit}: {each}.",
        data.drop(columns="label"),
    )
