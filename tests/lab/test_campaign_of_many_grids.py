"""A campaign of several grids in a given time: a point of two is measured once, and no value changes what is left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.lab import MACHINE, STATE, Scripted, a_rig, assert_whole

from experiments.lab import build, campaign, kernels, progress
from experiments.lab.build import Kernel
from experiments.lab.campaign import Outcome
from experiments.lab.progress import Progress
from experiments.lab.record import Point
from experiments.lab.store import Store
from experiments.words.reasons import Unavailable

POINTS = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 84)]
GRIDS = {"first": POINTS[:12], "second": POINTS[8:]}  # four points are of both
PROCESS_S = 2.0


class Clock:
    """Time that passes as processes do, and stands still otherwise."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(kernels, "expected_s", lambda point: PROCESS_S)
    return clock


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch, own_lock: Path, clock: Clock) -> Scripted:
    processes = Scripted()

    def passes(point: Point, repeat: int) -> None:
        clock.now += PROCESS_S

    processes.trouble = passes
    monkeypatch.setattr(build, "kernel", lambda name, engine: Kernel(name, engine, ("true",), "a" * 16))
    return processes


def go(processes: Scripted, store: Store, grids: dict[str, list[Point]] = GRIDS, repeats: int = 5, **how: object) -> Outcome:
    return campaign.run(a_rig(store, measure=processes), grids, repeats, quiet=True, **how)


def test_a_point_of_two_grids_is_measured_once_and_its_rows_are_of_both(processes: Scripted, store: Store):
    assert go(processes, store).measured == 5 * len(POINTS) == len(set(processes.asked))
    for name, grid in GRIDS.items():
        assert Counter(store.load(MACHINE, name)["lines"]) == {point.lines: 5 for point in grid}


def test_rows_of_points_that_another_grid_asked_for_are_there_for_all_and_stored_once(processes: Scripted, store: Store):
    go(processes, store, {"first": POINTS[:12]})
    processes.asked.clear()
    outcome = go(processes, store, {"second": POINTS[8:]})
    assert (outcome.cached, outcome.measured) == (20, 40) and not {p for p, _ in processes.asked} & set(POINTS[:12])
    for name, grid in GRIDS.items():
        assert Counter(store.load(MACHINE, name)["lines"]) == {point.lines: 5 for point in grid}
    assert len(store.keys(MACHINE, "first") & store.keys(MACHINE, "second")) == 20
    assert_whole(store, 100, "first", "second")  # each row stands there once


def test_all_points_have_one_process_before_those_that_are_compared_have_all_and_then_each_other_has_two(
        processes: Scripted, store: Store):
    go(processes, store, compared=lambda point: point.lines < 70)
    compared = {point for point in POINTS if point.lines < 70}
    others = set(POINTS) - compared
    rounds, rest = [set(POINTS)] + [compared] * 4 + [others], list(processes.asked)
    for number, expected in enumerate(rounds):
        asked, rest = rest[: len(expected)], rest[len(expected) :]
        assert {point for point, _ in asked} == expected and len({repeat for _, repeat in asked}) == 1, number
    assert Counter(point for point, _ in rest) == dict.fromkeys(others, 3)


def test_what_is_large_is_measured_in_one_stretch_that_two_rounds_share_an_end_of(processes: Scripted, store: Store):
    large = {Point(kernel="page_chase", lines=1 << 18 + k, region_ms=1) for k in range(3)}
    go(processes, store, {"first": [*POINTS, *large]}, repeats=4)
    is_large = [point in large for point, _ in processes.asked]
    stretches = [n for n in range(1, len(is_large)) if is_large[n] != is_large[n - 1]]
    assert len(is_large) == 4 * (len(POINTS) + 3) and stretches == [20, 26, 66, 72]


def test_what_was_measured_changes_no_order_until_all_that_is_compared_is_there(processes: Scripted, tmp_path: Path):
    orders = []
    for name, values in (("quiet", [("", 5.0)] * 60), ("wild", [("", 5.0 * (1 + n % 7)) for n in range(60)])):
        processes.tries, processes.asked = list(values), []
        go(processes, Store(tmp_path / name), seconds=120, compared=lambda point: point.lines % 2 == 0)
        orders.append(processes.asked)
    assert orders[0] == orders[1] and len(orders[0]) == 60


@pytest.mark.parametrize(("seconds", "measured"), [(0.0, 0), (-5.0, 0), (1.0, 0), (40.0, 20), (61.0, 30), (1e9, 100)])
def test_no_process_is_begun_that_would_end_after_the_time_and_the_next_run_goes_on(
        processes: Scripted, store: Store, seconds: float, measured: int):
    outcome = go(processes, store, seconds=seconds)
    assert (outcome.measured, outcome.skipped) == (measured, 100 - measured)
    outcome = go(processes, store)
    assert (outcome.cached, outcome.measured, outcome.skipped) == (measured, 100 - measured, 0)


