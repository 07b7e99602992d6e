"""Walks in blocks, prefetches and joins on machines that never were: rows of them, and an Analysis
of such rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from experiments.tlb_blocking import Analysis, grid
from support.common import About
from support.synthetic import GIB, PAGE_BYTES, Stated, processes, scope, tlbs
from tlb.measure.record import Point

ENTRIES = [64, 1536]
CLOCK_NS = 9.0


@dataclass(frozen=True)
class Machine:
    """A machine with one level of the TLB that matters to walks and one that matters to
    partitioning."""

    pages: tuple[str, ...] = ("4k", "thp", "2m", "1g")
    splintered: bool = False  # an entry spans 4 KiB of any page
    load_ns: float = 40.0
    walk_ns: float = 60.0
    tail: float = 1.5  # the 95th percentile over the median
    walking_prefetch: bool = True
    prefetch_gain: float = 0.5  # the share of a hop's time that a prefetch can hide
    jump_ns: float = 3.0  # of a row, past the first level's entries on pages of 4 KiB
    join_gain: float = 3.0
    noise: float = 0.01

    def walks(self, pages: str, vertices: int, options: dict[str, int], apart: int = 64) -> float:
        """A hop, of vertices so many bytes apart."""
        span = 4096 if self.splintered else PAGE_BYTES[pages]
        inside = max(options.get("block_vertices", vertices) * apart / span, 1)
        capacity = max(0.0, 1 - ENTRIES[-1] / inside)
        steps = options.get("block_steps", 10**12)
        return (
            max(capacity, min(1.0, inside * (1 - (1 - 1 / inside) ** steps) / steps))
            if inside > 1
            else 0.0
        )

    def hop_ns(self, point: Point) -> float:
        own = dict(point.options)
        walks = self.walks(point.pages, point.lines, own, 4096 if point.layout == "spread" else 64)
        ns = self.load_ns + self.walk_ns * walks
        if own.get("distance", 0) == 0:
            return ns
        hidden = self.prefetch_gain * min(1.0, own["distance"] / 8)
        return ns * (1 - hidden * (1.0 if self.walking_prefetch else 1 - walks))

    def row_ns(self, point: Point) -> float:
        bits = dict(point.options).get("bits", 0)
        span_4k = point.pages == "4k" or self.splintered
        scatter = 4.0 + (self.jump_ns if span_4k and 2**bits > ENTRIES[0] else 0.0)
        naive = 30.0 if point.pages == "4k" else 20.0
        return {
            "partition": scatter,
            "naive": naive,
            "partitioned": naive / self.join_gain + scatter / 4,
        }[point.mode]

    def frame(self, points: list[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process; of a walk hop by hop with its quantiles and its histogram."""

        def ns(point: Point) -> float:
            return self.hop_ns(point) if point.kernel == "graph_walk" else self.row_ns(point)

        def more(point: Point, ns: float) -> dict[str, Any]:
            if point.mode == "partition":
                return {"histogram_ns_per_access": 1.0}
            if not dict(point.options).get("per_hop"):
                return {}
            # The median is the middle of the second bin's hops, the 95th percentile that of the
            # last one's.
            bins = ((0.5, 450), (0.95, 100), ((0.95 + self.tail) / 2, 350), (self.tail, 100))
            return {
                "ns_per_access": ns + 20,
                "p50_ns": ns * 0.95,
                "p95_ns": ns * self.tail,
                "mean_ns": ns,
                "clock_ns": CLOCK_NS,
                "tsc_ghz": 0.5,
                "clock_step_ns": 2.0,
                "histogram": [(CLOCK_NS + ns * at, hops) for at, hops in bins],
            }

        there = [point for point in points if point.pages in self.pages]
        return processes(there, ns, self.noise, repeats, seed, more=more)


def points(most: int = 4 * GIB) -> list[Point]:
    """The chapter's points but the strided sums, which `support.strides` has."""
    every = grid.points(scope(most, ENTRIES, cpus=2, per_octave=4))
    return [point for point in every if point.kernel != "stride_sum"]


@cache
def rows(machine: Machine = Machine(), most: int = 4 * GIB, repeats: int = 5) -> pd.DataFrame:
    return machine.frame(points(most), repeats)


def only(*pages: str) -> pd.DataFrame:
    return rows()[rows()["pages"].isin(pages)].reset_index(drop=True)


def analysis(
    frame: pd.DataFrame,
    entries: Iterable[int] = ENTRIES,
    others: dict[str, pd.DataFrame] | None = None,
) -> Analysis:
    """Of a machine whose TLB levels have so many entries. others: rows of other chapters."""
    host = Stated(tlb=tlbs([*entries], [0] * len([*entries]))).host()
    return Analysis(frame, About(host, rows=others or {}))


def times(frame: pd.DataFrame, factor: float, where: str) -> pd.DataFrame:
    """The frame with the chosen rows slower by a factor, and so their quantiles."""
    chosen = frame.eval(where)
    histogram = [
        [(CLOCK_NS + factor * (least - CLOCK_NS), hops) for least, hops in bins] if slow else bins
        for bins, slow in zip(frame["histogram"], chosen, strict=True)
    ]
    return frame.assign(
        histogram=histogram,
        **{
            name: frame[name].where(~chosen, frame[name] * factor)
            for name in ("ns_per_access", "p50_ns", "p95_ns", "mean_ns")
            if name in frame
        },
    )


NOTHING = rows().query("kernel == 'none'")
