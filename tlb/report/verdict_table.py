"""Verdicts as HTML: a table of claims with source, verdict, evidence and predicate."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from markupsafe import Markup, escape

from tlb.report.bibliography import sources
from tlb.report.compared import Bounds, compared
from tlb.report.render import Html, highlighted, inline, join
from tlb.report.verdicts import WRONG_BY_CHANCE, Statement, Verdict

# The style's class of each verdict.
CLASSES: dict[str, str] = {
    "holds": "holds",
    "fails": "fails",
    "cannot tell": "unknown",
    "not testable here": "untestable",
}
_TABLE = (
    '<div class="tlb-table"><table class="tlb-verdicts"><thead><tr><th scope="col">Claim</th>'
    '<th scope="col">Verdict</th><th scope="col">Evidence</th></tr></thead>'
    "<tbody>{}</tbody></table></div>"
)
_SOURCE = '<a class="tlb-source" href="references.html">{}</a>'
_ROW = (
    f'<tr id="{{}}"><td>{{}} {_SOURCE}</td><td>{{}}</td><td>{{}}{{}}</td></tr>'
    '<tr class="tlb-predicate"><td colspan="3"><details><summary>Predicate: <code>{}</code>'
    "</summary>{}</details></td></tr>"
)
_BEYOND = '<details class="tlb-beyond"><summary>{}</summary><ul>{}</ul></details>'


def anchor(id: str) -> str:
    """Return the id of a claim on its chapter's page."""
    return f"claim-{id}"


def mark(word: str, css: str, reason: str = "") -> Markup:
    """Return a verdict in its colour, with the code of why it is undecided as an attribute."""
    attribute = Markup(' data-reason="{}"').format(reason) if reason else ""
    span = Markup('<span class="tlb-verdict tlb-verdict-{}"{}>{}</span>')
    return span.format(css, attribute, word)


def beside(bounds: Sequence[Bounds], why: str) -> Markup:
    """Return the intervals and bands of a verdict, and why they leave it undecided."""
    parts = filter(None, [compared(bounds), escape(f"Not decided: {why}" if why else "")])
    text = Markup(" ").join(parts)
    return Markup(' <small class="tlb-compared">{}</small>').format(text) if text else Markup("")


def verdict_table(found: Sequence[Verdict], beyond: Sequence[Statement] = ()) -> Html:
    """Return a row and a folded predicate for each verdict; how many may be wrong by chance; and,
    folded, the statements beyond any measurement here."""
    rows = [
        (
            anchor(verdict.claim.id),
            inline(verdict.claim.says),
            _source(verdict.claim.source),
            mark(verdict.verdict, CLASSES[verdict.verdict], verdict.reason),
            inline(verdict.evidence),
            beside(verdict.bounds, verdict.why),
            verdict.claim.place,
            highlighted(inspect.getsource(verdict.claim.decide)),
        )
        for verdict in found
    ]
    text = "\n".join(
        f"{verdict.verdict.upper()}: {verdict.claim.says} [{verdict.evidence}]"
        f"{beside(verdict.bounds, verdict.why).striptags()}"
        for verdict in found
    )
    table = Html(str(Markup(_TABLE).format(join(_ROW, rows))), text)
    return table + _chance(found) + _beyond(beyond)


def _source(key: str) -> str:
    return sources().get(key, key)


def chance_words(tested: int) -> str:
    """Say how many of so many claims tested with an interval may be decided wrongly."""
    return (
        f"The rule decides at most {WRONG_BY_CHANCE:.0%} of such claims wrongly, so on average at "
        f"most {tested * WRONG_BY_CHANCE:.1f} verdicts here are wrong by chance."
    )


def _chance(found: Sequence[Verdict]) -> Html:
    tested = sum(bool(verdict.effects) for verdict in found)
    if not tested:
        return Html("", "")
    number = f"{tested} of these {len(found)} claims"
    if tested == len(found):
        number = f"All {tested} of these claims" if tested > 1 else "This claim"
    words = (
        f"{number} {'is' if tested == 1 else 'are'} judged by an interval. {chance_words(tested)}"
    )
    return Html(f'<p class="tlb-chance">{escape(words)}</p>', words)


def _beyond(beyond: Sequence[Statement]) -> Html:
    if not beyond:
        return Html("", "")
    items = [
        (anchor(one.id), inline(one.quote), _source(one.source), inline(one.note)) for one in beyond
    ]
    summary = f"Not testable here: {len(beyond)} more"
    listed = join(f'<li id="{{}}">“{{}}” {_SOURCE}: {{}}</li>', items)
    text = "\n".join([summary, *(f"{one.quote}: {one.note}" for one in beyond)])
    return Html(str(Markup(_BEYOND).format(summary, listed)), text)
