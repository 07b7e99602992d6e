"""Counters: which event means which quantity on which CPU, one `perf stat` run around a kernel, and its JSON.

perf's exit status proves nothing (0 for a workload that was killed, 0 for an output that could not be written), so a
result is believed only when every event that was asked for came back, in its position.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.reasons import Unavailable
from experiments.record import Quantity


@dataclass(frozen=True)
class Event:
    """One canonical quantity and the event that counts it on this CPU; without an event, the reason for having none."""

    quantity: str
    event: str | None
    reason: str | None = None
    source: str = ""


_SKYLAKE = "Linux tools/perf/pmu-events/arch/x86/skylakex/virtual-memory.json"
_ICELAKE = "Linux tools/perf/pmu-events/arch/x86/icelakex/virtual-memory.json"
_SAPPHIRE = "Linux tools/perf/pmu-events/arch/x86/sapphirerapids/virtual-memory.json"
_ZEN = "Linux tools/perf/pmu-events/arch/x86/amdzen*/memory.json, ls_l1_d_tlb_miss"
_NEOVERSE = "Linux tools/perf/pmu-events/arch/arm64/arm/neoverse-*/; Arm ARM, common events 0x25 and 0x34"

# Software events: on every Linux, counted in user mode, so that they need no privilege up to perf_event_paranoid 2.
SOFTWARE = (
    Event("minor_faults", "minor-faults:u", source="perf_event_open(2), PERF_COUNT_SW_PAGE_FAULTS_MIN"),
    Event("task_clock_ns", "task-clock:u", source="perf_event_open(2), PERF_COUNT_SW_TASK_CLOCK"),
)
_FIXED = (
    Event("core_cycles", "cycles:u", source="perf_event_open(2), PERF_COUNT_HW_CPU_CYCLES"),
    Event("instructions", "instructions:u", source="perf_event_open(2), PERF_COUNT_HW_INSTRUCTIONS"),
)


def _intel(code: int, stlb_hit_umask: int, source: str) -> tuple[Event, ...]:
    def event(umask: int, rest: str = "") -> str:
        return f"cpu/event={code:#04x},umask={umask:#04x}{rest}/u"

    return (
        Event("walk", event(0x0E), source=f"{source}, WALK_COMPLETED"),
        Event("walk_cycles", event(0x10, ",cmask=1"), source=f"{source}, WALK_ACTIVE"),
        Event("stlb_hit", event(stlb_hit_umask), source=f"{source}, STLB_HIT"),
        Event("l1_dtlb_miss", None, reason="event-unknown", source="stlb_hit + walk on Intel: derived, no event"),
    )


_AMD = (
    Event("walk", "cpu/event=0x45,umask=0xf0/u", source=_ZEN),
    Event("stlb_hit", "cpu/event=0x45,umask=0x0f/u", source=_ZEN),
    Event("l1_dtlb_miss", "cpu/event=0x45,umask=0xff/u", source=_ZEN),
    Event("walk_cycles", None, reason="no-walk-cycle-event", source=_ZEN),
)
_ARM = (
    Event("walk", "armv8_pmuv3_0/event=0x34/u", source=_NEOVERSE),
    Event("l1_dtlb_miss", "armv8_pmuv3_0/event=0x05/u", source=_NEOVERSE),
    Event("stlb_hit", None, reason="event-unknown", source="l1_dtlb_miss - walk on Neoverse: derived, no event"),
    Event("walk_cycles", None, reason="no-walk-cycle-event", source=_NEOVERSE),
)
HARDWARE: dict[str, tuple[Event, ...]] = {
    "Skylake": _intel(0x08, 0x20, _SKYLAKE),
    "Cascade Lake": _intel(0x08, 0x20, _SKYLAKE),
    "Ice Lake": _intel(0x08, 0x20, _ICELAKE),
    "Sapphire Rapids": _intel(0x12, 0x20, _SAPPHIRE),
    "Emerald Rapids": _intel(0x12, 0x20, _SAPPHIRE),
    "Granite Rapids": _intel(0x12, 0x20, _SAPPHIRE),
    "Zen": _AMD,
    "Neoverse": _ARM,
}


def quantities(microarchitecture: str) -> tuple[Event, ...]:
    """The hardware events of a microarchitecture by its name ("Ice Lake server" finds "Ice Lake"); cycles and
    instructions alone where the table has no row for it."""
    for name, events in HARDWARE.items():
        if microarchitecture.startswith(name):
            return _FIXED + events
    return _FIXED + tuple(Event(q, None, reason="event-unknown") for q in ("walk", "walk_cycles", "stlb_hit", "l1_dtlb_miss"))


@dataclass(frozen=True)
class Plan:
    """What perf will count around each kernel: the events that answered, and for every other quantity its reason."""

    perf: str | None
    events: tuple[Event, ...] = ()
    lacking: dict[str, str] = field(default_factory=dict)  # quantity -> reason code


NO_COUNTERS = Plan(None)
_PROBE_S = 20.0  # `true` under perf takes milliseconds; a machine so busy that it takes longer cannot measure


def plan(microarchitecture: str, perf: str | None = None) -> Plan:
    """Probe each event once (`perf stat -j -e EVENT -- true`) and keep those that count.

    Hardware events are asked for only if cycles answer: without a PMU each would cost a process to say so again.
    """
    perf = perf or shutil.which("perf")
    table = SOFTWARE + quantities(microarchitecture)
    if perf is None:
        return Plan(None, (), {event.quantity: "no-perf" for event in table})
    good: list[Event] = []
    lacking: dict[str, str] = {}
    for event in table:
        if event.event is None:
            lacking[event.quantity] = event.reason or "event-unknown"
        elif event.quantity not in ("minor_faults", "task_clock_ns", "core_cycles") and lacking.get("core_cycles") == "no-pmu":
            lacking[event.quantity] = "no-pmu"
        elif reason := _probe(perf, event):
            lacking[event.quantity] = reason
        else:
            good.append(event)
    return Plan(perf if good else None, tuple(good), lacking)


def _probe(perf: str, event: Event) -> str | None:
    """None where the event counts, else the reason code."""
    try:
        done = subprocess.run([perf, "stat", "-j", "-e", event.event or "", "--", "true"], capture_output=True, text=True,
                              timeout=_PROBE_S, env=_plain_locale(), stdin=subprocess.DEVNULL, errors="replace")
    except subprocess.TimeoutExpired:
        return "perf-failed"
    except OSError:
        return "no-perf"
    if done.returncode == 129:
        return "event-unknown"
    if "perf not found for kernel" in done.stderr:  # Ubuntu's wrapper, with the linux-tools of another kernel
        return "no-perf"
    if done.returncode:
        return "perf-denied" if "paranoid" in done.stderr or "ermission" in done.stderr else "perf-failed"
    quantity = parse(done.stderr, [event]).get(event.quantity)
    return "perf-failed" if quantity is None else "no-pmu" if quantity.reason == "not-supported" else quantity.reason


def parse(text: str, events: Sequence[Event]) -> dict[str, Quantity]:
    """perf's JSON lines (format of perf 6.1) to quantities, matched by position: perf alters names.

    Value, then event-runtime, then pcnt-running, in that order: `<not supported>` comes with runtime 0 and 100.00 %.
    Counts are scaled by perf already. Returns {} where the lines do not fit the events: nothing is guessed.
    """
    rows = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and "counter-value" in row:
                rows.append(row)
    if len(rows) != len(events):
        return {}
    return {event.quantity: _quantity(row, event) for row, event in zip(rows, events, strict=True)}


def _quantity(row: dict, event: Event) -> Quantity:
    said = str(row["counter-value"])
    if said.startswith("<"):
        return Quantity(reason="not-supported" if "supported" in said else "not-counted", event=event.event)
    try:
        value, running, runtime = float(said), float(row.get("pcnt-running", 0)), float(row.get("event-runtime", 0))
    except (TypeError, ValueError, OverflowError):  # a decimal comma, or no number at all
        return Quantity(reason="perf-failed", event=event.event)
    if not math.isfinite(running):
        return Quantity(reason="perf-failed", event=event.event)
    if not 0 <= value < 2**64 or not runtime > 0:  # a counter has 64 bits
        return Quantity(reason="not-counted", event=event.event)
    if event.quantity == "task_clock_ns" and str(row.get("unit")) == "msec":
        value *= 1e6  # perf prints the task clock in milliseconds
    return Quantity(value=value, event=event.event, running_percent=running)


@dataclass(frozen=True)
class Run:
    """One finished process: its output, its exit status (negative: the signal), and what was counted."""

    stdout: str
    stderr: str
    status: int
    counters: dict[str, Quantity]


def run(command: Sequence[str], plan: Plan, timeout_s: float, cwd: Path | None = None) -> Run:
    """Run a kernel with counting off until it opens the gate (`--delay=-1 --control fd:`), and read the counters.

    The kernel gets `--perf-fds CONTROL,ACK`. Raises subprocess.TimeoutExpired after killing the whole process group.
    """
    if not plan.events or plan.perf is None:
        return Run(*_communicate(list(command), timeout_s, cwd), {k: Quantity(reason=v) for k, v in plan.lacking.items()})
    with contextlib.ExitStack() as open_things:
        output = open_things.enter_context(tempfile.NamedTemporaryFile("r", prefix="tlb-perf-", errors="replace"))
        pipes = [*os.pipe(), *os.pipe()]
        for fd in pipes:
            open_things.callback(os.close, fd)
        control_out, control_in, ack_out, ack_in = pipes
        stdout, stderr, status = _communicate(
            [plan.perf, "stat", "-j", "-o", output.name, "-e", ",".join(e.event or "" for e in plan.events),
             "--delay=-1", "--control", f"fd:{control_out},{ack_in}", "--",
             *command, "--perf-fds", f"{control_in},{ack_out}"],
            timeout_s, cwd, pass_fds=tuple(pipes))
        counted = parse(output.read(), plan.events)
    if not counted:
        counted = {e.quantity: Quantity(reason="perf-failed", event=e.event) for e in plan.events}
    return Run(stdout, stderr, status, counted | {k: Quantity(reason=v) for k, v in plan.lacking.items()})


def _plain_locale() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}  # elsewhere perf may print decimal commas


def _communicate(command: list[str], timeout_s: float, cwd: Path | None, pass_fds: tuple[int, ...] = ()) -> tuple[str, str, int]:
    if setpriv := shutil.which("setpriv"):  # perf would outlive a runner killed with -9, and the kernel with it
        command = [setpriv, "--pdeathsig", "KILL", "--", *command]
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=cwd,
                                 env=_plain_locale(), text=True, errors="replace", pass_fds=pass_fds,
                                 start_new_session=True)
    except OSError as error:
        raise Unavailable("kernel-crashed", f"{command[0]} does not start: {error.strerror}") from None
    try:
        stdout, stderr = child.communicate(timeout=timeout_s)
    except BaseException:  # time limit, Ctrl-C, SIGTERM: nothing of ours may go on running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise
    return stdout, stderr, child.returncode
