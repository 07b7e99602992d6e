"""The walk of a graph on machines that never were: what a hop takes, what a clock that steps reads
of it, and rows of that."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from experiments.page_walks import Analysis, grid
from support.common import About, make_record
from support.synthetic import GIB, MIB, Stated, scope, tlbs
from tlb.measure import kernels
from tlb.measure.record import Point

ENTRIES = [64, 1536]
REACH = 1536 * 4096
GHZ = 2.5


def graph_points(most: int) -> list[Point]:
    """The points of the chapter that are not chases through page tables."""
    asked = grid.points(scope(most, per_octave=4))
    return [point for point in asked if point.kernel != "table_chase"]


def readings(
    ns: np.ndarray, draw: np.random.Generator, step_ns: float, clock_ns: float
) -> list[tuple[float, int]]:
    """What a counter that advances by steps reads, its own cost included, in bins as kernels/hops.h
    has them."""
    phase = draw.random(len(ns)) * step_ns
    ticks = np.round(
        (np.floor((phase + ns + clock_ns) / step_ns) - np.floor(phase / step_ns)) * step_ns * GHZ
    )
    shift = np.maximum(0, np.floor(np.log2(np.maximum(ticks, 1))) - 7).astype(int)
    bins, hops = np.unique((ticks.astype(int) >> shift) << shift, return_counts=True)
    return [(float(f"{b / GHZ:.7g}"), int(n)) for b, n in zip(bins, hops, strict=True)]


@dataclass(frozen=True)
class Walk:
    """A machine with one cache, one TLB level that counts and pages whose entries span them: what a
    hop takes, drawn by chance."""

    cache_bytes: int = 4 * MIB
    cache_ns: float = 5.0
    memory_ns: float = 70.0
    walk_ns: float = 5.0  # of a walk in the caches
    far_ns: float = 75.0  # what a walk costs more whose table has left them
    far_from: int = 1 * GIB  # bytes of data on base pages from which on half of the tables have
    splintered: bool = False
    large_walk: float = 0.8  # of a base page's walk
    noise: float = 0.01  # of a process
    step_ns: float = 10.0
    clock_ns: float = 22.0
    walkers: int = 6
    in_flight: int = 16
    counted: bool = False

    def misses(self, pages: str, size: int) -> float:
        span = (
            1 if pages == "4k" or self.splintered else {"thp": 512, "2m": 512, "1g": 2**18}[pages]
        )
        return max(0.0, 1 - REACH * span / size)

    def walk(self, pages: str, size: int) -> tuple[float, float]:
        """A walk's ns in the caches, and the share of walks that leave them."""
        return self.walk_ns * (1 if pages == "4k" else self.large_walk), 1 - min(
            1.0, self.far_from / 2 / size
        ) if pages == "4k" else 0.0

    def hops(self, pages: str, size: int, draw: np.random.Generator, n: int = 4000) -> np.ndarray:
        hit = draw.random(n) < self.cache_bytes / size
        near, far = self.walk(pages, size)
        walked = draw.random(n) < self.misses(pages, size)
        ns = np.where(hit, self.cache_ns, self.memory_ns) + walked * (
            near + (draw.random(n) < far) * self.far_ns
        )
        return ns * np.exp(0.04 * draw.normal(size=n))

    def mean(self, pages: str, size: int, walkers: int = 1) -> float:
        near, far = self.walk(pages, size)
        hit = min(1.0, self.cache_bytes / size)
        load = hit * self.cache_ns + (1 - hit) * self.memory_ns
        walk = self.misses(pages, size) * (near + far * self.far_ns)
        alone = (load + walk) / min(walkers, self.in_flight)
        return max(alone, walk / self.walkers)

    def frame(self, most: int = 16 * GIB, repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        draw, rows = np.random.default_rng(seed), []
        for point in graph_points(most):
            own, size = dict(point.options), 64 * point.lines
            for repeat in range(repeats):
                off = float(np.exp(self.noise * draw.normal()))
                mean = self.mean(point.pages, size, own.get("walkers", 1)) * off
                more: dict = {"also": {"four_vertices_ns_per_access": 2.0 / own.get("walkers", 1)}}
                if own.get("per_hop"):
                    more = {
                        "histogram": readings(
                            self.hops(point.pages, size, draw) * off,
                            draw,
                            self.step_ns,
                            self.clock_ns,
                        ),
                        "also": {
                            "tsc_ghz": GHZ,
                            "clock_ns": self.clock_ns,
                            "clock_step_ns": self.step_ns,
                            "mean_ns": mean,
                        },
                    }
                record = make_record(
                    **point.model_dump(),
                    repeat=repeat,
                    batch_ns_per_access=[1.0],
                    ns_per_access=mean + (60 if own.get("per_hop") else 0),
                    **more,
                )
                row = (
                    record.model_dump(exclude={"counters", "options", "also"})
                    | dict(record.options)
                    | record.also
                )
                if self.counted:
                    walked = self.misses(point.pages, size)
                    cycles = {
                        "walk_cycles_per_access": 3 * walked * self.walk(point.pages, size)[0]
                    }
                    row |= {"walk_per_access": walked, "walk_reason": ""} | cycles
                rows.append(row)
        return kernels.with_defaults(pd.DataFrame(rows))


@cache
def rows(machine: Walk = Walk(), most: int = 16 * GIB, repeats: int = 5) -> pd.DataFrame:  # noqa: B008 (frozen)
    return machine.frame(most, repeats)


def only(*pages: str) -> pd.DataFrame:
    return rows()[rows()["pages"].isin(pages)].reset_index(drop=True)


def analysis(
    frame: pd.DataFrame | None = None,
    entries: Sequence[int] = ENTRIES,
    core: str = "Imaginary",
    vendor: str = "GenuineIntel",
    **kept: pd.DataFrame,
) -> Analysis:
    """The chapter's Analysis of these rows, by default of a machine where everything was measured.
    kept: other chapters' rows."""
    host = Stated(
        tlb=tlbs(entries, (0, 12)[: len(entries)]),
        changes={"microarchitecture": core, "vendor": vendor},
    ).host()
    return Analysis(rows() if frame is None else frame, About(host, rows=kept))
