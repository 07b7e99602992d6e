"""Machines of two TLB levels that never were, and what a survey of each measures."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from support.common import make_record
from tlb.measure import survey
from tlb.measure.record import Point
from tlb.stats import geometry
from tlb.stats.geometry import TlbGeometry

CACHES = {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
Missed = Callable[
    [str, int, int], float
]  # order, pages, stride -> the share of visits that a level misses


@cache
def lru(entries: int, ways: int = 0) -> Missed:
    """LRU of contiguous sets, by playing the chase; ways 0 is fully associative."""

    def missed(order: str, pages: int, stride: int) -> float:
        sets = 1 if ways == 0 else entries // ways
        size = entries if ways == 0 else ways
        if order == "random":
            return max(0.0, 1 - entries / pages)
        held = np.bincount(np.arange(pages) * stride % sets, minlength=sets)
        return float(held[held > size].sum() / pages)

    return missed


@cache
def at_random(entries: int) -> Missed:
    """Any page is replaced: in a cycle the root of x = 1 - exp(-x M/C), by iteration."""

    def missed(order: str, pages: int, stride: int) -> float:
        if order == "random":
            return max(0.0, 1 - entries / pages)
        x = 1.0
        for _ in range(3000):
            x = 1 - math.exp(-x * pages / entries)
        return x

    return missed


@dataclass(frozen=True)
class Made:
    """A machine of two TLB levels, in core cycles."""

    first: Missed
    second: Missed
    load: float = 4.0
    hit: float = 7.0
    walk: float = 30.0
    l3: float = 60.0  # what a walk adds with its table in L3, and in memory
    memory: float = 400.0
    penalty: float = 17.0
    noise: float = 0.01
    ghz: float = 3.0
    spread: bool = True  # False: a machine without pages for the spread layout
    misplaced: float = 1.0  # the alias layout sees a first level so many times as large
    # so many neighbours share an entry where their frames lie in a row, as those of the spread
    # layout do
    joined: int = 1

    def cycles(self, point: Point) -> float:
        stride = point.stride_pages // (512 if point.pages == "2m" else 1)
        if point.layout == "packed":
            return self.load + (10 if point.lines > 512 else 0)
        pages = (
            max(1, point.lines // self.joined)
            if point.layout == "spread"
            else max(1, round(point.lines / self.misplaced))
        )
        all_pages = pages if point.layout == "spread" else point.lines
        table = point.lines * min(8 * stride, 64)
        walk = (
            self.walk
            + (self.l3 if table > CACHES[2] else 0)
            + (self.memory if table > CACHES[3] else 0)
        )
        price = (
            self.first(point.order, pages, stride) * self.hit
            + self.second(point.order, all_pages, stride) * walk
        )
        if point.layout == "alias":
            return self.load + 1 + (self.penalty if point.lines > 8 else 0) + price
        return self.load + (10 if point.lines > 512 else 0) + price

    def run(self, seed: int = 1) -> Callable[[list[Point]], pd.DataFrame]:
        """What survey() measures with: rows of all points asked for so far."""
        rng, rows, seen = np.random.default_rng(seed), [], set()

        def run(points: list[Point]) -> pd.DataFrame:
            for point in points:
                if point in seen or (point.layout == "spread" and not self.spread):
                    continue
                seen.add(point)
                for repeat in range(survey.repeats_of(point)):
                    ns = (
                        self.cycles(point)
                        / (self.ghz or 1)
                        * float(np.exp(self.noise * rng.standard_normal()))
                    )
                    record = make_record(
                        **point.model_dump(),
                        stride_bytes=4096 * point.stride_pages,
                        repeat=repeat,
                        ns_per_access=ns,
                        batch_ns_per_access=[ns * 0.9, ns, ns * 1.1],
                        core_ghz=self.ghz,
                    )
                    rows.append(record.model_dump(exclude={"counters"}))
            return pd.DataFrame(rows)

        return run


@cache
def rows(made: Made, pages: str, seed: int) -> pd.DataFrame:
    return survey.survey(made.run(seed), pages, CACHES)


# `make mutation` looks which tests call what, and a test that finds a geometry here would be seen
# to call nothing.
@cache if "MUTANT_UNDER_TEST" not in os.environ else lambda made: made
def inferred(
    made: Made, pages: str = "4k", stated: tuple[int, ...] = (), seed: int = 1
) -> TlbGeometry:
    return geometry.infer_tlb_geometry(rows(made, pages, seed), stated, CACHES)


SHARP = Made(lru(64), lru(1536))
