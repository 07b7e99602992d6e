"""Claims: what a source says, as a predicate on a chapter's Analysis, registered by id and judged.

The rule for all of them: a predicate gives an effect with its interval, and the band in which it
supports the claim. The claim holds if the interval lies inside the band, fails if it lies outside,
and is undecided if it crosses an end or covers less than LEAST_COVERAGE, as that of fewer than five
processes does. What is no estimate (a count, a machine's own statement, arithmetic) is a `Fact` with
its proof. A predicate gives nothing else, so none can decide past its band. A claim that needs what
this computer lacks (counters, a second node, bare metal) is not testable here. `tlb bench` prints
how often the rule is wrong, and how often it decides.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import pandas as pd

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.report.analysis import Analysis
from tlb.report.compared import Bounds
from tlb.report.obstacles import OBSTACLES, obstacle
from tlb.stats.effects import Effect as Effect
from tlb.stats.effects import inside as inside
from tlb.stats.effects import too_few as too_few
from tlb.stats.effects import why_undecided as why_undecided
from tlb.stats.intervals import LEAST_COVERAGE as LEAST_COVERAGE
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable, Undecided, explain, required

STATEMENTS = ROOT / "data" / "literature" / "claims.csv"
# At most this share of the claims tested with an interval; tests/report/test_rule.py checks it.
WRONG_BY_CHANCE = 0.05
# Kernels whose earlier versions warmed what they then timed, and the first version that does not:
# rows of the earlier ones are shown, marked, and prove nothing.
SUPERSEDED = {"shootdown": 2, "fork_write": 2, "prefault": 2}
Band = tuple[float, float]
Compares = Callable[[Point, Scope], bool]  # whether a claim compares a point, on such a computer
Bound = float | Callable[[Scope], float]
Word = Literal["holds", "fails", "cannot tell", "not testable here"]
# An effect, or several that must lie in their bands together; Undecided for a reason that no
# interval shows.
Truth = Effect | Sequence[Effect] | Undecided


@dataclass(frozen=True)
class Fact:
    """An answer without an interval: a count, what a machine or a kernel states, or arithmetic.

    because: the proof, in a sentence. Raises TypeError for anything but a bool and ValueError
    without a proof.
    """

    holds: bool
    because: str

    def __post_init__(self) -> None:
        if not isinstance(self.holds, bool):
            raise TypeError(f"A fact holds or does not; {self.holds!r} is no bool.")
        if not self.because.strip():
            raise ValueError("A fact needs its proof.")


def counted(value: float, band: Band, because: str) -> Fact:
    """Return whether a count, which has no interval, lies in a band."""
    return Fact(bool(band[0] <= value <= band[1]), because)


Answer = tuple[Truth, str] | Fact  # a truth comes with the evidence in a sentence


@dataclass(frozen=True)
class PointsOf:
    """Selects points of some kernels by their fields and options: `points_of`."""

    kernels: tuple[str, ...]
    limits: Mapping[str, Any]

    def __call__(self, point: Point, scope: Scope) -> bool:
        if point.kernel not in self.kernels:
            return False
        known = {
            name: value(scope) if callable(value) else value for name, value in self.limits.items()
        }
        if not known.pop("low") <= point.lines <= known.pop("high"):
            return False
        options = dict(point.options)
        found = {name: options.get(name, getattr(point, name, None)) for name in known}
        return all(
            found[name] in value if isinstance(value, tuple) else found[name] == value
            for name, value in known.items()
        )


def points_of(
    kernel: str | tuple[str, ...], *, low: Bound = 0, high: Bound = inf, **where: object
) -> PointsOf:
    """Select the points of a kernel, or several, from `low` to `high` lines whose fields or options
    have the value, or one of the values, given; None for an option that they lack. A bound or a
    value may be a function of the computer."""
    kernels = kernel if isinstance(kernel, tuple) else (kernel,)
    return PointsOf(kernels, {"low": low, "high": high, **where})


def decided(truth: Truth) -> bool | None:
    """Return True, False, or None if undecided."""
    if isinstance(truth, Undecided):
        return None
    effects = effects_of(truth)
    answers = [effect.decided(len(effects)) for effect in effects]
    return False if False in answers else None if None in answers else True


def effects_of(truth: Truth) -> tuple[Effect, ...]:
    """Return what a truth compares. Raises Unavailable("too-few-points") for an empty list,
    TypeError for anything but a Truth."""
    if isinstance(truth, Undecided):
        return ()
    if isinstance(truth, Effect):
        return (truth,)
    effects = tuple(effect for effect in truth if isinstance(effect, Effect))
    if not isinstance(truth, Sequence) or len(effects) < len(truth):
        raise TypeError(f"A predicate gives effects with a sentence, or a Fact, not {truth!r}.")
    return required(effects, "nothing was compared")


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
        """What would support the sentence, in `unit`; infinite where it is open."""
        return float(self.low or -inf), float(self.high or inf)


@cache
def statements() -> dict[str, Statement]:
    """Return the statements by id, in the order of the sources."""
    with STATEMENTS.open(encoding="utf-8", newline="") as lines:
        return {row["id"]: Statement(**dict[str, Any](row)) for row in csv.DictReader(lines)}


@dataclass(frozen=True)
class Claim:
    """A sentence of a source with its predicate. points: which points of a grid it compares; None
    if it measures nothing. fixed: keywords of the predicate that are this sentence's own."""

    id: str
    source: str  # a key of book/references.bib
    says: str
    decide: Callable[..., Answer]
    points: Compares | None
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """File and line of the predicate."""
        path = Path(inspect.getsourcefile(self.decide) or "")
        file = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        return f"{file}:{inspect.getsourcelines(self.decide)[1]}"


