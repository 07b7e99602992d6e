"""Claims: what a source says as a predicate on a chapter's Analysis, registered by id, judged, and shown with source and predicate."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from markupsafe import Markup, escape
from pybtex.database import parse_file
from pybtex.richtext import Text

from experiments.article.analysis import Analysis
from experiments.article.render import Html, highlighted, inline
from experiments.lab.record import Point
from experiments.system.files import ROOT
from experiments.words.prose import Bounded
from experiments.words.reasons import Unavailable, explain

BIBLIOGRAPHY = ROOT / "book" / "references.bib"
Answer = tuple[bool | None, str]  # truth, None where the interval spans the line; and the evidence in a sentence
Word = Literal["holds", "fails", "cannot tell"]


@dataclass(frozen=True)
class Claim:
    """A sentence of a source with its predicate. points: which points of a grid it compares; None where it measures nothing."""

    id: str
    source: str  # a key of book/references.bib
    says: str
    decide: Callable[..., Answer]
    points: Callable[[Point], bool] | None

    @property
    def place(self) -> str:
        """File and line of the predicate."""
        path = Path(inspect.getsourcefile(self.decide) or "")
        return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{inspect.getsourcelines(self.decide)[1]}"


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    verdict: Word
    evidence: str


REGISTRY: dict[str, Claim] = {}


def claim(id: str, *, source: str, says: str, points: Callable[[Point], bool] | None = None) -> Callable[[Callable], Callable]:
    """Registers a predicate: a function of an Analysis, and of its bands by keyword, that gives an `Answer` or raises Unavailable.

    Raises ValueError for an id that another function has.
    """
    def register(decide: Callable[..., Answer]) -> Callable[..., Answer]:
        known = REGISTRY.get(id)
        if known and (known.decide.__module__, known.decide.__qualname__) != (decide.__module__, decide.__qualname__):
            raise ValueError(f"{decide.__module__}: the claim {id!r} is already in {known.decide.__module__}; give it another id.")
        REGISTRY[id] = Claim(id, source, says, decide, points)
        return decide

    return register


def inside(interval: Bounded, least: float = -inf, most: float = inf) -> bool | None:
    """Whether an interval lies inside a claim's band, from `least` to `most`; None where it spans an end of the band."""
    if least <= interval.low and interval.high <= most:
        return True
    return False if interval.high < least or interval.low > most else None


def claims_of(module: ModuleType) -> list[Claim]:
    """The claims of a chapter, in the order in which it defines them."""
    return [claim for claim in REGISTRY.values() if claim.decide.__module__ == module.__name__]


def judge(claim: Claim, a: Analysis, **bands: Any) -> Verdict:
    """The verdict on a claim. bands: keywords of its predicate in place of its defaults."""
    try:
        truth, evidence = claim.decide(a, **bands)
    except Unavailable as why:
        return Verdict(claim, "cannot tell", explain(why.code, why.detail))
    return Verdict(claim, "cannot tell" if truth is None else "holds" if truth else "fails", evidence)


def verdicts(module: ModuleType, a: Analysis, **bands: dict[str, Any]) -> list[Verdict]:
    """Each claim of a chapter judged; bands: for the predicates named, keywords in place of their defaults."""
    return [judge(claim, a, **bands.get(claim.decide.__name__, {})) for claim in claims_of(module)]


@cache
def sources() -> dict[str, str]:
    """Each key of the bibliography, as a table names it: "Matthews (2022)"."""
    entries = parse_file(str(BIBLIOGRAPHY)).entries
    return {key: " ".join((*(str(Text.from_latex(" ".join(person.last_names))) for person in entry.persons.get("author", [])[:1]),
                           f"({entry.fields.get('year', 'undated')})")) for key, entry in entries.items()}


_CLASS = {"holds": "holds", "fails": "fails", "cannot tell": "unknown"}


def verdict_table(found: Sequence[Verdict]) -> Html:
    """Two rows a verdict: the claim with its source, the verdict, the evidence; and, to unfold, the predicate with its place."""
    rows = Markup("").join(
        Markup('<tr><td>{} <a class="tlb-source" href="references.html">{}</a></td>'
               '<td><span class="tlb-verdict tlb-verdict-{}">{}</span></td><td>{}</td></tr>'
               '<tr class="tlb-predicate"><td colspan="3">'
               '<details><summary>Predicate: <code>{}</code></summary>{}</details></td></tr>').format(
            inline(verdict.claim.says), sources().get(verdict.claim.source, verdict.claim.source), _CLASS[verdict.verdict],
            verdict.verdict, inline(verdict.evidence), verdict.claim.place, highlighted(inspect.getsource(verdict.claim.decide)))
        for verdict in found)
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(escape(name)) for name in ("Claim", "Verdict", "Evidence"))
    table = Markup('<div class="tlb-table"><table class="tlb-verdicts"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>')
    text = "\n".join(f"{verdict.verdict.upper()}: {verdict.claim.says} [{verdict.evidence}]" for verdict in found)
    return Html(str(table.format(head, rows)), text)
