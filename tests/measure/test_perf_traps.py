"""A perf of another vendor's computer, and a perf that fails: every trap ends in a count that is
right or in a reason with its remedy."""

from pathlib import Path

import pytest
from support.common import alive
from support.fake_perf import asked, install, workload

from tlb.measure import perf, perf_stat
from tlb.measure.events import SOFTWARE_EVENTS, hardware_events
from tlb.measure.perf_stat import EventPlan
from tlb.measure.plan import measure
from tlb.measure.record import CounterReading, Point
from tlb.measure.session import Session
from tlb.system.reasons import REASON_TEXTS, explain_reason

Counters = dict[str, CounterReading]
pytestmark = pytest.mark.slow  # a stand-in for perf is a process or ten

VENDORS = {"Intel": "Ice Lake server", "AMD": "Zen 4", "Arm": "Neoverse N1"}
SMALL = Point(kernel="page_chase", lines=64, region_ms=1)


def table(cpu: str) -> tuple[perf.PerfEvent, ...]:
    return SOFTWARE_EVENTS + hardware_events(
        cpu, "armv8_pmuv3_0" if cpu.startswith("Neoverse") else "cpu"
    )


def answers(cpu: str, **changed: object) -> dict[str, object]:
    """A count for every event of a CPU: the hundredfold of its place in the table; `changed` by
    quantity."""
    rows = [row for row in table(cpu) if row.event]
    return {
        row.event: changed.get(row.quantity, 100.0 * place) for place, row in enumerate(rows, 1)
    }


def counted_run(plan: EventPlan, command: list[str] | None = None, repeat: int = 0) -> Counters:
    """What is counted of a workload's point, by quantity."""
    with Session(command or workload(), Path.cwd(), "4k", plan, repeat, 1) as session:
        _, counters = session.ask("0", 1)
        session.end(1)
    return counters


def counted(run: Counters) -> dict[str, float]:
    return {name: q.value for name, q in run.items() if q.value is not None}


def reasons(run: Counters) -> dict[str, str]:
    """quantity -> reason, each of which has its sentence and its remedy."""
    found = {name: q.reason for name, q in run.items() if q.reason}
    assert all(REASON_TEXTS[reason].remedy in explain_reason(reason) for reason in found.values())
    return found


def gated(
    program: str, cpu: str = "Ice Lake server", repeat: int = 0, command: list[str] | None = None
) -> Counters:
    """One run of a plan in which every event of the CPU answered."""
    rows = table(cpu)
    plan = EventPlan(
        program,
        tuple(row for row in rows if row.event),
        {row.quantity: row.reason for row in rows if row.reason},
        tuple(row for row in rows if row.derived),
    )
    return counted_run(plan, command, repeat)


# --- the computers of three vendors, a kernel that opens the gate


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_real_kernel_opens_the_gate_and_the_counts_of_each_vendor_reach_the_record(
    tmp_path, vendor
):
    cpu = VENDORS[vendor]
    program = install(tmp_path, answers(cpu, l1_dtlb_miss=900.0, walk=400.0, stlb_hit=500.0))
    plan = perf.plan(cpu, program, root=tmp_path / "no sysfs")
    record = measure(SMALL, state="0" * 12, usable_bytes=2**30, plan=plan)
    assert record.accesses > 0 and record.ns_per_access > 0
    values = {name: quantity.value for name, quantity in record.counters.items()}
    assert (values["walk"], values["stlb_hit"], values["l1_dtlb_miss"]) == (400, 500, 900)
    assert record.counters["itlb_walk"].reason == "other-repeat"
    assert (record.counters["walk_cycles"].reason == "no-walk-cycle-event") == (vendor != "Intel")
    assert record.counters["nested_walk_cycles"].reason == "no-walk-cycle-event"


# --- a PMU that shows itself and does not count, or has too few counters: the canary


