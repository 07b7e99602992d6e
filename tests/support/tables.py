"""Chases through page tables on machines that never were: the simulator counts what each walk
reads, and each read has a price."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from experiments.page_walks import Analysis, grid
from experiments.page_walks.grid import PAGE_TABLE_OPTION_NAMES
from support import geometry, page_sizes, synthetic
from support.common import About
from support.synthetic import GIB, Stated, processes, scope, tlbs
from tlb.measure import survey
from tlb.measure.record import Point

FANOUT = 512


@dataclass(frozen=True)
class Walker:
    """A machine by the entries that it keeps: of its TLB, and of each upper level, by the level of
    the tables that they lead to."""

    entries: tuple[int, int] = (64, 1536)
    kept: tuple[tuple[int, int], ...] = ((1, 256), (2, 16), (3, 4))
    hit_ns: float = 4.0
    leaf_ns: float = 8.0
    read_ns: tuple[float, float, float] = (
        6.0,
        6.0,
        6.0,
    )  # of an entry that leads to tables of each level, the lowest first
    second_ns: float = 2.0  # that a hit of the last level takes longer than one of the first
    noise: float = 0.005
    ghz: float = 3.0

    def ns(self, point: Point) -> float:
        own = dict(point.options)
        tables, hot = tuple(own[name] for name in PAGE_TABLE_OPTION_NAMES), own.get("hot", 0)
        misses = _misses(point.lines, tables, self, hot)
        reads = sum(n * ns for n, ns in zip(misses[2:], self.read_ns, strict=True))
        return self.hit_ns + misses[0] * self.second_ns + misses[1] * self.leaf_ns + reads

    def frame(self, points: Iterable[Point], repeats: int = 5, seed: int = 1) -> pd.DataFrame:
        """One row a process."""
        fields, columns = {"core_ghz": self.ghz}, (*PAGE_TABLE_OPTION_NAMES, "hot")
        return processes(
            points, self.ns, self.noise, repeats, seed, fields=lambda _: fields, columns=columns
        )


def addresses(pages: int, tables: tuple[int, ...], seed: int = 1) -> np.ndarray:
    """Page numbers at random places of the tables of each level, in the order of their visits: a
    line of eight entries after another."""
    draw, parents = np.random.default_rng(seed), np.arange(tables[-1])
    for level, children in zip((3, 2, 1), (tables[1], tables[0], pages), strict=True):
        is_alone = level == 1
        each, a_line = children // len(parents), 1 if is_alone else 8
        lines = -(-each // a_line)
        slots = [draw.permutation(FANOUT // 8)[:lines] for _ in parents]
        within = np.arange(each)
        places = [draw.integers(0, 8, each) if is_alone else within % 8 for _ in parents]
        parents = np.concatenate(
            [
                parent * FANOUT + slot[within // a_line] * 8 + place
                for parent, slot, place in zip(parents, slots, places, strict=True)
            ]
        )
    return draw.permutation(parents)


@cache
def _misses(pages: int, tables: tuple[int, ...], walker: Walker, hot: int) -> tuple[float, ...]:
    """A visit's misses of the first level, its walks, and reads of the entries that lead to tables
    of the first, second, third level; when all is warm. hot: of drawn visits, of which half are
    among so many pages; 0 for a cycle."""
    order = addresses(pages, tables)
    if hot:
        draw = np.random.default_rng(2)
        order = order[
            (
                draw.random(8 * pages) * np.where(draw.integers(0, 2, 8 * pages) == 1, hot, pages)
            ).astype(int)
        ]
    # Of all ways only where few entries are searched for each visit.
    return _counts(order, walker, 0 if walker.entries[-1] <= 4096 else 16)


def _counts(order: np.ndarray, walker: Walker, ways: int) -> tuple[float, ...]:
    """As `_misses` returns them, of the third of three rounds."""
    stream, left, upper = np.tile(order, 3), [], dict(walker.kept)
    seen = np.arange(len(stream))  # the visits that reach a level
    for shift, entries, *how in (
        (0, walker.entries[0]),
        (0, walker.entries[-1], ways),
        *((9 * level, upper.get(level, 0)) for level in (1, 2, 3)),  # what leads to their tables
    ):
        seen = seen[_missed(stream[seen] >> shift, entries, *how)] if entries else seen
        left.append(float((seen >= 2 * len(order)).sum() / len(order)))
    return tuple(left)


def _missed(pages: np.ndarray, entries: int, ways: int = 0) -> np.ndarray:
    """Return which visits miss a level under LRU that is empty before the first. ways: of a set; 0:
    all entries are one set."""
    ways = ways or entries
    sets = [OrderedDict[int, None]() for _ in range(entries // ways)]
    misses = np.zeros(len(pages), dtype=bool)
    for visit, page in enumerate(pages.tolist()):
        held = sets[page % len(sets)]
        misses[visit] = page not in held
        held[page] = None
        held.move_to_end(page)
        if len(held) > ways:
            held.popitem(last=False)
    return misses


def points(most: int = GIB, entries: tuple[int, int] = (64, 1536)) -> list[Point]:
    return grid.table_chases(scope(most, entries, per_octave=4))


@cache
def rows(walker: Walker = Walker(), most: int = GIB, repeats: int = 5) -> pd.DataFrame:
    return walker.frame(points(most, walker.entries), repeats)


@cache
def _kept(hypervisor: str, entries: tuple[int, int]) -> dict[str, pd.DataFrame]:
    """The rows of the other chapters."""
    surveyed = geometry.rows(
        geometry.Made(geometry.lru(entries[0]), geometry.lru(entries[1])), "4k", 1
    )
    cliff = synthetic.frame(synthetic.Truth(entries=entries), synthetic.grid(), 5)
    return {
        "hugepages": page_sizes.chases(hypervisor != "none"),
        survey.NAME: surveyed,
        "stlb_cliff": cliff,
    }


def analysis(
    frame: pd.DataFrame | None = None,
    *,
    hypervisor: str = "none",
    entries: tuple[int, int] = (64, 1536),
) -> Analysis:
    """Of a machine whose survey was made, and whose other chapters were measured."""
    host = Stated(hypervisor=hypervisor, tlb=tlbs(entries, (0, 12))).host()
    return Analysis(
        rows() if frame is None else frame, About(host, rows=dict(_kept(hypervisor, entries)))
    )


NOTHING = Walker().frame([])
MACHINES = {
    "no upper caches": lambda: rows(Walker(kept=())),
    "huge upper caches": lambda: rows(Walker(kept=((1, 4096), (2, 4096), (3, 4096)))),
}
