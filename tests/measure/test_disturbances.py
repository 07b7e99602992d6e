"""Disturbances: what marks a record is what disturbed its process, never the time that it measured."""

from pathlib import Path

import pytest
from support.campaigns import MACHINE, NAME, POINTS
from support.common import make_record

from tlb.measure import plan
from tlb.measure.record import CounterReading, Record
from tlb.system.reasons import Unavailable

STAT = "cpu  9 0 9 9 0 0 0 70 0 0\ncpu0 4 0 4 4 0 0 0 30 0 0\ncpu1 5 0 5 5 0 0 0 40 0 0\n"
STAT += "intr 12 0 3\nbtime 1\n"


def stat(root: Path, text: str | bytes) -> Path:
    (root / "proc").mkdir()
    (root / "proc/stat").write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def test_steal_is_the_eighth_time_of_each_cpu(tmp_path):
    tick = plan.clock_tick_ms()
    assert plan.stolen_ms(stat(tmp_path, STAT)) == {0: 30 * tick, 1: 40 * tick}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cpu0 1 2 3 4\n",
        "cpu0 1 2 3 4 5 6 7 -8\n",
        "cpu0 " + "9" * 10**6,
        b"\xff\xfe" * 1000,
        "cpu0 1 2 3 4 5 6 7 " + "9" * 40,
    ],
)
def test_a_system_that_does_not_state_it_has_no_steal_and_not_none_of_it(tmp_path, text):
    assert plan.stolen_ms(stat(tmp_path, text)) == {}
    assert plan.stolen_ms(tmp_path / "nowhere") == {}
    assert (
        plan.stolen_between_ms({}, {0: 1.0}, 0)
        is plan.stolen_between_ms({0: 1.0}, {}, 0)
        is plan.stolen_between_ms({0: 1.0}, {0: 1.0}, 1)
        is None
    )


def clocked(ran_ns: float | None, **changes: object) -> Record:
    quantity = CounterReading(reason="no-perf") if ran_ns is None else CounterReading(value=ran_ns)
    return make_record(counters={"task_clock_ns": quantity}, elapsed_ns=1e8, **changes)


@pytest.mark.parametrize(
    ("record", "mark"),
    [
        (make_record(), ""),
        (make_record(migrations=1), "migrated"),
        (make_record(major_faults=1), "faulted"),
        (make_record(minor_faults=651), "faulted"),
        (
            make_record(kernel="prefault", order="sequential", minor_faults=262_144),
            "",
        ),  # which it is there to measure
        (
            make_record(also={"off_node_pages": 1.0}, minor_faults=262_144),
            "faulted",
        ),  # the first that is found
        (make_record(wall_ns=4e9, steal_ms=41.0), "stolen"),
        (
            make_record(wall_ns=1e8, steal_ms=plan.clock_tick_ms()),
            "",
        ),  # a single step of a coarse clock
        (clocked(0.97e8), "switched"),
        (make_record(cpu_ns=97_000_000, elapsed_ns=1e8), "switched"),
        (clocked(0.97e8, involuntary_switches=0), ""),  # perf lost time, the kernel did not
        (
            make_record(batch_ns_per_access=[6.0, 6.0, 6.0, 6.0, 60.0]),
            "",
        ),  # one batch of five: the median does not feel it
        (make_record(batch_ns_per_access=[6.0, 6.0, 6.0, 6.7, 6.7]), "uneven"),
        (make_record(batch_ns_per_access=[6.0, 6.0, 6.0, 6.5, 6.5]), ""),
    ],
)
def test_what_disturbed_a_process_is_its_mark(record, mark):
    assert plan.disturbance(record) == mark


@pytest.mark.parametrize(
    ("tries", "kept"),
    [
        ([("stolen", 1.0), ("", 9.0)], ("", 9.0, 2)),  # the quiet one, be it slower
        ([("stolen", 1.0), ("uneven", 2.0)], ("uneven", 2.0, 2)),  # the last, not the fastest
        ([("stolen", 4.0), ("uneven", 3.0)], ("uneven", 3.0, 2)),
        (
            [("stolen", 2.0), Unavailable("oom-killed")],
            ("stolen", 2.0, 1),
        ),  # a noisy number is better than none
    ],
)
def test_which_try_is_kept_is_decided_by_its_mark_and_never_by_its_time(
    scripted, run, store, tries, kept
):
    fake = scripted(*tries)
    run(POINTS[:1])
    (row,) = store.load(MACHINE, NAME).itertuples()
    assert (row.noisy, row.ns_per_access, row.tries) == kept and len(fake.asked) == 2
