"""Intervals cover what they say and print themselves, differences and ratios follow, noise is
flagged and never removed."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tlb.stats.intervals import (
    Interval,
    count_modes,
    interval_of_difference,
    interval_of_ratio,
    median_interval,
    summarise,
)
from tlb.stats.scatter import log_trend_per_repeat, median_interval_rank, outliers
from tlb.system.reasons import Unavailable

values = st.floats(0.1, 1e6)
samples = st.lists(values, min_size=1, max_size=15)

# Each distribution's draws with its true median. The last is what physical pages do: two kinds of
# mapping.
DISTRIBUTIONS = {
    "normal": (lambda rng, shape: 10 + rng.normal(size=shape), 10.0),
    "lognormal": (lambda rng, shape: 10 + rng.lognormal(size=shape), 11.0),
    "Cauchy": (lambda rng, shape: 10 + rng.standard_cauchy(size=shape), 10.0),
    "two kinds": (
        lambda rng, shape: 10 + np.where(rng.random(shape) < 0.5, 0, 3) + rng.uniform(-1, 1, shape),
        11.5,  # halfway between the two, where no draw falls
    ),
}


def covers(interval: Interval, truth: float) -> bool:
    return interval.low <= truth <= interval.high


def least_expected(trials: int, coverage: float) -> float:
    """So few hits come up once in a million runs by chance, were the coverage as stated."""
    return stats.binom.ppf(1e-6, trials, coverage)


def most_expected(trials: int, coverage: float) -> float:
    return stats.binom.ppf(1 - 1e-6, trials, coverage)


# --- the interval of a median


@pytest.mark.parametrize("n", [2, 5, 8, 12, 15])
def test_the_interval_of_a_median_covers_as_often_as_it_says(n):
    rng = np.random.default_rng(n)
    trials = 1000
    for draw, truth in DISTRIBUTIONS.values():
        intervals = [median_interval(x) for x in draw(rng, (trials, n))]
        hits = sum(covers(i, truth) for i in intervals)
        assert least_expected(trials, intervals[0].coverage) <= hits
        assert hits <= most_expected(trials, intervals[0].coverage)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("n", [*range(6, 16), 30])
def test_the_ranks_are_those_of_scipy_s_quantile_test(n, confidence):
    oracle = stats.quantile_test(np.arange(1, n + 1), q=0, p=0.5).confidence_interval(confidence)
    rank, _ = median_interval_rank(n, confidence)
    assert (rank, n + 1 - rank) == (oracle.low, oracle.high)


@given(samples, st.floats(0.5, 0.99), st.randoms())
def test_an_interval_holds_its_median_and_knows_no_order(x, confidence, random):
    interval = median_interval(x, confidence)
    assert interval.low <= interval.value <= interval.high
    assert interval.value == np.median(x)
    assert {interval.low, interval.high} <= set(x)
    shuffled = random.sample(x, len(x))
    assert median_interval(shuffled, confidence) == interval
    assert median_interval([*x, math.nan], confidence) == interval


def test_no_value_gives_no_median():
    for nothing in ([], [math.nan], [math.inf]):
        interval = median_interval(nothing)
        assert (
            math.isnan(interval.value)
            and math.isnan(interval.low)
            and math.isnan(interval.high)
            and interval.coverage == 0
        )


# --- differences and ratios


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 2), (5, 3), (15, 5)])
def test_a_difference_and_a_ratio_cover_at_least_as_often_as_they_say(n_a, n_b):
    """Over noise of one scale and of scales 50 apart, where an assumption of equal shape breaks."""
    trials = 600
    for (draw, truth), scale in product(DISTRIBUTIONS.values(), (1.0, 0.02)):
        rng = np.random.default_rng([n_a, n_b])
        a = [median_interval(x) for x in 100 + draw(rng, (trials, n_a))]
        b = [median_interval(x) for x in 50 + scale * draw(rng, (trials, n_b))]
        pairs = list(zip(a, b, strict=True))
        stated = min(a[0].coverage, b[0].coverage)
        middles = 100 + truth, 50 + scale * truth
        differences = sum(
            covers(interval_of_difference(x, y), middles[0] - middles[1]) for x, y in pairs
        )
        assert differences >= least_expected(trials, stated)
        clear = [
            (x, y) for x, y in pairs if x.value > 0 < y.value
        ]  # Cauchy's tails reach below zero
        ratios = sum(covers(interval_of_ratio(x, y), middles[0] / middles[1]) for x, y in clear)
        assert len(clear) > 0.97 * trials
        assert ratios >= least_expected(len(clear), stated)


def test_a_ratio_is_open_where_a_bound_reaches_zero_and_absent_where_a_median_does():
    touching, clear = Interval(2.0, -1.0, 3.0, 0.95), Interval(4.0, 3.0, 5.0, 0.95)
    for low in (touching, replace(touching, low=0.0)):
        assert interval_of_ratio(low, clear).low == 0
        assert interval_of_ratio(clear, low).high == math.inf
    for below in (0.0, -1.0, math.nan):
        none = Interval(below, below, below, 0.5)
        for a, b in ((none, clear), (clear, none)):
            with pytest.raises(Unavailable, match=f"{below:g}") as refused:
                interval_of_ratio(a, b)
            assert refused.value.code == "unstable"


@given(samples, samples)
def test_a_ratio_times_the_ratio_turned_over_is_one(x, y):
    a, b = median_interval(x), median_interval(y)
    there, back = a / b, b / a
    assert there == interval_of_ratio(a, b)
    for end, other in (("value", "value"), ("low", "high"), ("high", "low")):
        assert getattr(there, end) * getattr(back, other) == pytest.approx(1)


# --- what an interval says and is read from


@pytest.mark.parametrize(
    ("bounds", "spec", "text"),
    [
        ((1.5217, 1.4, 1.6), ".2f", "1.52 (1.40 to 1.60)"),
        ((106.0, 54.0, 180.0), ".0f", "54 to 180"),
        ((52.0, 52.0, 52.0, 0.75), ".0f", "52 (3 repeats)"),
        ((52.0, 52.0, 52.0, 0.0), ".0f", "52 *"),
        ((5.0, 4.0, math.inf), ".1f", "at least 4.0"),
        ((-0.004, -0.2, 0.001), ".1f", "0.0 (-0.2 to 0.0)"),
        ((1.52, 1.519, 1.521), ".2f", "1.52"),
        ((math.nan, math.nan, math.nan), ".1f", "nan"),
    ],
)
def test_an_interval_prints_itself_by_a_number_s_format_and_no_zero_has_a_sign(bounds, spec, text):
    assert format(Interval(*bounds), spec) == text


# --- spread and outliers


def test_quiet_points_have_no_outlier_and_a_run_a_third_slower_is_one():
    rng = np.random.default_rng(3)
    for n in range(3, 16):
        for x in 10 * (1 + 0.01 * rng.normal(size=(200, n))):
            assert not outliers(x).any()
            x[0] = 13.5
            flagged = outliers(x)
            assert not flagged[1:].any()
            assert flagged[0] or n < 5, (
                "with three or four values the noise itself may be that large"
            )


# --- frames


@pytest.mark.parametrize(("slow", "unstable"), [(10.49, False), (10.51, True)])
def test_a_row_is_unstable_when_its_spread_is_over_five_percent(slow, unstable):
    frame = pd.DataFrame({"lines": 1, "ns_per_access": [10, 10, 10, 10, slow, slow, slow]})
    row = summarise(frame, ["lines"]).iloc[0]
    assert row["spread"] == pytest.approx((slow - 10) / 10)
    assert row["unstable"] == unstable


# --- repeats that drift


def drifting(
    rng: np.random.Generator,
    slope: float,
    points: int = 40,
    repeats: int = 5,
    noise: float = 0.02,
    correlation: float = 0.0,
) -> pd.DataFrame:
    """Points whose true median is 1 at the middle of the campaign and grows by `slope` from each
    repeat to the next. correlation: of two points' noise in one repeat."""
    repeat = np.tile(np.arange(repeats), points)
    own, shared = rng.normal(size=repeat.size), rng.normal(size=repeats)[repeat]
    scatter = np.sqrt(1 - correlation) * own + np.sqrt(correlation) * shared
    logs = slope * (repeat - (repeats - 1) / 2) + noise * scatter
    return pd.DataFrame(
        {
            "lines": np.repeat(np.arange(points), repeats),
            "repeat": repeat,
            "ns_per_access": np.exp(logs),
        }
    )


