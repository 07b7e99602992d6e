"""What a curve of cost over pages shows: where it steps up, by change points, and how many entries
two levels have, by the fit of random draws.

A step is told from a slope and from noise before anything is said of it: a curve that is flat, or
that merely rises, has no knee. In fits of random draws lines lie one to a page, so `lines` counts
pages, and a TLB of C entries reaches C lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import median_filter
from scipy.optimize import OptimizeResult, least_squares, nnls
from scipy.special import stdtrit

from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable
from tlb.system.units import rounded_to_digits

# --- knees

# of the logarithm of the cost: 7 cycles on 30 are 0.21; what is under an eighth is not a level's
# price
LEAST_STEP = 0.12
STEP_NOISES = 4.5  # a step is higher than so many standard errors of the medians beside it
# of a cut, in variances of the noise times log n; from 2 to 16 the synthetic curves give the same
CHANGE_POINT_PENALTY = 8.0
STEP_WINDOW_POINTS = 12  # points on each side that say how high the curve stands there
LEAST_SEGMENT_POINTS = 3  # points a segment has at least: two outliers side by side are no segment
# octaves: change points nearer to each other than that belong to one step. TLB levels are further
# apart
MIN_KNEE_DISTANCE_RATIO = 1.5


@dataclass(frozen=True)
class CurveKnee:
    """One step of a curve. `before` and `after` are costs beside it; the rest are numbers of
    pages."""

    before: float
    after: float
    last_low: float  # the last point measured at which under half of the rise is done
    first_high: float  # the next point
    tenth: float  # pages at which a tenth of the rise is done, between points by interpolation
    nine_tenths: float

    @property
    def pages(self) -> float:
        """Where half of the rise is done: the geometric mean of the two points beside it."""
        return float(np.sqrt(self.last_low * self.first_high))

    @property
    def is_between_points(self) -> bool:
        """Whether the whole rise lies between two neighbouring points."""
        return self.last_low <= self.tenth and self.nine_tenths <= self.first_high

    @property
    def is_sharp(self) -> bool:
        """Whether a tenth and nine tenths of the rise lie within 5 %, or between two neighbouring
        points. Sets under LRU fill one after another, over 1/ways of the entries, so sixteen ways
        are at the limit."""
        return self.nine_tenths < self.tenth * 1.05 or self.is_between_points

    @property
    def foot(self) -> float:
        """Pages at which the rise begins, if it is straight, as that of sets under LRU is."""
        return self.tenth - (self.nine_tenths - self.tenth) / 8


def find_knees(pages: ArrayLike, cost: ArrayLike) -> list[CurveKnee]:
    """Return the upward steps of a curve, ascending by pages. pages ascending, cost above 0.

    The log of the cost is smoothed by a running median of three and cut into segments. Change
    points closer than MIN_KNEE_DISTANCE_RATIO are one step. It counts if robust lines (Theil-Sen) through the points
    on either side, extended to the step, differ by LEAST_STEP and by NOISES standard errors, and if
    the curve does not come down again, as it does after a disturbed minute.
    """
    numbers = np.asarray(pages, dtype=float)
    x, y = np.log2(numbers), np.log(np.asarray(cost, dtype=float))
    if x.size != y.size or np.any(np.diff(x) <= 0):
        raise ValueError("pages and cost are of one length, and pages ascend")
    if x.size < 4 * LEAST_SEGMENT_POINTS:
        return []
    smooth = median_filter(y, size=3, mode="nearest")
    jumps = np.diff(y)
    noise = max(1.4826 * float(np.median(np.abs(jumps - np.median(jumps)))) / np.sqrt(2), 1e-3)
    steps = _steps(x, change_points(smooth, CHANGE_POINT_PENALTY * noise**2 * np.log(x.size)))
    found = []
    for k, (first, last) in enumerate(steps):
        start = steps[k - 1][1] if k else 0
        end = steps[k + 1][0] if k + 1 < len(steps) else x.size
        if knee := _knee(
            numbers,
            smooth,
            noise,
            slice(max(start, first - STEP_WINDOW_POINTS), first),
            slice(last, min(end, last + STEP_WINDOW_POINTS)),
        ):
            found.append(knee)
    return found


def change_points(
    values: np.ndarray, penalty: float, least: int = LEAST_SEGMENT_POINTS
) -> list[int]:
    """Cut a series of at least `least` values into segments of at least `least` values. Return the
    indices of the first value of each segment but the first, ascending.

    The cuts minimise the sum over segments of the squared distances from the segment's mean, plus
    `penalty` for each cut: optimal partitioning (Jackson et al., IEEE Signal Processing Letters
    12 (2005), 105), in time proportional to the square of the number of values.
    """
    centred = values - values.mean()  # squares of large equal numbers would cancel
    sums, squares = (np.concatenate([[0.0], np.cumsum(centred**power)]) for power in (1, 2))
    lowest = np.full(values.size + 1, np.inf)  # cost of the best cuts of the first `end` values
    lowest[0] = -penalty  # the first segment has no cut before it
    last_cut = np.zeros(values.size + 1, dtype=int)
    for end in range(least, values.size + 1):
        start = np.arange(end - least + 1)
        distances = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start)
        cost = lowest[start] + penalty + distances
        last_cut[end] = np.argmin(cost)
        lowest[end] = cost[last_cut[end]]
    cuts = [int(last_cut[-1])]
    while cuts[-1]:
        cuts.append(int(last_cut[cuts[-1]]))
    return cuts[-2::-1]


def _steps(x: np.ndarray, cuts: list[int]) -> list[tuple[int, int]]:
    """(first, last) change point of each step, as indices of the first point after it."""
    steps: list[tuple[int, int]] = []
    for cut in cuts:
        if steps and x[cut] - x[steps[-1][1]] < MIN_KNEE_DISTANCE_RATIO:
            steps[-1] = (steps[-1][0], cut)
        else:
            steps.append((cut, cut))
    return steps


def _knee(
    numbers: np.ndarray, smooth: np.ndarray, noise: float, left: slice, right: slice
) -> CurveKnee | None:
    x = np.log2(numbers)
    before_n, after_n = left.stop - left.start, right.stop - right.start
    if min(before_n, after_n) < LEAST_SEGMENT_POINTS:
        return None
    middle = (x[left.stop - 1] + x[right.start]) / 2
    (low, low_error), (high, high_error) = (
        _drawn_to(x[side], smooth[side], middle) for side in (left, right)
    )
    error = noise * float(np.hypot(low_error, high_error))
    flat_low, flat_high = float(np.median(smooth[left])), float(np.median(smooth[right]))
    step = high - low
    if min(step, flat_high - flat_low) <= max(LEAST_STEP, STEP_NOISES * error):
        return None
    rest = smooth[right.start + LEAST_SEGMENT_POINTS :]
    if rest.size and float(np.quantile(rest, 0.1)) - flat_low <= step / 2:
        return None  # it is taken back
    inside = slice(left.start, right.stop)
    cost, log_pages = np.exp(smooth[inside]), x[inside]
    before, after = float(np.exp(low)), float(np.exp(high))
    done = (cost - before) / (after - before)
    at = left.start + _crossing(done, 0.5)
    return CurveKnee(
        before,
        after,
        float(numbers[at]),
        float(numbers[at + 1]),
        *(float(2 ** _between(log_pages, done, share)) for share in (0.1, 0.9)),
    )


def _drawn_to(x: np.ndarray, y: np.ndarray, at: float) -> tuple[float, float]:
    """A robust line through the points, at `at`; and its standard error there for points of
    standard deviation 1.

    The error is that of a least-squares line, which grows with the distance from the points'
    middle, times the 1.25 that medians lose against means.
    """
    from scipy.stats import theilslopes  # a second to import, and few need it

    slope, intercept, _, _ = theilslopes(y, x)
    off = x - x.mean()
    return float(intercept + slope * at), 1.25 * float(
        np.sqrt(1 / x.size + (at - x.mean()) ** 2 / (off @ off))
    )


def _crossing(done: np.ndarray, share: float) -> int:
    """The index of the point before the crossing that leaves fewest points on the wrong side:
    outliers cross too."""
    above = done >= share
    wrong = np.concatenate([[0], np.cumsum(above)]) + np.concatenate(
        [np.cumsum(~above[::-1])[::-1], [0]]
    )
    return int(np.clip(np.argmin(wrong), 1, done.size - 1)) - 1


def _between(log_pages: np.ndarray, done: np.ndarray, share: float) -> float:
    """Interpolated between the two points beside the crossing; the nearer one where the noise
    leaves no slope."""
    i = _crossing(done, share)
    rise = done[i + 1] - done[i]
    part = (share - done[i]) / rise if rise > 0 else 0.5
    return float(log_pages[i] + np.clip(part, 0, 1) * (log_pages[i + 1] - log_pages[i]))


# --- random draws

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


def fit_random_access_curve(
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
