"""Claims: what a source says as a predicate on a chapter's Analysis, registered by id, judged, and
shown with source and predicate.

The rule, for all of them: a predicate gives an effect with its interval and the band in which it
bears the claim out. The claim holds where the interval lies inside the band, fails where it lies
outside, and cannot be told where it spans an end or covers less than LEAST_COVERAGE, as that of
fewer than five processes does. What this computer cannot have (counters, a second node, bare metal
under a guest) makes a claim not testable here. `tlb bench` prints how often the rule is wrong, and
how often it decides.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

from markupsafe import Markup, escape

from tlb.inference.effects import Effect as Effect
from tlb.inference.effects import inside as inside
from tlb.inference.effects import too_few as too_few
from tlb.inference.effects import why_undecided as why_undecided
from tlb.inference.intervals import LEAST_COVERAGE as LEAST_COVERAGE
from tlb.lab.grid import Scope
from tlb.lab.record import Point
from tlb.reasons import Unavailable, Undecided, explain, required
from tlb.report.analysis import Analysis
from tlb.report.bibliography import sources
from tlb.report.compared import Bounds, compared
from tlb.report.obstacles import OBSTACLES, obstacle
from tlb.report.render import Html, highlighted, inline
from tlb.system.files import ROOT

STATEMENTS = ROOT / "data" / "literature" / "claims.csv"
# of all claims tested with an interval, decided or not, at most: held by tests/report/test_rule.py
WRONG_BY_CHANCE = 0.05
Band = tuple[float, float]
Compares = Callable[[Point, Scope], bool]  # whether a claim compares a point, on such a computer
Word = Literal["holds", "fails", "cannot tell", "not testable here"]


# An effect, or several that have to lie in their bands together; a bool where nothing was measured
# but words or arithmetic compared; Undecided where what was measured leaves the claim open for a
# reason that no interval shows.
Truth = Effect | Sequence[Effect] | bool | Undecided
Answer = tuple[Truth, str]  # and the evidence in a sentence


def decided(truth: Truth) -> bool | None:
    """Return True, False, or None for what cannot be told."""
    if isinstance(truth, bool):
        return truth
    if isinstance(truth, Undecided):
        return None
    effects = effects_of(truth)
    answers = [effect.decided(len(effects)) for effect in effects]
    return False if False in answers else None if None in answers else True


def effects_of(truth: Truth) -> tuple[Effect, ...]:
    """Return what a truth compares. Raises Unavailable("too-few-points") for an empty list,
    TypeError for anything but a Truth."""
    if isinstance(truth, bool | Undecided):
        return ()
    if isinstance(truth, Effect):
        return (truth,)
    if not isinstance(truth, Sequence) or not all(isinstance(effect, Effect) for effect in truth):
        raise TypeError(f"A predicate gives effects, a bool or Undecided, not {truth!r}.")
    return tuple(required(truth, "nothing was compared"))


class Statement(NamedTuple):
    """A testable sentence of a source: a row of data/literature/claims.csv, whose columns
    data/literature/README.md explains."""

    id: str
    source: str  # a key of book/references.bib
    place: str
    quote: str
    quantity: str
    low: str
    high: str
    unit: str
    loop: str
    pages: str
    working_set: str
    obstacles: str  # codes of obstacles.CHECKS, space-separated
    status: Literal["judged", "arithmetic", "said again", "not testable"]
    where: str  # the chapter; of what is said again, the id that it repeats
    note: str

    @property
    def band(self) -> Band:
        """What would bear the sentence out, in `unit`; infinite where it is open."""
        return float(self.low or -inf), float(self.high or inf)


@cache
def statements() -> dict[str, Statement]:
    """By id, in the order of the sources."""
    with STATEMENTS.open(encoding="utf-8", newline="") as lines:
        return {row["id"]: Statement(**row) for row in csv.DictReader(lines)}


@dataclass(frozen=True)
class Claim:
    """A sentence of a source with its predicate. points: which points of a grid it compares; None
    where it measures nothing."""

    id: str
    source: str  # a key of book/references.bib
    says: str
    decide: Callable[..., Answer]
    points: Compares | None

    @property
    def place(self) -> str:
        """File and line of the predicate."""
        path = Path(inspect.getsourcefile(self.decide) or "")
        return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{inspect.getsourcelines(self.decide)[1]}"


@dataclass(frozen=True)
class Verdict:
    """reason: why it cannot be told, as a code of UNDECIDED or REASONS. why: the same as a
    sentence; empty where the evidence is it."""

    claim: Claim
    verdict: Word
    evidence: str
    effects: tuple[Effect, ...] = ()
    reason: str = ""
    why: str = ""

    @property
    def bounds(self) -> list[Bounds]:
        """What was compared, interval by interval."""
        return [
            Bounds(effect.interval.low, effect.interval.high, effect.least, effect.most)
            for effect in self.effects
        ]


REGISTRY: dict[str, Claim] = {}


def claim(
    id: str, *, source: str = "", says: str = "", points: Compares | None = None
) -> Callable[[Callable], Callable]:
    """Registers a predicate: a function of an Analysis, and of its bands by keyword, that gives an
    `Answer` or raises Unavailable.

    source, says: by default as claims.csv has them, whose band a predicate is given that has a
    parameter `band`. points: which points of a grid, and of a computer, it compares. Raises
    ValueError for an id that another function has, or of which nothing is known.
    """

    def register(decide: Callable[..., Answer]) -> Callable[..., Answer]:
        known, statement = REGISTRY.get(id), statements().get(id)
        if known and (known.decide.__module__, known.decide.__qualname__) != (
            decide.__module__,
            decide.__qualname__,
        ):
            raise ValueError(
                f"{decide.__module__}: the claim {id!r} is already in {known.decide.__module__}; give it another id."
            )
        if not statement and not (source and says):
            raise ValueError(
                f"{decide.__module__}: the claim {id!r} has no row in {STATEMENTS.name}; add one, or say source and words."
            )
        REGISTRY[id] = Claim(
            id, source or statement.source, says or f"“{statement.quote}”", decide, points
        )
        return decide

    return register


def claims_of(module: ModuleType) -> list[Claim]:
    """The claims of a chapter, in the order in which it defines them."""
    return [claim for claim in REGISTRY.values() if claim.decide.__module__ == module.__name__]


def judge(claim: Claim, a: Analysis, **bands: Any) -> Verdict:
    """Return the verdict on a claim. bands: keywords of its predicate in place of its defaults.

    An obstacle that claims.csv names and this machine has makes the claim not testable here before
    its predicate runs.
    """
    statement = statements().get(claim.id)
    if statement and (found := obstacle(a, statement.obstacles)):
        return _unavailable(claim, found)
    if "band" in inspect.signature(claim.decide).parameters:
        bands = {"band": statements()[claim.id].band} | bands
    try:
        truth, evidence = claim.decide(a, **bands)
        effects = effects_of(truth)
    except Unavailable as why:
        return _unavailable(claim, why)
    if (
        effects and a.host.is_emulated
    ):  # a source's sentence is about processors, and what was timed is a program
        return Verdict(claim, "not testable here", explain("emulated", evidence.rstrip(".")))
    if (answer := decided(truth)) is None:
        open_for = truth if isinstance(truth, Undecided) else why_undecided(effects)
        return Verdict(claim, "cannot tell", evidence, effects, open_for.code, open_for.text)
    return Verdict(claim, "holds" if answer else "fails", evidence, effects)


def _unavailable(claim: Claim, why: Unavailable) -> Verdict:
    if why.code in OBSTACLES:
        return Verdict(claim, "not testable here", str(why))
    return Verdict(claim, "cannot tell", str(why), reason=why.code)


def verdicts(module: ModuleType, a: Analysis, **bands: dict[str, Any]) -> list[Verdict]:
    """Each claim of a chapter judged; bands: for the predicates named, keywords in place of their
    defaults."""
    return [judge(claim, a, **bands.get(claim.decide.__name__, {})) for claim in claims_of(module)]


def elsewhere(chapter: str) -> list[Statement]:
    """The sentences about a chapter's subject that no measurement here decides."""
    return [
        statement
        for statement in statements().values()
        if statement.where == chapter and statement.status == "not testable"
    ]


