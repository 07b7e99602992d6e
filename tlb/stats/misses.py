"""What random draws should cost: the share that misses, and a fit of the price over two levels.

Lines lie one to a page, so `lines` counts pages, and a TLB of C entries reaches C lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult, least_squares, nnls
from scipy.special import stdtrit

from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable
from tlb.system.units import rounded_to_digits

# Capacities tried as a start of a fit with free knees: between every two neighbours of so many
# quantiles of the grid.
_START_KNEES = 12
_SPARE_POINTS = 2  # beyond as many points as parameters: fewer leave the intervals without meaning


def miss_probability_random(lines: ArrayLike, entries: float) -> np.ndarray:
    """Return max(0, 1 - C/M): independent uniform draws from M lines, C entries.

    The entries hold C distinct lines, chosen by past draws; the next draw is one of them with
    probability C/M, whatever is replaced (King, Analysis of Paging Algorithms, IBM RC 3288, 1971).
    """
    m = _lines(lines)
    return np.maximum(0.0, 1 - entries / m)


@dataclass(frozen=True)
class RandomFit:
    """price = stlb_cost_ns max(0, 1 - C1/M) + walk_ns max(0, 1 - C2/M), fitted. A given knee has no
    width. A walk costs what missing the second level adds to missing the first."""

    stlb_cost_ns: Interval
    walk_ns: Interval
    l1_entries: Interval
    l2_entries: Interval


def fit_random_curve(
    lines: ArrayLike,
    price_ns: ArrayLike,
    l1_entries: float | None = None,
    l2_entries: float | None = None,
    confidence: float = 0.95,
) -> RandomFit:
    """Fit the two-level price of random draws by least squares; a knee that is not given is a
    parameter.

    lines, price_ns: a point each (spread minus packed). The bounds are Student's, from the Jacobian
    at the best fit, and infinite for what the points do not determine; those of a free knee are of
    its log, and assume that points lie on both sides of it (in simulation they hold the truth in 91
    to 96 % of fits for a nominal 95). Leave out points whose page table has left the caches.
    Unavailable("too-few-points") with fewer than two points more than parameters.
    """
    x, y = _usable(lines, price_ns)
    given = (l1_entries, l2_entries)
    free = [i for i, entries in enumerate(given) if entries is None]
    points, needed = np.unique(x).size, 2 + len(free) + _SPARE_POINTS
    if points < needed:
        raise Unavailable("too-few-points", f"this fit takes {needed} points, not {points}")

    def knees_of(logs: np.ndarray) -> list[float]:
        rest = iter(np.exp(logs))
        return [float(next(rest) if entries is None else entries) for entries in given]

    def missed(logs: np.ndarray) -> np.ndarray:
        return np.stack([miss_probability_random(x, c) for c in knees_of(logs)], axis=1)

    # A free knee lies inside the grid and on its side of a given one.
    low, high = np.log([max(x.min(), l1_entries or 0), min(x.max(), l2_entries or inf)])
    solved = [(*nnls(missed(start), y), start) for start in _starts(x, low, high, len(free))]
    costs, _, knees = min(solved, key=lambda start: start[1])
    bounds = [0, 0] + [low] * len(free), [inf, inf] + [high] * len(free)
    best = least_squares(
        lambda p: missed(p[2:]) @ p[:2] - y, [*costs, *knees], x_scale="jac", bounds=bounds
    )
    return _random_fit(best, knees_of(best.x[2:]), free, confidence)


def _random_fit(
    best: OptimizeResult, knees: list[float], free: list[int], confidence: float
) -> RandomFit:
    half = _half_widths(best.jac, best.fun, confidence)
    ends = np.stack([best.x, best.x - half, best.x + half], axis=1)
    prices = [_interval(row, confidence) for row in ends[:2]]
    entries = [Interval(c, c, c, 1.0) for c in knees]
    for i, row in zip(free, np.exp(np.clip(ends[2:], -700, 700)), strict=True):
        entries[i] = _interval(row, confidence)
    if entries[0].value > entries[1].value:  # free knees may have crossed
        entries, prices = entries[::-1], prices[::-1]
    return RandomFit(*prices, *entries)


def _interval(ends: np.ndarray, confidence: float) -> Interval:
    """Return the interval of an estimate and its two bounds, to the digits that all CPUs agree
    on."""
    value, low, high = map(rounded_to_digits, ends)
    return Interval(value, low, high, confidence)


def _usable(lines: ArrayLike, price_ns: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return lines and prices of the points that have a price."""
    x, y = _lines(lines), np.asarray(price_ns, dtype=float)
    if x.shape != y.shape:
        raise ValueError(f"lines and price_ns differ in length: {x.shape}, {y.shape}")
    return x[np.isfinite(y)], y[np.isfinite(y)]


def _starts(x: np.ndarray, low: float, high: float, free: int) -> list[np.ndarray]:
    """Return logs of knees to start from: the model is linear in the costs, so a few knees will do.
    Raises Unavailable("too-few-points")."""
    inside = np.quantile(x, np.linspace(0, 1, _START_KNEES + 2)[1:-1])
    starts = [
        np.array(knees)
        for knees in combinations([log for log in np.log(inside) if low < log < high], free)
    ]
    if not starts:
        raise Unavailable("too-few-points", "no points lie on both sides of the knee to be found")
    return starts


def _half_widths(jacobian: np.ndarray, residuals: np.ndarray, confidence: float) -> np.ndarray:
    """Return half of each parameter's interval; infinite if a direction without effect moves it."""
    scale = np.linalg.norm(jacobian, axis=0)
    scale[scale == 0] = 1.0
    _, size, directions = np.linalg.svd(jacobian / scale, full_matrices=False)
    known = size > 1e-9 * size.max(initial=1e-9)
    lost = (directions[~known] ** 2 > 1e-9).any(axis=0)
    variance = ((directions[known] / size[known, None]) ** 2).sum(axis=0) / scale**2
    freedom = residuals.size - scale.size
    noise = np.sqrt(residuals @ residuals / freedom)
    return np.where(lost, inf, stdtrit(freedom, (1 + confidence) / 2) * noise * np.sqrt(variance))


def _lines(lines: ArrayLike) -> np.ndarray:
    m = np.asarray(lines)
    if np.any(m < 1):
        raise ValueError("a number of lines is 1 or more")
    return m
