"""The charts of the chapter about programs, one function a figure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from experiments.your_program.analysis import Analysis, without_repeats
from tlb.report import charts
from tlb.report.render import MUTED, Figure
from tlb.system.prose import extremes
from tlb.system.reasons import required

_RATIOS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100)
_TENTHS = [n / 10 for n in range(1, 40)]
_NARROW = 2.5  # an axis whose ends are a smaller factor apart has room for ticks at tenths
# An interval is cut this many times beyond the farthest median, or it would press all others
# together.
BEYOND = 1.5
_EDGE = 1.03  # a factor: room for half a mark
_LETTERS = 22  # of a line of a row's name: a telephone keeps half its width to draw in
_ROW_PX = 32  # two lines of a name


def _named(a: Analysis, ours: bool) -> pd.DataFrame:
    """Return a row a program, here and on the reference machine: our own with whatever was changed,
    others' if only their pages changed."""

    def chosen(trials: pd.DataFrame) -> pd.DataFrame:
        rows = without_repeats(trials[trials["ours"] == ours])
        return rows if ours else a.on_huge_pages(rows)

    lacking = "no such program was measured"
    machines = {"this machine": required(chosen(a.measured()), lacking)}
    if a.theirs is not None and len(a.theirs):
        machines["the reference"] = chosen(a.theirs)
    named = [rows.assign(machine=name) for name, rows in machines.items()]
    rows = pd.concat(named, ignore_index=True)
    return rows.sort_values("machine", ascending=False, kind="stable")


def _ends(data: pd.DataFrame) -> tuple[float, float]:
    """Return the ends of the gain's axis: it holds 1, all medians, and intervals up to BEYOND."""
    least, most = min(1.0, data["gain"].min()), max(1.0, data["gain"].max())
    left, right = max(data["low"].min(), least / BEYOND), min(data["high"].max(), most * BEYOND)
    return min(least, left) / _EDGE, max(most, right) * _EDGE


def _intervals(data: pd.DataFrame, y: alt.Y, ends: tuple[float, float]) -> list[alt.Chart]:
    """Return rules; those that go on beyond the axis end in an arrow."""
    rule = alt.Chart(data).mark_rule(strokeWidth=2, color=MUTED, clip=True)
    layers = [rule.encode(y=y, x="low:Q", x2="high:Q")]
    left, right = data["low"] < ends[0], data["high"] > ends[1]
    for arrow, rows, end in (("left", left, ends[0]), ("right", right, ends[1])):
        if rows.any():
            cut = alt.Chart(data.loc[rows, ["title"]].drop_duplicates().assign(end=end))
            mark = cut.mark_point(shape=f"triangle-{arrow}", size=70, color=MUTED)
            layers.append(mark.encode(y=y, x="end:Q"))
    return layers


def _row(order: Sequence[str]) -> alt.Y:
    """Return rows with their names at the left, in lines of up to _LETTERS. Above its row, a name
    would be near the mark of another program."""
    lines = {name: textwrap.wrap(name, _LETTERS, break_on_hyphens=False) for name in order}
    labels = f"({json.dumps(lines)})[datum.label]"
    # Vega aligns the first line of a label with its mark, so one of two lines is raised by half a line.
    raised = {"expr": f"length(datum.label) > {_LETTERS} ? -7 : 0"}
    axis = alt.Axis(
        title=None,
        labelExpr=labels,
        labelOffset=raised,
        labelLimit=0,
        labelPadding=12,
        ticks=False,
        domain=False,
    )
    return alt.Y("title:N", sort=list(order), axis=axis)


def _dots(data: pd.DataFrame) -> alt.LayerChart:
    """Draw a row a program, from the largest gain to the least: a point for each machine; and
    a line at 1, no difference."""
    ranked = data.sort_values("gain", ascending=False, kind="stable")
    mine = ranked["machine"] == "this machine"
    order = list(dict.fromkeys([*ranked.loc[mine, "title"], *ranked["title"]]))
    ends, y = _ends(data), _row(order)
    every = _RATIOS if ends[1] > _NARROW * ends[0] else _TENTHS
    ticks = [tick for tick in every if ends[0] <= tick <= ends[1]]
    axis = charts.ns_axis("times as fast", ticks)
    x = alt.X("gain:Q", axis=axis, scale=charts.log_scale(domain=ends))
    machines = list(dict.fromkeys(data["machine"]))
    channels: dict[str, Any] = {}
    if len(machines) > 1:
        channels["color"] = charts.colour("machine", machines, title=None)
        channels["shape"] = charts.shape("machine", machines, title=None)
    tooltip = ["title:N", "machine:N", alt.Tooltip("gain:Q", format=".3~r")]
    points = alt.Chart(data).mark_point(size=60, filled=True, opacity=1)
    points = points.encode(x=x, y=y, tooltip=tooltip, **channels)
    same = alt.Chart(pd.DataFrame({"gain": [1.0]})).mark_rule(strokeDash=[4, 4], color=MUTED)
    layers = alt.LayerChart(layer=[same.encode(x=x), *_intervals(data, y, ends), points])
    return layers.properties(height=_ROW_PX * len(order))


def _gains(a: Analysis, ours: bool, whose: str) -> Figure:
    rows = _named(a, ours)
    data = rows[["title", "language", "machine", "does", "verdict", "pairs"]].assign(
        gain=[gain.value for gain in rows["gain"]],
        low=[gain.low for gain in rows["gain"]],
        high=[gain.high for gain in rows["gain"]],
    )
    here = data[data["machine"] == "this machine"]
    by_title = dict(zip(here["title"], here["gain"], strict=True))
    ranking = extremes(by_title, "times as fast", "gains most", "gains least")
    return Figure(_dots(data), f"{whose} {ranking}", data)


def gains(a: Analysis) -> Figure:
    return _gains(a, False, "Time on 4 KiB pages divided by time on huge pages, by program.")


def own_gains(a: Analysis) -> Figure:
    return _gains(a, True, "Time without a change divided by time with it, by program.")
