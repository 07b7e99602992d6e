"""Knees: found where a curve steps, on curves whose truth is known; none where it is flat or merely
rises."""

import itertools

import numpy as np
import pytest

from tlb.stats.fits import change_points, find_knees

PAGES = np.unique(np.round(2 ** np.arange(4, 14.01, 1 / 16)))


def disturbed(cost: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Noise of one process, and 3 % of outliers up to three times as dear."""
    measured = cost * np.exp(noise * rng.standard_normal(cost.size))
    far = rng.random(cost.size) < 0.03
    measured[far] *= rng.uniform(1.3, 3, far.sum())
    return measured


def stairs(rng: np.random.Generator) -> tuple[tuple[float, float], np.ndarray]:
    """(where the two steps are, cost without noise): a first level of 30 to 150 entries, a second 6
    to 40 times larger, each tread higher than the one before by a fifth at least."""
    first = rng.uniform(30, 150)
    second = min(first * rng.uniform(6, 40), 6000)
    low = rng.uniform(3, 30)
    hit = low * rng.uniform(0.2, 2)
    walk = (low + hit) * rng.uniform(0.3, 3)
    past_first, past_second = np.greater(PAGES, first), np.greater(PAGES, second)
    return (first, second), low + hit * past_first + walk * past_second


def test_of_the_knees_of_200_synthetic_curves_95_in_100_are_found_within_5_percent():
    rng = np.random.default_rng(3)
    within, beside = 0, 0
    for _ in range(200):
        truth, cost = stairs(rng)
        found = [
            knee.pages for knee in find_knees(PAGES, disturbed(cost, rng.uniform(0.01, 0.05), rng))
        ]
        within += sum(any(abs(one / true - 1) < 0.05 for one in found) for true in truth)
        beside += sum(all(abs(one / true - 1) > 0.25 for true in truth) for one in found)
    assert within >= 0.95 * 400
    assert beside <= 2  # a knee where there is none


def test_on_200_curves_that_are_flat_or_merely_rise_there_is_no_knee():
    rng = np.random.default_rng(4)
    found = []
    for k in range(200):
        slope = rng.uniform(0, 0.8) if k % 2 else 0.0
        found += find_knees(PAGES, disturbed((PAGES / 16) ** slope, rng.uniform(0.01, 0.05), rng))
    assert found == []


def test_without_noise_a_step_lies_between_its_two_points_and_its_heights_are_exact():
    (knee,) = find_knees(PAGES, np.where(PAGES <= 512, 4.0, 11.0))
    assert (knee.last_low, knee.first_high) == (512, PAGES[PAGES > 512][0])
    assert (knee.before, knee.after) == pytest.approx((4, 11))
    assert knee.is_sharp and knee.tenth <= knee.pages <= knee.nine_tenths


def test_a_rise_over_octaves_is_one_knee_and_not_sharp():
    """A table of random replacement: misses x = 1 - exp(-x M/C), by fixed-point iteration as an
    independent oracle."""
    missed = np.ones(PAGES.size)
    for _ in range(5000):
        missed = 1 - np.exp(-missed * PAGES / 1024)
    (knee,) = find_knees(PAGES, 30 + 40 * missed)
    assert not knee.is_sharp
    assert knee.pages == pytest.approx(
        1024 * 2 * np.log(2), rel=0.05
    )  # half of the rise is done at 2 ln 2
    assert knee.tenth < 1.2 * 1024 and knee.nine_tenths > 2 * 1024


@pytest.mark.parametrize("ways", [16, 24, 48])
def test_a_straight_rise_begins_at_its_foot(ways):
    pages = np.unique(np.round(np.concatenate([PAGES, np.linspace(900, 1200, 61)])))
    done = np.clip((pages - 1024) * ways / 1024, 0, 1)
    (knee,) = find_knees(pages, 10 + 30 * done)
    assert knee.is_sharp and not knee.is_between_points
    assert knee.foot == pytest.approx(1024, abs=1)


@pytest.mark.parametrize(
    ("disturbed", "cost"),
    [(slice(60, 75), 30.0), (slice(40, 42), 40.0)],
    ids=["a minute", "two outliers"],
)
def test_what_is_disturbed_for_a_while_is_no_knee(disturbed, cost):
    curve = np.full(PAGES.size, 10.0)
    curve[disturbed] = cost
    assert find_knees(PAGES, curve) == []


def cost_of_cuts(values: np.ndarray, cuts: tuple[int, ...], penalty: float) -> float:
    segments = np.split(values, cuts)
    return penalty * len(cuts) + sum(part.size * float(np.var(part)) for part in segments)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_no_other_cuts_of_a_short_series_cost_less(least):
    """Against every way to cut it, on curves with steps, slopes and noise far from zero."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        size = int(rng.integers(least, 12))
        levels = np.repeat(rng.normal(0, 1, size), rng.integers(1, 6, size))[:size]
        values = 1e3 + levels + rng.normal(0, 0.3, size) + np.arange(size) * rng.normal(0, 0.2)
        penalty = float(rng.uniform(0.01, 2))
        allowed = [
            cuts
            for number in range(size)
            for cuts in itertools.combinations(range(1, size), number)
            if all(b - a >= least for a, b in itertools.pairwise((0, *cuts, size)))
        ]
        best = min(cost_of_cuts(values, cuts, penalty) for cuts in allowed)
        found = tuple(change_points(values, penalty, least))
        assert found in allowed
        assert cost_of_cuts(values, found, penalty) == pytest.approx(best, abs=1e-7)
