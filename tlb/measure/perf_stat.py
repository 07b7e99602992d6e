"""Run `perf stat` and `perf record`: what is counted of a running process, and in which group of
events.

perf's exit status proves nothing (0 for a killed workload or an unwritten output). Its JSON lines
(5.19 and later) are believed only where every requested event came back in its position and was
counted all the time.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import IO, Any

from tlb.machine import pmu
from tlb.measure.events import PROGRAMMABLE_COUNTERS, SOFTWARE_EVENTS, PerfEvent
from tlb.measure.record import CounterReading
from tlb.system.processes import PROBE_TIMEOUT_S, run_in_own_session, wait_or_kill

# ---- perf's JSON lines


def parse_perf_stat(text: str, events: Sequence[PerfEvent]) -> dict[str, CounterReading]:
    """Return a quantity for each event, matched by position because perf alters names.

    Value, event-runtime and pcnt-running are judged in that order: `<not supported>` comes with
    runtime 0 and 100.00 %. {} where the lines do not fit the events.
    """
    rows = [row for row in pmu.rows(text) if "counter-value" in row]
    answers = [[row] for row in rows]
    if len(rows) > len(events):
        answers = [list(group) for _, group in groupby(rows, _name_on_any_pmu)]
    if len(answers) != len(events):
        return {}
    return {
        event.quantity: _of_all_pmus([_quantity(row, event) for row in answer])
        for answer, event in zip(answers, events, strict=True)
    }


# An event of one PMU as versions of perf print it: armv8_cortex_a72/cycles/u, cpu_core/cycles:u/.
_ON_PMU = re.compile(r"[\w.-]+/([^/]+)/(\w*)")


def _name_on_any_pmu(row: Mapping) -> str:
    """Return the name of an event without its PMU: "cycles:u"."""
    name = str(row.get("event"))
    found = _ON_PMU.fullmatch(name)
    return f"{found[1]}:{found[2]}".removesuffix(":") if found else name


def _of_all_pmus(answers: Sequence[CounterReading]) -> CounterReading:
    """Return what counted, of the answers of several PMUs to one event.

    On a computer with several kinds of cores perf 6.5 and later opens an event that names no PMU on
    each (tools/perf/util/parse-events.c), and each counts on its own cores alone. A process that
    ran on two kinds has no whole count.
    """
    counted = [answer for answer in answers if answer.reason in (None, "multiplexed")]
    if len(counted) < 2:
        return (counted or answers)[0]
    running = min(answer.running_percent or 0.0 for answer in counted)
    return CounterReading(reason="multiplexed", event=counted[0].event, running_percent=running)


def _quantity(row: dict, event: PerfEvent) -> CounterReading:
    text = str(row["counter-value"])
    if text.startswith("<"):
        return CounterReading(
            reason="event-unknown" if "supported" in text else "not-counted", event=event.event
        )
    try:
        value, running, runtime = (
            float(text),
            float(row.get("pcnt-running", 0)),
            float(row.get("event-runtime", 0)),
        )
    except (TypeError, ValueError, OverflowError):  # a decimal comma, or no number at all
        return CounterReading(reason="perf-failed", event=event.event)
    if not 0 <= running <= 100:  # NaN is not either
        return CounterReading(reason="perf-failed", event=event.event)
    if event.quantity in _IN_LINUX and str(row.get("event")).endswith(":u"):
        return CounterReading(reason="perf-denied", event=event.event)
    if not 0 <= value < 2**64 or not runtime > 0:  # a counter has 64 bits
        return CounterReading(reason="not-counted", event=event.event)
    if event.quantity == "task_clock_ns" and str(row.get("unit")) == "msec":
        value *= 1e6  # perf prints the task clock in milliseconds
    # perf shared counters out, and its scaling is a guess about the time that it did not see
    if running < 100:
        return CounterReading(reason="multiplexed", event=event.event, running_percent=running)
    return CounterReading(value=value, event=event.event, running_percent=running)


def derive(
    counted: Mapping[str, CounterReading], events: Sequence[PerfEvent]
) -> dict[str, CounterReading]:
    """Return sums and differences of counted quantities, or the reason of the first lacking one."""
    result = {}
    for event in events:
        first, sign, second = event.derived or ("", "", "")
        text = f"derived: {first} {sign} {second}"
        none = CounterReading(reason="no-events")
        one, other = counted.get(first, none), counted.get(second, none)
        if one.value is None or other.value is None:
            result[event.quantity] = CounterReading(reason=one.reason or other.reason, event=text)
            continue
        value = one.value + (other.value if sign == "+" else -other.value)
        running = min(one.running_percent or 0.0, other.running_percent or 0.0)
        result[event.quantity] = (
            CounterReading(value=value, event=text, running_percent=running)
            if value >= 0
            else CounterReading(reason="not-counted", event=text, running_percent=running)
        )
    return result


# ---- what is counted together


def perf_stat_command(command: Sequence[str], events: Sequence[PerfEvent], *more: str) -> list[str]:
    """Return the words of a `perf stat` that prints the counts of events as JSON."""
    listed = ",".join(event.event or "" for event in events)
    return [*command, "stat", "-j", "-e", listed, *more]


@dataclass(frozen=True)
class EventPlan:
    """The events that answered, what derives from them, and the reason of every other quantity."""

    perf: str | None
    events: tuple[PerfEvent, ...] = ()
    lacking: dict[str, str] = field(default_factory=dict)  # quantity -> reason code
    derived: tuple[PerfEvent, ...] = ()
    # counters that these events may take together, beside cycles and instructions
    programmable: int = PROGRAMMABLE_COUNTERS
    of_process: tuple[PerfEvent, ...] = ()  # which count each process as a whole

    def groups(self) -> tuple[tuple[PerfEvent, ...], ...]:
        """Return what is counted together, one group a run: events without a programmable counter,
        and at most `programmable` others, so that perf never multiplexes. Loads' events come first;
        both parts of a sum are in one group."""
        always = tuple(event for event in self.events if event.group is None)
        parts = {name for event in self.derived for name in event.parts}
        rotated: list[tuple[PerfEvent, ...]] = []
        for number in sorted({event.group for event in self.events if event.group is not None}):
            group = sorted(
                (event for event in self.events if event.group == number),
                key=lambda event: event.quantity not in parts,
            )
            for first in range(0, len(group), self.programmable):
                some = tuple(group[first : first + self.programmable])
                room = next(
                    (
                        i
                        for i, taken in enumerate(rotated)
                        if len(taken) + len(some) <= self.programmable
                    ),
                    None,
                )
                if room is None:
                    rotated.append(some)
                else:
                    rotated[room] += some
        return tuple(always + group for group in rotated) or (always,)

    @property
    def counts_hardware(self) -> bool:
        return any(event not in SOFTWARE_EVENTS for event in self.events)

    def group(self, repeat: int) -> tuple[PerfEvent, ...]:
        """Return the group of a repeat: the groups in turn."""
        groups = self.groups()
        return groups[repeat % len(groups)]

    def quantities(
        self,
        counted: Mapping[str, CounterReading],
        group: Sequence[PerfEvent],
        reason: str = "perf-failed",
    ) -> dict[str, CounterReading]:
        """Return all quantities of a repeat: a count, or why there is none. reason: why nothing was
        counted."""
        own = dict(counted) or {
            event.quantity: CounterReading(reason=reason, event=event.event) for event in group
        }
        own |= {
            event.quantity: CounterReading(reason="other-repeat", event=event.event)
            for event in self.events
            if event not in group
        }
        return (
            own
            | derive(own, self.derived)
            | {name: CounterReading(reason=code) for name, code in self.lacking.items()}
        )

    def in_guest(self) -> EventPlan:
        """Return the plan counted only while the CPU runs a guest: modifier G (exclude_host of
        perf_event_open(2)) behind each event's u."""
        return replace(
            self,
            events=tuple(
                event if event in SOFTWARE_EVENTS else replace(event, event=f"{event.event}G")
                for event in self.events
            ),
        )

    @property
    def lacks_perf(self) -> str:
        """The reason code of a perf that was tried and counts nothing, "" otherwise."""
        return "" if self.perf else self.lacking.get("task_clock_ns", "")

    def of_processes_only(self) -> EventPlan:
        """Return the plan that counts whole processes and no point."""
        return replace(NO_COUNTERS, perf=self.perf, of_process=self.of_process)


