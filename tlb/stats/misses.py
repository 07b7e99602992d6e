"""What a TLB should cost: misses by order of access, a price over two levels, and its fit.

Lines lie one to a page, so `lines` counts pages, and a TLB of C entries reaches C lines. All
replacement is LRU, warm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult, least_squares, nnls
from scipy.special import lambertw, stdtrit

from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable
from tlb.system.units import rounded

# Capacities tried as a start of a fit with free knees: between every two neighbours of so many
# quantiles of the grid.
_START_KNEES = 12
_SPARE_POINTS = 2  # beyond as many points as parameters: fewer leave the intervals without meaning
STEP_POINTS = 6  # two heights and the shape between them
_NO_MISSES = 1e-9  # a smaller share is a rounding error of a distribution's tail
TEXTBOOK = "fully associative, LRU"


def miss_probability_random(lines: ArrayLike, entries: float) -> np.ndarray:
    """Return max(0, 1 - C/M): independent uniform draws from M lines, C entries.

    The entries hold C distinct lines, chosen by past draws; the next draw is one of them with
    probability C/M, whatever is replaced (King, Analysis of Paging Algorithms, IBM RC 3288, 1971).
    """
    m = _lines(lines)
    return np.maximum(0.0, 1 - entries / m)


def miss_probability_cycle(lines: ArrayLike, entries: float) -> np.ndarray:
    """Return 0 up to C lines, 1 beyond: one cycle through M lines in any fixed order.

    Each visit has stack distance M, and LRU with C entries hits exactly if M <= C (Mattson et al.,
    IBM Systems Journal 9, 1970).
    """
    return (_lines(lines) > entries).astype(float)


def miss_probability_cycle_random_replacement(lines: ArrayLike, entries: float) -> np.ndarray:
    """Return the misses x = 1 - exp(-x M/C) of a cycle through M lines over C entries of which a
    miss replaces any; 0 up to C.

    Between two visits of a line lie x M misses, each of which evicts it with probability 1/C. Past
    C the root is x = 1 + W0(-r exp(-r))/r, r = M/C, W0 Lambert's function: half of the step is done
    at r = 2 ln 2 = 1.39.
    """
    return _lost_between_visits(_lines(lines) / entries)


def _lost_between_visits(r: np.ndarray) -> np.ndarray:
    """Return the root x > 0 of x = 1 - exp(-r x); 0 if there is none (r <= 1)."""
    # lambertw is undefined a rounding error beyond its branch point, r = 1
    past = np.maximum(r, 1 + 1e-6)
    return np.where(r > 1, 1 + lambertw(-past * np.exp(-past)).real / past, 0.0)


def hashed_random_replacement(lines: ArrayLike, sets: int, ways: int) -> np.ndarray:
    """Return the same for sets x ways entries with each page in a set at random.

    In a set of k pages, x = 1 - (1 - 1/ways)^(x k) past `ways`; the set of a page has 1 +
    Binomial(M - 1, 1/sets).
    """
    from scipy.stats import binom  # a second to import, and few pages draw a TLB with sets

    m = _lines(lines).ravel()
    k = np.arange(1, int(m.max() / sets * 3) + 20 * ways)
    lost = _lost_between_visits(-np.log1p(-1 / ways) * k) if ways > 1 else 1.0
    missed = np.where(k > ways, lost, 0.0)
    shares = [binom.pmf(k - 1, one - 1, 1 / sets) @ missed for one in m]
    return np.array(shares).reshape(np.shape(lines))


class StepFit(NamedTuple):
    """One kind of TLB fitted to a measured step: the heights before and after. residual: root of
    the mean squared residual of `predict`."""

    kind: str
    before: float
    after: float
    residual: float  # root of the mean squared residual of `predict`

    def predict(self, lines: ArrayLike, entries: int, ways: int | None) -> np.ndarray:
        """Return the fitted heights."""
        return self.before + (self.after - self.before) * share_missed(
            self.kind, lines, entries, ways
        )


_KINDS: dict[str, Callable[..., np.ndarray]] = {
    TEXTBOOK: lambda m, c, w: miss_probability_cycle(m, c),
    "fully associative, random replacement": lambda m, c, w: (
        miss_probability_cycle_random_replacement(m, c)
    ),
    "hashed sets, LRU": lambda m, c, w: hashed_lru(m, c // w, w),
    "hashed sets, random replacement": lambda m, c, w: hashed_random_replacement(m, c // w, w),
}


def share_missed(kind: str, lines: ArrayLike, entries: int, ways: int | None) -> np.ndarray:
    """Return the share of a cycle that misses a TLB of a kind that `fit_step` knows."""
    share = np.asarray(_KINDS[kind](lines, entries, ways))
    return np.where(share < _NO_MISSES, 0.0, share)


def fit_step(
    lines: ArrayLike,
    heights: ArrayLike,
    entries: int,
    ways: int | None = None,
    *,
    is_share: bool = False,
) -> list[StepFit]:
    """Return each kind of TLB of `entries` fitted to a cyclic chase's step, the best first.

    heights: the price, whose heights before and after the step are fitted; or, with `is_share`,
    counted walks per access, which go from 0 to 1 and leave nothing to fit. Kinds with sets are
    left out if the ways are unknown (None or 0) or do not divide the entries. Raises
    Unavailable("too-few-points") below STEP_POINTS points.
    """
    x, y = _usable(lines, heights)
    if x.size < STEP_POINTS:
        raise Unavailable("too-few-points", f"a step takes {STEP_POINTS} points, not {x.size}")
    fits = []
    for kind in _KINDS:
        if kind.startswith("hashed") and (not ways or entries % ways):
            continue
        share = share_missed(kind, x, entries, ways)
        before, after = 0.0, 1.0
        if not is_share:
            before, after = map(rounded, nnls(np.stack([1 - share, share], axis=1), y)[0])
        residual = y - before - (after - before) * share
        fits.append(StepFit(kind, before, after, rounded(np.sqrt(np.mean(residual**2)))))
    return sorted(fits, key=lambda fit: fit.residual)


def hashed_lru(lines: ArrayLike, sets: int, ways: int) -> np.ndarray:
    """Return the misses of a cycle through M pages over sets x ways entries with each page in a set
    at random.

    In a set with k of the M pages all visits miss if k > ways. Over all visits: E[k miss(k)] sets /
    M, k Binomial(M, 1/sets), and with E[k f(k)] = M/sets E[f(1 + k')], k' Binomial(M - 1, 1/sets),
    the step becomes a smear that starts well below the capacity (Smith, IEEE Trans. Software
    Engineering 4, 1978; Hill & Smith, IEEE Trans. Computers 38, 1989). With the set chosen by the
    page's number modulo the sets there is no smear.
    """
    from scipy.stats import binom  # a second to import, and few pages draw a TLB with sets

    return binom.sf(ways - 1, _lines(lines) - 1, 1 / sets)


def two_level_cost(
    lines: ArrayLike, l1_entries: float, l2_entries: float, hit: float, l2_hit: float, walk: float
) -> np.ndarray:
    """Return hit + P(L1 misses) l2_hit + P(both miss) walk, the mean cost of a random draw.

    `l2_hit` is what missing the first level adds, `walk` what missing the second adds to that. The
    second level's misses are those of `l2_entries` alone.
    """
    if l2_entries < l1_entries:
        raise ValueError(f"level 2 ({l2_entries} entries) is smaller than level 1 ({l1_entries})")
    first, both = (miss_probability_random(lines, entries) for entries in (l1_entries, l2_entries))
    return hit + first * l2_hit + both * walk


@dataclass(frozen=True)
class RandomFit:
    """price = stlb_cost_ns max(0, 1 - C1/M) + walk_ns max(0, 1 - C2/M), fitted. A given knee has no
    width."""

    stlb_cost_ns: Interval
    walk_ns: Interval
    l1_entries: Interval
    l2_entries: Interval

    def predict(self, lines: ArrayLike) -> np.ndarray:
        """Return the fitted price in ns at each number of lines."""
        return two_level_cost(
            lines,
            l1_entries=self.l1_entries.value,
            l2_entries=self.l2_entries.value,
            hit=0.0,
            l2_hit=self.stlb_cost_ns.value,
            walk=self.walk_ns.value,
        )


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
    value, low, high = map(rounded, ends)
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
