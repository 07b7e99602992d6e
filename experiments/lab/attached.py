"""Counters of a process that runs already: `perf stat` attached to it for a while, with the events of the plan."""

from __future__ import annotations

import subprocess

from experiments.lab.perf import Plan, plain_locale
from experiments.lab.perf_json import derive, parse
from experiments.lab.record import Quantity
from experiments.machine import pmu
from experiments.system.processes import run_whole

_SLACK_S = 20.0  # for perf to start and to end


def counted(plan: Plan, pid: int, seconds: float, repeat: int = 0) -> dict[str, Quantity]:
    """What a process with all its threads counts in so many seconds, or why not. repeat: which of the plan's groups is counted, in turn;
    what is in no group of this turn is left out. Threads that it starts meanwhile count as well (perf-stat(1), --pid)."""
    lacking = {quantity: Quantity(reason=reason) for quantity, reason in plan.lacking.items()}
    groups = plan.groups()
    group = groups[repeat % len(groups)]
    if not group or plan.perf is None:
        return lacking
    listed = ",".join(event.event or "" for event in group)
    command = [plan.perf, "stat", "-j", "-e", listed, "-p", str(pid), "--", "sleep", f"{seconds:.3f}"]
    try:
        done = run_whole(command, timeout=seconds + _SLACK_S, env=plain_locale())
    except (OSError, subprocess.TimeoutExpired):
        return lacking | {event.quantity: Quantity(reason="perf-failed", event=event.event) for event in group}
    counts = parse(done.stderr, group)
    if done.returncode or not counts:
        reason = "perf-denied" if pmu.denied(done.stderr) else "perf-failed"
        counts = {event.quantity: Quantity(reason=reason, event=event.event) for event in group}
    parts = [event for event in plan.derived if {event.derived[0], event.derived[2]} <= counts.keys()]
    return lacking | counts | derive(counts, parts)