NO_COUNTERS = EventPlan(None)

# Of a process from its start to its end, by Linux. Where only user mode may be counted
# (perf_event_paranoid 2), perf appends :u, and switches and migrations, which happen in Linux, are
# counted as 0.
_SOURCE = "perf_event_open(2), PERF_COUNT_SW_"
PROCESS_EVENTS = (
    PerfEvent("page_faults", "page-faults", source=f"{_SOURCE}PAGE_FAULTS"),
    PerfEvent("context_switches", "context-switches", source=f"{_SOURCE}CONTEXT_SWITCHES"),
    PerfEvent("cpu_migrations", "cpu-migrations", source=f"{_SOURCE}CPU_MIGRATIONS"),
    PerfEvent("task_clock_ns", "task-clock", source=f"{_SOURCE}TASK_CLOCK"),
)
_IN_LINUX = {"context_switches", "cpu_migrations"}


# ---- a process's own gate

ACK = b"ack\n\0"  # perf's answer, of five bytes


class PerfControlPipes:
    """The two pipes of a gate: a process's commands, and their acknowledgements by what counts."""

    def __init__(self) -> None:
        self.said, self._control = os.pipe()  # what the kernel says, and where it writes that
        self._ack, self._answer = os.pipe()
        self.fds = (self.said, self._control, self._ack, self._answer)

    @property
    def kernel_words(self) -> list[str]:
        return ["--perf-fds", f"{self._control},{self._ack}"]

    @property
    def perf_words(self) -> list[str]:
        return ["--control", f"fd:{self.said},{self._answer}"]

    def answer(self) -> None:
        """Acknowledge to the process where nothing counts."""
        for _ in range(os.read(self.said, 100).count(b"\n")):
            os.write(self._answer, ACK)

    def is_heard(self, by: subprocess.Popen, timeout_s: float) -> bool:
        """Return whether this perf answers, so has opened its events. Leaves nothing unanswered."""
        os.write(self._control, b"ping\n")
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if select.select([self._ack], [], [], 0.001)[0]:
                return os.read(self._ack, 100) == ACK
            if by.poll() is not None:
                break
        wait_or_kill(by, 0)
        if select.select([self.said], [], [], 0)[0]:
            os.read(self.said, 100)
        return False

    def __enter__(self) -> PerfControlPipes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def output_file() -> IO[str]:
    """Return a file in memory for perf's counts: a runner killed with -9 leaves nothing behind."""
    return os.fdopen(os.memfd_create("tlb-perf"), "r+", errors="replace")


