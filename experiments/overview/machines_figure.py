"""All machines' profiles as small multiples: a panel a machine, the same quantities in the same
order and on the same axes in each."""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import pandas as pd

from experiments.overview.machines import Analysis, Machine
from experiments.overview.profile import PARTS
from tlb.reasons import required
from tlb.report import charts
from tlb.report.render import MUTED, RULE, Figure

_STEP_PX = 17  # a row: a mark, and a label of 13 px
_AIR = "air"  # the row below a panel
# What a panel shows, and in words that a phone has room for. Entries are in the table; a guest's
# matrix is eight rows more on each.
_SHOWN = {
    "load_first_level": "first-level hit",
    "hit_last_level": "last-level hit",
    "walk_past_last_level": "walk",
    "walk_over_2_gib": "walk over 2 GiB",
    "walk_table_l2": "table in L2",
    "walk_table_l3": "table in L3",
    "walk_table_memory": "table in memory",
    "fault_fresh": "touch",
    "fault_fresh_large": "of a large page",
    "fault_file": "of a file",
    "gain_64k": "on 64 KiB",
    "gain_thp": "on THP",
    "gain_2m": "on 2 MiB",
    "gain_1g": "on 1 GiB",
}
_DATA = {"name", "unit", "value", "low", "high", "modes"}
_AXES = {"ns": (1.0, 10.0, 100.0, 1000.0, 10_000.0), "ratio": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)}
_NO_AXIS = alt.Axis(
    labels=False, ticks=False, domain=False, title=None
)  # each panel has its own ticks


def machines_profiles(a: Analysis) -> Figure:
    """Raises Unavailable("too-few-points") where no machine has a value of what is shown."""
    # What was found to cost nothing, or less, has no place on a logarithmic axis; the table has it.
    panels = [
        (each, [q for name in _SHOWN if (q := each.quantity(name)) and each.value(name) > 0])
        for each in a.machines
    ]
    panels = [(each, known) for each, known in panels if known]
    required(panels, "no machine has a profile with a value")
    data = pd.DataFrame(
        [
            {
                "machine": each.name,
                "row": _row(k, q.name),
                "part": PARTS[q.part],
                **q.model_dump(include=_DATA),
            }
            for k, (each, known) in enumerate(panels)
            for q in known
        ]
    )
    rows = [
        row
        for k, (_, known) in enumerate(panels)
        for row in (_row(k, ""), *(_row(k, q.name) for q in known), _row(k, _AIR))
    ]
    labels = {_row(k, ""): each.label for k, (each, _) in enumerate(panels)}
    y = {"scale": alt.Scale(domain=rows), "axis": _axis(labels)}
    color = alt.Color(
        "part:N",
        scale=charts.colours(list(dict.fromkeys(data["part"]))),
        legend=alt.Legend(columns=1),
    )
    layers = [
        _side(data[data["unit"] == unit], unit, y, color)
        for unit in _AXES
        if (data["unit"] == unit).any()
    ]
    chart = (
        alt.layer(*layers).resolve_scale(x="independent").properties(height=_STEP_PX * len(rows))
    )
    return Figure(chart, _finding(a, [each for each, _ in panels]), data.drop(columns="row"))


def _row(panel: int | str, name: str) -> str:
    """A place on the common y: no machine's words are in it, so that none is a part of an
    expression."""
    return f"{panel}.{name}"


def _axis(labels: dict[str, str]) -> alt.Axis:
    """Of a heading the machine's label, of a row its quantity; of the row between nothing."""
    words = json.dumps(labels | _SHOWN | {_AIR: ""})
    said = f"{words}[datum.value] || {words}[split(datum.value, '.')[1]]"
    return alt.Axis(
        title=None,
        labelLimit=150,
        labelOverlap=False,
        labelExpr=said,
        labelFontWeight={
            "condition": {"test": "split(datum.value, '.')[1] === ''", "value": "bold"},
            "value": "normal",
        },
    )


def _side(data: pd.DataFrame, unit: str, along: dict[str, Any], color: alt.Color) -> alt.LayerChart:
    """The marks of one unit, on a scale of all panels, with its ticks in each: those of times on
    the heading's row, of ratios below."""
    data, (low, high) = charts.intervals_on_log(data, *([1.0] if unit == "ratio" else []))
    x = alt.X("value:Q", scale=charts.log_scale(10, (low, high)), axis=_NO_AXIS)
    y = alt.Y("row:N", **along)
    base, ticks = alt.Chart(data), alt.Chart(_ticks(data, unit, low, high))
    return alt.layer(
        ticks.mark_rule(strokeWidth=1, color=RULE).encode(
            x=x, y=alt.Y("from:N", **along), y2="to:N"
        ),
        # To the right of their lines: the first one stands beside the machine's name.
        ticks.mark_text(color=MUTED, fontSize=11, align="left").encode(
            x=x, y=alt.Y("at:N", **along), text="tick:N"
        ),
        base.mark_rule(strokeWidth=2, color=MUTED).encode(
            x=alt.X("begin:Q", axis=_NO_AXIS), x2="end:Q", y=y
        ),
        base.mark_point(size=52).encode(
            x=x,
            y=y,
            color=color,
            tooltip=[
                "machine:N",
                "name:N",
                *(alt.Tooltip(f"{end}:Q", format=".3~r") for end in ("value", "low", "high")),
            ],
        ),
    )


def _ticks(data: pd.DataFrame, unit: str, low: float, high: float) -> pd.DataFrame:
    """Of each panel with such rows the ticks of their scale: where each is named, and along which
    rows it is drawn."""
    found = []
    for panel, rows in data.groupby(data["row"].str.partition(".")[0], sort=False)["row"]:
        at = _row(panel, "" if unit == "ns" else _AIR)
        found += [
            (at, rows.iloc[0], rows.iloc[-1], value, _tick(value, unit))
            for value in _AXES[unit]
            if low <= value <= high
        ]
    return pd.DataFrame(found, columns=["at", "from", "to", "value", "tick"])


def _tick(value: float, unit: str) -> str:
    return (
        f"×{value:g}"
        if unit == "ratio"
        else f"{value:g} ns"
        if value < 1000
        else f"{value / 1000:g} µs"
    )


def _finding(a: Analysis, machines: list[Machine]) -> str:
    """Whose walk is dearest and whose cheapest, in a sentence."""
    far = [
        each for each in a.with_value("walk_over_2_gib", "walk_past_last_level") if each in machines
    ]
    if not far:
        return f"{len(machines)} profiles, one below the other. No walk was timed, so none is dearer than another."
    least, most = far[0], far[-1]
    if least is most:
        return f"One profile. A walk takes {_ns(most)}, more than any hit."
    return (
        f"{len(machines)} profiles, one below the other, on the same axes. A walk takes longest on {most.label}, {_ns(most)}, and "
        f"least on {least.label}, {_ns(least)}."
    )


def _ns(each: Machine) -> str:
    return f"{each.value('walk_over_2_gib', 'walk_past_last_level'):,.3g} ns"