def test_a_trend_is_found_where_there_is_one_in_any_order_of_rows_and_almost_never_in_noise():
    rng = np.random.default_rng(6)
    found = [
        log_trend_per_repeat(
            drifting(rng, slope).sample(frac=1, random_state=1), ["lines"], "ns_per_access"
        )
        for slope in (0.015, -0.05)
    ]
    assert found == pytest.approx([0.015, -0.05], abs=0.004)
    assert (
        sum(
            log_trend_per_repeat(drifting(rng, 0.0), ["lines"], "ns_per_access") != 0
            for _ in range(150)
        )
        <= 4
    )
    assert (
        log_trend_per_repeat(drifting(rng, 0.05).drop(columns="repeat"), ["lines"], "ns_per_access")
        == 0
    )
    few = drifting(rng, 0.2, points=1)
    assert (
        log_trend_per_repeat(few, ["lines"], "ns_per_access") == 0
        and log_trend_per_repeat(few[:0], ["lines"], "ns_per_access") == 0
    )


def test_a_trend_that_points_of_a_mapping_show_by_chance_only_widens_and_by_no_more_than_the_noise():
    rng, noise = np.random.default_rng(8), 0.03
    frames = [drifting(rng, 0.0, 100, noise=noise, correlation=0.2) for _ in range(200)]
    found = np.array([log_trend_per_repeat(frame, ["lines"], "ns_per_access") for frame in frames])
    assert 0.2 < np.mean(found != 0) < 0.7  # one of 370 holds for independent points alone
    assert np.quantile(np.abs(found), 0.95) * 2 < noise  # half of a campaign of five repeats
    tables = [summarise(frame, ["lines"]) for frame in frames]
    hits = sum(((table["low"] <= 1) & (table["high"] >= 1)).sum() for table in tables)
    assert hits >= 0.9375 * sum(map(len, tables))


