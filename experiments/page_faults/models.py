"""Whether two published means differ, by Student's test.

The book itself compares medians with exact intervals (intervals.py), which assume no shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from scipy.special import stdtrit

from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable

CONFIDENCE = 0.95


@dataclass(frozen=True)
class SampleMean:
    """The mean of n values and its standard error."""

    mean: float
    error: float
    n: int

    @property
    def deviation(self) -> float:
        """The standard deviation of one value."""
        return self.error * sqrt(self.n)


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


def sample_from_interval(mean: float, low: float, high: float, n: int) -> SampleMean:
    """Return the sample behind a mean and its 95 % interval as an article prints them."""
    if n < 2 or not low < high:
        wrong = f"an interval from {low:g} to {high:g} of {n} values has no standard error"
        raise Unavailable("too-few-points", wrong)
    return SampleMean(mean, (high - low) / 2 / _quantile(n - 1), n)


def student_test(a: SampleMean, b: SampleMean) -> StudentTest:
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
