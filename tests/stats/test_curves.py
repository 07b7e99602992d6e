"""Curves: medians along x, what lies between two of them, and what claims ask of one; each against
a second way to the number."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from support.common import make_record, refusal

from tlb.stats.curves import (
    Curve,
    found_end,
    is_comparable,
    medians_at_largest_common_x,
    packed_curve,
    packed_without_walks,
    price,
    price_with_packed_walks,
    spread_curve,
)
from tlb.stats.intervals import Interval, median_interval

values = st.floats(0.1, 1e6)
samples = st.lists(values, min_size=1, max_size=7)
grids = st.dictionaries(st.integers(1, 1 << 20), samples, min_size=1, max_size=8)


@pytest.mark.parametrize(
    "some, end, expected",
    [
        ([2, 4], max, 4),
        ([2, 4, 8], max, "too-few-points"),  # or any size up to 64
        ([64], min, "too-few-points"),
        ([64], max, 64),
        ([4, 8], min, 4),
        ([], max, "too-few-points"),
    ],
)
def test_the_end_of_some_sizes_is_known_within_an_octave(some, end, expected):
    measured = [1, 2, 4, 8, 64]
    if isinstance(expected, str):
        assert refusal(lambda: found_end(some, measured, end)) == expected
    else:
        assert found_end(some, measured, end) == expected


few = settings(max_examples=50)  # a curve of random rows takes milliseconds


def rows(lines: int, layout: str, times: list[float], **more: object) -> list[dict]:
    return [
        make_record(lines=lines, layout=layout, ns_per_access=t, **more).model_dump(
            exclude={"counters"}
        )
        for t in times
    ]


def measured(grid: dict[int, list[float]], x: str = "lines") -> Curve:
    frame = pd.DataFrame(
        [(n, t) for n, times in grid.items() for t in times], columns=[x, "ns_per_access"]
    )
    return Curve.of(frame, x)


def curve(
    points: dict[float, tuple[float, float, float]], coverage: float = 0.9375, x: str = "lines"
) -> Curve:
    """A curve of given medians and bounds."""
    columns = [x, "median", "low", "high", "coverage", "n", "unstable"]
    return Curve(
        pd.DataFrame(
            [(n, *bounds, coverage, 5, False) for n, bounds in sorted(points.items())],
            columns=columns,
        ),
        x,
    )


def exact(points: dict[float, float]) -> Curve:
    return curve({n: (y, y, y) for n, y in points.items()})


def least_expected(trials: int, coverage: float) -> float:
    """So few hits come up once in a million runs by chance, were the coverage as stated."""
    return stats.binom.ppf(1e-6, trials, coverage)


# --- a curve of rows


@few
@given(grids, st.randoms())
def test_a_curve_has_the_median_of_each_x_ascending_whatever_the_order_of_rows(grid, random):
    one_by_one = {n: median_interval(grid[n]) for n in sorted(grid)}
    shuffled = {n: grid[n] for n in random.sample(list(grid), len(grid))}
    points = measured(shuffled)
    assert list(points) == list(one_by_one.items()) and len(points) == len(grid)
    assert points.xs == list(one_by_one) and points.intervals == list(one_by_one.values())
    assert points.medians.to_dict() == {n: interval.value for n, interval in one_by_one.items()}
    assert points.last == one_by_one[max(grid)]


# --- points of it


@few
@given(grids, st.floats(0.5, 2e6), st.sampled_from([0.01, 0.1, 2**0.5 - 1]))
def test_at_is_the_nearest_point_in_the_logarithm_and_no_farther_away_than_asked(grid, x, within):
    points = measured(grid)
    away = {n: abs(math.log(n / x)) for n in grid}
    nearest = min(away.values())
    assume(abs(nearest - math.log1p(within)) > 1e-9)
    if nearest > math.log1p(within):
        assert refusal(points.at, x, within) == "too-few-points"
    else:
        assert points.at(x, within) in [
            median_interval(grid[n]) for n in grid if away[n] <= nearest + 1e-12
        ]
        assert Interval.of(points.row(x, within)) == points.at(x, within)


# --- between two curves


@few
@given(grids, grids)
def test_a_difference_of_curves_is_that_of_each_x_that_both_have_and_turned_over_its_negative(a, b):
    b = b | {n: b[min(b)] for n in list(a)[::2]}  # some x are shared
    left, right = measured(a), measured(b)
    there, back = left - right, right - left
    assert dict(there) == {
        n: median_interval(a[n]) - median_interval(b[n]) for n in sorted(a) if n in b
    }
    assert there.xs == back.xs == sorted(set(a) & set(b))
    for (_, x), (_, y) in zip(there, back, strict=True):
        assert x == Interval(-y.value, -y.high, -y.low, y.coverage, y.modes)
    assert [tuple(row) for row in there.table[["n", "n_left", "n_right"]].to_numpy()] == [
        (min(len(a[n]), len(b[n])), len(a[n]), len(b[n])) for n in there.xs
    ]


# --- where it passes a height


def first_passed_for_good(
    points: dict[int, float], height: float, low: float, high: float
) -> float | str:
    """The last step from under a height to it or over it, by walking along the points from the
    right."""
    part = sorted((n, y) for n, y in points.items() if low <= n <= high)
    if len(part) < 2:
        return "too-few-points"
    for (before, under), (after, over) in reversed(list(zip(part, part[1:], strict=False))):
        if over < height:
            return "no-step"
        if under < height:
            share = (height - under) / (over - under)
            return math.exp(math.log(before) * (1 - share) + math.log(after) * share)
    return "no-step"


@settings(max_examples=300)
@given(
    st.dictionaries(st.integers(1, 4096), st.integers(0, 20), max_size=9),
    st.integers(0, 20),
    st.integers(0, 4096),
    st.integers(0, 4096),
)
def test_a_crossing_is_where_the_curve_passes_a_height_for_good(points, height, low, high):
    expected = first_passed_for_good(points, height, low, high)
    if isinstance(expected, str):
        assert refusal(lambda: exact(points).crossing(height, low, high)) == expected
    else:
        assert exact(points).crossing(height, low, high) == pytest.approx(expected)


# --- what claims ask of it


@pytest.mark.parametrize(
    ("truth", "noise"),
    [(np.full(20, 10.0), 0.2), (np.linspace(10, 13, 10), 0.3)],
    ids=["flat", "slope"],
)
def test_flatness_covers_as_often_as_it_says(truth, noise):
    """Looking for the largest and the smallest among 20 points must not cost coverage."""
    rng, trials, hits = np.random.default_rng(len(truth)), 300, 0
    for _ in range(trials):
        bounds = [
            median_interval(x) for x in truth[:, None] + noise * rng.normal(size=(len(truth), 6))
        ]
        flat = curve(
            {n: interval.value_and_bounds for n, interval in enumerate(bounds, 1)},
            bounds[0].coverage,
        ).flatness(1, len(truth))
        hits += flat.low <= truth.max() / truth.min() <= flat.high
    assert hits >= least_expected(trials, 0.96875)


def test_flatness_takes_two_points():
    grid = measured({64: [1.0] * 5, 128: [1.0] * 5})
    assert grid.flatness(64, 128).value == 1
    assert refusal(grid.flatness, 64, 64) == refusal(grid.flatness, 65, 127) == "too-few-points"


def test_of_a_point_with_two_modes_the_single_processes_stay_at_hand_and_what_follows_says_so():
    times = measured({64: [1.0] * 5, 128: [38, 38.5, 169, 170, 171], 256: [170.0] * 5})
    assert sorted(times.processes["median"]) == [38, 38.5, 169, 170, 171] and set(
        times.processes["lines"]
    ) == {128}
    assert times.modes == times.between(64, 128).modes == 2 and times.between(256, 256).modes == 1
    price = times - exact({64: 0.5, 128: 0.5, 256: 0.5})
    assert [interval.modes for interval in price.intervals] == [1, 2, 1] and times.doubling(
        64
    ).modes == 2
    assert price.flatness(64, 256).modes == 2


def test_where_a_curve_passes_a_height_is_known_to_the_points_beside_it():
    """A step of which only the points before and behind were measured may be anywhere between; and
    its bounds may pass earlier or later."""

    def table(low: list, middle: list, high: list) -> Curve:
        bounds = {"median": middle, "low": low, "high": high}
        return Curve(
            pd.DataFrame({"lines": [100, 200, 400, 800], **bounds, "coverage": 0.9375, "modes": 1})
        )

    sharp = table([1, 1, 9, 9], [1, 1, 9, 9], [1, 1, 9, 9]).passes(5.0)
    assert (sharp.low, sharp.high, sharp.coverage) == (200, 400, 0.9375) and 200 < sharp.value < 400
    loud = table([1, 1, 2, 9], [1, 2, 9, 9], [1, 6, 9, 9]).passes(5.0)
    assert (loud.low, loud.high) == (100, 800)
    assert sharp.value == pytest.approx(
        table([1, 1, 9, 9], [1, 1, 9, 9], [1, 1, 9, 9]).crossing(5.0)
    )
    never, always = (
        table([1, 1, 4, 4], [1, 1, 9, 9], [1, 1, 9, 9]).passes(5.0),
        table([1, 1, 9, 9], [1, 1, 9, 9], [6, 6, 9, 9]).passes(5.0),
    )
    assert (never.low, never.high, always.low, always.high) == (200, math.inf, -math.inf, 400)
    assert (f"{never:.0f}", f"{always:.0f}") == ("at least 200", "at most 400")


# A machine with three caches. A spread chase keeps page-table entries in them too: an eighth of a
# line each of the guest's, a line each of its host's. A walk reads one of the guest's.
CACHES = ((512, 1.0), (8192, 4.0), (1 << 17, 15.0), (1 << 60, 140.0))  # lines, ns


ENTRIES = 1536


def cached_ns(lines: float) -> float:
    return next(ns for most, ns in CACHES if lines <= most)


def walk_ns(lines: int) -> float:
    return 2.0 * (lines > 64) + (cached_ns(lines / 8) if lines > ENTRIES else 0.0)


def test_a_price_for_verdicts_allows_for_page_walks_of_the_packed_lines():
    """Lines in memory, and a walk of 20 ns whose table is cached, of 120 ns whose table is not."""
    noise, grid = np.random.default_rng(2), [2**k for k in range(8, 21)]

    def translation_ns(pages: float) -> float:
        return 0.0 if pages <= ENTRIES else 20.0 if pages <= 2**15 else 120.0

    def data_ns(lines: int) -> float:
        return 4.0 if lines <= 2**14 else 100.0

    taken = {
        "spread": lambda n: data_ns(n) + translation_ns(n),
        "packed": lambda n: data_ns(n) + translation_ns(n / 64),
    }
    frame = pd.DataFrame(
        [
            row
            for n in grid
            for layout, ns in taken.items()
            for row in rows(n, layout, (ns(n) * np.exp(0.005 * noise.normal(size=9))).tolist())
        ]
    )
    spread, packed = spread_curve(frame), packed_curve(frame)
    plain, judged = price(frame, ENTRIES), price_with_packed_walks(spread, packed, ENTRIES)
    memory = packed_without_walks(spread, packed, ENTRIES)
    assert judged.xs == plain.xs and memory.xs == packed.xs
    for n in judged.xs:
        found, before = judged.get(n), plain.get(n)
        if n <= 64 * ENTRIES:  # the packed lines do not walk, and nothing is allowed for
            assert found == before and memory.get(n) == packed.get(n)
            continue
        assert before.high < translation_ns(n) < found.high  # the price alone is a lower bound
        assert (found.value, found.low) == (before.value, before.low)
        assert memory.get(n).low < data_ns(n) < packed.get(n).low
        assert memory.get(n).high == packed.get(n).high
    assert max(judged.xs) > 64 * ENTRIES


def test_a_price_is_the_machines_or_it_is_a_gap():
    noise, grid = np.random.default_rng(1), [round(2 ** (k / 2)) for k in range(8, 41)]
    prices, differences = [], []
    for _ in range(4):
        frame = pd.DataFrame(
            [
                row
                for n in grid
                for layout, ns in (
                    ("packed", cached_ns(n)),
                    ("spread", walk_ns(n) + cached_ns(n * 17 / 8 if n > ENTRIES else n)),
                )
                for row in rows(n, layout, (ns * np.exp(0.01 * noise.normal(size=9))).tolist())
            ]
        )
        found, difference = price(frame, ENTRIES), spread_curve(frame) - packed_curve(frame)
        assert sorted([*found.xs, *found.gaps]) == grid
        assert all(found.between(gap, gap).gaps == (gap,) for gap in found.gaps)
        prices += list(found)
        differences += list(difference)
    hits = sum(interval.low <= walk_ns(n) <= interval.high for n, interval in prices)
    assert hits >= least_expected(len(prices), 0.96)
    assert max(interval.value / walk_ns(n) for n, interval in prices if n > 64) < 2
    assert (
        max(interval.value / walk_ns(n) for n, interval in differences if n > 64) > 10
    )  # what it would be without gaps


@pytest.mark.parametrize(
    "lines, expected", [(16, True), (64, False), (48, False), (90, False), (128, True), (512, True)]
)
def test_no_size_beside_a_gap_has_a_price(lines, expected):
    priced = measured({16: [1.0], 32: [1.0], 128: [1.0], 256: [1.0]})
    assert is_comparable(replace(priced, gaps=(64.0,)), lines) is expected


def test_a_load_that_left_a_cache_in_a_part_of_the_mappings_has_no_price():
    def gaps(spread_ns: list[float], n: int) -> tuple[float, ...]:
        measured = [*rows(n, "packed", [10.0] * 9), *rows(n, "spread", spread_ns)]
        return price(pd.DataFrame(measured), ENTRIES).gaps

    left = [40.0] * 4 + [200.0] * 5
    assert gaps(left, 4 * ENTRIES) == (4 * ENTRIES,) and gaps(left, ENTRIES) == ()
    assert gaps([40.0] * 4 + [80.0] * 5, 4 * ENTRIES) == ()  # by translation alone


@pytest.mark.parametrize("mappings, gaps", [(1, (512,)), (5, ())])
def test_of_too_few_mappings_a_step_of_the_control_within_the_reach_is_a_gap(mappings, gaps):
    times = {256: (1.3, 3.5), 512: (1.3, 6.5), 1024: (4.5, 6.3)}  # the spread lines left L1 at 512
    measured = [
        row
        for n, both in times.items()
        for layout, ns in zip(("packed", "spread"), both, strict=True)
        for row in rows(n, layout, [ns] * mappings)
    ]
    assert price(pd.DataFrame(measured), ENTRIES).gaps == gaps


def test_curves_that_end_at_different_sizes_are_compared_where_both_were_measured():
    near, far = measured({1: [2.0], 4: [3.0]}), measured({1: [4.0], 4: [6.0], 8: [9.0]})
    assert medians_at_largest_common_x({"near": near, "far": far, "none": near.between(5, 6)}) == (
        4,
        {"near": 3.0, "far": 6.0},
    )
    apart = {"near": near.between(4, 4), "far": far.between(8, 8)}
    assert (
        refusal(medians_at_largest_common_x, apart)
        == refusal(medians_at_largest_common_x, {})
        == "too-few-points"
    )
