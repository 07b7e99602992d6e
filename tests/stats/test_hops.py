"""hops: distributions, quantiles and modes of times that a clock which steps has read."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from support.walk import GHZ, readings

from tlb.stats import hops

pytestmark = pytest.mark.filterwarnings("error")


def read(ns: np.ndarray, step_ns: float, clock_ns: float, seed: int = 3) -> pd.Series:
    histogram = readings(ns, np.random.default_rng(seed), step_ns, clock_ns)
    return pd.Series(
        {"histogram": histogram, "tsc_ghz": GHZ, "clock_ns": clock_ns, "clock_step_ns": step_ns}
    )


@pytest.mark.parametrize("step", [2.0, 20.0])
@pytest.mark.parametrize(
    "law",
    [scipy_stats.norm(150, 40), scipy_stats.gamma(4, 20, 25), scipy_stats.uniform(30, 400)],
    ids=["normal", "gamma", "uniform"],
)
def test_quantiles_of_a_smooth_distribution_come_back_within_a_fraction_of_the_clocks_step(
    law, step
):
    ns = law.ppf((np.arange(200_000) + 0.5) / 200_000)
    asked = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    found = hops.hop_quantile(
        hops.smoothed_hop_times(read(np.random.default_rng(1).permutation(ns), step, 22.2)), asked
    )
    bins = 0.008 * (law.ppf(asked) + 22.2)  # what a bin of the histogram is wide
    assert (np.abs(found - law.ppf(asked)) < 0.15 * step + bins + 0.3).all(), found - law.ppf(asked)


def test_every_reading_lies_in_the_distribution_once_and_shares_add_up():
    spread = hops.smoothed_hop_times(read(np.linspace(5, 3000, 5000), 10.0, 22.0))
    assert (
        spread["share"].sum() == pytest.approx(1) and (spread["high_ns"] > spread["low_ns"]).all()
    )
    at, heights = hops.cumulative_shares(spread)
    assert (np.diff(heights) >= 0).all() and heights[0] == 0 and heights[-1] == pytest.approx(1)
    middle = float(((spread["low_ns"] + spread["high_ns"]) / 2 * spread["share"]).sum())
    assert middle == pytest.approx(1502.5, rel=0.005)


def test_of_two_processes_the_one_that_misread_the_clock_loses_no_more_than_the_other():
    ns = np.linspace(100, 300, 5000)
    right = read(ns, 10.0, 22.0)
    misread = pd.Series({**right, "clock_ns": 220.0})
    rows = hops.with_median_clock_cost(pd.DataFrame([right, misread]))
    for _, row in rows.iterrows():
        assert float(hops.hop_quantile(hops.smoothed_hop_times(row), 0.5)) == pytest.approx(
            200, abs=2
        )


@pytest.mark.parametrize("step", [2.0, 10.0])
def test_the_modes_are_where_the_distribution_has_them_and_ripples_of_the_clock_are_none(step):
    draw = np.random.default_rng(5)
    ns = np.concatenate(
        [draw.normal(75, 5, 40_000), draw.normal(150, 9, 20_000), draw.normal(300, 5, 600)]
    )
    assert hops.hop_modes(hops.smoothed_hop_times(read(ns, step, 22.0)), step) == pytest.approx(
        [75, 150], abs=8
    )


# kernels/hops.h: up to 256 ticks a bin each, then 128 bins an octave, of 2 ticks and of 4
@pytest.mark.parametrize(
    ("least", "ends"), [(255, (254.5, 255.5)), (256, (255.5, 257.5)), (512, (511.5, 515.5))]
)
def test_a_bin_stands_for_all_readings_that_the_kernel_puts_into_it(least, ends):
    row = {"histogram": [[float(least), 9]], "tsc_ghz": 1.0, "clock_ns": 0.0, "clock_step_ns": 1.0}
    (spread,) = hops.smoothed_hop_times(pd.Series(row)).itertuples(index=False)
    assert (spread.low_ns, spread.high_ns) == ends
