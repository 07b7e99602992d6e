"""What repeats say about a point: medians with exact intervals, prices, ratios, unstable rows, and points of two modes.

A repeat is a fresh process; the median of a point's repeats is what a figure shows. Its interval takes them for independent draws.
They are not quite: on some machines each repeat is a little slower or faster than the one before. `trend` finds that, and `summarise`
widens the intervals by it. Nothing here is random: the same rows give the same numbers, in whatever order they are given.

Why no bootstrap: of n = 5 values, the resampled median is one of the same five values, and the smallest
comes up in 5.8 % of resamples. A "95 %" percentile interval is then the full range, which covers the true
median 93.75 % of the time. The order-statistic interval is the same range with its true coverage known, at
every n, whatever the distribution. So each interval here carries its coverage instead of promising one.

Where the data just fit a cache that others share, a process finds it either free or taken: there are two times, and a median between
them is of neither. Such a point keeps its rows; its interval says so, and so does whatever is computed from it (`Interval.modes`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import comb, exp, hypot, inf, isfinite, log, log2, nan
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri

from experiments.words.reasons import Unavailable

UNSTABLE_SPREAD = 0.05  # the design's line between a result and a warning
JUMP = 1.5  # between two modes: less than that, the bounds of the median say as well
LEAST_COVERAGE = 0.90  # of an interval that decides: five processes cover 93.75 %, four 87.5 %
# Chance alone shows so strong a trend in one of 370 frames; one that is found in error widens intervals by little.
TREND_SCORE = 3.0
OUTLIER_SCORE = 3.5  # Iglewicz & Hoaglin, How to Detect and Handle Outliers (1993)
NORMAL_MAD = 0.6744897501960817  # the median absolute deviation of a normal distribution of standard deviation 1


class Interval(NamedTuple):
    """An estimate between its bounds. `coverage`: how often such bounds hold the truth, 0 to 1. `modes`: 2 where a point behind it has
    two (`modes`).

    `a - b` and `a / b` are of independent estimates: `interval_of_difference`, `interval_of_ratio`.
    """

    value: float
    low: float
    high: float
    coverage: float = 1.0
    modes: int = 1

    def __format__(self, spec: str) -> str:
        """f"{i:.2f}" is "1.52 (1.40 to 1.60)", no zero with a sign; without a specification, a tuple's text.

        "0.54 to 1.80" where the bounds lie more than JUMP apart, for then the median says little; "1.52 (3 processes)" where they are too
        few for bounds; "at least 1.40" where it is open above.
        """
        if not spec:
            return str(self)
        unsigned = re.sub(r"^((?:.?[<>=^])?[-+ ]?)z?", r"\1z", spec, count=1)  # after fill, alignment and sign
        value, low, high = (format(bound, unsigned) for bound in self[:3])
        if self.coverage < LEAST_COVERAGE and isfinite(self.value):
            n = round(1 - log2(1 - self.coverage))  # the range of n values covers 1 - 2^(1-n)
            return f"{value} ({n} process{'es' * (n != 1)})"
        if self.high == inf and self.low > -inf:
            return f"at least {low}"
        if self.low == -inf and self.high < inf:
            return f"at most {high}"
        if self.high > JUMP * self.low > 0:
            return f"{low} to {high}"
        return f"{value} ({low} to {high}{', two modes' if self.modes > 1 else ''})"

    def __sub__(self, other: Interval) -> Interval:
        return interval_of_difference(self, other)

    def __truediv__(self, other: Interval) -> Interval:
        return interval_of_ratio(self, other)

    def __mul__(self, factor: float) -> Interval:  # type: ignore[override]
        """Times an exact number above zero, such as a unit's."""
        return self._replace(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def share_of(self, whole: Interval) -> Interval:
        """The ratio to what is far from nothing, of what may be nothing itself: then this interval over the other's estimate."""
        return self / whole if self.low > 0 else self * (1 / whole.value)

    def widened(self, among: int) -> Interval:
        """The bounds as far out as an estimate's must be that was chosen from among so many, or that is one of so many which may not all
        be right: each distance scaled as the normal distribution's 2.5 % quantile divided by their number is to that quantile (Bonferroni's
        inequality). tests/article/test_rule.py holds what it leaves of errors."""
        scale = ndtri(0.025 / among) / ndtri(0.025)
        return self._replace(low=self.value - scale * (self.value - self.low), high=self.value + scale * (self.high - self.value))

    @classmethod
    def of(cls, row: Mapping[str, float] | pd.Series, name: str = "") -> Interval:
        """A row of `summarise`; or of columns <name>, <name>_low, <name>_high with the row's coverage, 1 where it has none."""
        columns = (name, f"{name}_low", f"{name}_high") if name else ("median", "low", "high")
        return cls(*(float(row[column]) for column in columns), float(row.get("coverage", 1.0)), int(row.get("modes", 1)))


UNKNOWN = Interval(nan, nan, nan, 0.0)  # what was not measured


@lru_cache(maxsize=256)
def _rank(n: int, confidence: float) -> tuple[int, float]:
    """The largest r with P(X(r) <= median <= X(n+1-r)) >= confidence, or r = 1 and what it covers."""

    def coverage(r: int) -> float:
        return 1 - 2 * sum(comb(n, k) for k in range(r)) / 2**n

    r = 1
    while coverage(r + 1) >= confidence:
        r += 1
    return r, coverage(r)


def median_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """The median and its exact order-statistic interval [X(r), X(n+1-r)].

    The number of values below the true median is Binomial(n, 1/2), so the coverage is 1 - 2 P(B < r), free of any assumption
    but independence (Thompson, Ann. Math. Stat. 7, 1936; Le Boudec, Performance Evaluation of Computer and Communication
    Systems, 2010, chapter 2). From n = 6 on it reaches 95 %. Below that it is the full range: 93.75, 87.5, 75 and 50 % for 5,
    4, 3 and 2 values, and nothing (0) for one. Ties only raise the coverage. NaN is left out; without any value every field is
    NaN and the coverage 0.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is between 0 and 1, not {confidence}")
    x = _finite(values)
    if x.size == 0:
        return UNKNOWN
    r, coverage = _rank(x.size, confidence)
    return Interval(float(np.median(x)), float(x[r - 1]), float(x[x.size - r]), coverage, modes(x))


def interval_of_difference(a: Interval, b: Interval) -> Interval:
    """a - b of independent estimates, by the method of variance estimates recovery (MOVER).

    Each bound adds in quadrature the distances from which it comes (Zou & Donner, Statistics in Medicine 27, 2008). It assumes
    no common shape: where one sample is much noisier, as spread is beside packed, it tends to that sample's exact interval. A
    Hodges-Lehmann shift with Moses' bounds does assume one, and at 10 and 10 values of scales 1 and 0.02 covers 89 % for a
    nominal 95. Coverage given: the lower of the two, which simulations over six distributions, 2 to 15 values and scales 1 to
    0.02 do not undercut (tests/inference/test_intervals.py holds a part of it).
    """
    value = a.value - b.value
    low = value - hypot(a.value - a.low, b.high - b.value)
    high = value + hypot(a.high - a.value, b.value - b.low)
    return Interval(value, low, high, min(a.coverage, b.coverage), max(a.modes, b.modes))


def interval_of_ratio(a: Interval, b: Interval) -> Interval:
    """a / b of independent positive estimates: `interval_of_difference` of the logarithms.

    Order statistics keep their coverage under any increasing map, so the logarithm of a median's bounds
    bounds the logarithm of the median. A bound at or below zero leaves the ratio open on its side; a median
    there has no ratio: Unavailable("unstable").
    """
    if not (a.value > 0 and b.value > 0):
        raise Unavailable("unstable", f"a ratio takes medians above zero: {a.value:g}, {b.value:g}")
    logs = interval_of_difference(_log(a), _log(b))
    return Interval(a.value / b.value, exp(logs.low), exp(logs.high), logs.coverage, logs.modes)


def modes(values: ArrayLike) -> int:
    """2 where the values stand at two places: two or more at each, a jump between them, and nothing within twice the spread of either
    side; else 1. One value away from all others is no mode but an outlier, so there are none of fewer than four values."""
    x = _finite(values)
    if x.size < 4 or x[0] <= 0:
        return 1
    y = np.log(x)
    splits = range(2, x.size - 1)
    return 2 if any(y[k] - y[k - 1] >= max(log(JUMP), 2 * (y[k - 1] - y[0]), 2 * (y[-1] - y[k])) for k in splits) else 1


def trend(frame: pd.DataFrame, by: Sequence[str], value: str) -> float:
    """Return by how much a value changes from each repeat of a group to the next (column `repeat`): the logarithm of the ratio, 0 where no
    trend is found.

    The test is Kendall's over all groups together (Hirsch, Slack & Smith, Water Resources Research 18, 1982, for seasons), the slope the
    median over all pairs of repeats of a group (Sen's). The groups of a kernel share what drifts, and one alone has too few repeats to
    show it.
    """
    score, variance, slopes = 0.0, 0.0, []
    for _, group in frame.groupby(list(by), sort=False, dropna=False)[["repeat", value]] if "repeat" in frame else ():
        group = group[np.isfinite(group[value]) & (group[value] > 0)].sort_values("repeat")
        first, second = np.triu_indices(n := len(group), 1)
        repeats, logs = group["repeat"].to_numpy(float), np.log(group[value].to_numpy(float))
        apart, rises = repeats[second] - repeats[first], logs[second] - logs[first]
        score += np.sign(rises[apart > 0]).sum()
        variance += n * (n - 1) * (2 * n + 5) / 18
        slopes.append(rises[apart > 0] / apart[apart > 0])
    is_found = variance > 0 and abs(score) >= TREND_SCORE * variance**0.5
    return float(np.median(np.concatenate(slopes))) if is_found else 0.0


def relative_spread(values: ArrayLike) -> float:
    """Interquartile range over the median; NaN for fewer than two values.

    Fresh mappings tend to come in two kinds (good and bad physical pages), so the measure must see a second mode that holds a
    quarter of the runs: the MAD is blind to it up to a half. And one bad run of 15 must not decide, as it does with the range.
    Quartiles are the median-unbiased ones (Hyndman & Fan, The American Statistician 50, 1996, definition 8): with two values
    they are the range, and from seven on the extremes no longer count.
    """
    x = _finite(values)
    if x.size < 2:
        return nan
    low, high = np.quantile(x, [0.25, 0.75], method="median_unbiased")
    middle = abs(float(np.median(x)))
    if high == low:
        return 0.0
    return float(high - low) / middle if middle > 0 else inf


def outliers(values: ArrayLike) -> np.ndarray:
    """A flag per value: far from the median both by the noise and by what matters. Nothing is removed anywhere.

    By the noise: |x - median| > 3.5 x 1.4826 MAD (Iglewicz & Hoaglin 1993). By what matters: more than 5 %
    of the median, without which the MAD of a quiet point would flag differences of a tenth of a percent.
    """
    x = np.asarray(values, dtype=float)
    if not np.isfinite(x).any():
        return np.zeros(x.shape, dtype=bool)
    middle = np.nanmedian(x)
    distance = np.abs(x - middle)
    noise = np.nanmedian(distance) / NORMAL_MAD  # scipy's takes a millisecond a point, half of a page's time
    return (distance > OUTLIER_SCORE * noise) & (distance > UNSTABLE_SPREAD * abs(middle))


def summarise(frame: pd.DataFrame, by: Sequence[str], value: str = "ns_per_access", confidence: float = 0.95) -> pd.DataFrame:
    """One row a group, sorted by `by`: by + median, low, high, coverage, modes, n, spread, unstable, outliers.

    median, low and high are in the unit of `value`; spread is `relative_spread`, outliers a count. unstable: the spread is over
    5 %, or there are too few values to know it. Rows whose value is NaN do not count in n. Where the repeats have a `trend`, each interval
    is widened by half of it on either side, so that it holds the median of any moment of the campaign, not only of its middle.
    """
    rows, slope = [], abs(trend(frame, by, value))
    for key, group in frame.groupby(list(by), sort=True, dropna=False):
        x = group[value].to_numpy(dtype=float)
        spread = relative_spread(x)
        unstable = not spread <= UNSTABLE_SPREAD
        n = int(np.isfinite(x).sum())
        interval = median_interval(x, confidence)
        if slope and interval.low > 0:
            widening = exp(slope * np.ptp(group["repeat"]) / 2)
            interval = interval._replace(low=interval.low / widening, high=interval.high * widening)
        rows.append((*key, *interval, n, spread, unstable, int(outliers(x).sum())))
    columns = [*by, "median", "low", "high", "coverage", "modes", "n", "spread", "unstable", "outliers"]
    return pd.DataFrame(rows, columns=columns)


def summarise_beside(frame: pd.DataFrame, by: Sequence[str], others: Mapping[str, str]) -> pd.DataFrame:
    """`summarise` of ns per access beside the medians of other columns, under the names that `others` gives them. Empty without rows."""
    by = list(by)
    if frame.empty:
        return pd.DataFrame(columns=[*by, "median", "low", "high", "coverage", "n", *others.values()])
    beside = frame.groupby(by)[list(others)].median().rename(columns=dict(others)).reset_index()
    return summarise(frame, by).merge(beside, on=by)


# What tells two points of a frame apart, but for a kernel's own options, whose columns look like those of results.
_SETTING = ("pages", "layout", "order", "lines", "stride_pages", "mode")
_WHOLE_CAMPAIGN = 0.9  # of the settings of an experiment: one that asks for most of another's points is no campaign of it


def newest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return, of each kernel and engine of an experiment, the rows of its last campaign: of one kernel digest and one machine state.

    For published rows: of this computer's own the present state is known (lab.rows.current). A store keeps what an older kernel,
    compiler or THP setting gave, and a median over both would be of neither. The last is the one whose last row is, in the order of
    `Store.load`, that of appending, so a clock that steps back changes nothing.

    Two kinds of campaigns hide no other: one that has fewer than half as many rows as the largest was broken off; one that covers fewer
    than nine in ten of the settings that the widest covers is that of another experiment, which asked for some of the same points.
    """
    by, conditions = ["kernel", "engine"], ["kernel_digest", "state"]
    setting = frame.groupby([name for name in _SETTING if name in frame] or by, dropna=False).ngroup()
    campaigns = frame[[*by, *conditions]].assign(setting=setting).groupby([*by, *conditions])["setting"]
    rows, covered = campaigns.transform("size"), campaigns.transform("nunique")

    def most(of: pd.Series) -> pd.Series:
        return of.groupby([frame[name] for name in by]).transform("max")

    is_whole = (2 * rows >= most(rows)) & (covered >= _WHOLE_CAMPAIGN * most(covered))
    last = frame[by].join(frame[is_whole].groupby(by)[conditions].last(), on=by)[conditions]
    return frame[(frame[conditions] == last).all(axis=1)].reset_index(drop=True)


def _finite(values: ArrayLike) -> np.ndarray:
    x = np.sort(np.asarray(values, dtype=float).ravel())
    return x[np.isfinite(x)]


def _log(i: Interval) -> Interval:
    return Interval(log(i.value), log(i.low) if i.low > 0 else -inf, log(i.high), i.coverage, i.modes)
