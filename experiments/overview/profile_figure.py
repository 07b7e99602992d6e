"""Figures of translation profiles: times on one axis, ratios on another, a row a quantity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt
import pandas as pd

from experiments.overview.profile import PARTS, Profile, Quantity
from tlb.reasons import required
from tlb.report import axes
from tlb.report.render import MUTED, Figure

_STEP_PX = 22  # a row: a mark, and room for its name
_DRAWN = {"ns": ("levels", "walk by place", "faults"), "ratio": ("pages", "guests")}
_TITLES = {"ns": "ns", "ratio": "times as fast; as long"}
_BOLD_HEADINGS = {"test": "slice(datum.value, -1) === ':'", "value": "bold"}
_AXIS = alt.Axis(
    title=None, labelLimit=270, labelFontWeight={"condition": _BOLD_HEADINGS, "value": "normal"}
)
# Quantities whose row names the entries of the TLB as well.
_ENTRIES = {"load_first_level": "entries_level_1", "hit_last_level": "entries_level_2"}


def drawn(profile: Profile) -> Figure:
    """Draw a profile. Raises Unavailable("too-few-points") where a machine has no quantity."""
    parts = (*_DRAWN["ns"], *_DRAWN["ratio"])
    known = [each for each in profile.quantities if each.value is not None and each.part in parts]
    known.sort(key=lambda each: parts.index(each.part))
    required(known, "no quantity of the profile is known")
    columns = {"name", "part", "unit", "value", "low", "high", "coverage", "modes"}
    data = pd.DataFrame([each.model_dump(include=columns) for each in known])
    data = data.assign(what=[_name(profile, each) for each in known], part=data["part"].map(PARTS))
    color = alt.Color("part:N", scale=axes.colours([*data["part"].unique()]), legend=None)

    def side(data: pd.DataFrame, unit: str, y: dict[str, Any]) -> alt.LayerChart:
        ends = [*data["value"], *data["low"].dropna(), *data["high"].dropna()]
        ends += [1.0] if unit == "ratio" else []
        row, base = alt.Y("what:N", **y), alt.Chart(data)
        tips = [alt.Tooltip(f"{end}:Q", format=".3~r") for end in ("value", "low", "high")]
        layers = [
            base.mark_rule(strokeWidth=2, color=MUTED).encode(y=row, x=alt.X("low:Q"), x2="high:Q"),
            base.mark_point(size=60, filled=True, opacity=1).encode(
                x=_x(unit, (min(ends) * 0.9, max(ends) * 1.1)),
                y=row,
                color=color,
                tooltip=["what:N", *tips],
            ),
        ]
        if unit == "ratio":  # a tick where nothing differs
            tick = base.mark_tick(size=_STEP_PX, thickness=1, color=MUTED)
            layers.insert(0, tick.encode(x=alt.datum(1.0), y=row))
        return alt.layer(*layers)

    return Figure(_two_axes(data, side, _STEP_PX), _finding(profile), data)


def _two_axes(data: pd.DataFrame, side: Any, step_px: int) -> alt.LayerChart:
    """Layer the sides of both units. Headings stand in place of a legend, for which a phone has no
    room."""
    headed = []
    for part, rows in data.groupby("part", sort=False):
        headed += [f"{part}:", *rows["what"].unique()]
    y = {"scale": alt.Scale(domain=headed), "axis": _AXIS}
    units = [unit for unit in _DRAWN if (data["unit"] == unit).any()]
    layers = [side(data[data["unit"] == unit], unit, y) for unit in units]
    chart = alt.layer(*layers).resolve_scale(x="independent")
    return chart.properties(height=step_px * len(headed))


def _x(unit: str, ends: tuple[float, float]) -> alt.X:
    orient = "top" if unit == "ns" else "bottom"
    axis = alt.Axis(title=_TITLES[unit], orient=orient, format="~g", tickCount=6)
    return alt.X("value:Q", scale=axes.log_scale(10, ends), axis=axis)


def _name(profile: Profile, quantity: Quantity) -> str:
    entries = profile[_ENTRIES[quantity.name]].value if quantity.name in _ENTRIES else None
    return quantity.words + (f", {entries:,.0f} entries" if entries else "")


def _finding(profile: Profile) -> str:
    """Return a sentence or two: what is dearest and what helps most."""
    loads = (
        "Of loads and walks the {most} takes longest, {value:,.0f} ns, beside {least:.2g} for a "
        "{other}."
    )
    faults = (
        "Of first touches a {most} takes most, {value:,.0f} ns, and a {other} least, {least:,.0f}."
    )
    pages = "Of larger pages, {most} gain most: {value:.2f} times as fast."
    told = [
        _most(profile, ("levels", "walk by place"), loads),
        _most(profile, ("faults",), faults),
        _most(profile, ("pages",), pages),
    ]
    return "What translation costs this machine is a ladder. " + " ".join(filter(None, told))


def _most(profile: Profile, parts: Iterable[str], sentence: str) -> str:
    known = [each for each in profile.quantities if each.part in parts and each.value is not None]
    if len(known) < 2:
        return ""
    most, least = (pick(known, key=lambda quantity: quantity.value) for pick in (max, min))
    return sentence.format(most=most.words, value=most.value, other=least.words, least=least.value)
