"""The scorecard: each claim of the sources with what it predicts, what this machine shows, its
verdict, and those on other machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.overview import CHAPTERS
from experiments.overview.machine_verdicts import (
    ClaimVerdict,
    MachineVerdicts,
    chapter_name,
    judge_claims,
)
from tlb.report import analysis, page
from tlb.report.chapter import Chapter
from tlb.report.verdicts import (
    CSS_CLASS_BY_VERDICT,
    WRONG_BY_CHANCE,
    bounds_html,
    claims_of,
    statements,
)
from tlb.system.reasons import Unavailable

UNMEASURED = "not measured"
MEASURED_DIFFERENTLY = (
    "measured differently"  # by another version of the kernels than the verdict beside it
)
DECIDED = ("holds", "fails")
MACHINES_DISAGREE = "apart"  # a claim that holds on one machine and fails on another
CSS_CLASS_BY_WORD = {
    **CSS_CLASS_BY_VERDICT,
    UNMEASURED: "unmeasured",
    MEASURED_DIFFERENTLY: "unmeasured",
}


class Analysis(analysis.Analysis):
    """The verdicts on all claims, by machine. rows: one a claim, as the page shows them, in the
    order of the chapters.

    With machine "reference", each chapter's are those that its own page shows: of the next machine
    that has it, where the reference has none.
    """

    chapter = "scorecard"

    def __init__(self, chapter: Chapter):
        super().__init__(pd.DataFrame(), chapter)
        self.titles = {name: _title(name) for name in map(chapter_name, CHAPTERS)}
        # judging measures nothing
        self._chapter = replace(chapter, parameters=chapter.parameters | {"minutes": 0.0})

    @cached_property
    def published(self) -> dict[str, MachineVerdicts]:
        """By machine, of those in data/."""
        return {name: judge_claims(self._about(name)) for name in self._chapter.data.machines()}

    def _about(self, machine: str) -> Chapter:
        given = self._chapter.parameters | {"machine": machine}
        return replace(self._chapter, parameters=given, notes=[])

    @cached_property
    def own(self) -> MachineVerdicts | None:
        """Of the computer that builds the page, where it is about it."""
        return judge_claims(self._chapter) if self._chapter.is_this else None

    def machine_of(self, chapter: str) -> str:
        """Whose verdicts on a chapter's claims are shown."""
        if self._chapter.is_this:
            return self._chapter.machine
        asked = self._chapter.parameters["machine"]
        return self._chapter.data.resolve(asked, experiment=chapter)

    def verdict(self, chapter: str, id: str) -> ClaimVerdict | str:
        """As shown, or why there is none."""
        of = self._shown(chapter)
        if chapter in of.chapters:
            return of.chapters[chapter].get(id, UNMEASURED)
        return of.lacking.get(chapter, UNMEASURED)

    def _shown(self, chapter: str) -> MachineVerdicts:
        return self.own or self.published[self.machine_of(chapter)]

    @cached_property
    def others(self) -> dict[str, str]:
        """The machines beside the one that the page is about: what their columns are called."""
        names = {
            name: _label(self._about(name))
            for name in self.published
            if self.own or name != self._chapter.machine
        }
        often = Counter(names.values())
        return {name: label if often[label] == 1 else name for name, label in names.items()}

    def _word(self, machine: str, chapter: str, id: str) -> str:
        """Another machine's verdict; OTHERWISE where it is not to be set beside the one that is
        shown."""
        known = self.published[machine].chapters.get(chapter, {}).get(id)
        if known is None:
            return UNMEASURED
        is_alike = self.published[machine].measured_like(self.compared_with(chapter), chapter)
        return known.verdict if is_alike else MEASURED_DIFFERENTLY

    def compared_with(self, chapter: str) -> MachineVerdicts:
        """The verdicts on a chapter that others are set beside: those that are shown or, where
        there are none, the newest."""
        those = [of for of in self.published.values() if chapter in of.chapters]
        if chapter in (shown := self._shown(chapter)).chapters or not those:
            return shown
        return max(those, key=lambda of: of.newest_measures(chapter))

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Return a row a claim: chapter, id, verdict, reason, evidence, compared (markup:
        intervals, bands, why they leave it open), is_decided, by_interval, apart, deciding (how
        many machines decide it), and a column a machine of `others`, named by its id."""
        rows = []
        for module in CHAPTERS:
            chapter = chapter_name(module)
            for claim in claims_of(module.claims):
                rows.append({"chapter": chapter, "id": claim.id} | self._row(chapter, claim.id))
        return pd.DataFrame(rows)

    def _row(self, chapter: str, id: str) -> dict[str, Any]:
        here = self.verdict(chapter, id)
        words = {name: self._word(name, chapter, id) for name in self.others}
        row: dict[str, Any] = {
            "reason": "",
            "compared": "",
            "verdict": UNMEASURED,
            "evidence": here,
            "is_decided": False,
            "by_interval": False,
        }
        if isinstance(here, ClaimVerdict):
            row |= {
                "verdict": here.verdict,
                "reason": here.reason,
                "evidence": here.evidence,
                "compared": bounds_html(here.bounds, here.why),
                "is_decided": here.is_decided,
                "by_interval": bool(here.effects),
            }
        shown = None if self.own else self.machine_of(chapter)
        each = [row["verdict"], *(word for name, word in words.items() if name != shown)]
        deciding = sum(word in DECIDED for word in each)
        return row | {MACHINES_DISAGREE: {*DECIDED} <= {*each}, "deciding": deciding} | words

    def counts(self) -> dict[str, float]:
        """Return the numbers of claims that the page's text quotes, by name of ClaimsPage."""
        rows, kinds = self.rows, Counter(row.status for row in statements().values())
        words = rows["verdict"].value_counts()
        untestable = int(words.get("not testable here", 0))
        return {
            "claims": len(rows),
            "testable": len(rows) - untestable,
            "hold": int(words.get("holds", 0)),
            "fail": int(words.get("fails", 0)),
            "undecided": int(words.get("cannot tell", 0)),
            "untestable": untestable,
            "several": int((rows["deciding"] > 1).sum()),
            "disagree": int(rows[MACHINES_DISAGREE].sum()),
            "by_interval": int(rows["by_interval"].sum()),
            "decided": int(rows["is_decided"].sum()),
            "wrong_by_chance": float(rows["by_interval"].sum() * WRONG_BY_CHANCE),
            "statements": kinds.total(),
            "judged": kinds["judged"],
            "beyond": kinds["not testable"],
            "arithmetic": kinds["arithmetic"],
            "repeated": kinds["said again"],
        }


def _title(chapter: str) -> str:
    """The heading of a chapter's page."""
    return page.cells(chapter)[0].source.splitlines()[0].removeprefix("# ")


def _label(chapter: Chapter) -> str:
    """A machine by its processor's architecture; by its id where that is not known."""
    try:
        name = chapter.host.microarchitecture
    except (Unavailable, ValueError):
        return chapter.machine
    return chapter.machine if name == "unknown" else name
