"""A campaign: it repeats, remembers, goes on and never measures twice."""

from collections.abc import Callable
from typing import Any

import pytest
from support.campaigns import MACHINE, NAME, Scripted, a_rig, run
from support.common import fake_kernel, make_record

from tlb.measure import build, perf
from tlb.measure.campaign import CampaignOutcome
from tlb.measure.events import PerfEvent
from tlb.measure.outcome import SESSIONS_DOCUMENT, SessionCounts, store_session_counts
from tlb.measure.plan import SessionRecord
from tlb.measure.record import CounterReading, Point, Record
from tlb.measure.store import Store

POINTS = [
    Point(kernel="page_chase", lines=2**k, layout=layout, region_ms=1)
    for k in range(4, 9)
    for layout in ("spread", "packed")
]


@pytest.fixture
def faked(monkeypatch, own_lock) -> Scripted:
    monkeypatch.setattr(build, "kernel", fake_kernel())
    monkeypatch.setattr(build, "has_session", lambda point: False)
    return Scripted()


def go(
    faked: Scripted,
    store: Store,
    points: list[Point] = POINTS,
    repeats: int | Callable[[Point], int] = 3,
    **how: object,
) -> CampaignOutcome:
    return run(store, points, repeats, measure=faked, **how)


def test_each_point_is_measured_once_before_any_is_repeated(faked, store):
    outcome = go(faked, store)
    assert (outcome.measured, outcome.cached, outcome.lacking) == (30, 0, {})
    rounds = [faked.asked[i : i + 10] for i in (0, 10, 20)]
    for repeat, asked in enumerate(rounds):
        assert {(p, repeat) for p in POINTS} == set(asked)
    orders = [[POINTS.index(p) for p, _ in asked] for asked in rounds]
    assert orders[0] != orders[1] != orders[2] and orders[0] != list(
        range(10)
    )  # shuffled, each round anew


def test_what_is_stored_is_not_measured_again(faked, store):
    go(faked, store, repeats=2)
    faked.asked.clear()
    assert (go(faked, store, repeats=2).measured, go(faked, store, repeats=2).cached) == (0, 20)
    assert faked.asked == []
    assert go(faked, store, repeats=3).measured == 10 and {repeat for _, repeat in faked.asked} == {
        2
    }


# --- a lack that was mended

WALK = PerfEvent("walk", "some_event:u")
COUNTING = perf.EventPlan("perf", (WALK,))


def counted(plan: perf.EventPlan, **_: object) -> dict[str, CounterReading]:
    """What a row says of the walks."""
    if not plan.events:
        return {name: CounterReading(reason=reason) for name, reason in plan.lacking.items()}
    return {event.quantity: CounterReading(value=5e6, event=event.event) for event in plan.events}


def take(
    counts: Callable[..., dict[str, CounterReading]], asked: list[Point], ns: float
) -> Callable[..., Record]:
    def measure(point: Point, repeat: int, *, state: str, **how: Any) -> Record:
        asked.append(point)
        return make_record(
            **point.model_dump(),
            repeat=repeat,
            state=state,
            ns_per_access=ns,
            counters=counts(**how),
        )

    return measure


def test_rows_without_counts_are_measured_again_once_they_can_be_counted_and_then_no_more(
    faked, store
):
    asked: list[Point] = []
    lacking = perf.EventPlan(None, (), {"walk": "no-perf"})
    assert [
        run(store, POINTS, 2, measure=take(counted, asked, 1.0), plan=lacking).measured
        for _ in range(2)
    ] == [20, 0]
    mended = [
        run(store, POINTS, 2, measure=take(counted, asked, 2.0), plan=COUNTING) for _ in range(2)
    ]
    assert [outcome.measured for outcome in mended] == [20, 0] and len(asked) == 40
    frame = store.load(MACHINE, NAME)
    assert (
        len(frame) == 20
        and set(frame["walk_per_access"]) == {0.5}
        and set(frame["ns_per_access"]) == {2.0}
    )
    assert (
        run(store, POINTS, 2, measure=take(counted, asked, 3.0), plan=lacking).measured == 0
    )  # perf is gone: what was counted stays


def test_what_was_counted_of_processes_is_added_up_by_program(store):
    def session(points: int, faults: float | None) -> SessionRecord:
        counted = (
            CounterReading(reason="perf-failed") if faults is None else CounterReading(value=faults)
        )
        return SessionRecord(
            kernel="page_chase",
            engine="c",
            pages="4k",
            repeat=0,
            points=points,
            mapped_bytes=4096,
            started_at="2026-01-01T00:00:00Z",
            wall_ns=1.0,
            counters={"page_faults": counted},
        )

    rig = a_rig(store)
    store_session_counts(rig, [session(3, 7.0), session(1, None)])
    store_session_counts(rig, [session(2, 9.0)])
    (line,) = store.read_document(rig.machine, SESSIONS_DOCUMENT)["sessions"]
    counts = SessionCounts.model_validate(line)
    assert (counts.sessions, counts.points) == (3, 6)
    assert (counts.totals["page_faults"].value, counts.most["page_faults"].value) == (16, 9)
