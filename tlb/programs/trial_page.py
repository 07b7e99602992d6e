"""Write a trial as a page in the book's style: verdict, a chart of the pairs, and the table. It
loads nothing."""

from __future__ import annotations

import shlex

import altair as alt
import pandas as pd
from markupsafe import Markup

from tlb.programs.trial import Trial
from tlb.programs.trial_report import remarks, rows, verdict_sentence
from tlb.report import standalone
from tlb.report.render import MUTED, PALETTE, Figure

_HEIGHT_PX = 220
_CAPTION = (
    "With the lever over without it, one point a pair, in the order of measuring. The line is the "
    "typical ratio, the band its interval; at the dashed line there is no difference."
)
_BODY = Markup(
    "<h1>{verdict}</h1><p><code>{command}</code>{driver}, with {does}{against}.</p><p>{sentence}</p>"
    "{remarks}{figure}{table}"
)


def figure(trial: Trial) -> Figure:
    """Return a chart of each pair's ratio, over the typical one with its interval."""
    ratio = trial.ratio()
    pairs = pd.DataFrame({"without": trial.values(False), "with": trial.values(True)})
    pairs["ratio"], pairs["pair"] = pairs["with"] / pairs["without"], pairs.index + 1
    y = alt.Y("ratio:Q", title="with over without", scale=alt.Scale(zero=False))
    band = pd.DataFrame({"low": [ratio.low], "high": [ratio.high], "ratio": [ratio.value]})
    interval = alt.Chart(band).mark_rect(opacity=0.2, color=PALETTE[0])
    equal = alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(strokeDash=[4, 4], color=MUTED)
    points = alt.Chart(pairs).mark_point(color=PALETTE[0])
    chart = alt.layer(
        interval.encode(y=alt.Y("low:Q", scale=alt.Scale(zero=False)), y2="high:Q"),
        alt.Chart(band).mark_rule(color=PALETTE[0]).encode(y=y),
        equal.encode(y=y),
        points.encode(x=alt.X("pair:Q", axis=alt.Axis(tickMinStep=1)), y=y),
    ).properties(height=_HEIGHT_PX)
    summary = (
        f"The pairs' ratios go from {pairs['ratio'].min():.3f} to {pairs['ratio'].max():.3f}; "
        f"the typical one is {ratio.value:.3f}, between {ratio.low:.3f} and {ratio.high:.3f}."
    )
    return Figure(chart, summary, pairs, "pairs")


def page(trial: Trial) -> str:
    """Return the page as HTML."""
    aim = trial.aim
    table = pd.DataFrame(rows(trial), columns=["", *aim.sides])
    driven = Markup(", driven by <code>{}</code>")
    body = _BODY.format(
        verdict=trial.verdict.capitalize(),
        command=shlex.join(aim.command),
        driver=driven.format(shlex.join(aim.driver.command)) if aim.driver else "",
        does=aim.lever.does,
        against="" if aim.against.name == "none" else f", against {aim.against.does}",
        sentence=verdict_sentence(trial),
        remarks=standalone.paragraphs(remarks(trial)),
        figure=standalone.figure(figure(trial) if trial.pairs else None, _CAPTION),
        table=standalone.table(table),
    )
    return standalone.page(f"tlb try: {aim.command[0]}", body)