@dataclass(frozen=True)
class Verdict:
    """reason: why it is undecided, as a code of UNDECIDED or REASONS. why: the same as a sentence;
    empty if the evidence says it."""

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
    id: str, *, source: str = "", says: str = "", points: Compares | None = None, **fixed: Any
) -> Callable[[Callable], Callable]:
    """Register a predicate: a function of an Analysis that gives an Answer, or raises Unavailable.

    A parameter `band` gets the band in claims.csv. source, says: by default those of claims.csv.
    points: which points of a grid, and of a computer, it compares. fixed: keywords of the
    predicate, where several sentences differ in a number. Raises ValueError for an id that another
    function has, or of which nothing is known.
    """

    def register(decide: Callable[..., Answer]) -> Callable[..., Answer]:
        known, statement = REGISTRY.get(id), statements().get(id)
        if known and _name(known.decide) != _name(decide):
            raise ValueError(
                f"{decide.__module__}: the claim {id!r} is already in {known.decide.__module__}; "
                "give it another id."
            )
        if not statement and not (source and says):
            raise ValueError(
                f"{decide.__module__}: the claim {id!r} has no row in {STATEMENTS.name}; add one, "
                "or say source and words."
            )
        quote, key = (f"“{statement.quote}”", statement.source) if statement else ("", "")
        REGISTRY[id] = Claim(id, source or key, says or quote, decide, points, fixed)
        return decide

    return register


def _name(function: Callable) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def claims_of(module: ModuleType) -> list[Claim]:
    """Return the claims of a chapter, in the order in which it defines them."""
    return [claim for claim in REGISTRY.values() if claim.decide.__module__ == module.__name__]


def compared(scope: Scope) -> Callable[[Point], bool]:
    """Return whether any registered claim compares a point, as a function of the point."""
    claims = [claim.points for claim in REGISTRY.values() if claim.points is not None]
    return lambda point: any(points(point, scope) for points in claims)


def judge(claim: Claim, a: Analysis, **bands: Any) -> Verdict:
    """Return the verdict on a claim. bands: keywords of its predicate in place of its defaults.

    An obstacle that claims.csv names and this machine has makes the claim not testable here before
    its predicate runs.
    """
    statement = statements().get(claim.id)
    if statement and (found := obstacle(a, statement.obstacles)):
        return _unavailable(claim, found)
    if found := _superseded(claim, a.frame):
        return _unavailable(claim, found)
    if statement and "band" in inspect.signature(claim.decide).parameters:
        bands = {"band": statement.band} | bands
    try:
        answer = claim.decide(a, **(claim.fixed | bands))
        if isinstance(answer, Fact):
            return Verdict(claim, "holds" if answer.holds else "fails", answer.because)
        truth, evidence = answer
        effects = effects_of(truth)
    except Unavailable as why:
        return _unavailable(claim, why)
    except TypeError as why:
        raise TypeError(f"The predicate of {claim.id!r} failed: {why}") from why
    if effects and a.host.is_emulated:  # sources speak of processors, and this timed a program
        return Verdict(claim, "not testable here", explain("emulated", evidence.rstrip(".")))
    if (holds := decided(truth)) is None:
        reason = truth if isinstance(truth, Undecided) else why_undecided(effects)
        return Verdict(claim, "cannot tell", evidence, effects, reason.code, reason.text)
    return Verdict(claim, "holds" if holds else "fails", evidence, effects)


def _superseded(claim: Claim, frame: pd.DataFrame) -> Unavailable | None:
    """Return why a claim is not judged by rows of a kernel that then measured something else."""
    for kernel, least in SUPERSEDED.items():
        if isinstance(claim.points, PointsOf) and kernel in claim.points.kernels:
            measured = frame.loc[frame["kernel"] == kernel, "measures"]
            if len(measured) and measured.max() < least:
                return Unavailable("no-data", f"`{kernel}` in its version {least}")
    return None


def _unavailable(claim: Claim, why: Unavailable) -> Verdict:
    if why.code in OBSTACLES:
        return Verdict(claim, "not testable here", str(why))
    return Verdict(claim, "cannot tell", str(why), reason=why.code)


def verdicts(module: ModuleType, a: Analysis, **bands: dict[str, Any]) -> list[Verdict]:
    """Judge each claim of a chapter. bands: for a predicate by its name, keywords in place of its
    defaults."""
    return [judge(claim, a, **bands.get(claim.decide.__name__, {})) for claim in claims_of(module)]


def elsewhere(chapter: str) -> list[Statement]:
    """Return the statements about a chapter's subject that no measurement here can test."""
    return [
        statement
        for statement in statements().values()
        if statement.where == chapter and statement.status == "not testable"
    ]