def environment_in_c_locale() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}  # elsewhere perf may print decimal commas


def command_killed_with_parent(command: list[str]) -> list[str]:
    """Return the command, to be killed when this process ends: perf would outlive a killed
    runner."""
    return (
        [setpriv, "--pdeathsig", "KILL", "--", *command]
        if (setpriv := shutil.which("setpriv"))
        else command
    )


# ---- a process that runs


class Attached:
    """A perf that counts events of a process and of what it starts, until `end` (perf-stat(1),
    --pid, --control).

    is_on: whether it counts; a perf that refuses answers no gate. closed: count only while the
    process has opened the gate.
    """

    def __init__(
        self,
        perf: str,
        events: Sequence[PerfEvent],
        pid: int,
        gate: PerfControlPipes,
        *,
        closed: bool = False,
    ):
        self._events = events
        self._output, self._errors = output_file(), output_file()
        command = perf_stat_command([perf], events, "-p", str(pid), *gate.perf_words)
        command += ["--delay=-1"] if closed else []
        command += ["-o", f"/proc/self/fd/{self._output.fileno()}"]
        self._perf = subprocess.Popen(
            command_killed_with_parent(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=environment_in_c_locale(),
            start_new_session=True,
            pass_fds=(*gate.fds, self._output.fileno()),
        )
        self.is_on = gate.is_heard(self._perf, PROBE_TIMEOUT_S)

    def end(self) -> tuple[dict[str, CounterReading], str]:
        """Detach; return what it counted, and the reason code if that is nothing."""
        if self.is_on:
            self._perf.send_signal(signal.SIGINT)  # upon which it prints
        status = wait_for_exit_status(self._perf, PROBE_TIMEOUT_S)
        with self._output as output, self._errors as errors:
            output.seek(0)
            errors.seek(0)
            counts = parse_perf_stat(output.read(), self._events) if self.is_on else {}
            return counts, refusal(status, errors.read())


class PointCounter:
    """Counts of one point: a repeat's group while the process has opened its gate.

    Attached anew for each point: enabling one perf again and again loses counts. If it refuses (not
    `is_on`), someone else must answer at the gate.
    """

    def __init__(self, plan: EventPlan, pid: int, gate: PerfControlPipes, repeat: int):
        self._plan, self._group = plan, plan.group(repeat)
        self._perf = Attached(plan.perf or "perf", self._group, pid, gate, closed=True)
        self.is_on = self._perf.is_on

    def end(self) -> dict[str, CounterReading]:
        """Detach; return the counted quantities."""
        counts, reason = self._perf.end()
        return self._plan.quantities(counts, self._group, reason)


class ProcessCounter:
    """Counts of a process from now until `end`."""

    def __init__(self, plan: EventPlan, pid: int):
        self._events = plan.of_process
        self._gate = PerfControlPipes()
        self._perf = Attached(plan.perf or "perf", self._events, pid, self._gate)

    def end(self) -> dict[str, CounterReading]:
        """Return each quantity, or why it was not counted."""
        counts, reason = self._perf.end()
        self._gate.close()
        return counts or {
            event.quantity: CounterReading(reason=reason, event=event.event)
            for event in self._events
        }


def wait_for_exit_status(child: subprocess.Popen[Any], seconds: float) -> int:
    """Return a child's exit status as `wait_or_kill` does, which looks only every so often, by up
    to 50 ms: a descriptor of the process is told at once."""
    with contextlib.suppress(OSError):  # refused, as by a filter of a container
        descriptor = os.pidfd_open(child.pid)
        try:
            select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)
    return wait_or_kill(child, seconds)


