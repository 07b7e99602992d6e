"""All machines' times in one figure: a row a quantity, a mark a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from experiments.overview.machines import Analysis
from tlb.report import charts
from tlb.report.names import THIS_COMPUTER
from tlb.report.render import MUTED_COLOUR, PALETTE, RULE_COLOUR, Figure
from tlb.system.reasons import required

# What a row shows, in words that a phone has room for. Entries and gains are in the table.
_SHOWN = {
    "load_first_level": "load that hits the L1 TLB",
    "hit_last_level": "a hit in the STLB adds",
    "walk_past_last_level": "a page walk adds, just past the STLB's reach",
    "walk_over_2_gib": "a page walk adds, in 2 GiB, at least",
    "walk_table_l2": "page walk, its entry in the L2 cache",
    "walk_table_l3": "page walk, its entry in the L3 cache",
    "walk_table_memory": "page walk, its entry in memory",
    "fault_file": "touch and unmap a page of a cached file",
    "fault_fresh_large": "touch and unmap 2 MiB (THP), for each 4 KiB",
    "fault_fresh": "touch and unmap a fresh 4 KiB page",
}

_ROW_PX = 56  # room for the name and, below it, a line for each machine
_PLACES_PX = [27, 52]  # of these lines in a row


def machines_times(a: Analysis) -> Figure:
    """Draw all machines' times. Raises Unavailable("too-few-points") where no machine has one."""
    found = [
        (each.name, each.label, words, q.value, q.low, q.high)
        for each in a.machines
        for name, words in _SHOWN.items()
        if (q := each.quantity(name)) and each.value(name) > 0  # on a logarithmic axis
    ]
    columns = ["machine", "label", "what", "value", "low", "high"]
    data = pd.DataFrame(required(found, "no machine has a time in its profile"), columns=columns)
    data, ends = charts.intervals_on_log(data)
    rows = [words for words in _SHOWN.values() if (data["what"] == words).any()]
    names = [*data["label"].unique()]
    shown = data.assign(median=data["value"], low=data["begin"], high=data["end"])
    x: dict[str, Any] = {
        "scale": charts.log_scale(10, ends),
        "axis": alt.Axis(title="ns", format=",", tickCount=6),
    }
    channels: dict[str, Any] = {"color": charts.colour("label", _colours(names))}
    if len(names) <= len(PALETTE):
        channels["shape"] = charts.shape("label", names)
        # In a row one below the other, because marks of machines that lie close would cover each
        # other.
        places = alt.Scale(domain=names, range=_PLACES_PX)
        channels["yOffset"] = alt.YOffset("label:N", sort=names, scale=places)
    medians = charts.medians_in_rows(
        shown, "what", rows, x, "label:N", "what:N", width=2, size=50, **channels
    )
    chart = charts.layered(*_grid(rows, x, ends), medians)
    chart = chart.properties(height=_ROW_PX * len(rows))
    return Figure(chart, _finding(a, names), data[columns], "machines_times")


def _grid(rows: Sequence[str], x: Mapping[str, Any], ends: tuple[float, float]) -> list[alt.Chart]:
    """Return a line above each row but the first, and one at each power of ten."""
    low, high = np.log10(ends)
    decades = [10.0**power for power in range(int(np.ceil(low)), int(high) + 1)]
    upright = alt.Chart(pd.DataFrame({"decade": decades})).mark_rule(
        color=RULE_COLOUR, strokeWidth=1
    )
    between = alt.Chart(pd.DataFrame({"what": [*rows[1:]]})).mark_rule(
        color=RULE_COLOUR, strokeWidth=1
    )
    above = alt.Y("what:N", sort=[*rows], axis=None, bandPosition=0)
    return [
        upright.encode(x=alt.X("decade:Q", **x)),
        between.encode(x=alt.value(0), x2=alt.value("width"), y=above),
    ]


def _colours(names: list[str]) -> alt.Scale:
    """Return a colour a machine; of more machines than there are colours, one for this computer
    and one for all others."""
    if len(names) <= len(PALETTE):
        return charts.colours(names)
    return alt.Scale(
        domain=names, range=[PALETTE[0] if n == THIS_COMPUTER else MUTED_COLOUR for n in names]
    )


def _finding(a: Analysis, names: list[str]) -> str:
    """Return a sentence about the machines with the dearest and the cheapest walk."""
    walk = "walk_over_2_gib"
    timed = [each for each in a.with_value(walk) if each.label in names]
    if len(timed) < 2:
        return f"Times of {len(names)} machines, a row a quantity."
    low, high = timed[0], timed[-1]
    return (
        f"Times of {len(names)} machines, a row a quantity. In 2 GiB a page walk takes longest "
        f"on {high.label}, {high.value(walk):,.3g} ns, and least on {low.label}, "
        f"{low.value(walk):,.3g} ns."
    )
