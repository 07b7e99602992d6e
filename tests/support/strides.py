"""Sums over strided elements on machines that never were: rows of them, and an Analysis of such
rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from experiments.tlb_blocking import Analysis, grid
from support import page_sizes
from support.common import About
from support.synthetic import GIB, Stated, processes, scope
from tlb.measure.record import Point
from tlb.system.page_sizes import CACHE_LINE_BYTES

PAGE = 4096


@dataclass(frozen=True)
class Machine:
    """What a load costs, ns: for its line, the line's place, the sets it shares, its page."""

    pages: tuple[str, ...] = ("4k", "thp", "2m")
    element_ns: float = 0.4
    line_ns: float = 1.2  # that a prefetcher brings
    apart_ns: float = 2.5  # more, of one that it does not
    sets_ns: float = 4.0  # more, where a power of two puts all on few sets
    walk_ns: float = 6.0
    shuffled_ns: float = 9.0  # more, in no order
    splintered: bool = False
    walks: float = 0.0  # counted at a page's stride; 0: nothing counts
    noise: float = 0.005

    def ns(self, point: Point) -> float:
        own = dict(point.options)
        step, size, took = own["step_bytes"], own["bytes"], self.element_ns
        if size <= grid.BYTES_WITHIN_L1_CACHE:
            return took
        took += self.line_ns * min(1.0, step / CACHE_LINE_BYTES)
        far = min(1.0, step / PAGE) if size >= grid.ARRAY_BYTES and step > CACHE_LINE_BYTES else 0.0
        took += far * self.apart_ns * (point.order != "cycle") + (
            self.sets_ns * far if step.bit_count() == 1 and step >= PAGE else 0.0
        )
        took += (
            far * self.walk_ns * (1.0 if point.pages == "4k" else 0.5 if self.splintered else 0.0)
        )
        return took + self.shuffled_ns * (point.order == "cycle")

    def frame(self, points: Iterable[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process."""
        there = [point for point in points if point.pages in self.pages]
        columns = ("bytes", "step_bytes")
        frame = processes(there, self.ns, self.noise, repeats, seed, columns=columns)
        if not (self.walks and there):
            return frame
        return frame.assign(
            walk_per_access=self.walks * np.minimum(frame["step_bytes"] / PAGE, 1), walk_reason=""
        )


def points(most: int = GIB) -> list[Point]:
    return grid.strided_sums(scope(most, per_octave=4))


@cache
def rows(machine: Machine = Machine(), most: int = GIB, repeats: int = 5) -> pd.DataFrame:
    return machine.frame(points(most), repeats)


def analysis(frame: pd.DataFrame | None = None, splintered: bool = False) -> Analysis:
    """Of a machine whose chases over page sizes show whether the host splinters them."""
    chases = page_sizes.chases(splintered)
    hypervisor = "kvm" if splintered else "none"
    return Analysis(
        rows() if frame is None else frame,
        About(Stated(hypervisor=hypervisor).host(), rows={"hugepages": chases}),
    )


NOTHING = rows().query("kernel == 'none'")
