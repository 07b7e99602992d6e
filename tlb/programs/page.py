"""An experiment as a page of its own in the book's style: the verdict, each pair, what was seen
from outside. Nothing in it is loaded."""

from __future__ import annotations

import shlex

import altair as alt
import pandas as pd
from markupsafe import Markup

from tlb.programs.report import remarks, rows, verdict_sentence
from tlb.programs.trial import Trial
from tlb.report import standalone
from tlb.report.render import MUTED, PALETTE, Figure

_HEIGHT_PX = 220


def figure(trial: Trial) -> Figure:
    """Each pair's ratio in the order of measuring, over their common one with its interval, beside
    what no difference would be."""
    ratio, value = trial.ratio(), trial.aim.value
    pairs = pd.DataFrame(
        {
            "pair": range(1, len(trial.pairs) + 1),
            "without": [value(run) for run, _ in trial.pairs],
            "with": [value(run) for _, run in trial.pairs],
        }
    )
    pairs["ratio"] = pairs["with"] / pairs["without"]
    y = alt.Y("ratio:Q", title="with over without", scale=alt.Scale(zero=False))
    band = pd.DataFrame({"low": [ratio.low], "high": [ratio.high], "ratio": [ratio.value]})
    chart = alt.layer(
        alt.Chart(band)
        .mark_rect(opacity=0.2, color=PALETTE[0])
        .encode(y=alt.Y("low:Q", scale=alt.Scale(zero=False)), y2="high:Q"),
        alt.Chart(band).mark_rule(color=PALETTE[0]).encode(y=y),
        alt.Chart(pd.DataFrame({"ratio": [1.0]}))
        .mark_rule(strokeDash=[4, 4], color=MUTED)
        .encode(y=y),
        alt.Chart(pairs)
        .mark_point(color=PALETTE[0])
        .encode(x=alt.X("pair:Q", axis=alt.Axis(tickMinStep=1)), y=y),
    ).properties(height=_HEIGHT_PX)
    says = (
        f"The pairs' ratios go from {pairs['ratio'].min():.3f} to {pairs['ratio'].max():.3f}; the typical one is {ratio.value:.3f}, "
        f"from {ratio.low:.3f} to {ratio.high:.3f}."
    )
    return Figure(chart, says, pairs, "pairs")


def page(trial: Trial) -> str:
    """The page as HTML."""
    table = pd.DataFrame(rows(trial), columns=["", "as it is", f"with {trial.aim.lever.name}"])
    drawn = standalone.figure(
        figure(trial) if trial.pairs else None,
        (
            "With the lever over without it, a point a pair, in the order of measuring. The line is the typical ratio, the band its interval; "
            "at the dashed line there is no difference."
        ),
    )
    return standalone.page(
        f"tlb try: {trial.aim.command[0]}",
        Markup(
            "<h1>{verdict}</h1><p><code>{command}</code>{driver}, with {does}.</p><p>{sentence}</p>{said}{figure}{table}"
        ).format(
            verdict=trial.verdict.capitalize(),
            command=shlex.join(trial.aim.command),
            driver=Markup(", driven by <code>{}</code>").format(
                shlex.join(trial.aim.driver.command)
            )
            if trial.aim.driver
            else "",
            does=trial.aim.lever.does,
            sentence=verdict_sentence(trial),
            said=standalone.paragraphs(remarks(trial)),
            figure=drawn,
            table=standalone.table(table),
        ),
    )
