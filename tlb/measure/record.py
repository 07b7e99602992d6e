"""One row of data/: what a kernel process measured, checked field by field.

A kernel prints a `KernelOutput`; the runner adds what only it knows and makes a `Record`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from tlb.system.page_sizes import PageKind
from tlb.system.reasons import Unavailable

MOST_OF_OPTION = 2**53  # a column of a frame holds it as a float
NAME_PATTERN = re.compile(r"[a-z0-9_-]{1,64}")  # an experiment, a counter's quantity

# numpy: a published program that is numpy, in its own operations
KernelEngine = Literal["c", "numba", "numpy"]
CacheLineLayout = Literal["spread", "packed", "alias"]
VisitingOrder = Literal["cycle", "random", "sequential"]
# What disturbed a process while it measured (tlb/measure/plan.py); "" for nothing.
Disturbance = Literal["", "migrated", "faulted", "spilled", "stolen", "switched", "uneven"]

# A machine id, a kernel's name: what may become part of a path under data/.
Slug = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
Variant = Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,64}$")]
Column = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**63 - 1)]
PositiveInt = Annotated[int, Field(ge=1, le=2**63 - 1)]
PositiveNs = Annotated[FiniteFloat, Field(gt=0)]


def utc_now() -> str:
    """Return the time as rows and documents have it, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


