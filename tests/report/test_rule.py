"""The rule of verdicts: how often it is wrong, and how often it decides, for known truths."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from support.common import ROOT

from experiments.overview import method
from experiments.overview.method import Processes, lognormal_times, measured_ratio
from tlb.measure.row_tables import rows_of_last_campaign
from tlb.measure.store import Store
from tlb.report.verdicts import WRONG_VERDICT_PROBABILITY, does_answer_hold
from tlb.stats.effects import effect_inside_band
from tlb.stats.intervals import LEAST_COVERAGE, Interval

rates = partial(method.simulate_verdict_errors, trials=250)  # `make bench` takes two thousand
NOISE = (0.02, 0.10)
PROCESSES = (5, 9)


@pytest.mark.parametrize("n", PROCESSES)
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize(
    ("true", "band", "truth"),
    [
        (1.0, (1.05, np.inf), False),
        (1.05, (1.05, np.inf), None),
        (1.05, (-np.inf, 1.05), None),
        (1.0, (0.95, 1.05), True),
        (1.05, (0.95, 1.05), None),
        (0.95, (0.95, 1.05), None),
        (4.9, (3.0, 5.0), True),
    ],
)
def test_the_rule_is_seldom_wrong(n, noise, true, band, truth):
    """None: on the line itself, where each decision counts as wrong."""
    found = rates(measured_ratio(lognormal_times(noise), true), decide_within(*band), truth, n)
    assert found.wrong <= WRONG_VERDICT_PROBABILITY


def decide_within(*band: float) -> Callable[[Interval], bool | None]:
    return lambda interval: does_answer_hold(effect_inside_band(interval, *band))


@pytest.mark.parametrize(
    ("true", "band"),
    [
        (1.05 * 1.2, (1.05, np.inf)),
        (1.05 / 1.2, (1.05, np.inf)),
        (5 * 1.2, (3.0, 5.0)),
        (3 / 1.2, (3.0, 5.0)),
    ],
)
def test_a_fifth_beyond_the_band_is_decided(true, band):
    is_true = band[0] <= true <= band[1]
    found = rates(measured_ratio(lognormal_times(0.05), true), decide_within(*band), is_true, 5)
    assert found.decided >= 0.90 and found.wrong <= WRONG_VERDICT_PROBABILITY


LEAST_MAPPINGS = 4  # mappings of a point: the median of fewer has too large an error


def drawn_again(frame: pd.DataFrame, by: list[str]) -> Processes:
    """Return a sampler, with replacement, of measured times over their own point's median.

    A median of few has an error itself, so the spread is corrected by n/(n-1).
    """
    points = [
        np.log(times / np.median(times)) * np.sqrt(len(times) / (len(times) - 1))
        for _, group in frame.groupby(by)
        if len(times := group["ns_per_access"].to_numpy()) >= LEAST_MAPPINGS
    ]
    rest = np.concatenate(points)
    rest -= np.median(rest)
    return lambda random, n: np.exp(random.choice(rest, n))


@pytest.mark.parametrize("n", PROCESSES)
@pytest.mark.parametrize("machine", ["zen-4-b312e3a0", "zen-3-a9ae1af8"])
def test_measured_processes_drawn_again_and_compared_with_themselves_differ_seldom(n, machine):
    frame = rows_of_last_campaign(Store(ROOT / "data").load(machine, "stlb_cliff"))
    frame = frame[frame["kernel"] == "page_chase"]
    processes = drawn_again(frame, ["layout", "order", "lines"])
    for band in ((1.0, np.inf), (-np.inf, 1.0)):
        found = rates(measured_ratio(processes, 1.0), decide_within(*band), None, n)
        assert found.wrong <= WRONG_VERDICT_PROBABILITY


@pytest.mark.parametrize("n", [5, 9])
@pytest.mark.parametrize("among", [2, 7])
def test_the_best_of_several_is_held_to_more(n, among):
    """Without a gain anywhere, the best of several gains says "above 1" no more often than one may;
    uncorrected it does."""

    def best(random: np.random.Generator, n: int) -> Interval:
        return max(
            (measured_ratio(lognormal_times(0.05), 1.0)(random, n) for _ in range(among)),
            key=lambda gain: gain.value,
        )

    corrected, plain = (
        rates(
            best,
            lambda gain, among=k: does_answer_hold(effect_inside_band(gain, 1.0, among=among)),
            None,
            n,
        )
        for k in (among, 1)
    )
    assert corrected.wrong <= WRONG_VERDICT_PROBABILITY
    assert among < 7 or plain.wrong > corrected.wrong


def two_modes(slow: float, factor: float = 1.8, noise: float = 0.03) -> Processes:
    """Processes of which a share below a half takes so many times as long; their median lies among
    the others and is made 1."""
    median = np.exp(noise * ndtri(0.5 / (1 - slow)))
    return lambda random, n: (
        np.exp(noise * random.standard_normal(n))
        * np.where(random.random(n) < slow, factor, 1)
        / median
    )


def heavy_tails(noise: float = 0.03) -> Processes:
    return lambda random, n: np.exp(noise * random.standard_t(1.5, n))


PROCESSES_OF = {
    "lognormal": lognormal_times(0.05),
    "two modes": two_modes(0.25),
    "two modes, nearly even": two_modes(0.45),
    "heavy": heavy_tails(),
}


@pytest.mark.parametrize("n", PROCESSES)
@pytest.mark.parametrize("together", [1, 8])
@pytest.mark.parametrize("noise", PROCESSES_OF)
def test_of_several_that_all_have_to_hold_any_may_refute_and_seldom_does_by_chance(
    noise, together, n
):
    def several(random: np.random.Generator, n: int) -> list[Interval]:
        return [measured_ratio(PROCESSES_OF[noise], 1.05)(random, n) for _ in range(together)]

    found = rates(
        several,
        lambda gains: does_answer_hold([effect_inside_band(gain, most=1.05) for gain in gains]),
        None,
        n,
    )
    assert found.wrong <= WRONG_VERDICT_PROBABILITY


@pytest.mark.parametrize(("most", "truth"), [(1.05 * 1.2, True), (1.05 / 1.2, False)])
def test_several_a_fifth_inside_or_outside_their_band_are_decided(most, truth):
    def several(random: np.random.Generator, n: int) -> list[Interval]:
        return [measured_ratio(lognormal_times(0.05), 1.05)(random, n) for _ in range(8)]

    found = rates(
        several,
        lambda gains: does_answer_hold([effect_inside_band(gain, most=most) for gain in gains]),
        truth,
        5,
    )
    assert found.decided >= 0.90 and found.wrong <= WRONG_VERDICT_PROBABILITY


def test_what_covers_too_little_decides_nothing_however_far_it_lies():
    assert (
        does_answer_hold(
            effect_inside_band(Interval(9.0, 8.9, 9.1, LEAST_COVERAGE - 0.01), 1.0, 2.0)
        )
        is None
    )
    assert (
        does_answer_hold(effect_inside_band(Interval(9.0, 8.9, 9.1, LEAST_COVERAGE), 1.0, 2.0))
        is False
    )
    assert (
        does_answer_hold(effect_inside_band(Interval(1.5, 1.4, 1.6, float("nan")), 1.0, 2.0))
        is None
    )
