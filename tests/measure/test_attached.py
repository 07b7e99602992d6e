"""perf attached to a process that runs: what it counts in turn, and each way in which it does
not."""

import os
from pathlib import Path

import pytest
from support import fake_perf
from support.fake_perf import asked, install

from tlb.measure.events import PerfEvent
from tlb.measure.perf_stat import EventPlan, count_process_events

EVENTS = (
    PerfEvent("instructions", "instructions:u"),
    PerfEvent("core_cycles", "cycles:u"),
    PerfEvent("walk", "cpu/event=0x08/u", group=0),
    PerfEvent("stlb_hit", "cpu/event=0x09/u", group=0),
    PerfEvent("itlb_walk", "cpu/event=0x85/u", group=1),
)
DERIVED = (PerfEvent("l1_dtlb_miss", None, derived=("stlb_hit", "+", "walk")),)
ANSWERS = {
    "instructions:u": 1000,
    "cycles:u": 2000,
    "cpu/event=0x08/u": 3,
    "cpu/event=0x09/u": 4,
    "cpu/event=0x85/u": 5,
}


def plan(folder: Path, answers: dict[str, object] = ANSWERS, **traps: object) -> EventPlan:
    return EventPlan(
        install(folder, answers, **traps),
        EVENTS,
        {"walk_cycles": "no-walk-cycle-event"},
        DERIVED,
        programmable=2,
    )


def test_a_turn_counts_a_group_with_cycles_and_instructions(tmp_path):
    made = plan(tmp_path)
    loads, fetches, again = (
        count_process_events(made, os.getpid(), 0.01, turn) for turn in range(3)
    )
    assert {name: quantity.value for name, quantity in loads.items() if not quantity.reason} == {
        "instructions": 1000,
        "core_cycles": 2000,
        "walk": 3,
        "stlb_hit": 4,
        "l1_dtlb_miss": 7,
    }
    assert {name: quantity.value for name, quantity in fetches.items() if not quantity.reason} == {
        "instructions": 1000,
        "core_cycles": 2000,
        "itlb_walk": 5,
    }
    assert (
        again == loads
        and loads["walk_cycles"].reason == fetches["walk_cycles"].reason == "no-walk-cycle-event"
    )
    assert [len(events) for events in asked(tmp_path)] == [4, 3, 4]


@pytest.mark.parametrize(
    ("traps", "reason"),
    [
        ({"refuses": [255, fake_perf.PARANOID.format(level=4)]}, "perf-denied"),
        ({"refuses": [255, "no such process"]}, "perf-failed"),
        ({"loses": True}, "perf-failed"),
    ],
)
def test_what_perf_refuses_has_its_reason(traps, reason, tmp_path):
    counts = count_process_events(plan(tmp_path, **traps), os.getpid(), 0.01)
    assert {
        counts[name].reason for name in ("instructions", "core_cycles", "walk", "stlb_hit")
    } == {reason}