def refusal(status: int, stderr: str) -> str:
    """Return the reason code of a perf that counts nothing."""
    return (
        "event-unknown" if status == 129 else "perf-denied" if pmu.denied(stderr) else "perf-failed"
    )


def count_process_events(
    plan: EventPlan, pid: int, seconds: float, repeat: int = 0
) -> dict[str, CounterReading]:
    """Return what a process and its threads count in so many seconds, or why not.

    repeat: selects the plan's group; other groups are left out. New threads count too.
    """
    lacking = {quantity: CounterReading(reason=reason) for quantity, reason in plan.lacking.items()}
    group = plan.group(repeat)
    if not group or plan.perf is None:
        return lacking
    more = ["-p", str(pid), "--", "sleep", f"{seconds:.3f}"]
    command = perf_stat_command([plan.perf], group, *more)
    try:
        done = run_in_own_session(
            command, timeout=seconds + PROBE_TIMEOUT_S, env=environment_in_c_locale()
        )
    except (OSError, subprocess.TimeoutExpired):
        return lacking | {
            event.quantity: CounterReading(reason="perf-failed", event=event.event)
            for event in group
        }
    counts = parse_perf_stat(done.stderr, group)
    if done.returncode or not counts:
        reason = "perf-denied" if pmu.denied(done.stderr) else "perf-failed"
        counts = {
            event.quantity: CounterReading(reason=reason, event=event.event) for event in group
        }
    parts = [event for event in plan.derived if {*event.parts} <= counts.keys()]
    return lacking | counts | derive(counts, parts)
