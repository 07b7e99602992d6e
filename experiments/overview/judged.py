"""All claims judged on a machine, kept beside its rows as data/<machine>/verdicts.json: to judge
them anew takes ten seconds a machine.

The document names the rows and the code that it was made from, and what it says of other rows
nobody is shown: it is made again. Of this computer's own it is made again after a change of code,
too. Of a published machine `tlb publish` and `tlb refresh scorecard` do that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from math import inf, isfinite
from pathlib import Path
from types import ModuleType
from typing import Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from experiments import your_machine, your_program
from experiments.overview import CHAPTERS
from tlb.lab import survey
from tlb.lab.store import Store, data_root
from tlb.machine import host as hosts
from tlb.reasons import Unavailable, if_available
from tlb.report import analysis, parameters
from tlb.report.chapter import Chapter
from tlb.report.compared import Bounds
from tlb.report.verdicts import Effect, Verdict, Word, statements, verdicts
from tlb.system.files import ROOT
from tlb.units import digits_apart, significant

NAME = "verdicts"
PAGE = "scorecard"
DERIVED = frozenset({NAME, "translation"})  # documents of data/ that are made from the others
# What a verdict follows from, in experiments/; of a chapter, not how it is drawn and told.
_CODE = (
    "tlb/reasons.py",
    "tlb/units.py",
    "tlb/page_sizes.py",
    "tlb/machine",
    "tlb/inference",
    "tlb/lab",
    "tlb/report/analysis.py",
    "tlb/report/obstacles.py",
    "tlb/report/verdicts.py",
    "experiments",
)
_DIGITS = 6  # what is beyond them depends on the CPU that judged
_SHOWN = {"figures.py", "tables.py"}


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Shown(Document):
    """An effect: an estimate between its bounds, and the band that it has to lie in; None for an
    end that is open."""

    value: float | None
    low: float | None
    high: float | None
    least: float | None
    most: float | None

    @classmethod
    def of(cls, effect: Effect) -> Shown:
        """Round to the digits that are the same on all CPUs; to more where an end would touch its
        band."""
        value, low, high = effect.interval[:3]
        digits = digits_apart((low, high), (effect.least, effect.most), _DIGITS)
        ends = {"value": value, "low": low, "high": high}
        ends |= {"least": effect.least, "most": effect.most}
        kept = {name: end for name, end in ends.items() if isfinite(end)}
        rounded = {n: float(significant(end, digits).replace(",", "")) for n, end in kept.items()}
        return cls(**dict.fromkeys(ends) | rounded)

    @property
    def bounds(self) -> Bounds:
        low, least = (-inf if end is None else end for end in (self.low, self.least))
        high, most = (inf if end is None else end for end in (self.high, self.most))
        return Bounds(low, high, least, most)


class Judged(Document):
    """reason, why: as of a Verdict."""

    verdict: Word
    evidence: str
    effects: tuple[Shown, ...] = ()
    reason: str = ""
    why: str = ""

    @model_validator(mode="after")
    def _says_why(self) -> Judged:
        if (self.verdict == "cannot tell") != bool(self.reason):
            raise ValueError("an undecided verdict has a reason, and no other has one")
        return self

    @classmethod
    def of(cls, verdict: Verdict) -> Judged:
        return cls(
            verdict=verdict.verdict,
            evidence=verdict.evidence,
            effects=tuple(map(Shown.of, verdict.effects)),
            reason=verdict.reason,
            why=verdict.why,
        )

    @property
    def bounds(self) -> list[Bounds]:
        return [effect.bounds for effect in self.effects]

    @property
    def is_decided(self) -> bool:
        """By an interval: of such, few are wrong by chance."""
        return bool(self.effects) and self.verdict in ("holds", "fails")


class Verdicts(Document):
    """data/<machine>/verdicts.json. data, code: digests of what it was made from. chapters: by
    name, its claims by id. lacking: by name, why nothing of a chapter is judged. measures: by
    chapter, which version of each kernel measured its rows; of a chapter that is not there the
    first."""

    version: Literal[1] = 1
    data: str
    code: str
    chapters: dict[str, dict[str, Judged]]
    lacking: dict[str, str]
    measures: dict[str, dict[str, int]] = {}

    def newest_measures(self, chapter: str) -> int:
        return max(self.measures.get(chapter, {}).values(), default=1)

    def measured_like(self, other: Verdicts, chapter: str) -> bool:
        """Whether both judge a chapter by rows of the same versions of the kernels that both have
        rows of."""
        mine, theirs = (side.measures.get(chapter, {}) for side in (self, other))
        if mine and theirs:
            return all(mine[kernel] == theirs[kernel] for kernel in mine.keys() & theirs.keys())
        return self.newest_measures(chapter) == other.newest_measures(chapter)


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def analysis_of(module: ModuleType, chapter: Chapter) -> analysis.Analysis:
    """A chapter's Analysis of the rows that there are, as its own page has it. Raises Unavailable
    where there are none."""
    if module is your_program:  # a document
        return module.Analysis(pd.DataFrame(), chapter)
    if module is your_machine:
        return module.Analysis(lambda: chapter.kept(survey.NAME), chapter)
    return module.Analysis(
        chapter.measure(module.grid.points(chapter.scope), name_of(module)), chapter
    )


def judged(chapter: Chapter) -> Verdicts:
    """The verdicts on all claims by a machine's rows, read where they were judged already. Nothing
    is measured."""
    sides = {"data": digest(chapter), "code": code_digest(chapter.parameters)}
    known = if_available(_read, chapter.store, chapter.machine)
    if (
        known
        and known.data == sides["data"]
        and (known.code == sides["code"] or not chapter.is_this)
    ):
        return known
    made = judge(chapter, CHAPTERS, **sides)
    if chapter.is_this:
        if_available(write, chapter.store, chapter.machine, made)
    return made


def judge(
    chapter: Chapter, modules: Iterable[ModuleType], data: str = "", code: str = ""
) -> Verdicts:
    """The claims of these chapters judged now; why not, for a chapter without rows."""
    told: dict[str, dict[str, Judged]] = {}
    lacking: dict[str, str] = {}
    measures: dict[str, dict[str, int]] = {}
    try:
        chapter.host  # noqa: B018  # read now
    except ValueError:
        why = Unavailable("no-data", f"{chapter.machine} has a description of another version")
        return Verdicts(
            data=data,
            code=code,
            chapters={},
            lacking=dict.fromkeys(map(name_of, modules), str(why)),
        )
    for module in modules:
        try:
            found = verdicts(module.claims, a := analysis_of(module, chapter))
        except Unavailable as why:
            lacking[name_of(module)] = str(why)
        else:
            told[name_of(module)] = {verdict.claim.id: Judged.of(verdict) for verdict in found}
            if newer := _measures(a):
                measures[name_of(module)] = newer
    return Verdicts(data=data, code=code, chapters=told, lacking=lacking, measures=measures)


def _measures(a: analysis.Analysis) -> dict[str, int]:
    """Which version of each kernel measured a chapter's rows; nothing where all are of the
    first."""
    found = a.frame.groupby("kernel")["measures"].max().to_dict() if len(a.frame) else {}
    return (
        {str(kernel): int(version) for kernel, version in found.items()}
        if max(found.values(), default=1) > 1
        else {}
    )


def write(store: Store, machine: str, made: Verdicts) -> None:
    store.write_document(
        machine,
        NAME,
        made.model_dump(mode="json", exclude=set() if made.measures else {"measures"}),
    )


def _read(store: Store, machine: str) -> Verdicts:
    try:
        return Verdicts.model_validate(store.read_document(machine, NAME))
    except ValidationError:
        raise Unavailable("no-data", f"{NAME}.json of {machine} is of another version") from None


def refresh() -> list[str]:
    """Judge anew the published machines whose verdicts are of other rows or of other code; which
    ones."""
    data = Store(data_root())
    given = parameters.check(PAGE, {"minutes": 0.0})
    anew = []
    for machine in data.machines():
        chapter = Chapter(PAGE, given | {"machine": machine}, data)
        sides = {"data": digest(chapter), "code": code_digest(given)}
        known = if_available(_read, data, machine)
        if not known or (known.data, known.code) != (*sides.values(),):
            write(data, machine, judge(chapter, CHAPTERS, **sides))
            anew.append(machine)
    return anew


def digest(chapter: Chapter) -> str:
    """Return a digest of a machine's rows and documents, of those of the reference machines, which
    stand in for what it lacks, and of the claims' bands and obstacles."""
    bands = [
        (row.id, row.where, row.low, row.high, row.obstacles)
        for row in statements().values()
        if row.status == "judged"
    ]
    reference = [
        machine for machine in chapter.data.machines() if machine in _references(chapter.data)
    ]
    sides = [
        rows_digest(chapter.store, chapter.machine),
        *(rows_digest(chapter.data, machine) for machine in reference),
        *([hosts.state(chapter.host)] if chapter.is_this else []),
    ]
    return _digest((), repr((bands, sides)))


