"""The ratio of pairs: its interval against every sign there is, and how often it is right."""

from itertools import product

import numpy as np
import pytest

from tlb.stats.effects import FEWEST_RATIO_PAIRS, paired_ratio


@pytest.mark.parametrize("n", [2, 5, 9])
def test_the_coverage_is_that_of_all_signs_of_the_ranks(n):
    """Of ranks 1 to n with any signs, how often the bounds leave out 0: counted one by one, by the
    means themselves."""
    signs = np.array(list(product((-1, 1), repeat=n)))
    for confidence in (0.9, 0.95, 0.99):
        held = sum(
            interval.low <= 1 <= interval.high
            for row in signs
            for interval in [
                paired_ratio(np.exp(0.01 * row * np.arange(1, n + 1)), np.ones(n), confidence)
            ]
        )
        assert held / len(signs) == pytest.approx(
            paired_ratio(np.ones(n) * 2, np.ones(n), confidence).coverage
        )
        assert held / len(signs) >= min(confidence, 1 - 2.0 ** (1 - n)) - 1e-12


def test_what_drifts_from_pair_to_pair_is_not_in_the_ratio():
    drift = np.geomspace(1, 30, 9)
    interval = paired_ratio(1.25 * drift, drift)
    assert (
        interval.value_and_bounds == pytest.approx((1.25, 1.25, 1.25)) and interval.coverage > 0.99
    )


def test_no_pair_has_no_ratio_and_what_is_no_ratio_is_an_error():
    assert paired_ratio([], []).coverage == 0
    for above, below in (
        ([1.0], [0.0]),
        ([-1.0], [1.0]),
        ([float("nan")], [1.0]),
        ([1.0, 2.0], [1.0]),
    ):
        with pytest.raises(ValueError, match="pairs of numbers above zero"):
            paired_ratio(above, below)


def test_six_pairs_are_the_fewest_that_go_one_way_by_chance_in_under_a_twentieth_of_cases():
    ones = np.ones(FEWEST_RATIO_PAIRS)
    assert paired_ratio(ones, ones).coverage > 0.95 > paired_ratio(ones[1:], ones[1:]).coverage
