"""perf: what its JSON means in every trap, what a computer's perf is found to count, one gated
run."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import SUPPORT, software_plan
from support.kernels import compiled

from tlb.measure import perf
from tlb.measure.events import PerfEvent
from tlb.measure.perf_stat import EventPlan, PerfControlPipes, PointCounter, parse_perf_stat
from tlb.measure.plan import measure
from tlb.measure.record import CounterReading, Point
from tlb.system.reasons import REASON_TEXTS

FAULTS, CLOCK = perf.SOFTWARE_EVENTS
WALK = PerfEvent("walk", "cpu/event=0x45,umask=0xf0/u")
MISSES = PerfEvent("l1_dtlb_miss", "cpu/event=0x45,umask=0xff/u")

# As perf 6.1 writes them with -j -o: a comment, a blank line, numbers as quoted strings.
RECORDED = """# started on Fri Jan 31 12:00:00 2025

{"counter-value" : "59.000000", "unit" : "", "event" : "minor-faults:u", \
"event-runtime" : 629996, "pcnt-running" : 100.00, \
"metric-value" : 93.651388, "metric-unit" : "K/sec"}
{"counter-value" : "0.629996", "unit" : "msec", "event" : "task-clock:u", \
"event-runtime" : 629996, "pcnt-running" : 100.00, \
"metric-value" : 0.614001, "metric-unit" : "CPUs utilized"}
"""


def line(
    value: str,
    runtime: object = 5_000_000,
    running: object = 100.0,
    event: str = "x",
    unit: str = "",
) -> str:
    return (
        json.dumps(
            {
                "counter-value": value,
                "unit": unit,
                "event": event,
                "event-runtime": runtime,
                "pcnt-running": running,
                "metric-value": 0.0,
                "metric-unit": "(null)",
            }
        )
        + "\n"
    )


def one(text: str, event: PerfEvent = WALK) -> CounterReading:
    return parse_perf_stat(text, [event])[event.quantity]


# --- the JSON


def test_a_recorded_run_gives_its_counts_and_a_clock_in_nanoseconds():
    counted = parse_perf_stat(RECORDED, perf.SOFTWARE_EVENTS)
    assert counted["minor_faults"] == CounterReading(
        value=59, event="minor-faults:u", running_percent=100
    )
    assert counted["task_clock_ns"].value == pytest.approx(629_996)


def test_an_event_is_known_by_its_position_since_perf_alters_names():
    text = line("10", event="ls_l1_d_tlb_miss.all_l2_miss") + line(
        "20", event="cpu/event=69,umask=255/"
    )
    counted = parse_perf_stat(text, [WALK, MISSES])
    assert {name: q.value for name, q in counted.items()} == {"walk": 10, "l1_dtlb_miss": 20}
    assert counted["walk"].event == "cpu/event=0x45,umask=0xf0/u"  # what was asked for
    assert {name: q.value for name, q in parse_perf_stat(text, [MISSES, WALK]).items()} == {
        "l1_dtlb_miss": 10,
        "walk": 20,
    }


def test_no_pmu_is_not_supported_although_runtime_is_0_and_100_percent_ran():
    assert one(line("<not supported>", runtime=0)).reason == "event-unknown"


@pytest.mark.parametrize("running", [0.01, 50.0, 99.99])
def test_a_count_that_did_not_run_all_the_time_is_no_value(running):
    assert one(line("1000", running=running)) == CounterReading(
        reason="multiplexed", event=WALK.event, running_percent=running
    )
    assert one(line("1000", running=100.0)) == CounterReading(
        value=1000, event=WALK.event, running_percent=100
    )


@pytest.mark.parametrize("value", ["12,5", "1.234.567", "", "0x10", "-1", "nan", str(2**64)])
def test_a_decimal_comma_or_what_no_counter_can_hold_is_not_a_value(value):
    found = one(line(value))
    assert found.value is None and (found.reason == "perf-failed" or value[0] in "-n1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Segmentation fault\n",
        "[" * 100_000,
        "{}",
        line("1"),  # an event is missing
        line("1") + line("2") + line("3"),  # hybrid CPUs answer for each kind of core
        line("1") + line("2")[:-20],  # the disk was full
    ],
)
def test_lines_that_do_not_fit_the_events_give_nothing(text):
    assert parse_perf_stat(text, [WALK, MISSES]) == {}


CYCLES = PerfEvent("core_cycles", "cycles:u")
IDLE = line("<not counted>", runtime=0, running=0.0, event="armv8_cortex_a53/cycles/u")


@pytest.mark.parametrize(
    ("idle", "busy"),
    [
        ("armv8_cortex_a53/cycles/u", "armv8_cortex_a72/cycles/u"),
        ("cpu_atom/cycles:u/", "cpu_core/cycles:u/"),
        ("apple_icestorm_pmu/cycles/u", "apple_firestorm_pmu/cycles/u"),
        ("cycles:u", "cycles:u"),
    ],
)
def test_of_an_event_on_two_kinds_of_cores_the_one_that_ran_counts(idle, busy):
    rows = [line("<not counted>", 0, 0.0, idle), line("174783472.000000", event=busy)]
    for answers in (rows, rows[::-1]):
        counted = parse_perf_stat(
            "".join(answers) + line("59", event="minor-faults:u"), [CYCLES, FAULTS]
        )
        assert {name: q.value for name, q in counted.items()} == {
            "core_cycles": 174783472,
            "minor_faults": 59,
        }


def test_a_process_that_ran_on_two_kinds_of_cores_has_no_whole_count():
    text = line("60", running=60.0, event="a/cycles/u") + line("40", 1, 40.0, "b/cycles/u")
    assert one(text, CYCLES).reason == "multiplexed"
    assert one(IDLE + IDLE.replace("a53", "a72"), CYCLES).reason == "not-counted"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
rows = st.fixed_dictionaries(
    {"counter-value": json_values | st.floats().map(str) | st.integers().map(str)},
    optional={"event-runtime": json_values, "pcnt-running": json_values, "unit": json_values},
)


def holds(counted: dict[str, CounterReading], asked: list[PerfEvent]) -> bool:
    """Nothing, or for every event a count or a known reason."""
    known = all(q.value is not None or q.reason in REASON_TEXTS for q in counted.values())
    return not counted or (list(counted) == [event.quantity for event in asked] and known)


@given(st.lists(rows | json_values, max_size=3))
def test_any_json_is_read_without_an_error(values):
    text = "\n".join(json.dumps(value) for value in values)
    for asked in ([], [WALK], [FAULTS, CLOCK]):
        assert holds(parse_perf_stat(text, asked), asked)


# --- what a computer's perf counts


def script(folder: Path, text: str) -> str:
    """A program in the place of perf."""
    path = folder / "perf"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


ZEN_LACKS = {
    "walk_cycles": "no-walk-cycle-event",
    "itlb_walk_cycles": "no-walk-cycle-event",
    "nested_walk_cycles": "no-walk-cycle-event",
}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("exit 129", "event-unknown"),
        (
            "echo 'Consider adjusting /proc/sys/kernel/perf_event_paranoid' >&2; exit 255",
            "perf-denied",
        ),
        ("echo 'No permission to enable cycles:u event.' >&2; exit 255", "perf-denied"),
        ("echo 'WARNING: perf not found for kernel 6.8.0-31' >&2; exit 2", "no-perf"),
        ("echo 'segmentation fault' >&2; exit 0", "perf-failed"),
    ],
)
def test_a_perf_that_counts_nothing_is_timing_only_with_its_reason(tmp_path, said, reason):
    plan = perf.plan("Zen 4", script(tmp_path, said))
    assert (plan.perf, plan.events) == (None, ())
    assert plan.lacking == dict.fromkeys(plan.lacking, reason) | ZEN_LACKS
    assert plan.of_process == ()
    counts = plan.quantities({}, ())
    assert {name: quantity.reason for name, quantity in counts.items()} == plan.lacking


# --- one run


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_where_no_hardware_counts_a_process_is_spared_its_perf():
    small = Point(kernel="page_chase", lines=64, region_ms=1)
    plan = EventPlan("/nowhere/perf", perf.SOFTWARE_EVENTS, {"core_cycles": "no-pmu"})
    record = measure(small, state="0" * 12, usable_bytes=2**30, plan=plan)
    assert {name: q.reason for name, q in record.counters.items()} == {"core_cycles": "no-pmu"}


def faults_between_the_gates(binary: Path, pages: int) -> float | None:
    """What perf counts of a forked process that touches so many pages."""
    with PerfControlPipes() as gate:
        words = [str(binary), "--plan", *gate.kernel_words]
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": gate.fds}
        with subprocess.Popen(words, text=True, **how) as child:
            child.stdout.readline()
            counting = PointCounter(software_plan(), child.pid, gate, 0)
            said, _ = child.communicate(f"0 gate_faults - spread cycle {pages} 1 1 1\n")
            counted = counting.end()
    assert (said.split("\n")[0], child.returncode) == ("done", 0)
    return counted["minor_faults"].value


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler", "perf that counts faults")
@pytest.mark.parametrize("pages", [1, 1000])
def test_perf_counts_exactly_the_faults_between_the_gates(tmp_path_factory, pages):
    binary = tmp_path_factory.getbasetemp() / "gate_faults"
    if not binary.exists():
        compiled(SUPPORT / "gate_faults.c", binary, "-Wno-unused-function")
    # A busy computer takes pages of the program back, which adds faults and never takes one away.
    assert min(faults_between_the_gates(binary, pages) for _ in range(5)) == pages


# --- what is counted together


def of_group(number: int | None, *names: str) -> list[PerfEvent]:
    return [PerfEvent(name, f"{name}/u", group=number) for name in names]


def counted_together(
    *events: PerfEvent, derived: tuple[PerfEvent, ...] = (), programmable: int = 4
) -> list[list[str]]:
    groups = EventPlan("perf", events, derived=derived, programmable=programmable).groups()
    return [[event.quantity for event in group] for group in groups]


ALWAYS = of_group(None, "cycles")


@pytest.mark.parametrize(
    ("sizes", "programmable", "runs"),
    [
        ((4,), 4, [4]),
        ((5,), 4, [4, 1]),
        ((5,), 2, [2, 2, 1]),
        ((3, 2, 1), 4, [4, 2]),
        ((5, 3), 4, [4, 4]),
        ((1, 1, 1), 2, [2, 1]),
    ],
)
def test_each_event_is_counted_in_one_run_and_no_run_takes_more_counters_than_there_are(
    sizes, programmable, runs
):
    events = [
        event
        for number, size in enumerate(sizes)
        for event in of_group(number, *(f"e{number}{k}" for k in range(size)))
    ]
    told = counted_together(*events, *ALWAYS, programmable=programmable)
    assert [group[0] for group in told] == ["cycles"] * len(runs) and [
        len(group) - 1 for group in told
    ] == runs
    assert sorted(name for group in told for name in group[1:]) == sorted(
        event.quantity for event in events
    )


def test_in_a_guest_hardware_counts_the_guest_alone_and_linux_counts_as_ever():
    counted = {
        event.quantity: event.event
        for event in EventPlan("perf", (*perf.SOFTWARE_EVENTS, WALK)).in_guest().events
    }
    assert counted == {event.quantity: event.event for event in perf.SOFTWARE_EVENTS} | {
        "walk": f"{WALK.event}G"
    }
