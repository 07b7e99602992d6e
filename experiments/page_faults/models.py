"""Means, and whether two of them differ: Student's statistics, which articles publish.

The book itself compares medians with exact intervals (intervals.py), which assume no shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from tlb.stats.intervals import UNKNOWN, Interval
from tlb.system.reasons import Unavailable

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Sample:
    """The mean of n values and its standard error."""

    mean: float
    error: float
    n: int

    @property
    def deviation(self) -> float:
        """The standard deviation of one value."""
        return self.error * sqrt(self.n)

    def interval(self) -> Interval:
        """Return the mean with its interval, for normal values (Student, Biometrika 6, 1908)."""
        half = self.error * _quantile(self.n - 1)
        return Interval(self.mean, self.mean - half, self.mean + half, CONFIDENCE)


@dataclass(frozen=True)
class StudentTest:
    """Student's test of two means, b less a, with pooled variance.

    p: two-sided. effect: Cohen's d, the difference in standard deviations of one value. relative:
    the difference over the mean of a.
    """

    difference: Interval
    t: float
    freedom: int
    p: float
    effect: float
    relative: float


def _quantile(freedom: int) -> float:
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def sample(values: ArrayLike) -> Sample:
    """Return the sample of finite values. Raises Unavailable("too-few-points") for fewer than
    two."""
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if x.size < 2:
        needs = f"a mean's interval takes two values, and there are {x.size}"
        raise Unavailable("too-few-points", needs)
    return Sample(float(x.mean()), float(x.std(ddof=1)) / sqrt(x.size), int(x.size))


def sample_from_interval(mean: float, low: float, high: float, n: int) -> Sample:
    """Return the sample behind a mean and its 95 % interval as an article prints them."""
    if n < 2 or not low < high:
        wrong = f"an interval from {low:g} to {high:g} of {n} values has no standard error"
        raise Unavailable("too-few-points", wrong)
    return Sample(mean, (high - low) / 2 / _quantile(n - 1), n)


def student_test(a: Sample, b: Sample) -> StudentTest:
    """Test whether the means differ. Raises Unavailable("unstable") if neither sample varies."""
    from scipy.stats import ttest_ind_from_stats  # a second to import

    if not max(a.error, b.error) > 0:
        raise Unavailable("unstable", "values that do not vary at all are no sample")
    found = ttest_ind_from_stats(b.mean, b.deviation, b.n, a.mean, a.deviation, a.n)
    freedom, difference = a.n + b.n - 2, b.mean - a.mean
    squares = (a.n - 1) * a.deviation**2 + (b.n - 1) * b.deviation**2
    pooled = sqrt(squares / freedom)
    half = pooled * sqrt(1 / a.n + 1 / b.n) * _quantile(freedom)
    interval = Interval(difference, difference - half, difference + half, CONFIDENCE)
    t, p = float(found.statistic), float(found.pvalue)
    return StudentTest(interval, t, freedom, p, difference / pooled, difference / a.mean)


def harmonic_mean(rates: ArrayLike) -> Interval:
    """Return the mean of rates of equal work: the inverse of their times' mean and bounds.

    UNKNOWN for fewer than two rates; infinite above if the times' mean may be zero.
    """
    x = np.asarray(rates, dtype=float)
    x = x[np.isfinite(x)]
    if x.size < 2 or not (x > 0).all():
        return UNKNOWN
    times = sample(1 / x).interval()
    high = 1 / times.low if times.low > 0 else inf
    return Interval(1 / times.value, 1 / times.high, high, times.coverage)
