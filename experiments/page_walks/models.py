"""Models of a walk: how many accesses to memory a hop waits for, and how many upper entries are
cached.

A hop makes one access to memory for the byte, and one more for each entry of a page table, the
machine's own or its host's, that had left the caches too. So hops form heaps about as far apart as
a load from memory takes. Neither the number of heaps nor even distances are assumed.

The caches of upper entries follow from the cost of a TLB miss as walks use more tables. Pages are
drawn at random from T tables of a level. A cache of C of the entries that lead to those tables holds
any of them with probability C/T, and each walk that misses it reads an entry more. So along T the
cost of a miss is flat, and from C on rises as 1 - C/T: the fit of random draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from tlb.stats.curves import Curve
from tlb.stats.hops import hop_modes, share_below
from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval, median_interval
from tlb.stats.misses import fit_random_curve
from tlb.system.reasons import Unavailable

# of the hops from the caches' end on: what less of them do is no heap that a mean would notice
LEAST_SHARE = 0.05
HEAP_WIDTH = 0.25  # of an access to memory: banks, rows and refreshes spread a heap


@dataclass(frozen=True)
class MemoryPeaks:
    """The heaps of one distribution: peaks over processes, ascending; where each heap begins;
    shares of all hops."""

    peaks_ns: list[Interval]  # ascending, over processes
    # the first where the caches end, the others half-way from peak to peak
    cuts_ns: list[float]
    shares: list[float]  # of all hops, by heap

    @property
    def step_ns(self) -> Interval:
        """From the first peak to the second; UNKNOWN_INTERVAL with one."""
        return self.peaks_ns[1] - self.peaks_ns[0] if len(self.peaks_ns) > 1 else UNKNOWN_INTERVAL


def latency_peaks_beyond_caches(
    pooled: pd.DataFrame, processes: Sequence[pd.DataFrame], cached_ns: float, memory_ns: float
) -> MemoryPeaks:
    """Return the heaps past `cached_ns`, where the caches end. memory_ns: what one access
    takes.

    pooled: a frame of `hops.merged_hops`; processes: those of `hops.smoothed_hops` that it was made of, whose
    own peaks nearest to each give its interval. A peak with fewer than LEAST_SHARE of those hops is
    none.
    """
    width = memory_ns * HEAP_WIDTH
    peaks = [ns for ns in hop_modes(pooled, width) if ns > cached_ns]
    while peaks:
        cuts = [cached_ns, *(float(np.mean(pair)) for pair in pairwise(peaks))]
        shares = np.diff([*share_below(pooled, cuts), 1.0])
        if shares.min() >= LEAST_SHARE * shares.sum():
            break
        peaks.pop(int(shares.argmin()))
    if not peaks:
        return MemoryPeaks([], [], [])
    own = [
        np.array([ns for ns in hop_modes(process, width) if ns > cached_ns])
        for process in processes
    ]
    return MemoryPeaks(_peak_intervals(peaks, own), cuts, shares.tolist())


def _peak_intervals(peaks: Sequence[float], own: Sequence[np.ndarray]) -> list[Interval]:
    """Return the interval of each peak over the nearest peaks of the processes, `own`, as far as
    they lie within half of the least distance of two."""
    reach = min([b - a for a, b in pairwise(peaks)], default=peaks[0]) / 2
    intervals = []
    for peak in peaks:
        nearest = [found[np.abs(found - peak).argmin()] for found in own if len(found)]
        near = [ns for ns in nearest if abs(ns - peak) < reach]
        intervals.append(replace(median_interval(near), modes=1) if near else UNKNOWN_INTERVAL)
    return intervals


def shares_by_accesses(
    distributions: Mapping[int, pd.DataFrame], cuts_ns: Sequence[float]
) -> pd.DataFrame:
    """Return, a row a working set, the share of hops with at least so many accesses, columns
    1, 2 ..."""
    rows = {size: 1 - share_below(spread, list(cuts_ns)) for size, spread in distributions.items()}
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=range(1, len(cuts_ns) + 1)
    ).sort_index()


# --- caches of upper entries

# Of the price before it: what a level adds at the end of a sweep, at the least, to be more than a
# slope. Reading a line of the first cache, the least that a walk can do more, is four cycles on the
# thirty of a walk that reads one.
LEAST_STEP_RISE = 1.08
# entries of a level that no sweep begins below: its price is what all of the sweep pays
_ALWAYS_MISSED = 1e-9


def rises(sweep: Curve) -> bool:
    """Return whether the end of the sweep lies above the beginning by more than LEAST_STEP_RISE."""
    return len(sweep) > 1 and (sweep.intervals[-1] / sweep.intervals[0]).low > LEAST_STEP_RISE


def cached_entries(sweep: Curve) -> Interval:
    """Return how many of the entries that lead to the tables of a level are cached, by a sweep of
    the cost of a miss over these tables. Raises Unavailable: no-step if it does not rise,
    too-few-points below five numbers of tables."""
    if not rises(sweep):
        raise Unavailable("no-step", f"up to {max(sweep.xs, default=0):,.0f} tables")
    fit = fit_random_curve(sweep.xs, sweep.table["median"], l1_entries=_ALWAYS_MISSED)
    return fit.l2_entries
