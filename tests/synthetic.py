"""Machines that never were: frames of records whose truth is known, for what reads frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from conftest import make_record

from experiments import experiment, grids
from experiments.host import Host
from experiments.record import Point
from experiments.tlbs import Tlb

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class Truth:
    """A machine whose two TLB levels are LRU: a cycle misses always past a capacity, draws miss with 1 - C/M."""

    entries: tuple[int, int] = (64, 1536)
    load_ns: float = 1.0  # from the cache, in either layout
    hit_ns: float = 2.0  # what missing the first level adds
    walk_ns: float = 9.0  # what missing the second adds to that
    climb: float = 1.0  # by which a walk gets dearer with each octave from 2^15 pages on
    cache_step: tuple[int, float] = (2**60, 0.0)  # from how many lines on a cache is missed, in either layout, and its price
    missed: Callable[[str, np.ndarray, int], np.ndarray] | None = None  # of the second level, in place of LRU
    noise: float = 0.01  # standard deviation of a process, relative

    def price_ns(self, order: str, lines: np.ndarray) -> np.ndarray:
        first, second = self.entries
        octaves = np.maximum(0, np.log2(lines / 2**15))
        walk = self.walk_ns * self.climb**octaves * (0.3 if order == "sequential" else 1)
        past = self.missed(order, lines, second) if self.missed else lru(order, lines, second)
        return lru(order, lines, first) * self.hit_ns + past * walk

    def time_ns(self, point: Point) -> float:
        lines = np.array([point.lines], dtype=float)
        cached = self.load_ns + (self.cache_step[1] if point.lines >= self.cache_step[0] else 0)
        price = self.price_ns(point.order, lines)[0] if point.layout == "spread" else 0.0
        return (cached + price) / (5 if point.kernel == "page_gather" else 1)


def lru(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    return np.maximum(0, 1 - entries / lines) if order == "random" else (lines > entries).astype(float)


def grid(max_working_set: int = 4 * GIB, entries: Iterable[int] = (64, 1536), per_octave: int = 2) -> list[Point]:
    """The points of the first chapter; per_octave 1 has no zoom, as the profile smoke has none."""
    profile = experiment.Profile(max_working_set=max_working_set, repeats=1, region_ms=1, points_per_octave=per_octave)
    return grids.stlb_cliff(profile, "c", list(entries))


def frame(truth: Truth, points: list[Point] | None = None, repeats: int = 7, seed: int = 1) -> pd.DataFrame:
    """One row a process, with the columns that `Store.load` gives."""
    noise = np.random.default_rng(seed)
    rows = []
    for point in grid() if points is None else points:
        for repeat in range(repeats):
            ns = truth.time_ns(point) * float(np.exp(truth.noise * noise.normal()))
            record = make_record(**point.model_dump(), repeat=repeat, ns_per_access=ns, batch_ns_per_access=[ns])
            rows.append(record.model_dump(exclude={"counters"}) | {"kernel_digest": "a" * 16})
    return pd.DataFrame(rows)


def tlbs(entries: Iterable[int] = (64, 1536), ways: Iterable[int | None] = (0, 12)) -> tuple[Tlb, ...]:
    return tuple(Tlb(level=level, kind="data" if level == 1 else "unified", pages=("4k",), entries=n, ways=w, source="CPUID 0x18")
                 for level, (n, w) in enumerate(zip(entries, ways, strict=True), 1))


@dataclass(frozen=True)
class Stated:
    """What a made-up machine says of itself."""

    tlb: tuple[Tlb, ...] = field(default_factory=tlbs)
    hypervisor: str = "none"
    changes: dict = field(default_factory=dict)

    def host(self) -> Host:
        words = {
            "cpu_model": "Imaginary Processor 9000", "vendor": "GenuineIntel", "family": 6, "model": 1, "stepping": 2,
            "microarchitecture": "Ice Lake server", "microcode": "0x1", "logical_cpus": 2, "usable_cpus": (0, 1),
            "caches": [{"level": 1, "kind": "data", "size_bytes": 32768, "line_bytes": 64, "ways": 8, "sets": 64},
                       {"level": 2, "kind": "unified", "size_bytes": MIB, "line_bytes": 64, "ways": 16, "sets": 1024}],
            "tlb": self.tlb, "tlb_reason": None if self.tlb else "no-geometry", "tlb_unknown_descriptors": (),
            "page_table_levels": 4, "la57": False, "gigabyte_pages": True, "base_page_bytes": 4096,
            "thp": {"enabled": "madvise", "defrag": "madvise"}, "mthp": {"64k": "never"},
            "pools": [{"page": "2m", "total": 0, "free": 0, "reserved": 0, "surplus": 0}], "hypervisor": self.hypervisor,
            "pmu": {"tier": "software", "reason": "no-pmu"},
            "memory": {"total_bytes": 8 * GIB, "available_bytes": 7 * GIB, "usable_bytes": 7 * GIB, "limit_source": "MemAvailable"},
            "noise": {"governor": "performance", "smt": "off", "turbo": False, "load1": 0.1}, "kernel_release": "6.1.0",
            "os": "Linux", "arch": "x86_64", "c_compiler": "gcc: gcc 12.2.0", "installation": "",
        }
        return Host.model_validate(words | self.changes)