def tlb_events(cpu: str) -> list[str]:
    return [row.quantity for row in hardware_events(cpu) if row.group is not None]


@pytest.mark.parametrize("cpu", ["Ice Lake server", "Zen 4"])
def test_events_that_a_hypervisor_filters_are_no_zeros(tmp_path, cpu):
    """Cycles and instructions count, as clouds let them; all that is no architectural event answers
    0."""
    program = install(tmp_path, answers(cpu, **dict.fromkeys(tlb_events(cpu), 0.0)))
    plan = perf.plan(cpu, program, root=tmp_path)
    assert {event.quantity for event in plan.events} == {
        "minor_faults",
        "task_clock_ns",
        "core_cycles",
        "instructions",
    }
    assert {
        plan.lacking[name]
        for name in ("walk", "stlb_hit", "l1_dtlb_miss", "itlb_walk", *tlb_events(cpu))
    } == {"not-counted"}
    run = counted_run(plan)
    assert reasons(run)["walk"] == "not-counted" and counted(run).keys() == {
        event.quantity for event in plan.events
    }
    assert "hypervisor" in explain_reason("not-counted")


@pytest.mark.parametrize(
    ("cpu", "counters", "programmable"), [("Haswell", 4, 2), ("Zen 4", 5, 3), ("Zen 4", 3, 1)]
)
def test_with_fewer_counters_fewer_events_are_counted_at_once_and_all_of_them_all_the_time(
    tmp_path, cpu, counters, programmable
):
    """5 of 6: the NMI watchdog has one, or cycles fall onto a programmable counter because the
    watchdog has theirs."""
    plan = perf.plan(
        cpu,
        program := install(tmp_path, answers(cpu), counters=counters),
        root=tmp_path / "no sysfs",
    )
    most = max(sum(event.group is not None for event in group) for group in plan.groups())
    assert most <= programmable == plan.programmable or most < plan.programmable
    every = [counted_run(plan, repeat=repeat) for repeat in range(len(plan.groups()))]
    assert {reason for run in every for reason in reasons(run).values()} <= {
        "other-repeat",
        *plan.lacking.values(),
    }
    seen = set().union(*(counted(run) for run in every))
    assert {row.quantity for row in table(cpu) if row.event} <= seen
    if programmable > 1:  # a sum takes both its parts at once
        assert {row.quantity for row in table(cpu) if row.derived} <= seen
    assert "walk" in counted(every[0]) and asked(tmp_path) and plan.perf == program


# --- a perf that refuses


REFUSALS = [
    (129, "event syntax error: 'cpu/event=0x08/u'\n", "event-unknown"),
    (234, "invalid argument\n", "perf-failed"),
]


@pytest.mark.parametrize(("status", "said", "reason"), REFUSALS)
def test_a_perf_that_refuses_in_the_middle_of_a_plan_costs_the_counts_and_not_the_time(
    tmp_path, status, said, reason
):
    program = install(tmp_path, answers("Zen 4"), refuses_gated=[status, said])
    run = gated(program, "Zen 4")
    assert not counted(run) and reasons(run)["walk"] == reason


# --- a workload that dies, a perf that hangs


@pytest.mark.slow
def test_a_perf_that_hangs_at_its_probe_is_given_up_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(perf, "PROBE_TIMEOUT_S", 0.5)
    plan = perf.plan("unknown", install(tmp_path, answers("Zen 4"), hangs=86.25), root=tmp_path)
    assert plan.lacking["minor_faults"] == "perf-failed" and plan.perf is None
    assert alive("sleep 86.25") == [] and alive(str(tmp_path / "perf")) == []


def test_a_perf_that_never_answers_costs_the_counts_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(perf_stat, "PROBE_TIMEOUT_S", 0.5)
    program = install(tmp_path, answers("Zen 4"), silent=True)
    assert not counted(gated(program, "Zen 4"))
    assert alive(str(tmp_path / "perf")) == []
