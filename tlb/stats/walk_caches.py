"""The caches of upper page-table entries, from the cost of a TLB miss as walks use more tables.

Pages are drawn at random from T tables of a level. A cache of C of the entries that lead to those
tables holds any of them with probability C/T, and each walk that it fails reads an entry more. So
along T the price of a miss is flat, and from C on rises as 1 - C/T: the fit of random draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval
from tlb.stats.misses import fit_random_curve, miss_probability_random
from tlb.system.reasons import Unavailable

# Of the price before it: what a level adds at the end of a sweep, at the least, to be more than a
# slope. Reading a line of the first cache, the least that a walk can do more, is four cycles on the
# thirty of a walk that reads one.
LEAST_RISE = 1.08
# entries of a level that no sweep begins below: its price is what all of the sweep pays
_ALWAYS_MISSED = 1e-9


class WalkCache(NamedTuple):
    """A cache of the entries that lead to the tables of one level."""

    level: int  # of those tables, 1 the lowest
    entries: Interval
    # that a walk takes longer where this fails: to read that entry, and those above it that nothing
    # keeps
    ns: Interval

    def missed(self, tables: float) -> float:
        """The share of walks through so many tables that it fails."""
        return float(miss_probability_random(np.array([max(tables, 1.0)]), self.entries.value)[0])


def rises(sweep: Curve) -> bool:
    """Return whether the end of the sweep lies above the beginning by more than LEAST_RISE."""
    return len(sweep) > 1 and (sweep.intervals[-1] / sweep.intervals[0]).low > LEAST_RISE


def find(
    level: int, sweep: Curve, below: Sequence[WalkCache] = (), tables: Sequence[float] = ()
) -> WalkCache:
    """Return the cache that a sweep of the price over the tables of a level shows.

    below: the caches of the levels below, and tables: how many tables of each the sweep has; only
    walks that those fail read further. Raises Unavailable: no-step if the price does not rise,
    too-few-points below five numbers of tables.
    """
    if not rises(sweep):
        raise Unavailable("no-step", f"level {level}, up to {max(sweep.xs, default=0):,.0f} tables")
    reach = float(np.prod([cache.missed(n) for cache, n in zip(below, tables, strict=True)]))
    fit = fit_random_curve(sweep.xs, sweep.table["median"], l1_entries=_ALWAYS_MISSED)
    return WalkCache(level, fit.l2_entries, fit.walk_ns * (1 / reach) if reach > 0 else fit.walk_ns)


def predicted_ns(first_ns: float, caches: Sequence[WalkCache], tables: dict[int, float]) -> float:
    """Return what a miss costs with so many tables of each level: first_ns, and the price of each
    level that is failed, if the ones below it were failed too."""
    total, reach = first_ns, 1.0
    for cache in sorted(caches):
        reach *= cache.missed(tables[cache.level])
        total += reach * cache.ns.value
    return total
