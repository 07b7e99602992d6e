"""A campaign of several grids in a given time: a point of two is measured once, and no value
changes what is left out."""

from collections import Counter

import pytest
from support.campaigns import MACHINE, Scripted, a_rig, assert_whole, one_by_one
from support.common import fake_kernel
from support.synthetic import Stated

from tlb.measure import build, campaign, kernels, outcome
from tlb.measure.campaign import CampaignOutcome
from tlb.measure.outcome import CampaignProgress
from tlb.measure.record import Point
from tlb.measure.store import UNMEASURED_POINTS_DOCUMENT, Store
from tlb.system.reasons import Unavailable

POINTS = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 84)]
GRIDS = {"first": POINTS[:12], "second": POINTS[8:]}  # four points are of both
PROCESS_S = 2.0


class Clock:
    """Time that passes as processes do, and stands still otherwise."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(outcome.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(kernels, "expected_s", lambda point: PROCESS_S)
    return clock


@pytest.fixture
def processes(monkeypatch, own_lock, clock) -> Scripted:
    processes = Scripted()

    def passes(point: Point, repeat: int) -> None:
        clock.now += PROCESS_S

    processes.trouble = passes
    monkeypatch.setattr(build, "kernel", fake_kernel())
    monkeypatch.setattr(build, "has_session", lambda point: False)
    return processes


def go(
    processes: Scripted,
    store: Store,
    grids: dict[str, list[Point]] = GRIDS,
    repeats: int = 5,
    **how: object,
) -> CampaignOutcome:
    return campaign.run(
        a_rig(store, measure=one_by_one(processes)), grids, repeats, quiet=True, **how
    )


def test_rows_of_points_that_another_grid_asked_for_are_there_for_all_and_stored_once(
    processes, store
):
    go(processes, store, {"first": POINTS[:12]})
    processes.asked.clear()
    outcome = go(processes, store, {"second": POINTS[8:]})
    assert (outcome.cached, outcome.measured) == (20, 40) and not {
        p for p, _ in processes.asked
    } & set(POINTS[:12])
    for name, grid in GRIDS.items():
        assert Counter(store.load(MACHINE, name)["lines"]) == {point.lines: 5 for point in grid}
    assert len(store.keys(MACHINE, "first") & store.keys(MACHINE, "second")) == 20
    assert_whole(store, 100, "first", "second")  # each row stands there once


@pytest.mark.parametrize(
    ("seconds", "measured"), [(float("nan"), 0), (-5.0, 0), (40.0, 20), (61.0, 30), (1e9, 100)]
)
def test_no_process_is_begun_that_would_end_after_the_time_and_the_next_run_goes_on(
    processes, store, seconds, measured
):
    outcome = go(processes, store, seconds=seconds)
    assert (outcome.measured, outcome.skipped) == (measured, 100 - measured)
    outcome = go(processes, store)
    assert (outcome.cached, outcome.measured, outcome.skipped) == (measured, 100 - measured, 0)


def test_what_was_lacking_is_known_to_a_run_that_may_not_measure_and_tried_again_by_one_that_may(
    processes, store
):
    victim = POINTS[3]

    def lacks(point: Point, repeat: int) -> None:
        if point == victim:
            raise Unavailable("memory-short", "3 pages needed")

    processes.trouble = lacks
    for seconds in (1e9, 0, 0):
        outcome = go(processes, store, seconds=seconds)
        assert [(p, why.code, why.detail) for p, why in outcome.lacking.items()] == [
            (victim, "memory-short", "3 pages needed")
        ]
        assert outcome.skipped == 0
    tries, rig = len(processes.asked), a_rig(store, measure=one_by_one(processes))
    for _ in range(2):  # as the parts of one book
        assert [*campaign.run(rig, GRIDS, 5, quiet=True).lacking] == [victim]
    assert len(processes.asked) == tries + 1
    of_another_state = a_rig(store, measure=one_by_one(processes), state="f" * 12)
    assert campaign.run(of_another_state, GRIDS, 1, seconds=0, quiet=True).lacking == {}
    processes.trouble = lambda point, repeat: None
    assert (go(processes, store).measured, go(processes, store, seconds=0).lacking) == (5, {})
    assert store.read_document(MACHINE, UNMEASURED_POINTS_DOCUMENT)["points"] == []


def test_what_an_empty_pool_prevents_is_tried_again_only_on_a_changed_computer(processes, store):
    def lacks(point: Point, repeat: int) -> None:
        raise Unavailable("pool-empty", "3 pages needed")

    processes.trouble = lacks
    go(processes, store)
    tries = len(processes.asked)
    assert len(go(processes, store).lacking) == tries == len(processes.asked)
    more = Stated().host().model_copy(update={"usable_cpus": [*range(64)]})
    campaign.run(
        a_rig(store, measure=one_by_one(processes), host=more), GRIDS, 1, seconds=1e9, quiet=True
    )
    assert len(processes.asked) == 2 * tries


def test_a_switch_of_a_setting_ends_the_campaign_and_no_row_is_of_two_states(processes, store):
    def switches() -> tuple:
        return ("never",) if len(processes.asked) > 7 else ("madvise",)

    with pytest.raises(Unavailable) as why:
        campaign.run(
            a_rig(store, measure=one_by_one(processes), switches=switches, inspected=("madvise",)),
            GRIDS,
            5,
            quiet=True,
        )
    assert why.value.code == "state-changed" and len(processes.asked) == 8
    assert len(store.keys(MACHINE, "first") | store.keys(MACHINE, "second")) == 7


@pytest.mark.parametrize("speed", [0.3, 4.0])
def test_an_estimate_is_right_within_a_fifth_once_one_round_of_five_is_measured(
    processes, store, clock, monkeypatch, speed
):
    """However far the guesses are off, and differently for each kernel."""
    factor = {"page_chase": 0.5, "page_gather": 3.0, "first_touch": 1.2}
    points = [
        Point(kernel=name, lines=lines, region_ms=1) for name in factor for lines in range(64, 84)
    ]
    estimates: list[tuple[float, float]] = []

    def passes(point: Point, repeat: int) -> None:
        clock.now += PROCESS_S * speed * factor[point.kernel] * (1 + 0.3 * (point.lines % 3))
        if repeat:
            estimates.append((clock.now, bar.left_s))

    processes.trouble = passes
    with CampaignProgress("test", quiet=True) as bar:
        go(processes, store, {"first": points}, progress=bar)
        end = clock.now
    assert len(estimates) == 4 * len(points)
    assert all(abs(now + left - end) < 0.2 * (end - 1000) for now, left in estimates)
