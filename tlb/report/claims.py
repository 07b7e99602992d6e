"""Claims: what a source says, as a predicate that is registered by the id of its sentence.

A predicate gives an effect with its interval, and the band in which it supports the claim. What is
no estimate (a count, a machine's own statement, arithmetic) is a `Fact` with its proof. A predicate
gives nothing else, so none can decide past its band. `verdicts` judges them.
"""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from pathlib import Path
from string import ascii_lowercase
from types import ModuleType
from typing import Any, Literal, NamedTuple

from pybtex.database import Entry, parse_file
from pybtex.richtext import Text

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.stats.effects import Effect
from tlb.system.files import ROOT
from tlb.system.reasons import Undecided

STATEMENTS = ROOT / "data" / "literature" / "claims.csv"
Band = tuple[float, float]
PointPredicate = Callable[
    [Point, Scope], bool
]  # whether a claim compares a point, on such a computer
Bound = float | Callable[[Scope], float]
# An effect, or several that must lie in their bands together; Undecided for a reason that no
# interval shows.
MeasuredAnswer = Effect | Sequence[Effect] | Undecided


@dataclass(frozen=True)
class Fact:
    """An answer without an interval: a count, what a machine or a kernel states, or arithmetic.

    because: the proof, in a sentence. value: the number that the claim is about, in the claim's
    unit, or what was found in a few words. Raises TypeError for anything but a bool and ValueError without
    a proof.
    """

    holds: bool
    because: str
    value: float | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.holds, bool):
            raise TypeError(f"A fact holds or does not; {self.holds!r} is no bool.")
        if not self.because.strip():
            raise ValueError("A fact needs its proof.")


def count_inside_band(value: float, band: Band, because: str) -> Fact:
    """Return whether a count, which has no interval, lies in a band."""
    return Fact(bool(band[0] <= value <= band[1]), because, float(value))


Answer = tuple[MeasuredAnswer, str] | Fact  # a measured one comes with the evidence in a sentence


@dataclass(frozen=True)
class PointSelector:
    """Selects points of some kernels by their fields and options: `points_where`."""

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


def points_where(
    kernel: str | tuple[str, ...], *, low: Bound = 0, high: Bound = inf, **where: object
) -> PointSelector:
    """Select the points of a kernel, or several, from `low` to `high` lines whose fields or options
    have the value, or one of the values, given; None for an option that they lack. A bound or a
    value may be a function of the computer."""
    kernels = kernel if isinstance(kernel, tuple) else (kernel,)
    return PointSelector(kernels, {"low": low, "high": high, **where})


_TIME_UNITS = ("ns", "cycles", "ms")


class PublishedStatement(NamedTuple):
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
    obstacles: str  # codes of verdicts.OBSTACLE_CHECKS, space-separated
    status: Literal["judged", "recomputed", "arithmetic", "said again", "not testable", "no claim"]
    where: str  # the chapter; of what is said again, the id that it repeats
    note: str
    reading: str = ""  # what we take its words to mean, where they leave open what is measured
    of_times: Literal["", "yes"] = ""  # whether a ratio is one of two times, with a number for it

    @property
    def band(self) -> Band:
        """What would support the sentence, in `unit`; infinite where it is open."""
        return float(self.low or -inf), float(self.high or inf)

    @property
    def has_verdict(self) -> bool:
        """Whether a predicate decides it: by what a machine shows, or from numbers alone."""
        return self.status in ("judged", "recomputed")

    @property
    def is_time(self) -> bool:
        """Whether a machine decides it by a time, or by a number for the ratio of two."""
        is_of_times = self.unit in _TIME_UNITS or self.of_times == "yes"
        return self.status == "judged" and is_of_times

    @property
    def predicts_direction_only(self) -> bool:
        """Whether any difference to one side supports the sentence: above 0, or above 1 times."""
        none = 1.0 if self.unit == "ratio" else 0.0
        return self.band in ((none, inf), (-inf, none))


@cache
def statements() -> dict[str, PublishedStatement]:
    """Return the statements by id, in the order of the sources."""
    with STATEMENTS.open(encoding="utf-8", newline="") as lines:
        return {
            row["id"]: PublishedStatement(**dict[str, Any](row)) for row in csv.DictReader(lines)
        }


@dataclass(frozen=True)
class Claim:
    """A sentence of a source with its predicate. points: which points of a grid it compares; None
    if it measures nothing. fixed: keywords of the predicate that are this sentence's own."""

    id: str
    source: str  # a key of book/references.bib
    says: str
    decide: Callable[..., Answer]
    points: PointPredicate | None
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """File and name of the predicate. A line would change the page with each edit above it."""
        path = Path(inspect.getsourcefile(self.decide) or "")
        file = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        return f"{file}, {self.decide.__name__}"


REGISTRY: dict[str, Claim] = {}


def claim(
    id: str, *, source: str = "", says: str = "", points: PointPredicate | None = None, **fixed: Any
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


def compared_points(scope: Scope) -> Callable[[Point], bool]:
    """Return whether any registered claim compares a point, as a function of the point."""
    claims = [claim.points for claim in REGISTRY.values() if claim.points is not None]
    return lambda point: any(points(point, scope) for points in claims)


def untestable_statements(chapter: str) -> list[PublishedStatement]:
    """Return the statements about a chapter's subject that no measurement here can test."""
    return [
        statement
        for statement in statements().values()
        if statement.where == chapter and statement.status == "not testable"
    ]


# --- names of sources: author and year, and a letter for several of one year

BIBLIOGRAPHY = ROOT / "book" / "references.bib"
READ_YEAR_PREFIX = "read"  # before the year in which a source without a date was read
_LETTER = re.compile(r"(?<=\d)[a-z]$")


def authors(entry: Entry) -> str:
    """Return "Chen", "Bhargava and Serebrin" or "Basu et al."; "" without authors."""
    persons = entry.persons.get("author", [])
    last = [str(Text.from_latex(" ".join(person.last_names))) for person in persons]
    return " and ".join(last) if len(last) < 3 else f"{last[0]} et al."


def citation_years(entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return the year of each key, of a source without a date the year in which it was read; an
    author's several of one year get letters in the order of the file: "2024a", "read 2026a".
    Letters that a year already has are replaced."""
    same: dict[tuple[str, str], list[str]] = {}
    for key, entry in entries.items():
        read = entry.fields.get("urldate", "undated").split()[-1]
        year = entry.fields.get("year") or f"{READ_YEAR_PREFIX} {read}"
        same.setdefault((authors(entry), _LETTER.sub("", year)), []).append(key)
    found = {}
    for (_, year), keys in same.items():
        for letter, key in zip(ascii_lowercase, keys, strict=False):
            found[key] = year if len(keys) == 1 else f"{year}{letter}"
    return found


def citation_label(entry: Entry) -> str:
    """Return an entry as a page cites it: "Chen, 2024a"."""
    return f"{authors(entry)}, {entry.fields['year']}"


@cache
def source_names() -> dict[str, str]:
    """Return the name of each key in tables, by its first author: "Matthews (2022)"."""
    entries = parse_file(str(BIBLIOGRAPHY)).entries
    names = {}
    for key, year in citation_years(entries).items():
        first = authors(entries[key]).split(" and ")[0].removesuffix(" et al.")
        names[key] = f"{first} ({year})"
    return names
