"""The chapter's charts, one function a figure: the address as boxes, and the cost of a load with
each plateau labelled."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from experiments.your_machine import address
from experiments.your_machine.analysis import Analysis
from tlb.inference.curves import Curve
from tlb.inference.geometry import ALIAS_FROM, Geometry
from tlb.inference.geometry_words import level_name
from tlb.prose import count
from tlb.reasons import required
from tlb.report.charts import colours, lines_axis, log_scale, ns_axis
from tlb.report.render import INK, MUTED, Figure

_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
# a price so many times the first plateau belongs to walks in memory, and would flatten the rest
_MOST_TIMES = 60


def address_bits(a: Analysis) -> Figure:
    """The address as boxes, each as wide as it has bits, and under each the node that it indexes."""
    return address.drawn(a.split)


def staircase(a: Analysis) -> Figure:
    """Cost per access against pages: spread minus packed, and alias, with a rule and a label at
    each level found."""
    levels, unit, data = a.geometry.levels, a.geometry.unit, _points(a)
    bottom, top = data["cost"].min() * 0.7, data["cost"].max() * 1.5
    scale, series = alt.Scale(type="log", nice=False, domain=[bottom, top]), list(_curves(a))
    x = alt.X("lines:Q", axis=lines_axis("Pages touched"), scale=log_scale())
    y = alt.Y(
        "cost:Q",
        axis=ns_axis(f"{unit} per access", [tick for tick in _TICKS if bottom <= tick <= top]),
        scale=scale,
    )
    base = alt.Chart(data).encode(
        x=x, y=y, color=alt.Color("series:N", sort=series, scale=colours(series))
    )
    tips = [
        alt.Tooltip("series:N"),
        alt.Tooltip("lines:Q", format=",", title="pages"),
        alt.Tooltip("cost:Q", format=".2f", title=unit),
        alt.Tooltip("n:Q", title="processes"),
    ]
    points = base.mark_point(size=24).encode(
        shape=alt.Shape("series:N", sort=series, scale=alt.Scale(domain=series)), tooltip=tips
    )
    bars = base.mark_rule(clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    steps = [
        {
            "lines": level.entries.value,
            "label": f"{level_name(level)}: {count(level.entries.value)}",
        }
        for level in levels
    ]
    rules = alt.Chart(pd.DataFrame(steps)).encode(x="lines:Q")
    plateaus = _plateaus(data, a.geometry)
    chart = (
        base.mark_line(strokeWidth=1)
        + bars
        + points
        + rules.mark_rule(strokeDash=[4, 4], color=MUTED)
        + rules.mark_text(align="right", dx=-5, dy=2, baseline="top", color=MUTED).encode(
            text="label:N", y=alt.value(0)
        )
        + alt.Chart(plateaus)
        .mark_text(dy=16, color=INK)
        .encode(x="lines:Q", y=alt.Y("cost:Q", scale=scale), text="label:N")
    )
    ends = " and ".join(f"{count(level.entries.value)} pages" for level in levels)
    names = "; ".join(
        f"{row.label} from {row.start:,.0f} to {row.end:,.0f} pages"
        for row in plateaus.itertuples()
    )
    return Figure(
        chart,
        f"The cost of a load rises over pages touched in steps, at {ends}. Plateaus: {names}.",
        data,
    )


def _curves(a: Analysis) -> dict[str, Curve]:
    return {"spread - packed": a.price, "alias": a.alias}


def _points(a: Analysis) -> pd.DataFrame:
    """What is drawn: series, lines, cost, low, high, n. The price has the packed chase of the
    smallest set put below it, so that it is what a load costs where the caches always hit; where
    noise makes a control dearer than its chase, a tenth of that is left."""
    parts = [
        curve.table.rename(columns={"median": "cost"}).assign(series=name)
        for name, curve in _curves(a).items()
    ]
    if len(a.price):
        floor = a.packed.get(a.price.xs[0]).value
        parts[0][["cost", "low", "high"]] = (
            parts[0][["cost", "low", "high"]].clip(lower=-0.9 * floor) + floor
        )
    data = pd.concat(
        [part[["series", "lines", "cost", "low", "high", "n"]] for part in parts if len(part)]
        or parts,
        ignore_index=True,
    )
    return required(
        data[
            (data["lines"] >= ALIAS_FROM) & (data["cost"] <= _MOST_TIMES * a.geometry.first_tread)
        ],
        "nothing was measured of the staircase",
    )


def _plateaus(points: pd.DataFrame, found: Geometry) -> pd.DataFrame:
    """One row a plateau: its label, and where it stands: under the lower of the curves."""
    ends = [
        float(points["lines"].min()),
        *(edge for level in found.levels for edge in level.rise),
        float(points["lines"].max()),
    ]
    labels = [
        *(f"hits in the {level_name(level)}" for level in found.levels),
        "misses" if found.levels[-1].is_alone else "walks",
    ]
    rows = [
        (
            label,
            float(np.sqrt(start * end)),
            float(plateau.groupby("series")["cost"].median().min()),
            start,
            end,
        )
        for label, start, end in zip(labels, ends[::2], ends[1::2], strict=True)
        if len(plateau := points[points["lines"].between(start, end)])
    ]
    return pd.DataFrame(rows, columns=["label", "lines", "cost", "start", "end"])
