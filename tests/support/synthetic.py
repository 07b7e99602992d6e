"""Machines that never were: frames of records whose truth is known, for what reads frames."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from experiments.keeping_pages.analysis import FREED_COLD
from experiments.stlb_cliff import grid as cliff_grid
from support.common import make_record
from tlb.machine.cpuid import Tlb
from tlb.machine.host import Host
from tlb.measure import kernels
from tlb.measure.grid import MeasuringProfile, Scope
from tlb.measure.record import Point
from tlb.report.analysis import Analysis
from tlb.report.verdicts import SUPERSEDED, Verdict, chapter_verdicts

MIB, GIB = 2**20, 2**30

# the first versions of kernels that all claims may rest on
VERSIONS = SUPERSEDED | {"prefault": FREED_COLD}


@dataclass(frozen=True)
class Truth:
    """A machine whose two TLB levels are LRU: a cycle misses always past a capacity, draws miss
    with 1 - C/M."""

    entries: tuple[int, int] = (64, 1536)
    load_ns: float = 1.0  # from the cache, in either layout
    hit_ns: float = 2.0  # what missing the first level adds
    walk_ns: float = 9.0  # what missing the second adds to that
    climb: float = 1.0  # by which a walk gets dearer with each octave from so many pages on
    climb_from: int = 2**15
    in_order: float = 0.3  # of a walk, where pages are visited one after the other
    cache_step: tuple[int, float] = (
        2**60,
        0.0,
    )  # from how many lines on a cache is missed, in either layout, and its price
    missed: Callable[[str, np.ndarray, int], np.ndarray] | None = (
        None  # of the second level, in place of LRU
    )
    bit_ns: float = 40.0  # what an access adds that has to set bits in its page's entry
    noise: float = 0.01  # standard deviation of a process, relative

    def price_ns(self, order: str, lines: np.ndarray) -> np.ndarray:
        first, second = self.entries
        octaves = np.maximum(0, np.log2(lines / self.climb_from))
        walk = self.walk_ns * self.climb**octaves * (self.in_order if order == "sequential" else 1)
        past = self.missed(order, lines, second) if self.missed else lru(order, lines, second)
        return lru(order, lines, first) * self.hit_ns + past * walk

    def time_ns(self, point: Point) -> float:
        lines = np.array([point.lines], dtype=float)
        cached = self.load_ns + (self.cache_step[1] if point.lines >= self.cache_step[0] else 0)
        price = self.price_ns(point.order, lines)[0] if point.layout == "spread" else 0.0
        bits = self.bit_ns if point.layout == "spread" and point.mode.endswith("clean") else 0.0
        return (cached + price) / (5 if point.kernel in ("page_gather", "page_store") else 1) + bits


def lru(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    return (
        np.maximum(0, 1 - entries / lines) if order == "random" else (lines > entries).astype(float)
    )


def scope(
    max_working_set: int = 4 * GIB,
    entries: Iterable[int] = (64, 1536),
    cpus: int = 4,
    per_octave: int = 2,
    engine: str = "c",
) -> Scope:
    """What a grid may ask for; per_octave 1 is as coarse as smoke, 4 as fine as full."""
    profile = MeasuringProfile(
        max_working_set=max_working_set,
        repeats=1,
        shape_repeats=1,
        region_ms=1,
        points_per_octave=per_octave,
    )
    return Scope(profile, engine, tuple(entries), cpus, base_page_bytes=4096)


def grid(
    max_working_set: int = 4 * GIB, entries: Iterable[int] = (64, 1536), per_octave: int = 2
) -> list[Point]:
    """The points of the first chapter; per_octave 1 has no zoom, as the profile smoke has none."""
    return cliff_grid.points(scope(max_working_set, entries, per_octave=per_octave))


def processes(
    points: Iterable[Point],
    ns: Callable[[Point], float],
    noise: float,
    repeats: int,
    seed: int = 1,
    *,
    fields: Callable[[Point], dict[str, Any]] = lambda point: {},
    more: Callable[[Point, float], dict[str, Any]] = lambda point, ns: {},
    columns: Iterable[str] = (),
) -> pd.DataFrame:
    """Return one row a process, with the columns that `Store.load` gives.

    ns: a point's time without noise. noise: relative standard deviation of a process. fields: of
    the records. more: columns beside them, by a process' time. columns: of a frame without rows.
    """
    draw, rows = np.random.default_rng(seed), []
    for point in points:
        version, quiet_ns = VERSIONS.get(point.kernel, 1), ns(point)
        record = make_record(**point.model_dump(), measures=version, **fields(point))
        row = record.model_dump(exclude={"counters", "options", "also"})
        row |= dict(record.options) | record.also
        for repeat in range(repeats):
            took = quiet_ns * math.exp(noise * draw.normal())
            own = {"repeat": repeat, "ns_per_access": took, "batch_ns_per_access": [took]}
            rows.append(row | own | more(point, took))
    empty = [*make_record().model_dump(), *columns]
    return kernels.with_defaults(pd.DataFrame(rows, columns=None if rows else empty))


def frame(
    truth: Truth, points: list[Point] | None = None, repeats: int = 7, seed: int = 1
) -> pd.DataFrame:
    """One row a process."""

    def tables(point: Point) -> dict[str, int]:
        size = point.lines * (4096 if point.layout == "spread" else 64)
        return {"page_table_bytes": table_bytes(point.pages, size)}

    points = grid() if points is None else points
    return processes(points, truth.time_ns, truth.noise, repeats, seed, fields=tables)


PAGE_BYTES = {
    "4k": 4096,
    "16k": 16 << 10,
    "32k": 32 << 10,
    "64k": 64 << 10,
    "128k": 128 << 10,
    "256k": 256 << 10,
    "512k": 512 << 10,
    "1m": MIB,
    "thp": 2 * MIB,
    "2m": 2 * MIB,
    "1g": GIB,
}


def table_bytes(pages: str, size_bytes: int) -> int:
    """The page tables of a process: eight bytes a page, in whole pages, and the levels above."""
    return 4096 * (-(-8 * size_bytes // PAGE_BYTES[pages] // 4096) + 3)


def tlbs(
    entries: Iterable[int] = (64, 1536), ways: Iterable[int | None] = (0, 12)
) -> tuple[Tlb, ...]:
    return tuple(
        Tlb(
            level=level,
            kind="data" if level == 1 else "unified",
            pages=("4k",),
            entries=n,
            ways=w,
            source="CPUID 0x18",
        )
        for level, (n, w) in enumerate(zip(entries, ways, strict=True), 1)
    )


# What a made-up machine says of itself, unless it is changed.
DESCRIPTION: dict[str, Any] = {
    "cpu_model": "Imaginary Processor 9000",
    "vendor": "GenuineIntel",
    "family": 6,
    "model": 1,
    "stepping": 2,
    "microarchitecture": "Ice Lake server",
    "microcode": "0x1",
    "logical_cpus": 2,
    "usable_cpus": (0, 1),
    "caches": [
        {"level": 1, "kind": "data", "size_bytes": 32768, "line_bytes": 64, "ways": 8, "sets": 64},
        {
            "level": 2,
            "kind": "unified",
            "size_bytes": MIB,
            "line_bytes": 64,
            "ways": 16,
            "sets": 1024,
        },
    ],
    "tlb_unknown_descriptors": (),
    "page_table_levels": 4,
    "la57": False,
    "gigabyte_pages": True,
    "base_page_bytes": 4096,
    "thp": {"enabled": "madvise", "defrag": "madvise"},
    "mthp": {"64k": "never"},
    "pools": [{"page": "2m", "total": 0, "free": 0, "reserved": 0, "surplus": 0}],
    "pmu": {"tier": "software", "reason": "no-pmu"},
    "memory": {
        "total_bytes": 8 * GIB,
        "available_bytes": 7 * GIB,
        "usable_bytes": 7 * GIB,
        "limit_source": "MemAvailable",
    },
    "noise": {"governor": "performance", "smt": "off", "turbo": False, "load1": 0.1},
    "kernel_release": "6.1.0",
    "os": "Linux",
    "arch": "x86_64",
    "c_compiler": "gcc: gcc 12.2.0",
    "installation": "",
}


@dataclass(frozen=True)
class Stated:
    """What a made-up machine says of itself."""

    tlb: tuple[Tlb, ...] = field(default_factory=tlbs)
    hypervisor: str = "none"
    changes: dict = field(default_factory=dict)

    def host(self) -> Host:
        reason = None if self.tlb else "no-geometry"
        own = {"tlb": self.tlb, "tlb_reason": reason, "hypervisor": self.hypervisor}
        return Host.model_validate(DESCRIPTION | own | self.changes)


def median(frame: pd.DataFrame, column: str = "ns_per_access", **where: object) -> float:
    """Return the median of a column where others have these values, by pandas' own query."""
    chosen = frame.query(" and ".join(f"{name} == {value!r}" for name, value in where.items()))
    return float(chosen[column].median())


# What no sentence may hold: a number that is none, a zero with a sign, a gap, a literal of Python,
# a plural of one.
HOLE = re.compile(
    r"\b(nan|inf|None)\b|-0(\.0+)?(?![.\d])|\(\)|  |\{|\[|\b1 threads|\bopen ns", re.IGNORECASE
)


def words_of(claims: ModuleType, a: Analysis, **bands: dict) -> dict[str, str]:
    """The verdict on each claim of a chapter, by its id."""
    return {one.claim.id: one.verdict for one in chapter_verdicts(claims, a, **bands)}


def fit(one: Verdict) -> Verdict:
    """The verdict itself, whose evidence is a sentence on one line."""
    text = one.evidence
    assert one.verdict in ("holds", "fails", "cannot tell", "not testable here")
    assert (
        text == text.strip()
        and text.endswith(".")
        and re.match("[A-Z0-9]", text)
        and len(text.splitlines()) == 1
    ), text
    assert not HOLE.search(text), text
    return one
