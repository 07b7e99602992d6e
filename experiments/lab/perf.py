"""Counters: what perf can count here (`plan`), one `perf stat` run around a kernel (`run`), and its JSON (`parse`).

perf's exit status proves nothing (0 for a workload that was killed, 0 for an output that could not be written), so a
result is believed only when every event that was asked for came back, in its position.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments.lab.events import PROGRAMMABLE, SOFTWARE, Event, quantities
from experiments.lab.record import Quantity
from experiments.machine import pmu
from experiments.system.processes import run_whole
from experiments.words.reasons import Unavailable


@dataclass(frozen=True)
class Plan:
    """What perf will count around each kernel: the events that answered, what derives from them, and for every other
    quantity its reason."""

    perf: str | None
    events: tuple[Event, ...] = ()
    lacking: dict[str, str] = field(default_factory=dict)  # quantity -> reason code
    derived: tuple[Event, ...] = ()

    def groups(self) -> tuple[tuple[Event, ...], ...]:
        """What is counted together, one group a run: all that takes no programmable counter, and at most PROGRAMMABLE of
        what does, so that perf never has to share counters out among them. The loads' own events are the first."""
        always = tuple(event for event in self.events if event.group is None)
        rotated: list[tuple[Event, ...]] = []
        for number in sorted({event.group for event in self.events if event.group is not None}):
            group = tuple(event for event in self.events if event.group == number)
            if rotated and len(rotated[-1]) + len(group) <= PROGRAMMABLE:
                rotated[-1] += group
            else:
                rotated.append(group)
        return tuple(always + group for group in rotated) or (always,)

    def in_guest(self) -> Plan:
        """The same hardware events, counted only while the CPU runs a guest: perf's modifier G (exclude_host of perf_event_open(2))
        behind the u that each ends with. Where a hypervisor cannot tell, they are `not-supported` or nothing was counted."""
        return replace(self, events=tuple(event if event in SOFTWARE else replace(event, event=f"{event.event}G")
                                          for event in self.events))


NO_COUNTERS = Plan(None)
_PROBE_S = 20.0  # `true` under perf takes milliseconds; a machine so busy that it takes longer cannot measure


def plan(microarchitecture: str, perf: str | None = None, *, cpu: int | None = None, root: Path = Path("/")) -> Plan:
    """Probe each event once (`perf stat -j -e EVENT -- true`) and keep those that count.

    cpu: where the kernels will run, by default the last allowed one, as they choose it: a hybrid part has a PMU and events
    for each kind of core. Hardware events are asked for only if cycles answer: without a PMU each would cost a process to say
    so again.
    """
    perf = perf or shutil.which("perf")
    pmus = pmu.listed(root)
    where = cpu if cpu is not None else max(os.sched_getaffinity(0), default=0) if hasattr(os, "sched_getaffinity") else 0
    own = pmu.of_cpu(where, pmus) or ("armv8_pmuv3_0" if microarchitecture.startswith("Neoverse") else "cpu")
    table = SOFTWARE + quantities(microarchitecture, own)
    if perf is None:
        return Plan(None, (), {event.quantity: "no-perf" for event in table})
    taskset = shutil.which("taskset") if len(pmus) > 1 else None  # `true` on another kind of core would count nothing
    command = [taskset, "--cpu-list", str(where), perf] if taskset else [perf]
    good: list[Event] = []
    lacking: dict[str, str] = {}
    for event in table:
        if event.derived:
            continue
        if event.event is None:
            lacking[event.quantity] = event.reason or "event-unknown"
        elif event not in SOFTWARE and "perf-denied" in lacking.values():
            lacking[event.quantity] = "perf-denied"
        elif event.quantity != "core_cycles" and lacking.get("core_cycles") == "no-pmu":
            lacking[event.quantity] = "no-pmu"
        elif reason := _probe(command, event):
            lacking[event.quantity] = reason
        else:
            good.append(event)
    derived = tuple(event for event in table if event.derived)
    for event in derived:
        if reason := next((lacking[name] for name in event.derived[::2] if name in lacking), None):
            lacking[event.quantity] = reason
    derived = tuple(event for event in derived if event.quantity not in lacking)
    return Plan(perf if good else None, tuple(good), lacking, derived)


def _probe(command: Sequence[str], event: Event) -> str | None:
    """None where the event counts, else the reason code."""
    answer = _ask([*command, "stat", "-j", "-e", event.event or "", "--", "true"])
    if isinstance(answer, str):
        return answer
    status, stderr = answer
    if status == 129:
        return "event-unknown"
    if status:
        return "perf-denied" if pmu.denied(stderr) else "perf-failed"
    quantity = parse(stderr, [event]).get(event.quantity)
    if quantity is None:
        return "perf-failed"
    if quantity.reason == "not-supported":
        # Every Linux has software events; a seccomp filter that answers ENOSYS makes perf say this of them too.
        return "perf-denied" if event in SOFTWARE else "no-pmu" if event.quantity == "core_cycles" else "not-supported"
    return quantity.reason


