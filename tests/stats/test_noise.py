"""How often the intervals of two points of the same mappings hold the truth, under noise like that
of computers. The test prints what it found: pytest -rP -m endurance tests/stats/test_noise.py"""

import operator
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tlb.stats.intervals import Interval, ValuesByRepeat, median_interval

pytestmark = pytest.mark.endurance

TRIALS = 2000
SIZES = 5, 15  # processes, or pairs
Noise = Callable[
    [np.random.Generator, tuple[int, int]], np.ndarray
]  # logarithms of times: campaigns by repeats


def normal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return 0.05 * rng.standard_normal(size)


def heavy_tailed(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Student's t with so few degrees of freedom that it has no variance."""
    return 0.02 * rng.standard_t(1.5, size)


def bistable(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Three processes in ten take 1.6 times as long."""
    return np.log(1.6) * (rng.random(size) < 0.3) + 0.02 * rng.standard_normal(size)


def held(intervals: list[Interval], truth: float) -> int:
    return sum(one.low <= truth <= one.high for one in intervals)


def bounds(coverage: float) -> tuple[float, float]:
    """So few and so many campaigns of TRIALS hold the truth with all but one in a million of
    chance, were the coverage as stated."""
    return stats.binom.ppf([1e-6, 1 - 1e-6], TRIALS, coverage)


def nothing(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return np.zeros(size)


def skewed(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return 0.05 * rng.exponential(size=size)


def of_mappings(times: np.ndarray) -> Interval:
    return replace(median_interval(times), repeats=ValuesByRepeat(dict(enumerate(times.tolist()))))


OWN = [(heavy_tailed, heavy_tailed), (bistable, normal), (skewed, nothing)]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("own", OWN, ids=lambda own: " over ".join(noise.__name__ for noise in own))
@pytest.mark.parametrize("common", [nothing, bistable])
def test_two_points_of_the_same_mappings_are_held_as_often_as_stated(common, own, n):
    """The truth is the median of what mappings give. Pairs are at most a sixth wider than
    independent medians, where nothing is shared."""
    rng = np.random.default_rng(n)
    shared, many = common(rng, (TRIALS, n)), common(rng, (1_000_000, 1))
    above, below = (
        scale * np.exp(shared + noise(rng, shared.shape))
        for scale, noise in zip((1.3, 1.0), own, strict=True)
    )
    over, under = (
        scale * np.exp(many + noise(rng, many.shape))
        for scale, noise in zip((1.3, 1.0), own, strict=True)
    )
    for combine in (operator.truediv, operator.sub):
        truth = float(np.median(combine(over, under)))
        pairs, apart = (
            [combine(of(a), of(b)) for a, b in zip(above, below, strict=True)]
            for of in (of_mappings, median_interval)
        )
        half = [
            np.median([(one.high - one.low) / 2 for one in intervals]) / truth
            for intervals in (pairs, apart)
        ]
        hits, (least, most) = held(pairs, truth), bounds(pairs[0].coverage)
        print(
            f"{combine.__name__}, {common.__name__} in common, n = {n}: {hits / TRIALS:.1%} "
            f"+-{half[0]:.1%}, stated {pairs[0].coverage:.1%}; as if not paired "
            f"{held(apart, truth) / TRIALS:.1%} +-{half[1]:.1%}"
        )
        assert least <= hits <= most
        assert half[0] <= 7 / 6 * half[1]