def rows_digest(store: Store, machine: str) -> str:
    """Of a machine's rows and documents, but of those that are made from the others; and, of what
    was measured here, of its description, which each run writes anew with the load of the minute.
    """
    is_own = store.root.name == "own"
    files = [
        path
        for path in sorted((store.root / machine).glob("*.json*"))
        if path.stem not in DERIVED and path.is_file()
    ]
    return _digest((path for path in files if not (is_own and path.name.startswith("machine"))), "")


def _references(data: Store) -> list[str]:
    try:
        return (data.root / "reference").read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def code_digest(given: Mapping[str, object]) -> str:
    """Of the code that judges, and of what a run was asked to look at."""
    return _digest(
        _code(), repr(sorted((name, given[name]) for name in given.keys() - {"machine", "minutes"}))
    )


@cache
def _code() -> tuple[Path, ...]:
    rooms = [ROOT / name for name in _CODE]
    files = [
        path
        for room in rooms
        for path in ([room] if room.is_file() else sorted(room.rglob("*.py")))
    ]
    return tuple(path for path in files if path.name not in _SHOWN)


def _digest(files: Iterable[Path], more: str) -> str:
    whole = hashlib.sha256(more.encode())
    for path in files:
        whole.update(
            f"\n{path.parent.name}/{path.name}\n".encode()
            + hashlib.sha256(path.read_bytes()).digest()
        )
    return whole.hexdigest()[:16]
