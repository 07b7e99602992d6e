"""How much several walks that take turns gain, and how many page walks overlap."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import pandas as pd

from tlb.report import analysis
from tlb.report.chapter import literature
from tlb.stats.curves import select
from tlb.stats.hops import with_one_clock
from tlb.stats.intervals import Interval, summarise
from tlb.system.page_sizes import BASE, ordered, rank, words
from tlb.system.reasons import Unavailable, required

SIZE_COLUMN = "working_set_bytes"

# Whose core is in it (Linux, arch/x86/include/asm/intel-family.h). An article says two walkers of
# Sapphire Rapids; others measured four.
_CORES = {
    "Alder Lake": "Golden Cove",
    "Sapphire Rapids": "Golden Cove",
    "Skylake server": "Skylake client",
    "Cascade Lake": "Skylake client",
    "Cooper Lake": "Skylake client",
}


class Parallel(NamedTuple):
    """What many walks at once say of a page size: where their gain stops."""

    one_ns: Interval
    best_ns: Interval
    best_walkers: int
    gain: float


class WalkersAnalysis(analysis.Analysis):
    """What several walkers in one thread gain. The page defines `walkers`."""

    def walks(self, per_hop: int, **where: object) -> pd.DataFrame:
        """The rows of plain walks that were timed hop by hop (1) or per batch (0)."""
        walks = select(self.frame, kernel="graph_walk", mode="plain", per_hop=per_hop)
        return select(with_one_clock(walks), **where)

    def several_walkers(self) -> pd.DataFrame:
        """Return a row a page size and number of walks that take turns in one thread: pages,
        walkers, vertices, as `summarise` (ns per hop).

        Of each page size the largest graph that was walked by several numbers of walkers.
        """
        rows = self.walks(0)
        several = rows.groupby(["pages", "lines"])["walkers"].nunique()
        most = dict(several[several > 1].index)  # sorted: of each page size the last is the largest
        rows = rows[rows["lines"] == rows["pages"].map(most).astype(float)]
        by = ["pages", "walkers"]
        summary = summarise(rows, by).astype({"walkers": int})
        summary = summary.sort_values(by, key=rank, ignore_index=True)
        return summary.assign(vertices=summary["pages"].map(most))

    def parallel(self, pages: str) -> Parallel:
        """Of `walkers` on a page size, beside one."""
        side = select(self.walkers, pages=pages).dropna(subset="gain").set_index("walkers")
        if len(side) < 2:
            why = f"several walkers on {words(pages)} were not measured beside one"
            raise Unavailable("too-few-points", why)
        best = int(side.index[int(side["median"].argmin())])
        each = side.to_dict("index")
        one_ns, best_ns = (Interval.of(each[walkers]) for walkers in (1, best))
        return Parallel(one_ns, best_ns, best, float(each[best]["gain"]))

    @cached_property
    def under_way(self) -> tuple[Parallel, Parallel, Interval]:
        """Base pages, large pages, and how many walks the former had under way at once at their
        best.

        By Little's law as many as a walk takes over what a hop takes then, if a walk takes what
        one walker's hop takes longer on base pages than on large ones, among many walkers too.
        Raises Unavailable: too-few-points, pool-empty, unstable.
        """
        rest = [pages for pages in ordered(self.walkers["pages"]) if pages != BASE]
        required(rest, "several walkers were not measured on large pages", "pool-empty")
        base, large = self.parallel(BASE), self.parallel(rest[-1])
        walk = base.one_ns - large.one_ns
        if walk.low <= 0:
            raise Unavailable("unstable", f"base pages cost {walk:.1f} ns more")
        return base, large, walk / base.best_ns

    @cached_property
    def page_walkers(self) -> float | None:
        """How many page walkers this core is said to have; None where nobody says."""
        name, facts = self.host.microarchitecture, literature("microarchitectures")
        stated = select(facts, structure="page_walker", quantity="count")
        return stated.set_index("microarchitecture")["value_low"].get(_CORES.get(name, name))
