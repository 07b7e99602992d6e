"""Events: which event of which CPU counts which quantity, with the file that each was read in.

A quantity has one meaning on every CPU. An event has not: `dTLB-load-misses` counts walks started
on Haswell, walks completed on Skylake and something else again on Zen, so no generic TLB event is
used.

    walk, itlb_walk                 page walks completed, of loads and of instruction fetches
    stlb_hit, itlb_stlb_hit         first-level misses that the second level answered
    l1_dtlb_miss, l1_itlb_miss      the two together
    walk_cycles, itlb_walk_cycles   cycles with a walk in progress; where the event is Intel's
                                    WALK_PENDING alone (Tremont to Skymont) or Arm's
                                    DTLB_WALK_PERCYC (Neoverse V3 and N3, Cortex-A520 to X4), the
                                    walks in progress summed over cycles: the same while no two
                                    walks overlap
    walk_pending                    that sum where the CPU counts both: walk_pending / walk_cycles
                                    walks at once
    nested_walk_cycles              cycles of the second dimension of a guest's walk
    walker_l1 ... walker_memory     the walker's own loads, by what answered them
    l2_tlb_refill                   second-level refills of data and fetches together

Where the CPU tells loads from stores, the events are of loads: the kernels only load. AMD and Arm
count both together.
"""

from __future__ import annotations

from dataclasses import replace

from tlb.machine.microarchitecture import ARM_NAMES
from tlb.measure.event_tables import ARM_CORES, X86_CORES, Event

# What a plan covers on every CPU; other quantities exist only where the CPU has an event.
CANONICAL_QUANTITIES = (
    *("walk", "walk_cycles", "stlb_hit", "l1_dtlb_miss", "core_cycles", "instructions"),
    *("itlb_walk", "itlb_walk_cycles", "itlb_stlb_hit", "l1_itlb_miss", "nested_walk_cycles"),
)
# Intel's cores count at most four programmable events per thread with Hyper-Threading on; Zen and
# Neoverse have six counters, of which cycles and instructions take up to two. One fewer where the
# kernel's NMI watchdog has cycles counted.
PROGRAMMABLE_COUNTERS = 4

_SYSCALL = "perf_event_open(2), PERF_COUNT_"
# On every Linux, in user mode: no privilege up to perf_event_paranoid 2.
SOFTWARE_EVENTS = (
    Event("minor_faults", "minor-faults:u", source=f"{_SYSCALL}SW_PAGE_FAULTS_MIN"),
    Event("task_clock_ns", "task-clock:u", source=f"{_SYSCALL}SW_TASK_CLOCK"),
)
TABLE: dict[tuple[str, str], tuple[Event, ...]] = {
    (name, unit): rows
    for name, tables in (X86_CORES | ARM_CORES).items()
    for unit, rows in (tables if isinstance(tables, dict) else {"": tables}).items()
}


def count_may_be_zero(quantity: str) -> bool:
    """Return whether a process that misses in every TLB may have none of these: on bare metal there
    is no second dimension, and what answers the walker's loads depends on what the caches hold."""
    return quantity == "nested_walk_cycles" or quantity.startswith("walker_")


def are_known(microarchitecture: str, pmu: str = "") -> bool:
    """Return whether the table has rows for a CPU; pmu: as `hardware_events` takes it."""
    return all(event.reason != "no-events" for event in hardware_events(microarchitecture, pmu))


# The common events CPU_CYCLES and INST_RETIRED (Arm ARM, DDI 0487, D13: PMU events).
_ARM_FIXED = ("{}/event=0x11/u", "{}/event=0x08/u")


def hardware_events(microarchitecture: str, pmu: str = "") -> tuple[Event, ...]:
    """Return the hardware events of a CPU: cycles and instructions, then its microarchitecture's
    rows.

    pmu: the one that the measuring CPU belongs to (tlb.machine.pmu), by default what Linux calls
    one of that CPU. Where the table has no row, each quantity has its reason."""
    pmu = pmu or ("armv8_pmuv3_0" if microarchitecture in ARM_NAMES else "cpu")
    forms = ("cycles:u", "instructions:u")
    # Where cores differ, a bare `cycles` becomes an event of each kind, of which one counts.
    if pmu.startswith("armv"):
        forms = _ARM_FIXED
    elif pmu != "cpu":
        forms = ("{}/cycles/u", "{}/instructions/u")
    cycles, instructions = (form.format(pmu) for form in forms)
    fixed = (
        Event("core_cycles", cycles, source=f"{_SYSCALL}HW_CPU_CYCLES"),
        Event("instructions", instructions, source=f"{_SYSCALL}HW_INSTRUCTIONS"),
    )
    rows = TABLE.get((microarchitecture, pmu)) or TABLE.get((microarchitecture, ""))
    if rows is None:
        known = {event.quantity for event in fixed}
        return fixed + tuple(
            Event(q, None, "no-events") for q in CANONICAL_QUANTITIES if q not in known
        )
    return fixed + tuple(
        replace(row, event=row.event and row.event.format(pmu=pmu)) for row in rows
    )