# By verdict, of the page's style.
CLASSES: dict[Word, str] = {
    "holds": "holds",
    "fails": "fails",
    "cannot tell": "unknown",
    "not testable here": "untestable",
}


def anchor(id: str) -> str:
    """Where on its chapter's page a sentence of a source stands."""
    return f"claim-{id}"


def mark(word: str, css: str, reason: str = "") -> Markup:
    """Return a verdict's word in its colour, with the code of why it is undecided as an attribute."""
    attribute = Markup(' data-reason="{}"').format(reason) if reason else ""
    return Markup('<span class="tlb-verdict tlb-verdict-{}"{}>{}</span>').format(
        css, attribute, word
    )


def beside(bounds: Sequence[Bounds], why: str) -> Markup:
    """Return what stands below a verdict's evidence: its intervals and bands, and why they leave it
    open."""
    said = Markup(" ").join(
        filter(None, [compared(bounds), escape(f"Not decided: {why}" if why else "")])
    )
    return Markup(' <small class="tlb-compared">{}</small>').format(said) if said else Markup("")


def verdict_table(found: Sequence[Verdict], beyond: Sequence[Statement] = ()) -> Html:
    """Return two rows a verdict: the claim with its source, the verdict, the evidence with what it
    compares; and, to unfold, the predicate with its place. Below, how many verdicts may be wrong by
    chance; and, to unfold, what no measurement here decides."""
    rows = Markup("").join(
        Markup(
            '<tr id="{}"><td>{} <a class="tlb-source" href="references.html">{}</a></td>'
            "<td>{}</td><td>{}{}</td></tr>"
            '<tr class="tlb-predicate"><td colspan="3">'
            "<details><summary>Predicate: <code>{}</code></summary>{}</details></td></tr>"
        ).format(
            anchor(verdict.claim.id),
            inline(verdict.claim.says),
            sources().get(verdict.claim.source, verdict.claim.source),
            mark(verdict.verdict, CLASSES[verdict.verdict], verdict.reason),
            inline(verdict.evidence),
            beside(verdict.bounds, verdict.why),
            verdict.claim.place,
            highlighted(inspect.getsource(verdict.claim.decide)),
        )
        for verdict in found
    )
    head = Markup("").join(
        Markup('<th scope="col">{}</th>').format(escape(name))
        for name in ("Claim", "Verdict", "Evidence")
    )
    table = Markup(
        '<div class="tlb-table"><table class="tlb-verdicts"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    )
    text = "\n".join(
        f"{verdict.verdict.upper()}: {verdict.claim.says} [{verdict.evidence}]"
        f"{beside(verdict.bounds, verdict.why).striptags()}"
        for verdict in found
    )
    return Html(str(table.format(head, rows)), text) + _chance(found) + _beyond(beyond)


def chance_words(tested: int) -> str:
    """Return how many of so many claims tested with an interval may be decided wrongly."""
    return (
        f"The rule decides wrongly in at most {WRONG_BY_CHANCE:.0%} of tests, so at most {tested * WRONG_BY_CHANCE:.1f} of these "
        f"{tested} verdicts are expected to be wrong by chance."
    )


def _chance(found: Sequence[Verdict]) -> Html:
    tested = sum(bool(verdict.effects) for verdict in found)
    said = (
        f"{tested} of these {len(found)} claims were tested with an interval. {chance_words(tested)}"
        if tested
        else ""
    )
    return Html(f'<p class="tlb-chance">{escape(said)}</p>' if said else "", said)


def _beyond(beyond: Sequence[Statement]) -> Html:
    """What the source says besides and nothing here can decide."""
    if not beyond:
        return Html("", "")
    items = Markup("").join(
        Markup(
            '<li id="{}">“{}” <a class="tlb-source" href="references.html">{}</a>: {}</li>'
        ).format(
            anchor(statement.id),
            inline(statement.quote),
            sources().get(statement.source, statement.source),
            inline(statement.note),
        )
        for statement in beyond
    )
    summary = f"Not testable here: {len(beyond)} more"
    return Html(
        str(
            Markup('<details class="tlb-beyond"><summary>{}</summary><ul>{}</ul></details>').format(
                summary, items
            )
        ),
        "\n".join([summary, *(f"{statement.quote}: {statement.note}" for statement in beyond)]),
    )
