"""Machines that never were, with several page sizes: their rows, and the points of the chapters
that compare page sizes."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from experiments.hugepages import grid as hugepages_grid
from experiments.keeping_pages import grid as keeping_grid
from support.synthetic import GIB, PAGE_BYTES, lru, processes, scope, table_bytes
from tlb.measure.record import Point
from tlb.system.page_sizes import FULLY_SWEPT_PAGES


@dataclass(frozen=True)
class Paged:
    """A machine that gives several page sizes, whole or splintered by its host: two LRU levels,
    whose entries span a page or 4 KiB."""

    pages: tuple[str, ...] = tuple(PAGE_BYTES)
    splintered: bool = False
    entries: tuple[int, int] = (64, 1536)
    load_ns: float = 1.0
    hit_ns: float = 2.0
    walk_ns: float = 30.0
    depth: float = 0.7  # of a base page's walk: what one on larger pages costs
    ghz: float = 3.2
    faults_ns: tuple[float, ...] = (
        800.0,
        400.0,
        130.0,
        160.0,
        120.0,
    )  # of 4 KiB, by the page sizes that are swept
    noise: float = 0.02

    def misses(self, pages: str, size_bytes: float, entries: int, drawn: bool = False) -> float:
        """A chase visits each base page once a cycle, and so each larger page many times in no
        order: as draws do."""
        span = 4096 if self.splintered else PAGE_BYTES[pages]
        order = "random" if drawn or span > 4096 else "cycle"
        return float(lru(order, np.array([size_bytes / span]), entries)[0])

    def price_ns(self, pages: str, size_bytes: float, drawn: bool = False) -> float:
        walk = self.walk_ns * (1 if pages == "4k" else self.depth)
        first, second = (self.misses(pages, size_bytes, n, drawn) for n in self.entries)
        return first * self.hit_ns + second * walk

    def time_ns(self, point: Point) -> float:
        own = dict(point.options)
        if point.kernel == "prefault":
            each = dict(zip(FULLY_SWEPT_PAGES, self.faults_ns, strict=True)).get(
                point.pages, 0.5 * sum(self.faults_ns[:2])
            )
            alone = each * (0.9 if point.mode == "populate" else 1.0)
            return alone / own["threads"] ** 0.5
        if point.kernel == "random_touch":
            draws = 1 + own.get("spare_draws", 0)
            return (
                self.load_ns
                + self.DRAW_NS * draws
                + 0.3 * self.price_ns(point.pages, own["bytes"], drawn=True)
            )
        price = self.price_ns(point.pages, 4096 * point.lines) if point.layout == "spread" else 0.0
        return (self.load_ns + price) / (5 if point.kernel == "page_gather" else 1)

    DRAW_NS: ClassVar[float] = 1.5
    FREE_NS: ClassVar[float] = 50.0

    def frame(self, points: list[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process."""

        def fields(point: Point) -> dict[str, Any]:
            also = {
                "random_touch": {"generator_ns_per_access": self.DRAW_NS},
                "prefault": {
                    "free_ns_per_access": self.FREE_NS,
                    "one_byte_resident_bytes": float(PAGE_BYTES[point.pages]),
                },
            }
            return {
                "core_ghz": self.ghz,
                "also": also.get(point.kernel, {}),
                "page_table_bytes": table_bytes(point.pages, 4096 * point.lines),
            }

        there = [point for point in points if point.pages in self.pages]
        return processes(there, self.time_ns, self.noise, repeats, seed, fields=fields)


def hugepages(max_working_set: int = 4 * GIB, cpus: int = 4, per_octave: int = 4) -> list[Point]:
    """The points of the chapter about page sizes."""
    return hugepages_grid.points(scope(max_working_set, cpus=cpus, per_octave=per_octave))


@cache
def chases(splintered: bool) -> pd.DataFrame:
    """Rows of that chapter, by which others know whether the host splinters."""
    return Paged(splintered=splintered, noise=0.004).frame(hugepages(per_octave=2))


def keeping_pages(
    max_working_set: int = 4 * GIB, cpus: int = 4, per_octave: int = 4
) -> list[Point]:
    """The points of the chapter about getting them."""
    return keeping_grid.points(scope(max_working_set, cpus=cpus, per_octave=per_octave))