CHARACTERS_WITHOUT_MARKUP = (
    r" -%'-;=?-\[\]-_a-~"  # printable ASCII without markup, for rows come from strangers too
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Option(NamedTuple):
    """One of a kernel's own numbers, passed to it as `--name value`."""

    name: Column
    value: Annotated[int, Field(ge=0, le=MOST_OF_OPTION)]


def _options(given: object) -> object:
    """From JSON, where a pair is a list; by name, so that the same options are the same point."""
    if not isinstance(given, Iterable):
        return given
    pairs = given.items() if isinstance(given, dict) else given
    try:
        options = tuple(sorted(Option(*pair) for pair in pairs))
    except TypeError:
        return given
    if len({option.name for option in options}) < len(options):
        raise ValueError("an option is there twice")
    return options


def parse_kernel_options(words: list[str]) -> list[tuple[str, int]]:
    """Return a kernel's own numbers from `--name value` or `--name=value`. Raises
    Unavailable("bad-parameter")."""
    pairs = [word for given in words for word in given.split("=", 1)]
    names, values = pairs[::2], pairs[1::2]
    for name, value in itertools.zip_longest(names, values, fillvalue=""):
        if not name.startswith("--"):
            raise Unavailable("bad-parameter", f"'{name}' is no option, as --NAME NUMBER is")
        is_number = value.isdecimal() and len(value) <= len(str(MOST_OF_OPTION))
        if not is_number or int(value) > MOST_OF_OPTION:
            why = f"{name} takes a whole number from 0 to {MOST_OF_OPTION}, not '{value}'"
            raise Unavailable("bad-parameter", why)
    if "--seed" in names:
        raise Unavailable(
            "bad-parameter", "a seed follows from the point and its repeat: choose another --repeat"
        )
    return [(name[2:], int(value)) for name, value in zip(names, values, strict=True)]


Options = Annotated[tuple[Option, ...], BeforeValidator(_options)]


class Bin(NamedTuple):
    """Some of a histogram's readings: from `least_ns` up to the next bin's."""

    least_ns: FiniteFloat
    hops: PositiveInt


def _bins(given: object) -> object:
    """From JSON, where a pair is a list."""
    if not isinstance(given, Iterable):
        return given
    try:
        bins = [Bin(*pair) for pair in given]
        ascending = all(a.least_ns < b.least_ns for a, b in itertools.pairwise(bins))
    except TypeError:
        return given
    if not ascending:
        raise ValueError("the bins of a histogram do not ascend")
    return bins


Histogram = Annotated[list[Bin], BeforeValidator(_bins)]


class KernelBuild(NamedTuple):
    """What measures a point. The source is provenance; the others are part of a row's key."""

    measures: int  # the version that the kernel's file declares
    compiler: str  # that built it, or the interpreter that runs it
    source: str = ""  # digest of the kernel's file and what it includes, 16 hex digits


def printable_ascii(text: str) -> str:
    """Return a compiler's description as a row has it: printable ASCII without markup."""
    return re.sub(f"[^{CHARACTERS_WITHOUT_MARKUP}]", "?", text)[:200]


class Point(_Strict):
    """One setting of a kernel's parameters, which its repeats share."""

    kernel: Slug
    engine: KernelEngine = "c"
    pages: PageKind = "4k"
    layout: CacheLineLayout = "spread"
    order: VisitingOrder = "cycle"
    lines: Annotated[int, Field(ge=1, le=2**40)]
    stride_pages: Annotated[int, Field(ge=1, le=2**20)] = (
        1  # spread and alias: from one line's page to the next line's
    )
    mode: Variant = ""  # which of a kernel's variants, where it has any
    options: Options = ()  # what this kernel alone takes
    # The least time inside timed regions.
    region_ms: Annotated[int, Field(ge=1, le=60_000)] = 60


_of_point = attrgetter(*Point.model_fields)


@lru_cache(1 << 12, typed=True)
def _point(*values: object) -> Point:
    """Return the point of these fields: the rows of a file share few."""
    return Point.model_validate(dict(zip(Point.model_fields, values, strict=True)))


class KernelOutput(_Strict):
    """The JSON object that a kernel prints. Nanoseconds are of CLOCK_MONOTONIC_RAW or better."""

    kernel: Slug
    engine: KernelEngine
    pages: PageKind  # asked for
    # verified from smaps before and after the timed region; equals `pages` or there is no report
    backing: PageKind
    layout: CacheLineLayout
    order: VisitingOrder
    lines: PositiveInt
    stride_pages: PositiveInt = 1
    mode: Variant = ""
    options: Options = ()
    stride_bytes: PositiveInt  # distance between pages touched: 4096 on x86-64, times stride_pages
    working_set_bytes: PositiveInt  # lines x stride for spread and alias, lines x 64 for packed
    arena_bytes: PositiveInt  # what was mapped and faulted in
    # of the process, once all is faulted in; None: a row from before it was asked for
    page_table_bytes: NonNegativeInt | None = None
    seed: NonNegativeInt
    cpu: NonNegativeInt
    accesses: PositiveInt  # in the timed region
    elapsed_ns: PositiveNs  # of the timed batches together
    ns_per_access: PositiveNs  # median over the batches
    batch_ns_per_access: Annotated[list[PositiveNs], Field(min_length=1)]
    # Core clock, measured next to the region from a chain of dependent one-cycle additions; 0 where the
    # engine has none.
    core_ghz: Annotated[FiniteFloat, Field(ge=0)]
    prepare_ns: PositiveNs  # map, fault in, place the chase, verify, warm up
    # of that, the accesses of the warm-up; None: a kernel without one, or a row from before it was
    # kept
    warm_ns: Annotated[FiniteFloat, Field(ge=0)] | None = None
    minor_faults: NonNegativeInt  # in the timed region, from getrusage
    major_faults: NonNegativeInt
    voluntary_switches: NonNegativeInt
    involuntary_switches: NonNegativeInt
    migrations: NonNegativeInt
    # of the lines visited, in their order
    checksum: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    # What this kernel alone measures, its unit in the name: {"generator_ns_per_access": 1.9}.
    also: dict[Column, FiniteFloat] = {}
    # Of a process that measures many points: this one's number in it, and the bytes of the mapping
    # that held its lines.
    position: NonNegativeInt | None = None
    mapping_bytes: PositiveInt | None = None
    cpu_ns: Annotated[FiniteFloat, Field(ge=0)] | None = (
        None  # CPU time of the process in the timed region
    )
    fifo: Annotated[int, Field(ge=0, le=1)] | None = (
        None  # whether warm-up and region ran under SCHED_FIFO
    )
    # Of a kernel that times single accesses: its clock's readings as they are, the clock's own cost
    # included; no empty bins.
    histogram: Histogram = []

    @model_validator(mode="after")
    def _never_another_page_size(self) -> KernelOutput:
        if self.backing != self.pages:
            raise ValueError(f"asked for {self.pages} pages but the arena is on {self.backing}")
        return self


class CounterReading(_Strict):
    """One counter quantity of the timed region: a value, or the reason for none."""

    value: FiniteFloat | None = None  # counts, already scaled by perf; not per access
    reason: Slug | None = None  # a code from tlb.system.reasons
    event: str | None = None  # the event that was asked for
    running_percent: FiniteFloat | None = None  # under 100: perf multiplexed and scaled

    @model_validator(mode="after")
    def _value_or_reason(self) -> CounterReading:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a quantity has a value or a reason, not both and not neither")
        return self


class Record(KernelOutput):
    """A kernel's report with what the runner knows of it."""

    measures: Annotated[int, Field(ge=1, le=1000)] = (
        1  # the version of what the kernel measures, as its file declares it
    )
    source: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] = (
        ""  # digest of the kernel's source
    )
    compiler: Annotated[str, Field(pattern=rf"^[{CHARACTERS_WITHOUT_MARKUP}]{{0,200}}$")] = (
        ""  # that built it, or the interpreter that ran it
    )
    repeat: NonNegativeInt  # the number of the mapping that it was measured in
    region_ms: Annotated[int, Field(ge=1)]
    counters: dict[str, CounterReading] = {}
    wall_ns: PositiveNs  # the whole process, perf included
    started_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]  # UTC
    # of the computer's settings and versions: host.state_digest()
    state: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    # Rows older than these three fields have the defaults: one try, disturbances not recorded.
    steal_ms: Annotated[FiniteFloat, Field(ge=0)] | None = (
        None  # taken from `cpu` while the process lived; None: not stated
    )
    tries: Annotated[int, Field(ge=1, le=100)] = 1  # this is the first quiet one, or the last
    noisy: Disturbance = ""
    boot_id: Annotated[str, Field(pattern=r"^([0-9a-f]{16})?$")] = (
        ""  # of Linux: machine.cpus.boot_id(); "" in rows from before it was kept
    )

    @property
    def uncountable(self) -> frozenset[str]:
        """Return the quantities whose event could not be requested."""
        return frozenset(
            name
            for name, quantity in self.counters.items()
            if quantity.reason and quantity.event is None
        )

    def counts_more_than(self, other: Record) -> bool:
        """Return whether this record counted what `other` had no event for."""
        return not other.uncountable.isdisjoint(self.counters.keys() - self.uncountable)

    @property
    def point(self) -> Point:
        return _point(*_of_point(self))

    @property
    def key(self) -> str:
        """`record_key` of this record."""
        build = KernelBuild(self.measures, self.compiler, self.source)
        return record_key(self.point, self.repeat, build, self.state)


@lru_cache(1 << 12)
def point_id(point: Point) -> str:
    """Return the identity of a point: 16 hex digits of its canonical JSON's SHA-256."""
    return _sha16(point.model_dump())


def record_key(point: Point, repeat: int, build: KernelBuild, state: str) -> str:
    """Return the identity of a measurement, 16 hex digits: its point, the number of its mapping,
    the kernel's version, the compiler, and the state of the machine."""
    named = {
        "point": point_id(point),
        "repeat": repeat,
        "measures": build.measures,
        "compiler": build.compiler,
        "state": state,
    }
    return _sha16(named)


def _sha16(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


ProgramAnswer = TypeVar("ProgramAnswer", bound=BaseModel)


def parse_program_answer(line: bytes | str, kind: type[ProgramAnswer]) -> ProgramAnswer:
    """Validate a program's line. Raises Unavailable("kernel-failed")."""
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        raise Unavailable(
            "kernel-failed", f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None
