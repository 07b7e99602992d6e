"""All claims judged on a machine, kept beside its rows as data/<machine>/verdicts.json: to judge
them anew takes ten seconds a machine.

The document names the digests of the rows and of the code that it was made from. It is made again
for other rows and, about this computer, for other code. For a published machine `tlb publish` and
`tlb refresh scorecard` do that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from math import inf, isfinite
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from experiments import your_machine, your_program
from experiments.overview import CHAPTERS
from tlb.machine import host as hosts
from tlb.measure import survey
from tlb.measure.row_database import FILE, RowDatabase
from tlb.measure.store import PUBLISHED, Store, data_root
from tlb.report import analysis, parameters
from tlb.report.chapter import Chapter
from tlb.report.verdicts import Bounds, Effect, Verdict, VerdictWord, statements, verdicts
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable, if_available
from tlb.system.units import digits_apart, significant

NAME = "verdicts"
PAGE = "scorecard"
DERIVED = frozenset(
    {NAME, "translation", "quantities"}
)  # documents of data/ that are made from the others
# What a verdict follows from, in experiments/; of a chapter, not how it is drawn and told.
_CODE = (
    "tlb/system/reasons.py",
    "tlb/system/reasons.txt",
    "tlb/system/units.py",
    "tlb/system/page_sizes.py",
    "tlb/machine",
    "tlb/stats",
    "tlb/measure",
    "tlb/report/analysis.py",
    "tlb/report/claims.py",
    "tlb/report/verdicts.py",
    "experiments",
)
_DIGITS = 6  # what is beyond them depends on the CPU that judged
_SHOWN = {"figures.py", "tables.py"}


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ShownEffect(Document):
    """An effect: an estimate between its bounds, and the band that it has to lie in; None for an
    end that is open."""

    value: float | None
    low: float | None
    high: float | None
    least: float | None
    most: float | None

    @classmethod
    def of(cls, effect: Effect) -> ShownEffect:
        """Round to the digits that are the same on all CPUs; to more where an end would touch its
        band."""
        value, low, high = effect.interval.value_and_bounds
        digits = digits_apart((low, high), (effect.least, effect.most), _DIGITS)
        ends = {"value": value, "low": low, "high": high}
        ends |= {"least": effect.least, "most": effect.most}
        printed: dict[str, Any] = {
            name: float(significant(end, digits).replace(",", "")) if isfinite(end) else None
            for name, end in ends.items()
        }
        return cls(**printed)

    @property
    def bounds(self) -> Bounds:
        low, least = (-inf if end is None else end for end in (self.low, self.least))
        high, most = (inf if end is None else end for end in (self.high, self.most))
        return Bounds(low, high, least, most)


class JudgedClaim(Document):
    """reason, why: as of a Verdict."""

    verdict: VerdictWord
    evidence: str
    effects: tuple[ShownEffect, ...] = ()
    reason: str = ""
    why: str = ""

    @model_validator(mode="after")
    def _has_reason(self) -> JudgedClaim:
        if (self.verdict == "cannot tell") != bool(self.reason):
            raise ValueError("an undecided verdict has a reason, and no other has one")
        return self

    @classmethod
    def of(cls, verdict: Verdict) -> JudgedClaim:
        same = {name: getattr(verdict, name) for name in ("verdict", "evidence", "reason", "why")}
        return cls(**same, effects=tuple(map(ShownEffect.of, verdict.effects)))

    @property
    def bounds(self) -> list[Bounds]:
        return [effect.bounds for effect in self.effects]

    @property
    def is_decided(self) -> bool:
        """Return whether an interval decides it: few of such verdicts are wrong by chance."""
        return bool(self.effects) and self.verdict in ("holds", "fails")


class Verdicts(Document):
    """data/<machine>/verdicts.json. data, code: digests of what it was made from. chapters: by
    name, its claims by id. lacking: by name, why nothing of a chapter is judged. measures: by
    chapter, the newest version of each kernel that measured its rows; a chapter that is not there
    has the first."""

    version: Literal[1] = 1
    data: str
    code: str
    chapters: dict[str, dict[str, JudgedClaim]]
    lacking: dict[str, str]
    measures: dict[str, dict[str, int]] = {}

    def newest_measures(self, chapter: str) -> int:
        return max(self.measures.get(chapter, {}).values(), default=1)

    def measured_like(self, other: Verdicts, chapter: str) -> bool:
        """Return whether both judge a chapter by rows of the same versions of the kernels that both
        have rows of."""
        mine, theirs = (side.measures.get(chapter, {}) for side in (self, other))
        if mine and theirs:
            return all(mine[kernel] == theirs[kernel] for kernel in mine.keys() & theirs.keys())
        return self.newest_measures(chapter) == other.newest_measures(chapter)


def chapter_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def chapter_analysis(
    module: ModuleType, chapter: Chapter, names: dict[str, Any] | None = None
) -> analysis.Analysis:
    """Return a chapter's Analysis of the rows that there are, as its own page has it, over the
    names of a page. Raises Unavailable where there are none."""
    if module is your_program:  # a document
        return module.Analysis(pd.DataFrame(), chapter, names)
    if module is your_machine:
        return module.Analysis(lambda: chapter.kept(survey.NAME), chapter, names)
    rows = chapter.measure(module.grid.points(chapter.scope), chapter_name(module))
    return module.Analysis(rows, chapter, names)


def verdicts_on_machine(chapter: Chapter) -> Verdicts:
    """Return the verdicts on all claims by a machine's rows, read if they were judged already.
    Nothing is measured."""
    data, code = digest(chapter), code_digest(chapter.parameters)
    known = if_available(read, chapter.store, chapter.machine)
    if known and known.data == data and (known.code == code or not chapter.is_this):
        return known
    made = judge(chapter, CHAPTERS, data, code)
    if chapter.is_this:
        if_available(write, chapter.store, chapter.machine, made)
    return made


def judge(
    chapter: Chapter, modules: Iterable[ModuleType], data: str = "", code: str = ""
) -> Verdicts:
    """Judge the claims of these chapters now; keep the reason for a chapter without rows."""
    made = Verdicts(data=data, code=code, chapters={}, lacking={}, measures={})
    try:
        chapter.host  # noqa: B018  # read now
    except ValueError:
        why = Unavailable("no-data", f"{chapter.machine} has a description of another version")
        return made.model_copy(
            update={"lacking": dict.fromkeys(map(chapter_name, modules), str(why))}
        )
    for module in modules:
        name = chapter_name(module)
        try:
            found = verdicts(module.claims, a := chapter_analysis(module, chapter))
        except Unavailable as why:
            made.lacking[name] = str(why)
            continue
        made.chapters[name] = {verdict.claim.id: JudgedClaim.of(verdict) for verdict in found}
        if newer := _measures(a):
            made.measures[name] = newer
    return made


def _measures(a: analysis.Analysis) -> dict[str, int]:
    """Return the newest version of each kernel that measured a chapter's rows; {} if all are the
    first."""
    found = a.frame.groupby("kernel")["measures"].max().to_dict() if len(a.frame) else {}
    versions = {str(kernel): int(version) for kernel, version in found.items()}
    return versions if max(versions.values(), default=1) > 1 else {}


def write(store: Store, machine: str, made: Verdicts) -> None:
    left_out = set() if made.measures else {"measures"}
    store.write_document(machine, NAME, made.model_dump(mode="json", exclude=left_out))


def read(store: Store, machine: str) -> Verdicts:
    try:
        return Verdicts.model_validate(store.read_document(machine, NAME))
    except ValidationError:
        raise Unavailable("no-data", f"{NAME}.json of {machine} is of another version") from None


def refresh() -> list[str]:
    """Judge anew the published machines whose verdicts are of other rows or of other code; return
    their names."""
    data, anew = Store(data_root()), []
    given = parameters.check(PAGE, {"minutes": 0.0})
    for machine in data.machines():
        chapter = Chapter(PAGE, given | {"machine": machine}, data)
        sides = digest(chapter), code_digest(given)
        known = if_available(read, data, machine)
        if not known or (known.data, known.code) != sides:
            write(data, machine, judge(chapter, CHAPTERS, *sides))
            anew.append(machine)
    return anew


# --- digests


def digest(chapter: Chapter) -> str:
    """Return a digest of a machine's rows and documents, of those of the reference machines, which
    stand in for what it lacks, and of the claims' bands and obstacles."""
    bands = [
        (row.id, row.where, row.low, row.high, row.obstacles)
        for row in statements().values()
        if row.status == "judged"
    ]
    sides = [rows_digest(chapter.store, chapter.machine)]
    references = _references(chapter.data)
    for machine in chapter.data.machines():
        if machine in references:
            sides.append(rows_digest(chapter.data, machine))
    if chapter.is_this:
        sides.append(hosts.state(chapter.host))
    return _digest((), repr((bands, sides)))


