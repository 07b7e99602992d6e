"""The measured geometry as a figure, as tables and as sentences: a staircase with each tread labelled."""

from __future__ import annotations

from collections.abc import Callable

import altair as alt
import numpy as np
import pandas as pd
from myst_nb import glue

from experiments.article.charts import Figure, lines_axis, log_scale, ns_axis, show
from experiments.article.machine_words import Prose, Said, pages
from experiments.article.render import INK, MUTED, PALETTE, Html, data_table, lacking_note
from experiments.inference import geometry
from experiments.inference.geometry import Geometry
from experiments.inference.geometry_words import level_name, levels_table, sentences, walks_table
from experiments.words.reasons import Unavailable

_SERIES = ("spread - packed", "alias")
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_TIMES = 60  # a price so many times the first tread belongs to walks in memory, and would flatten the stairs


def figure(frame: pd.DataFrame, found: Geometry) -> Figure:
    """Cost per access against pages: spread minus packed, and alias, with a rule and a label at each level found."""
    stride = geometry.stride_of(frame)
    curves = {_SERIES[0]: geometry.priced(frame, stride), _SERIES[1]: geometry.curve(frame, "alias", stride_pages=stride)}
    data = pd.concat([points.assign(series=name) for name, points in curves.items()], ignore_index=True)
    data = data[(data["lines"] >= geometry.ALIAS_FROM) & (data["cost"] <= _MOST_TIMES * found.first_tread)]
    if data.empty:
        raise Unavailable("too-few-points", "nothing was measured of the staircase")
    x = alt.X("lines:Q", axis=lines_axis("Pages touched"), scale=log_scale())
    scale = alt.Scale(type="log", nice=False, domain=[data["cost"].min() * 0.7, data["cost"].max() * 1.5])
    ticks = [t for t in _TICKS if data["cost"].min() * 0.7 <= t <= data["cost"].max() * 1.5]
    y = alt.Y("cost:Q", axis=ns_axis(f"{found.unit} per access", ticks), scale=scale)
    colour = alt.Color("series:N", sort=list(_SERIES), scale=alt.Scale(domain=list(_SERIES), range=list(PALETTE[:2])))
    shape = alt.Shape("series:N", sort=list(_SERIES), scale=alt.Scale(domain=list(_SERIES)))
    base = alt.Chart(data).encode(x=x, y=y, color=colour)
    tips = [alt.Tooltip("series:N"), alt.Tooltip("lines:Q", format=",", title="pages"),
            alt.Tooltip("cost:Q", format=".2f", title=found.unit), alt.Tooltip("n:Q", title="processes")]
    bars = base.mark_rule(clip=True).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q")
    marks = pd.DataFrame([{"lines": one.entries.value, "label": f"{level_name(one)}: {pages(one.entries.value)}"} for one in found.levels])
    rules = alt.Chart(marks).encode(x="lines:Q")
    chart = (base.mark_line(strokeWidth=1) + bars + base.mark_point(size=24).encode(shape=shape, tooltip=tips)
             + rules.mark_rule(strokeDash=[4, 4], color=MUTED)
             + rules.mark_text(align="right", dx=-5, dy=2, baseline="top", color=MUTED).encode(text="label:N", y=alt.value(0)))
    treads = _treads(data, found)
    chart += alt.Chart(treads).mark_text(dy=16, color=INK).encode(x="lines:Q", y=alt.Y("cost:Q", scale=scale), text="label:N")
    told = "; ".join(f"{row.label} from {row.start:,.0f} to {row.end:,.0f} pages" for row in treads.itertuples())
    steps = " and ".join(f"{pages(one.entries.value)} pages" for one in found.levels)
    return Figure(chart, "staircase", f"A staircase of cost over pages touched, with steps at {steps}. Treads: {told}.",
                  data[["series", "lines", "cost", "low", "high", "n"]])



def _treads(points: pd.DataFrame, found: Geometry) -> pd.DataFrame:
    """One row a tread: its label, and where it stands: under the lower of the curves."""
    ends = [float(points["lines"].min()), *(edge for one in found.levels for edge in one.rise), float(points["lines"].max())]
    labels = ["hits in the L1 dTLB", *(f"hits in the {level_name(one)}" for one in found.levels[1:]), "walks"]
    rows = []
    for k, label in enumerate(labels):
        start, end = ends[2 * k], ends[2 * k + 1]
        on = points[points["lines"].between(start, end)]
        if len(on):
            cost = float(on.groupby("series")["cost"].median().min())
            rows.append({"label": label, "lines": float(np.sqrt(start * end)), "cost": cost, "start": start, "end": end})
    return pd.DataFrame(rows, columns=["label", "lines", "cost", "start", "end"])








def tell(measured: Callable[[], tuple[pd.DataFrame, Geometry]]) -> tuple[Said, Html, Html]:
    """The chapter's section: glues the figure; returns the numbers and sentences to say, and the two tables.

    measured: `chapter.geometry`, whose Unavailable becomes a note in the place of each.
    """
    try:
        frame, found = measured()
        show(figure(frame, found))
    except Unavailable as why:
        note = lacking_note(str(why))
        glue("staircase", note)
        words: Said = {"geometry_lead": Prose("The treads were not measured on this machine: " + str(why)), "geometry_verdicts": Prose(""),
                       "geometry_walks": Prose("")}
        return words, note, note
    first, *others = found.levels
    lead = [f"Here the stairs have {len(found.levels) + 1} treads. The first costs {found.first_tread:.1f} {found.unit} an access and "
            f"ends at {pages(first.entries.value)} pages."]
    lead += [f"The next adds {one.hit_cost.value:.1f} and reaches to {pages(one.entries.value)}." for one in others if one.hit_cost]
    if first.ways:
        lead.append(f"Pages that collide show {first.ways} ways in the first level.")
    elif first.ways == 0:
        lead.append(f"Pages {geometry.WAY_STRIDE} apart fit the first level as well as neighbours do: it has no sets to crowd.")
    verdicts = "\n".join(f"- {sentence}" for sentence in sentences(found))
    return ({"geometry_lead": Prose(" ".join(lead)), "geometry_verdicts": Prose(verdicts), "geometry_walks": Prose(_walks(found))},
            data_table(levels_table(found)), data_table(walks_table(found)))


def _walks(found: Geometry) -> str:
    known = [walk for walk in found.walks if walk.cost]
    if len(known) < 2:
        return "Walks in fewer than two places were measured here, so nothing compares them."
    first, last = known[0], known[-1]
    return (f"With its table in {first.table_in} a walk adds {first.cost.value:,.0f} {found.unit}, with its table in {last.table_in} "
            f"{last.cost.value:,.0f}: {last.cost.value / first.cost.value:.1f} times as much. *The cost of a TLB miss* is all of "
            "that, on one machine.")
