"""What is measured next: the widest interval, never the wished-for one; and what is closed stays closed."""

from __future__ import annotations

import random
from collections import Counter
from math import hypot, inf, sqrt
from pathlib import Path

import numpy as np
import pytest
from support.lab import NAME, Scripted, a_rig

from experiments.inference.intervals import Interval, interval_of_ratio, median_interval
from experiments.lab import campaign, order, progress
from experiments.lab.build import Kernel
from experiments.lab.order import AT_ONCE, MOST, NARROW, Order, half_width
from experiments.lab.record import Point
from experiments.lab.store import Store

POINTS = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 104)]


class Noisy:
    """Stands for measure.measure: each point has a median and a noise of its own, and process number r always measures the same."""

    def __init__(self, noise: dict[Point, float], scale: float = 1.0):
        self.noise, self.scale, self.asked = noise, scale, list[tuple[Point, int]]()

    def ns(self, point: Point, repeat: int) -> float:
        return self.scale * point.lines * np.exp(self.noise.get(point, 0.0) * random.Random(f"{point} {repeat}").gauss())

    def __call__(self, point: Point, repeat: int, *, state: str, **how: object):
        self.asked.append((point, repeat))
        return Scripted(("", self.ns(point, repeat)))(point, repeat, state=state)


@pytest.fixture
def go(store: Store, own_lock: Path, monkeypatch: pytest.MonkeyPatch):
    """A campaign of POINTS with the processes of `measure`: five each, nine at most."""
    monkeypatch.setattr("experiments.lab.build.kernel", lambda name, engine: Kernel(name, engine, ("true",), "a" * 16))
    return lambda measure, repeats=5, store=store, **how: campaign.run(
        a_rig(store, measure=measure), {NAME: POINTS}, repeats, **{"most": order.most(repeats), "quiet": True} | how)


def test_a_wide_point_gets_nine_processes_and_a_narrow_one_five_and_then_nothing_is_to_do(go, store: Store):
    noise = dict.fromkeys(POINTS[::2], 0.05) | dict.fromkeys(POINTS[1::2], 0.001)
    first = go(measure := Noisy(noise))
    assert Counter(point for point, _ in measure.asked) == {point: 9 if noise[point] > 0.01 else 5 for point in POINTS}
    measure.asked.clear()
    again = go(measure)
    assert (again.measured, again.cached, again.skipped, measure.asked) == (0, first.measured, 0, [])
    for point in POINTS:
        values = [measure.ns(point, repeat) for repeat in range(5)]
        assert (half_width(tuple(values)) > NARROW) == (noise[point] > 0.01)


def test_a_campaign_that_is_over_takes_no_lock_and_one_with_a_wide_point_goes_on_though_each_has_its_five(go, store: Store):
    noise = {POINTS[7]: 0.05}
    go(Noisy(noise), most=0)
    outcome = go(measure := Noisy(noise))
    assert (outcome.measured, outcome.cached) == (4, 200) and measure.asked == [(POINTS[7], repeat) for repeat in (5, 6, 7, 8)]
    with campaign.measuring_lock():
        assert go(Noisy(noise)).measured == 0


@pytest.mark.parametrize("repeats", [1, 2, 4, 9, 12])
def test_whoever_asks_for_fewer_than_an_interval_takes_or_for_nine_and_more_gets_what_was_asked_for(go, repeats: int):
    go(measure := Noisy(dict.fromkeys(POINTS, 0.05)), repeats)
    assert Counter(point for point, _ in measure.asked) == dict.fromkeys(POINTS, repeats)


def test_the_widest_are_measured_first_and_none_twice_before_the_others_of_its_turn(go, store: Store, monkeypatch: pytest.MonkeyPatch):
    noise = {point: 0.02 + 0.002 * number for number, point in enumerate(POINTS)}
    go(measure := Noisy(noise), compared=lambda point: False)
    asked = measure.asked[2 * len(POINTS) :]
    values = {point: [measure.ns(point, repeat) for repeat in (0, 1)] for point in POINTS}
    for _ in range(10):  # as long as more than a turn's points are open
        turn, asked = asked[:AT_ONCE], asked[AT_ONCE:]
        chosen = {point for point, _ in turn}
        left = [half_width(tuple(values[point])) for point in POINTS if point not in chosen and len(values[point]) < MOST]
        assert len(chosen) == len(turn) and min(half_width(tuple(values[point])) for point in chosen) >= max(left, default=0)
        for point, repeat in turn:
            values[point].append(measure.ns(point, repeat))