# --- points with two modes


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([38, 38.5, 169, 170, 171], 2),
        ([38, 38.5, 39, 169, 400, 410], 1),  # the upper ones are as far apart
        ([38, 169, 170, 171, 172], 1),  # one away from all others is an outlier
        ([], 1),
        ([0.0, 0.0, 9, 9], 1),
        ([10, 10.1, 12, 12.1, 12.2], 1),
    ],
)
def test_two_modes_are_two_places_with_two_processes_each_and_a_jump_between(values, expected):
    assert count_modes(values) == median_interval(values).modes == expected
    assert count_modes([math.nan, *values]) == expected


def test_what_is_computed_from_a_point_of_two_modes_says_so():
    split, plain = median_interval([38, 38.5, 169, 170, 171]), Interval(10.0, 9.0, 11.0)
    for told in (split, split - plain, plain / split, (plain / split) - plain):
        assert told.modes == 2
    assert (plain / plain).modes == 1


@pytest.mark.parametrize("slope", [0.0, 0.05])
def test_intervals_of_repeats_that_drift_hold_the_median_of_any_moment_as_often_as_they_say(slope):
    rng, trials = np.random.default_rng(5), 20
    tables = [summarise(drifting(rng, slope), ["lines"]) for _ in range(trials)]
    for truth in np.exp(slope * np.array([-2, 0, 2])):
        hits = sum(((table["low"] <= truth) & (truth <= table["high"])).sum() for table in tables)
        assert hits >= least_expected(40 * trials, 0.9375)