def _ask(command: list[str]) -> str | tuple[int, str]:
    """Exit status and stderr of a short perf; a reason where there is no such program or it hangs."""
    try:
        _, stderr, status = _communicate(command, _PROBE_S, None)
    except subprocess.TimeoutExpired:
        return "perf-failed"
    except Unavailable:
        return "no-perf"
    # 126 and 127: setpriv could not start it. The sentence: Ubuntu's wrapper, with the linux-tools of another kernel.
    return "no-perf" if status in (126, 127) or "perf not found for kernel" in stderr else (status, stderr)


def parse(text: str, events: Sequence[Event]) -> dict[str, Quantity]:
    """perf's JSON lines (perf 5.19 and later) to quantities, matched by position: perf alters names.

    Value, then event-runtime, then pcnt-running, in that order: `<not supported>` comes with runtime 0 and 100.00 %.
    Counts are scaled by perf already. Returns {} where the lines do not fit the events: nothing is guessed.
    """
    rows = [row for row in _rows(text) if "counter-value" in row]
    if len(rows) != len(events):
        return {}
    return {event.quantity: _quantity(row, event) for row, event in zip(rows, events, strict=True)}


def _rows(text: str) -> Iterator[dict]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                yield row


# Below this share of the region perf's scaling more than doubles what was seen. perf shares counters out in turns of 4 ms
# (perf_event_mux_interval_ms): of a region of 60 ms it has then seen fewer than eight turns.
MOSTLY_PERCENT = 50.0


def _quantity(row: dict, event: Event) -> Quantity:
    text = str(row["counter-value"])
    if text.startswith("<"):
        return Quantity(reason="not-supported" if "supported" in text else "not-counted", event=event.event)
    try:
        value, running, runtime = float(text), float(row.get("pcnt-running", 0)), float(row.get("event-runtime", 0))
    except (TypeError, ValueError, OverflowError):  # a decimal comma, or no number at all
        return Quantity(reason="perf-failed", event=event.event)
    if not 0 <= running <= 100:  # NaN is not either
        return Quantity(reason="perf-failed", event=event.event)
    if not 0 <= value < 2**64 or not runtime > 0:  # a counter has 64 bits
        return Quantity(reason="not-counted", event=event.event)
    if event.quantity == "task_clock_ns" and str(row.get("unit")) == "msec":
        value *= 1e6  # perf prints the task clock in milliseconds
    if running < MOSTLY_PERCENT:
        return Quantity(reason="multiplexed", event=event.event, running_percent=running)
    return Quantity(value=value, event=event.event, running_percent=running)


def derive(counted: Mapping[str, Quantity], events: Sequence[Event]) -> dict[str, Quantity]:
    """The quantities that are a sum or a difference of two counted ones, or the reason of the first that is lacking."""
    result = {}
    for event in events:
        first, sign, second = event.derived or ("", "", "")
        parts, text = [counted.get(first), counted.get(second)], f"derived: {first} {sign} {second}"
        if reason := next(("event-unknown" if q is None else q.reason for q in parts if q is None or q.reason), None):
            result[event.quantity] = Quantity(reason=reason, event=text)
            continue
        value = parts[0].value + (parts[1].value if sign == "+" else -parts[1].value)
        running = min(q.running_percent for q in parts)
        result[event.quantity] = (Quantity(value=value, event=text, running_percent=running) if value >= 0
                                  else Quantity(reason="counts-disagree", event=text, running_percent=running))
    return result


@dataclass(frozen=True)
class Run:
    """One finished process: its output, its exit status (negative: the signal), and what was counted."""

    stdout: str
    stderr: str
    status: int
    counters: dict[str, Quantity]


def run(command: Sequence[str], plan: Plan, timeout_s: float, cwd: Path | None = None, repeat: int = 0) -> Run:
    """Run a kernel with counting off until it opens the gate (`--delay=-1 --control fd:`), and read the counters.

    repeat: which of the plan's groups is counted, in turn; what is in no group of this run has the reason other-repeat.
    The kernel gets `--perf-fds CONTROL,ACK`. A perf that refuses before it starts the kernel costs the counts, not the time.
    Raises subprocess.TimeoutExpired after killing the whole process group.
    """
    lacking = {k: Quantity(reason=v) for k, v in plan.lacking.items()}
    if not plan.events or plan.perf is None:
        return Run(*_communicate(list(command), timeout_s, cwd), lacking)
    groups = plan.groups()
    group = groups[repeat % len(groups)]
    listed = ",".join(event.event or "" for event in group)
    stdout, stderr, status, text = _gated(plan.perf, ["-e", listed], command, timeout_s, cwd)
    counted = parse(text, group)
    # Of itself perf exits with 128 + EINVAL or more (129: an unknown event, 255: an event that does not open) and has not
    # started the kernel; kernels exit with 3 at most.
    if status > 128 and not stdout:
        reason = "event-unknown" if status == 129 else "perf-denied" if pmu.denied(stderr) else "perf-failed"
        counted = {event.quantity: Quantity(reason=reason, event=event.event) for event in group}
        stdout, stderr, status = _communicate(list(command), timeout_s, cwd)
    if not counted:
        counted = {e.quantity: Quantity(reason="perf-failed", event=e.event) for e in group}
    counted |= {e.quantity: Quantity(reason="other-repeat", event=e.event) for e in plan.events if e not in group}
    return Run(stdout, stderr, status, counted | derive(counted, plan.derived) | lacking)


