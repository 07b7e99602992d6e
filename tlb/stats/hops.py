"""Times of single hops, from a kernel's histogram of clock readings: distributions and
quantiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pandas as pd
from scipy.signal import find_peaks

from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval, median_interval
from tlb.system.reasons import Unavailable

NumberOrNumbers = float | Sequence[float] | np.ndarray
# kernels/hops.h: up to so many ticks a bin each, then half as many bins an octave
SINGLE_TICKS = 256
LEAST_MODE_PROMINENCE = 0.08  # of the highest mode: less is a ripple of the steps of the clock
DENSITY_POINTS = 400  # points at which a density is looked at
# looked for: a finer step loses nothing, and no counter is slower
LEAST_GRAIN_NS, MOST_GRAIN_NS, GRAIN_STEP_NS = 4.0, 20.0, 0.1
LEAST_COMB_SHARE = 0.5


@lru_cache(1 << 12)  # most of a page's time: each process is read by its quantiles and heaps
def clock_grain_ns(readings: tuple[float, ...], counts: tuple[float, ...]) -> float:
    """Return the step in which readings come, if it shows: the longest period whose multiples they
    lie near; else 0. readings: ascending, in ns; counts: of hops.

    On Zen 3 two readings differ by one tick of 0.44 ns now and then, and nearly all lie 10 ns
    apart. Near: the readings as unit vectors, turned once round a period, add up to COMBED of their
    number (Rayleigh's statistic).
    """
    ns, hops = np.array(readings), np.array(counts)
    quarter, half, most = (
        ns[np.searchsorted(np.cumsum(hops), share * hops.sum())] for share in (0.25, 0.5, 0.75)
    )
    periods = np.arange(LEAST_GRAIN_NS, min(MOST_GRAIN_NS, (most - quarter) / 2), GRAIN_STEP_NS)
    if not len(periods):
        return 0.0
    angles = 2 * np.pi * (ns - half) / periods[:, None]
    # five times as fast as the absolute value of a complex exponential
    turned = np.hypot(np.cos(angles) @ hops, np.sin(angles) @ hops) / hops.sum()
    return float(periods[turned > max(LEAST_COMB_SHARE, 0.95 * turned.max())].max(initial=0.0))


def with_median_clock_cost(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which reading the clock costs all processes the same, their median; of two in
    the middle the lower, for one of two processes may be disturbed.

    A process that is disturbed while it times the clock alone finds several times its cost (140 ns
    instead of 30 in a fifth of them on one guest), and takes that off each of its hops.
    """
    if "clock_ns" not in rows:
        return rows
    cost = float(rows["clock_ns"].quantile(0.5, interpolation="lower"))
    too_much = (rows["clock_ns"] - cost).fillna(0.0)
    read = [name for name in ("mean_ns", "later_mean_ns", "p50_ns", "p95_ns") if name in rows]
    return rows.assign(clock_ns=cost, **{name: rows[name] + too_much for name in read})


def smoothed_hop_times(row: pd.Series) -> pd.DataFrame:
    """Return one process's times of hops: low_ns, high_ns and share, spread evenly between them.

    A counter that advances by whole steps reads a hop of t as the step below or above t, in the
    proportion that makes the mean right; so each reading stands for times within half a step on
    both sides. A bin wider than a step stands for its own width. The clock's own cost is taken off;
    what a hop of almost nothing leaves below zero stays there.
    """
    bins = np.array([tuple(pair) for pair in row["histogram"]], dtype=float).reshape(-1, 2)
    if not len(bins):
        raise Unavailable("too-few-points", "a walk timed hop by hop has no histogram")
    ghz = float(row["tsc_ghz"])
    ticks = np.maximum(bins[:, 0] * ghz, 1)
    width = np.where(
        ticks < SINGLE_TICKS - 0.5,
        1.0,
        2.0 ** (np.floor(np.log2(ticks + 0.5)) - np.log2(SINGLE_TICKS) + 1),
    )
    middle = bins[:, 0] + (width - 1) / 2 / ghz - float(row["clock_ns"])
    step, grain = float(row["clock_step_ns"]), clock_grain_ns(tuple(bins[:, 0]), tuple(bins[:, 1]))
    half = np.maximum(width / ghz, grain if grain > 2 * step else step) / 2
    return pd.DataFrame(
        {"low_ns": middle - half, "high_ns": middle + half, "share": bins[:, 1] / bins[:, 1].sum()}
    )


def pooled_hop_distribution(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `smoothed_hop_times` of several processes as one distribution; each process counts alike."""
    if rows.empty:
        raise Unavailable("too-few-points", "no walk was timed hop by hop there")
    parts = [smoothed_hop_times(row) for _, row in rows.iterrows()]
    return pd.concat(
        [part.assign(share=part["share"] / len(parts)) for part in parts], ignore_index=True
    )


def cumulative_shares(spread: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return where the cumulative distribution bends, ns, and its heights there, 0 to 1."""
    slope = (spread["share"] / (spread["high_ns"] - spread["low_ns"])).to_numpy()
    at = np.concatenate([spread["low_ns"], spread["high_ns"]])
    order = np.argsort(at, kind="stable")
    at, slopes = at[order], np.cumsum(np.concatenate([slope, -slope])[order])
    heights = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(at))])
    return at, np.maximum.accumulate(np.clip(heights / heights[-1], 0, 1))


