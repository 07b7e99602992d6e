"""A cycle under random replacement, in one set and in hashed ones, by brute force; and which kind
of TLB a step came from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlb.inference.misses import (
    fit_step,
    hashed_lru,
    hashed_random_replacement,
    miss_probability_cycle,
    miss_probability_cycle_random_replacement,
)


def misses(
    sets_of_pages: np.ndarray, sets: int, ways: int, rounds: int, rng: np.random.Generator
) -> float:
    """The share of misses in the later half of `rounds` of a cycle, page i living in set
    sets_of_pages[i].

    Each slot of each set holds a page or -1; a missing page goes to a slot drawn among all, filled
    or not. (Empty slots fill up within a few rounds.)
    """
    slots = np.full((sets, ways), -1)
    held = [False] * len(sets_of_pages)
    missed = visited = 0
    for now in range(rounds):
        victims = rng.integers(0, ways, len(sets_of_pages))
        for page, at in enumerate(sets_of_pages):
            if now >= rounds // 2:
                visited += 1
                missed += not held[page]
            if not held[page]:
                old = slots[at, victims[page]]
                if old >= 0:
                    held[old] = False
                slots[at, victims[page]], held[page] = page, True
    return missed / visited


@pytest.mark.parametrize(("lines", "entries"), [(140, 128), (256, 128), (400, 64)])
def test_one_set_misses_as_the_formula_says(lines: int, entries: int):
    rng = np.random.default_rng(lines)
    simulated = misses(np.zeros(lines, dtype=int), 1, entries, 120, rng)
    # A set of C slots differs from the formula's exponential by the order of 1/C.
    assert float(miss_probability_cycle_random_replacement(lines, entries)) == pytest.approx(
        simulated, abs=0.01 + 1 / entries
    )


@pytest.mark.parametrize("ratio", [0.6, 1.0, 2.0])
def test_hashed_sets_miss_as_the_mean_over_placements_says(ratio: float):
    sets, ways = 16, 8
    lines = int(ratio * sets * ways)
    rng = np.random.default_rng(lines)
    found = [misses(rng.integers(0, sets, lines), sets, ways, 40, rng) for _ in range(12)]
    error = np.std(found, ddof=1) / math.sqrt(len(found))
    assert float(hashed_random_replacement(lines, sets, ways)) == pytest.approx(
        np.mean(found), abs=4 * error + 0.02
    )


@given(st.integers(1, 4096), st.integers(1, 2**20))
def test_misses_are_a_root_of_the_equation_between_two_visits(entries: int, lines: int):
    x = float(miss_probability_cycle_random_replacement(lines, entries))
    assert 0 <= x <= 1
    assert x == pytest.approx(1 - math.exp(-x * lines / entries), abs=1e-6)
    assert (x > 0) == (lines > entries)


@given(st.integers(1, 2**20), st.integers(1, 2**20), st.integers(1, 4096))
def test_more_lines_never_miss_less_and_random_replacement_never_more_than_lru(
    a: int, b: int, entries: int
):
    few, many = miss_probability_cycle_random_replacement(sorted([a, b]), entries)
    assert few <= many + 1e-9
    assert many <= float(miss_probability_cycle(max(a, b), entries))


# --- which kind a step came from

KINDS = {
    "fully associative, LRU": lambda m, sets, ways: miss_probability_cycle(m, sets * ways),
    "fully associative, random replacement": lambda m, sets, ways: (
        miss_probability_cycle_random_replacement(m, sets * ways)
    ),
    "hashed sets, LRU": lambda m, sets, ways: hashed_lru(m, sets, ways, "cycle"),
    "hashed sets, random replacement": hashed_random_replacement,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("sets", "ways"), [(256, 12), (128, 8)])
def test_a_step_is_known_by_its_kind_at_2_percent_of_noise(kind: str, sets: int, ways: int):
    entries = sets * ways
    lines = np.unique(np.round(entries * 2 ** np.arange(-0.75, 1.01, 0.125)).astype(int))
    for seed in range(5):
        exact = 2.0 + 18.0 * KINDS[kind](lines, sets, ways)
        noisy = exact * (1 + 0.02 * np.random.default_rng(seed).normal(size=lines.size))
        fits = fit_step(lines, noisy, entries, ways)
        assert [fit.residual for fit in fits] == sorted(fit.residual for fit in fits)
        assert (len(fits), fits[0].kind) == (4, kind)
        assert (fits[0].before, fits[0].after) == pytest.approx((2, 20), abs=0.7)
        assert fits[0].predict(lines, entries, ways) == pytest.approx(exact, abs=1.0)
