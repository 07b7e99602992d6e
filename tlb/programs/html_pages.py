"""Write what `tlb try` and `tlb where` found as pages in the book's style, with a chart each. They
load nothing and run nothing."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import cycle

import altair as alt
import pandas as pd
from markupsafe import Markup

from tlb.programs.trial import Trial
from tlb.programs.trial_report import trial_remarks, trial_table_rows, verdict_sentence
from tlb.programs.where.report import WhereReport
from tlb.report import standalone
from tlb.report.render import MUTED_COLOUR, PALETTE, Figure, join_html
from tlb.system.units import format_size

_HEIGHT_PX = 220
_PAIRS_CAPTION = (
    "With the lever over without it, one point a pair, in the order of measuring. The line is the "
    "typical ratio, the band its interval; at the dashed line there is no difference."
)
_BODY = Markup(
    "<h1>{verdict}</h1><p><code>{command}</code>{driver}, with {does}{against}.</p><p>{sentence}</p>"
    "{remarks}{figure}{table}"
)


def trial_figure(trial: Trial) -> Figure:
    """Return a chart of each pair's ratio, over the typical one with its interval."""
    ratio = trial.ratio()
    pairs = pd.DataFrame({"without": trial.values(False), "with": trial.values(True)})
    pairs["ratio"], pairs["pair"] = pairs["with"] / pairs["without"], pairs.index + 1
    y = alt.Y("ratio:Q", title="with over without", scale=alt.Scale(zero=False))
    band = pd.DataFrame({"low": [ratio.low], "high": [ratio.high], "ratio": [ratio.value]})
    interval = alt.Chart(band).mark_rect(opacity=0.2, color=PALETTE[0])
    equal = alt.Chart(pd.DataFrame({"ratio": [1.0]})).mark_rule(
        strokeDash=[4, 4], color=MUTED_COLOUR
    )
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


def trial_page(trial: Trial) -> str:
    """Return the page as HTML."""
    aim = trial.aim
    table = pd.DataFrame(trial_table_rows(trial), columns=["", *aim.sides])
    driven = Markup(", driven by <code>{}</code>")
    body = _BODY.format(
        verdict=trial.verdict.capitalize(),
        command=shlex.join(aim.command),
        driver=driven.format(shlex.join(aim.driver.command)) if aim.driver else "",
        does=aim.lever.does,
        against="" if aim.against.name == "none" else f", against {aim.against.does}",
        sentence=verdict_sentence(trial),
        remarks=standalone.paragraphs(trial_remarks(trial)),
        figure=standalone.figure(trial_figure(trial) if trial.pairs else None, _PAIRS_CAPTION),
        table=standalone.table(table),
    )
    return standalone.page(f"tlb try: {aim.command[0]}", body)


# --- what tlb where found, with a flame graph of the exposed walks

_WIDTH, _ROW = 720, 22  # px
_CAPTION = (
    "Exposed walks by the memory they lead to (bottom), the function and the line of code (top). "
    "Point at a box for its number."
)
# An inner svg cuts off a label that is wider than its box.
_BOX = (
    '<svg x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title>'
    '<rect width="100%" height="100%" fill="{}" fill-opacity="0.35" stroke="currentColor" '
    'stroke-opacity="0.3"/><text x="4" y="15" fill="currentColor" font-size="11">{}</text></svg>'
)


def flame_graph(walks: Counter[tuple[str, str, str]]) -> Markup:
    """Return an SVG with a box for each beginning of a stack, as wide as its walks; nothing without
    any."""
    total, height = sum(walks.values()), 3 * _ROW
    if not total:
        return Markup("")
    colors = dict(zip(sorted({memory for memory, *_ in walks}), cycle(PALETTE), strict=False))
    boxes = list[tuple[object, ...]]()
    for depth in range(1, 4):
        merged, x = Counter[tuple[str, ...]](), 0.0
        for stack, number in sorted(walks.items()):
            merged[stack[:depth]] += number
        for frames, number in merged.items():
            width, y = _WIDTH * number / total, height - depth * _ROW
            title = f"{frames[-1]}: {number:,} exposed walks, {number / total:.1%}"
            boxes.append((x, y, width, _ROW - 1, title, colors[frames[0]], frames[-1]))
            x += width
    return Markup(
        '<figure><svg viewBox="0 0 {} {}" width="100%" role="img" aria-label="Flame graph">{}</svg>'
        "<figcaption>{}</figcaption></figure>"
    ).format(_WIDTH, height, join_html(_BOX, boxes), _CAPTION)


def where_page(made: WhereReport) -> str:
    """Return the page as HTML."""
    verdict, *sentences = made.sentences()
    tables = made.tables()
    if made.geometry and made.found.curve:
        page_bytes = made.geometry.page_bytes
        curve: list[tuple[str, ...]] = [
            (f"{entries:,}", format_size(entries * page_bytes), f"{walks:,}")
            for entries, walks in sorted(made.found.curve.items())
        ]
        head = "entries", "reach on base pages", "walks"
        tables["Second levels of other sizes (LRU, without sets)"] = head, curve
    shown = [
        (heading, standalone.table(pd.DataFrame(rows, columns=head)))
        for heading, (head, rows) in tables.items()
    ]
    body = join_html("<h1>{}</h1><p><code>{}</code></p>", [(verdict, shlex.join(made.command))])
    body += standalone.paragraphs(sentences) + join_html("<pre>{}</pre>", made.commands())
    body += flame_graph(made.found.stacks()) + join_html("<h2>{}</h2>{}", shown)
    return standalone.page(f"tlb where: {made.command[0]}", body)