def share_below(spread: pd.DataFrame, ns: NumberOrNumbers) -> np.ndarray:
    """Return the share of hops that took less than `ns`."""
    return np.interp(ns, *cumulative_shares(spread), left=0.0, right=1.0)


def hop_quantile(spread: pd.DataFrame, q: NumberOrNumbers) -> np.ndarray:
    """Return the ns that a share q of the hops did not exceed; never below zero."""
    at, heights = cumulative_shares(spread)
    return np.maximum(np.interp(q, heights, at), 0.0)


def hop_modes(spread: pd.DataFrame, width_ns: float = 0.0) -> list[float]:
    """Return the maxima that stand out of the density over two clock steps or `width_ns`, in ns."""
    most = float(hop_quantile(spread, 0.999))
    width = max(
        2 * float((spread["high_ns"] - spread["low_ns"]).min()), most / DENSITY_POINTS, width_ns
    )
    least = float(spread["low_ns"].min()) - width
    places = least + width / 4 * np.arange(int((most - least) / (width / 4)) + 8)
    density = share_below(spread, places + width / 2) - share_below(spread, places - width / 2)
    return places[find_peaks(density, prominence=LEAST_MODE_PROMINENCE * density.max())[0]].tolist()


# --- peaks of hops that wait for memory
#
# A hop makes one access to memory for the byte, and one more for each entry of a page table, the
# machine's own or its host's, that had left the caches too. So hops form peaks about as far apart as
# a load from memory takes. Neither the number of peaks nor even distances are assumed.

# of the hops from the caches' end on: what less of them do is no peak that a mean would notice
LEAST_SHARE = 0.05
PEAK_WIDTH = 0.25  # of an access to memory: banks, rows and refreshes spread a peak


@dataclass(frozen=True)
class MemoryLatencyPeaks:
    """The peaks of one distribution: peaks over processes, ascending; where each peak begins;
    shares of all hops."""

    peaks_ns: list[Interval]  # ascending, over processes
    # the first where the caches end, the others half-way from peak to peak
    cuts_ns: list[float]
    shares: list[float]  # of all hops, by peak


def latency_peaks_beyond_caches(
    pooled: pd.DataFrame, processes: Sequence[pd.DataFrame], cached_ns: float, memory_ns: float
) -> MemoryLatencyPeaks:
    """Return the peaks past `cached_ns`, where the caches end. memory_ns: what one access
    takes.

    pooled: a frame of `hops.pooled_hop_distribution`; processes: those of `hops.smoothed_hop_times` that it was made of, whose
    own peaks nearest to each give its interval. A peak with fewer than LEAST_SHARE of those hops is
    none.
    """
    width = memory_ns * PEAK_WIDTH
    peaks = [ns for ns in hop_modes(pooled, width) if ns > cached_ns]
    while peaks:
        cuts = [cached_ns, *(float(np.mean(pair)) for pair in pairwise(peaks))]
        shares = np.diff([*share_below(pooled, cuts), 1.0])
        if shares.min() >= LEAST_SHARE * shares.sum():
            break
        peaks.pop(int(shares.argmin()))
    if not peaks:
        return MemoryLatencyPeaks([], [], [])
    own = [
        np.array([ns for ns in hop_modes(process, width) if ns > cached_ns])
        for process in processes
    ]
    return MemoryLatencyPeaks(_peak_intervals(peaks, own), cuts, shares.tolist())


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


def shares_of_hops_with_at_least(
    distributions: Mapping[int, pd.DataFrame], cuts_ns: Sequence[float]
) -> pd.DataFrame:
    """Return, a row a working set, the share of hops with at least 1, 2, ... accesses, a
    column each."""
    rows = {size: 1 - share_below(spread, list(cuts_ns)) for size, spread in distributions.items()}
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=range(1, len(cuts_ns) + 1)
    ).sort_index()
