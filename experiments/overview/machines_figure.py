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
from tlb.report import axes
from tlb.report.render import MUTED, RULE, Figure

_STEP_PX = 17  # a row: a mark, and a label of 13 px
_AIR = "air"  # the row below a panel
# What a panel shows, in words that a phone has room for. Entries are in the table; a guest's matrix
# would be eight rows more in each.
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
_TICKS = {"ns": (1.0, 10.0, 100.0, 1000.0, 10_000.0), "ratio": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)}
_NO_AXIS = alt.Axis(labels=False, ticks=False, domain=False, title=None)  # panels draw their ticks
_BOLD_HEADINGS = {"test": "split(datum.value, '.')[1] === ''", "value": "bold"}


def machines_profiles(a: Analysis) -> Figure:
    """Draw all profiles. Raises Unavailable("too-few-points") where no machine has a value.

    A row on the common y is "panel.quantity", without any machine's own words, so that none becomes
    a part of an expression.
    """
    rows, labels, records, shown = [], {}, [], []
    for machine in a.machines:
        known = [q for name in _SHOWN if (q := machine.quantity(name)) and machine.value(name) > 0]
        if not known:  # above zero, on a logarithmic axis; the table has the others
            continue
        panel = len(shown)
        shown.append(machine)
        labels[f"{panel}."] = machine.label
        rows += [f"{panel}.", *(f"{panel}.{q.name}" for q in known), f"{panel}.{_AIR}"]
        for q in known:
            place = {"machine": machine.name, "row": f"{panel}.{q.name}", "part": PARTS[q.part]}
            records.append(place | q.model_dump(include=_DATA))
    required(shown, "no machine has a profile with a value")
    data = pd.DataFrame(records)
    y = {"scale": alt.Scale(domain=rows), "axis": _axis(labels)}
    scheme, legend = axes.colours([*data["part"].unique()]), alt.Legend(columns=1)
    color = alt.Color("part:N", scale=scheme, legend=legend)
    units = [unit for unit in _TICKS if (data["unit"] == unit).any()]
    layers = [_side(data[data["unit"] == unit], unit, y, color) for unit in units]
    chart = alt.layer(*layers).resolve_scale(x="independent")
    chart = chart.properties(height=_STEP_PX * len(rows))
    return Figure(chart, _finding(a, shown), data.drop(columns="row"))


def _axis(labels: dict[str, str]) -> alt.Axis:
    """Label a heading with its machine, a row with its quantity, and the rows between not at
    all."""
    words = json.dumps(labels | _SHOWN | {_AIR: ""})
    return alt.Axis(
        title=None,
        labelLimit=150,
        labelOverlap=False,
        labelExpr=f"{words}[datum.value] || {words}[split(datum.value, '.')[1]]",
        labelFontWeight={"condition": _BOLD_HEADINGS, "value": "normal"},
    )


def _side(data: pd.DataFrame, unit: str, along: dict[str, Any], color: alt.Color) -> alt.LayerChart:
    """Draw the marks of one unit on a scale of all panels, with its ticks in each: those of times
    on the heading's row, those of ratios below."""
    data, (low, high) = axes.intervals_on_log(data, *([1.0] if unit == "ratio" else []))
    x = alt.X("value:Q", scale=axes.log_scale(10, (low, high)), axis=_NO_AXIS)
    y, begin = alt.Y("row:N", **along), alt.X("begin:Q", axis=_NO_AXIS)
    start, at = (alt.Y(f"{name}:N", **along) for name in ("from", "at"))
    base, ticks = alt.Chart(data), alt.Chart(_ticks(data, unit, low, high))
    tips = [alt.Tooltip(f"{end}:Q", format=".3~r") for end in ("value", "low", "high")]
    return alt.layer(
        ticks.mark_rule(strokeWidth=1, color=RULE).encode(x=x, y=start, y2="to:N"),
        # To the right of their lines, since the first one is beside the machine's name.
        ticks.mark_text(color=MUTED, fontSize=11, align="left").encode(x=x, y=at, text="tick:N"),
        base.mark_rule(strokeWidth=2, color=MUTED).encode(x=begin, x2="end:Q", y=y),
        base.mark_point(size=52).encode(
            x=x, y=y, color=color, tooltip=["machine:N", "name:N", *tips]
        ),
    )


def _ticks(data: pd.DataFrame, unit: str, low: float, high: float) -> pd.DataFrame:
    """Return the ticks of each panel that has such rows: where each is named, and along which rows
    it is drawn."""
    found = []
    for panel, rows in data.groupby(data["row"].str.partition(".")[0], sort=False)["row"]:
        at = f"{panel}." if unit == "ns" else f"{panel}.{_AIR}"
        for value in _TICKS[unit]:
            if low <= value <= high:
                found.append((at, rows.iloc[0], rows.iloc[-1], value, _tick(value, unit)))
    return pd.DataFrame(found, columns=["at", "from", "to", "value", "tick"])


def _tick(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"×{value:g}"
    return f"{value:g} ns" if value < 1000 else f"{value / 1000:g} µs"


def _finding(a: Analysis, machines: list[Machine]) -> str:
    """Return a sentence about the machines with the dearest and the cheapest walk."""
    walks = ("walk_over_2_gib", "walk_past_last_level")
    timed = [each for each in a.with_value(*walks) if each in machines]
    ns = [f"{each.value(*walks):,.3g} ns" for each in timed]
    if not timed:
        return (
            f"{len(machines)} profiles, one below the other. No walk was timed, so none is dearer "
            "than another."
        )
    if len(timed) == 1:
        return f"One profile. A walk takes {ns[0]}, more than any hit."
    return (
        f"{len(machines)} profiles, one below the other, on the same axes. A walk takes longest on "
        f"{timed[-1].label}, {ns[-1]}, and least on {timed[0].label}, {ns[0]}."
    )