def test_a_computer_slower_than_expected_begins_fewer(processes: Scripted, store: Store, clock: Clock):
    def passes(point: Point, repeat: int) -> None:
        clock.now += 3 * PROCESS_S

    processes.trouble = passes
    began = clock.now
    outcome = go(processes, store, seconds=60)
    assert clock.now - began <= 60 and outcome.measured == 10


@pytest.mark.parametrize(("seconds", "measured"), [(3600.0, 10), (7200.0, 100)])
def test_a_computer_that_was_suspended_for_an_hour_ends_by_its_budget_and_the_next_run_goes_on(
        processes: Scripted, store: Store, clock: Clock, seconds: float, measured: int):
    """Where the monotonic clock goes on in suspend; where it stands still, nothing happened."""
    def passes(point: Point, repeat: int) -> None:
        clock.now += PROCESS_S + 3600 * (len(processes.asked) == 10)

    processes.trouble = passes
    outcome = go(processes, store, seconds=seconds)
    assert (outcome.measured, outcome.skipped, outcome.lacking) == (measured, 100 - measured, {})
    assert {len(store.load(MACHINE, name)) > 0 for name in GRIDS} == {True}
    outcome = go(processes, store)
    assert (outcome.cached, outcome.measured) == (measured, 100 - measured)


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_wall_clock_that_steps_changes_no_budget_and_no_bar(
        processes: Scripted, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, step_s: float):
    def wall() -> float:
        return 1e9 + step_s * (clock.now > 1020.0)

    monkeypatch.setattr(progress.time, "time", wall)
    monkeypatch.setattr("tqdm.std.time", wall)
    assert go(processes, store, seconds=61).measured == 30
    with Progress("test", expected_s=100, most_s=1000) as bar:
        clock.now += 20
        bar.advance(20, "")
        assert bar._bar.format_dict["elapsed"] == 20


@pytest.mark.parametrize("seconds", [float("nan"), float("-inf")])
def test_time_that_is_none_measures_nothing(processes: Scripted, store: Store, seconds: float):
    assert go(processes, store, seconds=seconds).measured == 0 == len(processes.asked)


def test_what_was_lacking_is_known_to_a_run_that_may_not_measure_and_tried_again_by_one_that_may(processes: Scripted, store: Store):
    victim = POINTS[3]

    def lacks(point: Point, repeat: int) -> None:
        if point == victim:
            raise Unavailable("pool-empty", "3 pages needed")

    processes.trouble = lacks
    for seconds in (1e9, 0, 0):
        outcome = go(processes, store, seconds=seconds)
        assert [(p, why.code, why.detail) for p, why in outcome.lacking.items()] == [(victim, "pool-empty", "3 pages needed")]
        assert outcome.skipped == 0
    assert campaign.run(a_rig(store, measure=processes, state="f" * 12), GRIDS, 1, seconds=0, quiet=True).lacking == {}  # of another state
    processes.trouble = lambda point, repeat: None
    assert (go(processes, store).measured, go(processes, store, seconds=0).lacking) == (5, {})
    assert store.read_document(MACHINE, campaign.LACKS) == {"state": STATE, "points": []}


def test_a_switch_of_a_setting_ends_the_campaign_and_no_row_is_of_two_states(processes: Scripted, store: Store):
    def switches() -> tuple:
        return ("never",) if len(processes.asked) > 7 else ("madvise",)

    with pytest.raises(Unavailable) as why:
        campaign.run(a_rig(store, measure=processes, switches=switches, inspected=("madvise",)), GRIDS, 5, quiet=True)
    assert why.value.code == "state-changed" and len(processes.asked) == 8
    assert len(store.keys(MACHINE, "first") | store.keys(MACHINE, "second")) == 7


def test_progress_tells_the_time_left_at_the_pace_so_far_and_no_more_than_there_is(clock: Clock):
    with Progress("test", expected_s=100, most_s=1000, quiet=True) as bar:
        assert bar.left_s == 100
        for _ in range(25):
            clock.now += 4
            bar.advance(2, "")
        assert (bar.gone_s, bar.pace, bar.left_s) == (100, 2, 100)
        bar.leave_out(30)
        assert bar.left_s == 40
    with Progress("test", expected_s=100, most_s=30, quiet=True) as bar:
        assert bar.left_s == 30 and bar.has_time_for(30) and not bar.has_time_for(31)
