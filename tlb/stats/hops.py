"""Times of single hops, from a kernel's histogram of clock readings: distributions and
quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.signal import find_peaks

from tlb.system.reasons import Unavailable

Numbers = float | Sequence[float] | np.ndarray
# kernels/hops.h: up to so many ticks a bin each, then half as many bins an octave
SINGLE_TICKS = 256
PROMINENT = 0.08  # of the highest mode: less is a ripple of the steps of the clock
MODE_POINTS = 400  # points at which a density is looked at
# looked for: a finer step loses nothing, and no counter is slower
LEAST_GRAIN_NS, MOST_GRAIN_NS, GRAIN_STEP_NS = 4.0, 20.0, 0.1
COMBED = 0.5


@lru_cache(1 << 12)  # most of a page's time: each process is read by its quantiles and heaps
def grain_ns(readings: tuple[float, ...], counts: tuple[float, ...]) -> float:
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
    turned = np.abs(np.exp(2j * np.pi * (ns - half) / periods[:, None]) @ hops) / hops.sum()
    return float(periods[turned > max(COMBED, 0.95 * turned.max())].max(initial=0.0))


def with_median_clock_cost(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which reading the clock costs all processes the same, their median.

    A process that is disturbed while it times the clock alone finds several times its cost (140 ns
    instead of 30 in a fifth of them on one guest), and takes that off each of its hops.
    """
    if "clock_ns" not in rows:
        return rows
    cost = rows["clock_ns"].median()
    too_much = (rows["clock_ns"] - cost).fillna(0.0)
    read = [name for name in ("mean_ns", "later_mean_ns", "p50_ns", "p95_ns") if name in rows]
    return rows.assign(clock_ns=cost, **{name: rows[name] + too_much for name in read})


def smoothed_hops(row: pd.Series) -> pd.DataFrame:
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
    step, grain = float(row["clock_step_ns"]), grain_ns(tuple(bins[:, 0]), tuple(bins[:, 1]))
    half = np.maximum(width / ghz, grain if grain > 2 * step else step) / 2
    return pd.DataFrame(
        {"low_ns": middle - half, "high_ns": middle + half, "share": bins[:, 1] / bins[:, 1].sum()}
    )


def pooled_hop_distribution(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `smoothed_hops` of several processes as one distribution; each process counts alike."""
    if rows.empty:
        raise Unavailable("too-few-points", "no walk was timed hop by hop there")
    parts = [smoothed_hops(row) for _, row in rows.iterrows()]
    return pd.concat(
        [part.assign(share=part["share"] / len(parts)) for part in parts], ignore_index=True
    )


def cumulative(spread: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return where the cumulative distribution bends, ns, and its heights there, 0 to 1."""
    slope = (spread["share"] / (spread["high_ns"] - spread["low_ns"])).to_numpy()
    at = np.concatenate([spread["low_ns"], spread["high_ns"]])
    order = np.argsort(at, kind="stable")
    at, slopes = at[order], np.cumsum(np.concatenate([slope, -slope])[order])
    heights = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(at))])
    return at, np.maximum.accumulate(np.clip(heights / heights[-1], 0, 1))


def share_below(spread: pd.DataFrame, ns: Numbers) -> np.ndarray:
    """Return the share of hops that took less than so many ns."""
    return np.interp(ns, *cumulative(spread), left=0.0, right=1.0)


def hop_quantile(spread: pd.DataFrame, q: Numbers) -> np.ndarray:
    """Return the ns that a share q of the hops did not exceed; never below zero."""
    at, heights = cumulative(spread)
    return np.maximum(np.interp(q, heights, at), 0.0)


def hop_modes(spread: pd.DataFrame, width_ns: float = 0.0) -> list[float]:
    """Return the maxima that stand out of the density over two clock steps or `width_ns`, in ns."""
    most = float(hop_quantile(spread, 0.999))
    width = max(
        2 * float((spread["high_ns"] - spread["low_ns"]).min()), most / MODE_POINTS, width_ns
    )
    least = float(spread["low_ns"].min()) - width
    places = least + width / 4 * np.arange(int((most - least) / (width / 4)) + 8)
    density = share_below(spread, places + width / 2) - share_below(spread, places - width / 2)
    return places[find_peaks(density, prominence=PROMINENT * density.max())[0]].tolist()
