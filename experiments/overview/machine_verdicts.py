"""All claims judged on a machine by its rows, which takes about five seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite
from types import ModuleType

import pandas as pd

from experiments import your_program
from experiments.overview import CHAPTERS
from tlb.report import analysis
from tlb.report.chapter import Chapter
from tlb.report.verdicts import Bounds, Effect, Verdict, VerdictWord, verdicts
from tlb.system.reasons import Unavailable
from tlb.system.units import digits_apart, significant

_DIGITS = 6  # what is beyond them depends on the CPU that judged


@dataclass(frozen=True)
class RoundedEffect:
    """An effect: an estimate between its bounds, and the band that it has to lie in; None for an
    end that is open."""

    value: float | None
    low: float | None
    high: float | None
    least: float | None
    most: float | None

    @classmethod
    def of(cls, effect: Effect) -> RoundedEffect:
        """Round to the digits that are the same on all CPUs; to more where an end would touch its
        band."""
        value, low, high = effect.interval.value_and_bounds
        digits = digits_apart((low, high), (effect.least, effect.most), _DIGITS)
        ends = (
            float(significant(end, digits).replace(",", "")) if isfinite(end) else None
            for end in (value, low, high, effect.least, effect.most)
        )
        return cls(*ends)

    @property
    def bounds(self) -> Bounds:
        low, least = (-inf if end is None else end for end in (self.low, self.least))
        high, most = (inf if end is None else end for end in (self.high, self.most))
        return Bounds(low, high, least, most)


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on one claim. reason, why: as of a Verdict."""

    verdict: VerdictWord
    evidence: str
    effects: tuple[RoundedEffect, ...] = ()
    reason: str = ""
    why: str = ""

    @classmethod
    def of(cls, verdict: Verdict) -> ClaimVerdict:
        effects = tuple(map(RoundedEffect.of, verdict.effects))
        return cls(verdict.verdict, verdict.evidence, effects, verdict.reason, verdict.why)

    @property
    def bounds(self) -> list[Bounds]:
        return [effect.bounds for effect in self.effects]

    @property
    def is_decided(self) -> bool:
        """Return whether an interval decides it: few of such verdicts are wrong by chance."""
        return bool(self.effects) and self.verdict in ("holds", "fails")


@dataclass(frozen=True)
class MachineVerdicts:
    """The verdicts on one machine. chapters: by name, its claims by id. lacking: by name, why
    nothing of a chapter is judged. measures: by chapter, the newest version of each kernel that
    measured its rows; a chapter that is not there has the first."""

    chapters: dict[str, dict[str, ClaimVerdict]] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)
    measures: dict[str, dict[str, int]] = field(default_factory=dict)

    def newest_measures(self, chapter: str) -> int:
        return max(self.measures.get(chapter, {}).values(), default=1)

    def measured_like(self, other: MachineVerdicts, chapter: str) -> bool:
        """Return whether both judge a chapter by rows of the same versions of the kernels that both
        have rows of."""
        mine, theirs = (side.measures.get(chapter, {}) for side in (self, other))
        if mine and theirs:
            return all(mine[kernel] == theirs[kernel] for kernel in mine.keys() & theirs.keys())
        return self.newest_measures(chapter) == other.newest_measures(chapter)


def chapter_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def chapter_analysis(module: ModuleType, chapter: Chapter) -> analysis.Analysis:
    """Return a chapter's Analysis of the rows that there are, as its own page has it. Raises
    Unavailable where there are none."""
    if module is your_program:  # a document
        return module.Analysis(pd.DataFrame(), chapter)
    rows = chapter.measure(module.grid.points(chapter.scope), chapter_name(module))
    return module.Analysis(rows, chapter)


def judge_claims(chapter: Chapter) -> MachineVerdicts:
    """Return the verdicts on all claims by a machine's rows, and the reason for each chapter
    without rows. Nothing is measured."""
    made = MachineVerdicts()
    try:
        chapter.host  # noqa: B018  # read now
    except ValueError:
        why = Unavailable("no-data", f"{chapter.machine} has a description of another version")
        return MachineVerdicts(lacking=dict.fromkeys(map(chapter_name, CHAPTERS), str(why)))
    for module in CHAPTERS:
        name = chapter_name(module)
        try:
            found = verdicts(module.claims, a := chapter_analysis(module, chapter))
        except Unavailable as why:
            made.lacking[name] = str(why)
            continue
        made.chapters[name] = {verdict.claim.id: ClaimVerdict.of(verdict) for verdict in found}
        if newer := _measures(a):
            made.measures[name] = newer
    return made


def _measures(a: analysis.Analysis) -> dict[str, int]:
    """Return the newest version of each kernel that measured a chapter's rows; {} if all are the
    first."""
    found = a.frame.groupby("kernel")["measures"].max().to_dict() if len(a.frame) else {}
    versions = {str(kernel): int(version) for kernel, version in found.items()}
    return versions if max(versions.values(), default=1) > 1 else {}
