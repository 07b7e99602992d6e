"""How far the repeats of a point lie apart: spread, outliers, modes, a trend over repeats, and which
of them bound their median."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf, isfinite, log, nan
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from tlb.system.reasons import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    NumericValues: TypeAlias = Sequence[float] | np.ndarray | pd.Series
else:
    np = LazyModule("numpy")

GROUP_VALUES = 3  # whose median is not that of an outlier
PERMUTATIONS = 1000
MIN_MODE_RATIO = 1.5  # between two modes; for less, the bounds of the median say enough
MAX_STABLE_SPREAD = 0.05  # the design's line between a result and a warning
# Of frames of independent points one in 370 shows so strong a trend by chance. Points of a mapping
# share its noise, and few mappings cannot prove a trend: of 100 points that correlate by 0.05, 0.2
# and 0.47, 15, 44 and 66 % of frames do. An error only widens intervals, by the noise at most.
TREND_SCORE = 3.0
OUTLIER_SCORE = 3.5  # Iglewicz & Hoaglin, How to Detect and Handle Outliers (1993)
# the median absolute deviation of a normal distribution of standard deviation 1
NORMAL_MAD = 0.6744897501960817


def log_trend_per_repeat(frame: pd.DataFrame, by: Sequence[str], value: str) -> float:
    """Return the change of a value from each repeat of a group to the next (column `repeat`), as
    the log of the ratio; 0 if no trend is found.

    The test is Kendall's over all groups together, as if they were independent (Hirsch, Slack &
    Smith, Water Resources Research 18, 1982), which finds too many; so use it to widen and never to
    claim a trend. The slope is the median over all pairs of repeats of a group (Sen's).
    """
    if "repeat" not in frame:
        return 0.0
    score, variance, slopes = 0.0, 0.0, []
    kept = frame.loc[np.isfinite(frame[value]) & (frame[value] > 0), [*{*by, "repeat", value}]]
    group = kept.groupby([*by], sort=False, dropna=False).ngroup().to_numpy()
    repeat, log_of = kept["repeat"].to_numpy(float), np.log(kept[value].to_numpy(float))
    order = np.lexsort((repeat, group))
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        first, second = np.triu_indices(n := len(rows), 1)
        first, second = rows[first], rows[second]
        apart, rises = repeat[second] - repeat[first], log_of[second] - log_of[first]
        score += np.sign(rises[apart > 0]).sum()
        variance += n * (n - 1) * (2 * n + 5) / 18
        slopes.append(rises[apart > 0] / apart[apart > 0])
    is_found = variance > 0 and abs(score) >= TREND_SCORE * variance**0.5
    return float(np.median(np.concatenate(slopes))) if is_found else 0.0


def relative_spread(values: NumericValues) -> float:
    """Return the interquartile range over the median; NaN for fewer than two values.

    Fresh mappings come in two kinds (good and bad physical pages), so the measure must see a second
    mode with a quarter of the runs, to which the MAD is blind; and one bad run of 15 must not
    decide, as it does with the range. Quartiles: median-unbiased (Hyndman & Fan, The American
    Statistician 50, 1996, definition 8).
    """
    x = finite_sorted(values)
    if len(x) < 2:
        return nan
    low, high = np.quantile(x, [0.25, 0.75], method="median_unbiased")
    middle = abs(median_of_sorted(x))
    if high == low:
        return 0.0
    return float(high - low) / middle if middle > 0 else inf


def outliers(values: NumericValues) -> np.ndarray:
    """Return a flag per value that is far from the median by the noise and by what matters. Nothing
    is removed anywhere.

    By the noise: |x - median| > 3.5 x 1.4826 MAD (Iglewicz & Hoaglin 1993). By what matters: more
    than 5 % of the median.
    """
    x = np.asarray(values, dtype=float)
    if not np.isfinite(x).any():
        return np.zeros(x.shape, dtype=bool)
    middle = np.nanmedian(x)
    distance = np.abs(x - middle)
    # scipy's takes a millisecond a point, half of a page's time
    noise = np.nanmedian(distance) / NORMAL_MAD
    return (distance > OUTLIER_SCORE * noise) & (distance > MAX_STABLE_SPREAD * abs(middle))


def count_modes(values: NumericValues) -> int:
    """Return 2 if the values lie at two places: two or more at each, a jump between them, and
    nothing within twice the spread of either side; else 1. A single value away from the others is
    an outlier."""
    x = finite_sorted(values)
    if len(x) < 4 or x[0] <= 0:
        return 1
    y = [log(value) for value in x]
    for k in range(2, len(x) - 1):
        if y[k] - y[k - 1] >= max(log(MIN_MODE_RATIO), 2 * (y[k - 1] - y[0]), 2 * (y[-1] - y[k])):
            return 2
    return 1


def largest_ratio_between_groups(values: Sequence[float], groups: Sequence[int]) -> float:
    """Return how many times as large the median of one group is as that of another, at most; 1 if
    groups drawn at random would lie as far apart in one of a hundred cases (a permutation test of
    ranks), or if fewer than two groups have GROUP_VALUES values."""
    large = {group for group in groups if groups.count(group) >= GROUP_VALUES}
    kept = [(value, group) for value, group in zip(values, groups, strict=True) if group in large]
    if len(large) < 2:
        return 1.0
    order = sorted(range(len(kept)), key=lambda n: kept[n][0])
    ranks = dict(zip(order, range(len(kept)), strict=True))
    labels = [group for _, group in kept]

    def between(labels: Sequence[int]) -> float:
        sums = dict.fromkeys(large, 0)
        for n, group in enumerate(labels):
            sums[group] += ranks[n]
        return sum(total**2 / labels.count(group) for group, total in sums.items())

    drawn, seen = random.Random(len(kept)), between(labels)
    if min(value for value, _ in kept) <= 0:
        return 1.0
    as_far = sum(between(drawn.sample(labels, len(labels))) >= seen for _ in range(PERMUTATIONS))
    if as_far >= PERMUTATIONS / 100:
        return 1.0
    medians = [median(x for x, label in kept if label == group) for group in large]
    return max(medians) / min(medians)


def finite_sorted(values: NumericValues) -> list[float]:
    """Return the finite values of a sequence or an array in ascending order."""
    listed: Iterable[float] = values.tolist() if hasattr(values, "tolist") else values
    return sorted(value for value in map(float, listed) if isfinite(value))


def median_of_sorted(x: Sequence[float]) -> float:
    """Return the median of ascending values, of which there are some."""
    return (x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2


def medians_by_repeat(values: np.ndarray, repeat: np.ndarray) -> dict[int, float]:
    """Return the median of each repeat's values by its number, ascending."""
    of_repeat: dict[int, list[float]] = {}
    for n, x in zip(repeat.tolist(), values.tolist(), strict=True):
        of_repeat.setdefault(int(n), []).append(x)
    return {n: median_of_sorted(sorted(of_repeat[n])) for n in sorted(of_repeat)}


@lru_cache(maxsize=256)
def median_interval_rank(n: int, confidence: float) -> tuple[int, float]:
    """Return the largest r with P(X(r) <= median <= X(n+1-r)) >= confidence, or 1; and what it
    covers."""
    # Of the 2**n ways to lie on either side: those with r values below, and with fewer than r.
    r, exactly, fewer = 1, n, 1
    while 1 - 2 * (fewer + exactly) / 2**n >= confidence:
        fewer += exactly
        exactly = exactly * (n - r) // (r + 1)
        r += 1
    return r, 1 - 2 * fewer / 2**n
