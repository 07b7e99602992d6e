"""Means, and whether two of them differ: the statistics that articles publish, from values or from
what was printed of them.

The book itself compares medians with exact intervals (intervals.py), which assume no shape.
Articles mostly compare means by Student's test, which takes values for normal and, pooled, of one
variance. To repeat what they did one must do what they did.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from tlb.inference.intervals import UNKNOWN, Interval
from tlb.reasons import Unavailable

CONFIDENCE = 0.95


class Sample(NamedTuple):
    """What Student's test knows of some values: their mean, the standard error of that, and how
    many they are."""

    mean: float
    error: float
    n: int

    @property
    def deviation(self) -> float:
        """The standard deviation of one value."""
        return self.error * sqrt(self.n)

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The mean between bounds that hold the true one so often, of normal values (Student,
        Biometrika 6, 1908)."""
        reach = self.error * float(stdtrit(self.n - 1, (1 + confidence) / 2))
        return Interval(self.mean, self.mean - reach, self.mean + reach, confidence)


class Test(NamedTuple):
    """Student's test of two means, b less a, the variances taken as equal."""

    difference: Interval
    t: float
    freedom: int
    p: float  # two-sided: how often means of equal truth lie as far apart
    effect: float  # Cohen's d: the difference in standard deviations of one value
    relative: float  # the difference over the mean of a


def sample(values: ArrayLike) -> Sample:
    """What there is to know of values. Raises Unavailable("too-few-points") for fewer than two: one
    has no spread."""
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    if x.size < 2:
        raise Unavailable(
            "too-few-points", f"a mean's interval takes two values, and there are {x.size}"
        )
    return Sample(float(x.mean()), float(x.std(ddof=1)) / sqrt(x.size), int(x.size))


def printed(mean: float, low: float, high: float, n: int, confidence: float = CONFIDENCE) -> Sample:
    """The sample behind a mean and its interval as an article prints them: half the interval's
    width is the standard error times Student's quantile of n - 1 degrees of freedom."""
    if n < 2 or not low < high:
        raise Unavailable(
            "too-few-points",
            f"an interval from {low:g} to {high:g} of {n} values has no standard error",
        )
    return Sample(mean, (high - low) / 2 / float(stdtrit(n - 1, (1 + confidence) / 2)), n)


def compare(a: Sample, b: Sample, confidence: float = CONFIDENCE) -> Test:
    """Whether the means differ, by Student's test with pooled variance. Raises
    Unavailable("unstable") where neither varies."""
    freedom = a.n + b.n - 2
    pooled = sqrt(((a.n - 1) * a.deviation**2 + (b.n - 1) * b.deviation**2) / freedom)
    error = pooled * sqrt(1 / a.n + 1 / b.n)
    if not error > 0:
        raise Unavailable("unstable", "values that do not vary at all are no sample")
    difference, reach = b.mean - a.mean, error * float(stdtrit(freedom, (1 + confidence) / 2))
    t = difference / error
    return Test(
        Interval(difference, difference - reach, difference + reach, confidence),
        t,
        freedom,
        2 * float(stdtr(freedom, -abs(t))),
        difference / pooled,
        difference / a.mean,
    )


def harmonic_mean(rates: ArrayLike) -> Interval:
    """The mean of rates of equal work: the inverse of their times' mean, which is what the work
    took all in all. Its bounds are those of that mean, turned over. UNKNOWN of fewer than two
    rates; infinite above where the times' mean may be nothing."""
    x = np.asarray(rates, dtype=float)
    x = x[np.isfinite(x)]
    if x.size < 2 or not (x > 0).all():
        return UNKNOWN
    times = sample(1 / x).interval()
    return Interval(
        1 / times.value, 1 / times.high, 1 / times.low if times.low > 0 else inf, times.coverage
    )