def rows_digest(store: Store, machine: str) -> str:
    """Return a digest of a machine's rows and documents without those that are made from the
    others; for this computer, also without its description, which each run writes anew with the
    load of the minute."""
    is_own, folder = store.root.name == "own", store.root / machine
    files = [path for path in (folder / PUBLISHED,) if path.is_file()]
    for path in sorted(folder.glob("*.json")):
        is_described = is_own and path.name.startswith("machine")
        if path.stem not in DERIVED and path.is_file() and not is_described:
            files.append(path)
    return _digest(files, RowDatabase(folder / FILE).digest().hex())


def _references(data: Store) -> list[str]:
    try:
        return (data.root / "reference").read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def code_digest(given: Mapping[str, object]) -> str:
    """Return a digest of the code that judges, and of the parameters that a run was given."""
    names = sorted(given.keys() - {"machine", "minutes"})
    return _digest(_code(), repr([(name, given[name]) for name in names]))


@cache
def _code() -> tuple[Path, ...]:
    files: list[Path] = []
    for room in (ROOT / name for name in _CODE):
        files += [room] if room.is_file() else sorted(room.rglob("*.py"))
    return tuple(path for path in files if path.name not in _SHOWN)


def _digest(files: Iterable[Path], more: str) -> str:
    whole = hashlib.sha256(more.encode())
    for path in files:
        whole.update(f"\n{path.parent.name}/{path.name}\n".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]
