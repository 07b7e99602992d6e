"""The translation profile as a figure: times on one axis, ratios on another, a row a quantity."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt
import pandas as pd

from experiments.overview.profile import PARTS, Profile, Quantity
from tlb.reasons import required
from tlb.report import charts
from tlb.report.render import MUTED, Figure

_STEP_PX = 22  # a row: a mark, and room for its name
_DRAWN = {"ns": ("levels", "walk by place", "faults"), "ratio": ("pages", "guests")}
_TITLES = {"ns": "ns", "ratio": "times as fast; as long"}
_IS_HEADING = "slice(datum.value, -1) === ':'"
_AXIS = alt.Axis(
    title=None,
    labelLimit=270,
    labelFontWeight={"condition": {"test": _IS_HEADING, "value": "bold"}, "value": "normal"},
)
_ENTRIES = {
    "load_first_level": "entries_level_1",
    "hit_last_level": "entries_level_2",
}  # whose entries a row's name says


def drawn(profile: Profile) -> Figure:
    """Raises Unavailable("too-few-points") where a machine has no quantity at all."""
    known = [
        quantity
        for part in (*_DRAWN["ns"], *_DRAWN["ratio"])
        for quantity in profile.quantities
        if quantity.part == part and quantity.value is not None
    ]
    required(known, "no quantity of the profile is known")
    data = pd.DataFrame(
        [
            quantity.model_dump(
                include={"name", "part", "unit", "value", "low", "high", "coverage", "modes"}
            )
            | {"what": _name(profile, quantity), "part": PARTS[quantity.part]}
            for quantity in known
        ]
    )
    scheme = charts.colours(list(dict.fromkeys(data["part"])))
    # Headings in place of a legend, which has no room on a phone.
    headed = [
        row
        for part, rows in data.groupby("part", sort=False)
        for row in (f"{part}:", *rows["what"])
    ]
    y = alt.Y("what:N", scale=alt.Scale(domain=headed), axis=_AXIS)
    color = alt.Color("part:N", scale=scheme, legend=None)
    layers = [
        _side(data[data["unit"] == unit], unit, y, color)
        for unit in _DRAWN
        if (data["unit"] == unit).any()
    ]
    chart = (
        alt.layer(*layers).resolve_scale(x="independent").properties(height=_STEP_PX * len(headed))
    )
    return Figure(chart, _finding(profile), data)


def _side(data: pd.DataFrame, unit: str, y: alt.Y, color: alt.Color) -> alt.LayerChart:
    ends = [
        *data["value"],
        *data["low"].dropna(),
        *data["high"].dropna(),
        *([1.0] if unit == "ratio" else []),
    ]
    axis = alt.Axis(
        title=_TITLES[unit], orient="top" if unit == "ns" else "bottom", format="~g", tickCount=6
    )
    x = alt.X("value:Q", scale=charts.log_scale(10, (min(ends) * 0.9, max(ends) * 1.1)), axis=axis)
    base = alt.Chart(data)
    layers = [
        base.mark_rule(strokeWidth=2, color=MUTED).encode(y=y, x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(size=60, filled=True, opacity=1).encode(
            x=x,
            y=y,
            color=color,
            tooltip=[
                "what:N",
                *(alt.Tooltip(f"{end}:Q", format=".3~r") for end in ("value", "low", "high")),
            ],
        ),
    ]
    if unit == "ratio":
        layers.insert(
            0, base.mark_tick(size=_STEP_PX, thickness=1, color=MUTED).encode(x=alt.datum(1.0), y=y)
        )  # no difference
    return alt.layer(*layers)


def _name(profile: Profile, quantity: Quantity) -> str:
    entries = profile[_ENTRIES[quantity.name]].value if quantity.name in _ENTRIES else None
    return quantity.words + (f", {entries:,.0f} entries" if entries else "")


def _finding(profile: Profile) -> str:
    """What is dearest and what helps most, in a sentence or two."""
    loads = "Of loads and walks the {most} takes longest, {value:,.0f} ns, beside {least:.2g} for a {other}."
    told = [
        _most(profile, ("levels", "walk by place"), loads),
        _most(
            profile,
            ("faults",),
            "Of first touches a {most} takes most, {value:,.0f} ns, and a {other} least, {least:,.0f}.",
        ),
        _most(profile, ("pages",), "Of larger pages, {most} gain most: {value:.2f} times as fast."),
    ]
    return "What translation costs this machine is a ladder. " + " ".join(filter(None, told))


def _most(profile: Profile, parts: Iterable[str], sentence: str) -> str:
    known = [
        quantity
        for quantity in profile.quantities
        if quantity.part in parts and quantity.value is not None
    ]
    if len(known) < 2:
        return ""
    most, least = (pick(known, key=lambda quantity: quantity.value) for pick in (max, min))
    return sentence.format(most=most.words, value=most.value, other=least.words, least=least.value)
