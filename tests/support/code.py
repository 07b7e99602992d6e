"""Jumps to many pages of code on machines that never were: rows of them, and an Analysis of such
rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from experiments.code import Analysis, grid
from support import page_sizes
from support.common import About
from support.synthetic import GIB, Stated, processes, scope
from tlb.machine.cpuid import Tlb
from tlb.measure.record import Point

STATED = (64, 2048)


@dataclass(frozen=True)
class Jumps:
    """What a jump takes: known, foreseen, drawn; and what a miss of each level of the TLB for
    instructions adds to a drawn one, ns."""

    entries: tuple[int, int] = STATED
    known_ns: float = 0.3
    learned_ns: float = 0.5
    drawn_ns: float = 7.0
    hit_ns: float = 2.0
    walk_ns: float = 14.0
    hidden: float = 0.9  # of a miss, where the jump is foreseen
    line_ns: float = 150.0  # of a drawn jump to a line past the caches
    large_misses: float = 0.0  # of a miss on base pages, on large ones
    walks: float = 0.0  # counted of a jump past both levels; 0: nothing counts
    noise: float = 0.005

    def ns(self, point: Point) -> float:
        kind = next(
            name for name, how in grid.JUMP_KINDS.items() if how == (point.mode, point.order)
        )
        took = {"direct": self.known_ns, "learned": self.learned_ns, "random": self.drawn_ns}[kind]
        pages = point.lines if point.layout != "packed" else max(1, point.lines // 64)
        hot_lines = point.lines // dict(point.options).get("every", 1)
        first, second = (max(0.0, 1 - n / pages) for n in self.entries)
        missed = (first * self.hit_ns + second * self.walk_ns) * (
            1.0 if kind == "random" else 1 - self.hidden
        )
        far = (
            self.line_ns * max(0.0, 1 - (1 << 19) / hot_lines) if point.layout == "packed" else 0.0
        )
        return took + missed * (1.0 if point.pages == "4k" else self.large_misses) + far

    def frame(self, points: Iterable[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process."""
        frame = processes(points, self.ns, self.noise, repeats, seed)
        missed = np.maximum(0.0, 1 - self.entries[-1] / frame["lines"].astype(float))
        return frame.assign(itlb_walk_per_access=self.walks * missed) if self.walks else frame


def points(most: int = GIB) -> list[Point]:
    return grid.points(scope(most, per_octave=4))


@cache
def rows(jumps: Jumps = Jumps(), most: int = GIB, repeats: int = 5) -> pd.DataFrame:
    return jumps.frame(points(most), repeats)


def flags(**changes: Any) -> dict[str, Any]:
    """The document of what a computer lists."""
    return {
        "schema_version": 1,
        "state": "a" * 12,
        "defrag_modes": ["always", "defer", "madvise", "never"],
        "java_flags": ["UseTransparentHugePages"],
    } | changes


def texts(**changes: Any) -> dict[str, Any]:
    """The document of what code lies on."""
    had = {"file": 0, "anonymous": 0, "advised": 8 << 20, "memfd": 0, "memfd-collapsed": 8 << 20}
    got = [
        {
            "way": way,
            "array_bytes": 8 << 20,
            "resident_bytes": 8 << 20,
            "huge_bytes": huge,
            "rest_huge_bytes": 0,
        }
        for way, huge in had.items()
    ]
    return {
        "schema_version": 1,
        "measured_at": "2026-01-01T00:00:00Z",
        "state": "a" * 12,
        "thp": "madvise",
        "file_system": "ext4",
        "got": got,
        "lacking": {"file-collapsed": "linux-lacks", "memfd-pool": "pool-empty"},
    } | changes


def analysis(
    frame: pd.DataFrame | None = None, *, splintered: bool = False, **changes: Any
) -> Analysis:
    """Of a machine whose chases over page sizes show whether the host splinters them. changes: of
    `flags`."""
    chases = page_sizes.chases(splintered)
    tlb = tuple(
        Tlb(level=level, kind="instruction", pages=("4k",), entries=n, source="made up")
        for level, n in enumerate(STATED, 1)
    )
    host = Stated(hypervisor="kvm" if splintered else "none", tlb=tlb).host()
    about = About(
        host, rows={"hugepages": chases}, documents={"flags": flags(**changes), "texts": texts()}
    )
    return Analysis(rows() if frame is None else frame, about)


NOTHING = rows().query("kernel == 'none'")
