"""A comparison as a page of its own: what differs about the computers and what that can touch, both
profiles, and what was measured."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import altair as alt
import pandas as pd
from markupsafe import Markup

from experiments.overview import profiles
from experiments.overview.compare import DIFFERS, SAME, UNKNOWN, Comparison
from experiments.overview.compare_words import counts_table, facts_table, row
from experiments.overview.profile import PARTS
from experiments.overview.profiles import Beside
from tlb.prose import count
from tlb.reasons import if_available, required
from tlb.report import charts, standalone
from tlb.report.render import MUTED, Figure

_STEP_PX = 26  # a row: two marks, one below the other
_MOST_ROWS = 200  # of what differs in a chapter: more than a page is read for; `--json` has all
_SIDES = ("A", "B")
_AXES = {"ns": ("ns", "top"), "ratio": ("times as fast; as long", "bottom")}


def page(comparison: Comparison) -> str:
    """The page as HTML."""
    a, b = comparison.a.name, comparison.b.name
    words = Counter(quantity.verdict for quantity in comparison.quantities)
    summary = (
        f"Of {count(len(comparison.quantities))} quantities that both have measured, {count(words[DIFFERS])} differ, of "
        f"{count(words[SAME])} no difference is to be seen, and of {count(words[UNKNOWN])} one cannot tell."
    )
    return standalone.page(
        f"tlb compare: {a}, {b}",
        Markup(
            "<h1>{} and {}</h1><p>A is <code>{}</code>, B is <code>{}</code>. {}</p><h2>What differs about them</h2>{}{}"
            "<h2>What translation costs each</h2>{}<h2>What was measured</h2>{}{}{}<h2>What is not compared</h2>{}"
        ).format(
            a,
            b,
            a,
            b,
            summary,
            standalone.table(facts_table(comparison))
            if comparison.facts
            else Markup("<p>They are described alike.</p>"),
            standalone.paragraphs(comparison.explained),
            _profiles(comparison),
            standalone.paragraphs(comparison.notes),
            standalone.table(counts_table(comparison)),
            _differences(comparison),
            standalone.paragraphs(
                comparison.lacking or ["All that one has measured, the other has too."]
            ),
        ),
    )


def _profiles(comparison: Comparison) -> Markup:
    if not comparison.profiles:
        return Markup(
            "<p>Profiles are of whole machines. They are compared only if both sides are named without a state, have a current "
            "profile and were measured by the same versions of the kernels, and if you asked for all chapters.</p>"
        )
    table = pd.DataFrame(
        profiles.rows(comparison.profiles), columns=["profile", "A", "B", "B/A", "verdict"]
    )
    return standalone.figure(
        if_available(profiles_beside, comparison.profiles),
        (
            "Both translation profiles, a row a quantity that both have, with intervals. Times on the axis above, in ns; on the axis below, "
            "how many times as fast a chase is on larger pages, or as long in a guest."
        ),
    ) + standalone.table(table)


def _differences(comparison: Comparison) -> Markup:
    """Of each chapter what differs, the largest first, to unfold."""
    parts = []
    for chapter, found in groupby(comparison.quantities, key=lambda compared: compared.chapter):
        differ = [quantity for quantity in found if quantity.verdict == DIFFERS]
        if differ:
            table = pd.DataFrame(
                [row(quantity) for quantity in differ[:_MOST_ROWS]],
                columns=[chapter, "A", "B", "B/A", "verdict"],
            )
            more = (
                f", of which the largest {count(_MOST_ROWS)} are here"
                if len(differ) > _MOST_ROWS
                else ""
            )
            parts.append(
                Markup("<details><summary>{}: {} differ{}</summary>{}</details>").format(
                    chapter, count(len(differ)), more, standalone.table(table)
                )
            )
    return Markup("").join(parts)


def profiles_beside(found: list[Beside]) -> Figure:
    """A row a quantity, of A above that of B; of what is above zero on both, for the axes are
    logarithmic. The table below has all, and entries. Raises Unavailable("too-few-points") where
    there is none."""
    shown = [pair for pair in found if pair.a.unit in _AXES and pair.ratio]
    required(shown, "no price above zero is in both profiles")
    data = pd.DataFrame(
        [
            {
                "what": pair.a.words,
                "side": side,
                "part": PARTS[pair.a.part],
                "verdict": pair.verdict,
                **quantity.model_dump(include={"name", "unit", "value", "low", "high"}),
            }
            for pair in shown
            for side, quantity in zip(_SIDES, pair[:2], strict=True)
        ]
    )
    headed = [
        line
        for part, rows in data.groupby("part", sort=False)
        for line in (f"{part}:", *dict.fromkeys(rows["what"]))
    ]
    along = {
        "scale": alt.Scale(domain=headed),
        "axis": alt.Axis(
            title=None,
            labelLimit=270,
            labelFontWeight={
                "condition": {"test": "slice(datum.value, -1) === ':'", "value": "bold"},
                "value": "normal",
            },
        ),
    }
    layers = [
        _side(data[data["unit"] == unit], unit, along)
        for unit in _AXES
        if (data["unit"] == unit).any()
    ]
    chart = (
        alt.layer(*layers).resolve_scale(x="independent").properties(height=_STEP_PX * len(headed))
    )
    return Figure(chart, _finding(shown), data, "profiles_beside")


def _side(data: pd.DataFrame, unit: str, along: dict) -> alt.LayerChart:
    data, ends = charts.intervals_on_log(data)
    title, orient = _AXES[unit]
    x = alt.X(
        "value:Q",
        scale=charts.log_scale(10, ends),
        axis=alt.Axis(title=title, orient=orient, format="~g", tickCount=6),
    )
    base = alt.Chart(data).encode(
        y=alt.Y("what:N", **along), yOffset=alt.YOffset("side:N", scale=alt.Scale(domain=[*_SIDES]))
    )
    return alt.layer(
        base.mark_rule(strokeWidth=2, color=MUTED).encode(x=alt.X("begin:Q"), x2="end:Q"),
        base.mark_point(size=52).encode(
            x=x,
            color=alt.Color("side:N", scale=charts.colours(_SIDES)),
            shape=alt.Shape("side:N", scale=alt.Scale(domain=[*_SIDES])),
        ),
    )


def _finding(found: list[Beside]) -> str:
    """How many differ, and what differs most."""
    differ = [
        pair for pair in found if pair.verdict == DIFFERS and pair.ratio and pair.ratio.value > 0
    ]
    told = f"Two profiles, of which {count(len(differ))} of {count(len(found))} quantities differ, more than chance has it."
    if not differ:
        return told
    most = max(differ, key=lambda pair: max(pair.ratio.value, 1 / pair.ratio.value))  # type: ignore[union-attr]
    return f"{told} {most.a.words.capitalize()} differs most: on B it is {most.ratio.value:.2f} times what it is on A."  # type: ignore[union-attr]
