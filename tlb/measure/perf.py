"""What perf can count on this computer, tried event by event."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tlb.machine import pmu
from tlb.measure.events import (
    PROGRAMMABLE_COUNTERS,
    SOFTWARE_EVENTS,
    PerfEvent,
    event_count_may_be_zero,
    hardware_events,
)
from tlb.measure.perf_stat import NO_COUNTERS as NO_COUNTERS
from tlb.measure.perf_stat import (
    PROCESS_EVENTS,
    EventPlan,
    command_killed_with_parent,
    environment_in_c_locale,
    parse_perf_stat,
    perf_stat_command,
)
from tlb.measure.record import CounterReading
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session


def plan(
    microarchitecture: str,
    perf: str | None = None,
    *,
    cpu: int | None = None,
    root: Path = Path("/"),
) -> EventPlan:
    """Return what perf counts here: each event is tried alone, then all as a kernel's run would
    request them.

    cpu: where kernels will run, by default the last allowed one; hybrid parts have a PMU for each
    kind of core.
    """
    perf, pmus = perf or shutil.which("perf"), pmu.listed(root)
    where = _allowed_cpu() if cpu is None else cpu
    table = SOFTWARE_EVENTS + hardware_events(microarchitecture, pmu.of_cpu(where, pmus) or "")
    if perf is None:
        return EventPlan(None, (), {event.quantity: "no-perf" for event in table})
    # `true` on another kind of core would count nothing
    taskset = shutil.which("taskset") if len(pmus) > 1 else None
    command = [taskset, "--cpu-list", str(where), perf] if taskset else [perf]
    good, lacking = _counted_alone(command, [event for event in table if not event.derived])
    made = EventPlan(perf, good, lacking, tuple(event for event in table if event.derived))
    if any(event.group is not None for event in good):
        made = _counted_together(command, made)
    for event in made.derived:
        if reason := next(
            (made.lacking[name] for name in event.parts if name in made.lacking), None
        ):
            made.lacking[event.quantity] = reason
    return replace(
        made,
        perf=perf if made.events else None,
        of_process=_of_process(command) if made.events else (),
        derived=tuple(event for event in made.derived if event.quantity not in made.lacking),
    )


def _of_process(command: Sequence[str]) -> tuple[PerfEvent, ...]:
    """Return the software events that count a whole process, its time in Linux included."""
    answer = _ask(perf_stat_command(command, PROCESS_EVENTS, "--", "true"))
    counted = parse_perf_stat(answer[1], PROCESS_EVENTS) if not isinstance(answer, str) else {}
    return tuple(
        event for event in PROCESS_EVENTS if counted and not counted[event.quantity].reason
    )


def _allowed_cpu() -> int:
    """Return the last CPU that this process may use."""
    known = hasattr(os, "sched_getaffinity")  # Linux
    return max(os.sched_getaffinity(0), default=0) if known else 0


def _counted_alone(
    command: Sequence[str], table: Sequence[PerfEvent]
) -> tuple[tuple[PerfEvent, ...], dict[str, str]]:
    """Return the events that answer, and the others' reasons. Without a PMU only cycles are
    tried."""
    good: list[PerfEvent] = []
    lacking: dict[str, str] = {}
    for event in table:
        if event.event is None:
            lacking[event.quantity] = event.reason or "no-events"
        elif event not in SOFTWARE_EVENTS and "perf-denied" in lacking.values():
            lacking[event.quantity] = "perf-denied"
        elif event.quantity != "core_cycles" and lacking.get("core_cycles") == "no-pmu":
            lacking[event.quantity] = "no-pmu"
        elif reason := _probe(command, event):
            lacking[event.quantity] = reason
        else:
            good.append(event)
    return tuple(good), lacking


# The canary. It reads 16,384 pages for the first time, which takes a walk each on every CPU, for
# what is not mapped is in no TLB; and it starts an interpreter, whose code misses as well. A
# hypervisor may show a PMU and filter its events, as clouds do that let only the architectural ones
# through: those then count nothing, and 0 walks would pass for a measurement.
_CANARY = """
import contextlib, mmap
pages = mmap.mmap(-1, mmap.PAGESIZE << 14, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
with contextlib.suppress(OSError):  # a kernel without huge pages
    pages.madvise(mmap.MADV_NOHUGEPAGE)
pages[::mmap.PAGESIZE]
"""


def _counted_together(command: Sequence[str], plan: EventPlan) -> EventPlan:
    """Return the plan after the canary: groups small enough that each event counts all the time
    (the NMI watchdog, a hypervisor or another perf may hold counters), without silent events."""
    for programmable in range(PROGRAMMABLE_COUNTERS, 0, -1):
        fitted = replace(plan, programmable=programmable)
        counted = {
            name: quantity
            for group in fitted.groups()
            for name, quantity in _canary(command, group).items()
        }
        if not any(
            quantity.reason in ("multiplexed", "not-counted") for quantity in counted.values()
        ):
            break
    else:
        # smaller groups are no help, and each row will say what was not counted all the time
        fitted = plan
    silent = {
        name: "not-counted"
        for name, quantity in counted.items()
        if quantity.value == 0 and not event_count_may_be_zero(name)
    }
    silent |= {
        name: quantity.reason
        for name, quantity in counted.items()
        if quantity.reason not in (None, "multiplexed")
    }
    if "walk" in silent:  # whoever filters it filters what stands beside it in the table
        silent |= {
            event.quantity: silent["walk"] for event in plan.events if event.group is not None
        }
    return replace(
        fitted,
        events=tuple(event for event in plan.events if event.quantity not in silent),
        lacking=plan.lacking | silent,
    )


def _canary(command: Sequence[str], group: Sequence[PerfEvent]) -> dict[str, CounterReading]:
    """Return what each of these counts together while the canary runs."""
    answer = _ask(perf_stat_command(command, group, "--", sys.executable, "-ISc", _CANARY))
    counted = parse_perf_stat(answer[1], group) if not isinstance(answer, str) else {}
    hardware = [event for event in group if event not in SOFTWARE_EVENTS]
    return {
        event.quantity: counted.get(
            event.quantity, CounterReading(reason="perf-failed", event=event.event)
        )
        for event in hardware
    }


def _probe(command: Sequence[str], event: PerfEvent) -> str | None:
    """Return None if the event counts, else the reason code."""
    answer = _ask(perf_stat_command(command, [event], "--", "true"))
    if isinstance(answer, str):
        return answer
    status, stderr = answer
    if status == 129:
        return "event-unknown"
    if status:
        return "perf-denied" if pmu.denied(stderr) else "perf-failed"
    quantity = parse_perf_stat(stderr, [event]).get(event.quantity)
    if quantity is None:
        return "perf-failed"
    if quantity.reason == "event-unknown":
        # Every Linux has software events; a seccomp filter that answers ENOSYS makes perf say this
        # of them too.
        return (
            "perf-denied"
            if event in SOFTWARE_EVENTS
            else "no-pmu"
            if event.quantity == "core_cycles"
            else "event-unknown"
        )
    return quantity.reason


def _ask(command: list[str]) -> str | tuple[int, str]:
    """Return exit status and stderr of a short perf, or the reason if it is missing or hangs."""
    try:
        done = run_in_own_session(
            command_killed_with_parent(command),
            timeout=PROBE_TIMEOUT_S,
            env=environment_in_c_locale(),
        )
    except subprocess.TimeoutExpired:
        return "perf-failed"
    except OSError:
        return "no-perf"
    # 126 and 127: setpriv could not start it. The sentence: Ubuntu's wrapper, with the linux-tools
    # of another kernel.
    return (
        "no-perf"
        if done.returncode in (126, 127) or "perf not found for kernel" in done.stderr
        else (done.returncode, done.stderr)
    )