def _gated(perf: str, options: Sequence[str], command: Sequence[str], timeout_s: float,
           cwd: Path | None) -> tuple[str, str, int, str]:
    """One kernel under `perf stat` with the gate: stdout, stderr, exit status and perf's own text."""
    with contextlib.ExitStack() as open_things:
        # In memory, so that a runner killed with -9 leaves no file behind. perf opens it by name, and has no other way.
        output = open_things.enter_context(os.fdopen(os.memfd_create("tlb-perf"), "r+", errors="replace"))
        pipes = [*os.pipe(), *os.pipe()]
        for fd in pipes:
            open_things.callback(os.close, fd)
        control_out, control_in, ack_out, ack_in = pipes
        finished = _communicate(
            [perf, "stat", "-j", "-o", f"/proc/self/fd/{output.fileno()}", *options,
             "--delay=-1", "--control", f"fd:{control_out},{ack_in}", "--",
             *command, "--perf-fds", f"{control_in},{ack_out}"],
            timeout_s, cwd, pass_fds=(*pipes, output.fileno()))
        output.seek(0)
        return *finished, output.read()


TOPDOWN = "tma_dtlb_load"  # Intel's top-down tree, level 4; Linux tools/perf/pmu-events/arch/x86/*/*-metrics.json


def dtlb_bound(command: Sequence[str], timeout_s: float, cwd: Path | None = None, perf: str | None = None) -> Quantity:
    """The share of core cycles in which loads waited for the data TLB, percent: Intel's estimate, by perf's metric.

    Probes the metric first (perf says "cannot find" and exits with 0 where there is none), then runs the kernel once with
    the gate. A metric is no count: it is of the whole region and never divided by accesses. No data/ holds it.
    """
    perf = perf or shutil.which("perf")
    if perf is None:
        return Quantity(reason="no-perf", event=TOPDOWN)
    answer = _ask([perf, "stat", "-j", "-M", TOPDOWN, "--", "true"])
    if isinstance(answer, str):
        return Quantity(reason=answer, event=TOPDOWN)
    status, stderr = answer
    if status:
        return Quantity(reason="perf-denied" if pmu.denied(stderr) else "no-topdown", event=TOPDOWN)
    if (probed := metric(stderr)).reason in ("no-topdown", "no-pmu"):  # `true` may be too short for more
        return probed
    return metric(_gated(perf, ["-M", TOPDOWN], command, timeout_s, cwd)[3])


def metric(text: str, name: str = TOPDOWN) -> Quantity:
    """One metric, percent, out of perf's JSON lines: the row whose unit ends with its name ("%  tma_dtlb_load")."""
    rows = list(_rows(text))
    named = [row for row in rows if str(row.get("metric-unit", "")).split()[-1:] == [name]]
    if not named:
        # Without the metric perf counts its default events instead, so what those say means nothing.
        unsupported = "Cannot find metric" not in text and any("supported" in str(row.get("counter-value")) for row in rows)
        return Quantity(reason="no-pmu" if unsupported else "no-topdown", event=name)
    try:
        value = float(named[0]["metric-value"]) * (1 if "%" in named[0]["metric-unit"] else 100)
    except (TypeError, ValueError, KeyError, OverflowError):
        return Quantity(reason="perf-failed", event=name)
    if not math.isfinite(value) or value < 0:
        return Quantity(reason="not-counted", event=name)
    return Quantity(value=value, event=name)


def _plain_locale() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}  # elsewhere perf may print decimal commas


def _communicate(command: list[str], timeout_s: float, cwd: Path | None, pass_fds: tuple[int, ...] = ()) -> tuple[str, str, int]:
    if setpriv := shutil.which("setpriv"):  # perf would outlive a runner killed with -9, and the kernel with it
        command = [setpriv, "--pdeathsig", "KILL", "--", *command]
    try:
        done = run_whole(command, timeout=timeout_s, cwd=cwd, env=_plain_locale(), pass_fds=pass_fds)
    except OSError as error:
        raise Unavailable("kernel-crashed", f"{command[0]} does not start: {error.strerror}") from None
    return done.stdout, done.stderr, done.returncode