def test_where_the_values_lie_changes_nothing(go, tmp_path: Path):
    noise = {point: 0.01 + 0.002 * number for number, point in enumerate(POINTS)}
    plain, tenfold = Noisy(noise), Noisy(noise, scale=10)
    for name, measure in (("plain", plain), ("tenfold", tenfold)):
        go(measure, store=Store(tmp_path / name), compared=lambda point: point.lines % 2 == 0)
    assert plain.asked == tenfold.asked and 5 * len(POINTS) < len(plain.asked)


def test_the_large_points_of_a_turn_are_measured_in_one_stretch(go, store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(order.kernels, "arena_bytes", lambda point: order.LARGE_BYTES * (point.lines % 4 == 0))
    go(measure := Noisy(dict.fromkeys(POINTS, 0.05)), compared=lambda point: False)
    is_large = [point.lines % 4 == 0 for point, _ in measure.asked][2 * len(POINTS) :]
    for number in range(10):
        turn = is_large[number * AT_ONCE : (number + 1) * AT_ONCE]
        assert sum(a != b for a, b in zip(turn, turn[1:], strict=False)) <= 1


def test_the_end_of_a_campaign_that_each_process_decides_on_is_that_of_its_time(monkeypatch: pytest.MonkeyPatch):
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress("test", expected_s=20, most_s=600, quiet=True) as bar:
        now[0] += 10
        bar.advance(10, "")
        assert bar.left_s == 10
        bar.expect_all_the_time()
        bar.advance(10, "")
        assert bar.left_s == 590
    with progress.Progress("test", expected_s=0, most_s=inf, quiet=False) as bar:  # no bar has an end that is infinite
        bar.expect_all_the_time()
        bar.advance(10, "")


# --- it takes no side

PAIRS = 3000
FIRST, EXTRA = 5, 2  # processes that each point has, and that there are for it beside


@pytest.fixture(scope="module")
def worlds() -> dict[str, list[list[float]]]:
    """The values of PAIRS pairs of points whose median is 1, of lognormal noise of 2 to 10 %: where the widest were measured on, and
    where who was measured on is drawn by lot. (As many for each would be seven, whose interval is their range and covers 98 %.)"""
    rng = np.random.default_rng(11)
    noise = rng.uniform(0.02, 0.10, 2 * PAIRS)[:, None]
    draws, others = (np.exp(noise * rng.standard_normal((2 * PAIRS, MOST))).tolist() for _ in range(2))
    points = {Point(kernel="page_chase", lines=n + 1): n for n in range(2 * PAIRS)}
    values = {point: draws[n][:FIRST] for point, n in points.items()}
    missing = ((point, repeat) for point in points for repeat in range(FIRST, MOST))
    turns = Order(missing, values, dict.fromkeys(points, FIRST), lambda point: True, random.Random(1)).processes(lambda point: True)
    for _, (point, repeat) in zip(range(2 * PAIRS * EXTRA), turns, strict=False):
        values[point].append(draws[points[point]][repeat])
    numbers = rng.permutation([len(row) for row in values.values()])
    return {"widest": list(values.values()), "by lot": [row[:number] for row, number in zip(others, numbers, strict=True)]}


def side(interval: Interval, line: float = 1.0) -> int:
    """1 above the line, -1 below, 0 where the interval spans it."""
    return int(interval.low > line) - int(interval.high < line)


@pytest.mark.slow
@pytest.mark.endurance
def test_the_widest_first_decides_more_than_a_lot_would_and_no_more_of_it_wrongly(worlds):
    """Claims of ratios that are up to 20 % on either side of a line at one."""
    truths = np.exp(np.random.default_rng(12).uniform(-0.2, 0.2, PAIRS))
    wrong, right = dict[str, float](), dict[str, float]()
    for name, values in worlds.items():
        medians = [median_interval(row) for row in values]
        ratios = (interval_of_ratio(a, b) for a, b in zip(medians[::2], medians[1::2], strict=True))
        said = np.array([side(ratio, 1 / truth) for ratio, truth in zip(ratios, truths, strict=True)])
        wrong[name], right[name] = np.mean(said * (truths - 1) < 0), np.mean(said * (truths - 1) > 0)
    error = hypot(*(sqrt(share * (1 - share) / PAIRS) for share in wrong.values()))
    assert abs(wrong["widest"] - wrong["by lot"]) < 2 * error < 0.01
    assert right["widest"] > right["by lot"]


@pytest.mark.slow
def test_no_more_intervals_miss_the_median_than_of_five_processes_and_as_many_above_it_as_below(worlds):
    said = [side(median_interval(row)) for row in worlds["widest"]]
    above, below, misses = said.count(1), said.count(-1), 1 - median_interval(range(FIRST)).coverage
    assert 0 < above + below < len(said) * misses + 2 * sqrt(len(said) * misses)
    assert abs(above - below) < 2 * sqrt(above + below)
