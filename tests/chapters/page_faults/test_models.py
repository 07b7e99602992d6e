"""A test of two means against scipy's own and against what one article printed."""

import numpy as np
import pytest
from scipy import stats
from support.common import refusal

from experiments.page_faults.analysis import SampleMean, sample_mean_from_interval, student_t_test

pytestmark = pytest.mark.filterwarnings("error")


def test_the_published_test_comes_back_to_two_digits_from_means_intervals_and_counts():
    """Dawson's listing: t = -5.3531, df = 58, p = 1.543e-06, difference -0.0003343242 to
    -0.0001523425 us."""
    four, five = (
        sample_mean_from_interval(105.637, 105.576, 105.698, 30),
        sample_mean_from_interval(105.880, 105.810, 105.950, 30),
    )
    test = student_t_test(five, four)
    assert test.freedom == 58 and test.t == pytest.approx(-5.35, abs=0.05)
    assert test.p == pytest.approx(1.5e-6, rel=0.1)
    slow, fast = (
        sample_mean_from_interval(105.88, 105.8097, 105.9503, 30),
        sample_mean_from_interval(105.6367, 105.5758, 105.6975, 30),
    )
    exact = student_t_test(slow, fast)
    assert exact.t == pytest.approx(-5.3531, rel=2e-3)
    assert exact.p == pytest.approx(1.543e-6, rel=0.01)
    bounds = exact.difference.low, exact.difference.high
    assert bounds == pytest.approx((-0.3343242, -0.1523425), rel=2e-3)
    assert test.relative == pytest.approx(-0.0023, abs=5e-5)
    assert test.effect == pytest.approx(-5.35 * (2 / 30) ** 0.5, rel=0.01)


def test_two_means_are_compared_as_scipy_does():
    x, y = np.array([3.0, 4.0, 6.0, 9.0]), np.array([5.0, 8.0, 8.5, 11.0, 12.0])
    made = (SampleMean(v.mean(), v.std(ddof=1) / len(v) ** 0.5, len(v)) for v in (x, y))
    test, theirs = student_t_test(*made), stats.ttest_ind(y, x)
    assert (test.t, test.p, test.freedom) == pytest.approx(
        (theirs.statistic, theirs.pvalue, theirs.df)
    )
    low, high = theirs.confidence_interval(0.95)
    assert (test.difference.low, test.difference.high) == pytest.approx((low, high))


def test_what_has_no_spread_is_no_sample():
    for ask in (
        lambda: sample_mean_from_interval(1.0, 1.0, 1.0, 9),
        lambda: sample_mean_from_interval(1.0, 0.9, 1.1, 1),
    ):
        assert refusal(ask) == "too-few-points"
    assert refusal(lambda: student_t_test(SampleMean(2, 0, 2), SampleMean(3, 0, 2))) == "unstable"
