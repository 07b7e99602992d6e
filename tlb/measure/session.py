"""A session: one process of a kernel's program, which answers a plan (kernels/plan.h).

Each point has its answer before the next line is sent, and each answer says how many of all so far
a later smaps has proved. A process that ends, hangs or prints something else is an Unavailable with
the reason, and nothing of it stays behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import IO, Any

from tlb.machine import pools, settings
from tlb.measure.events import SOFTWARE_EVENTS
from tlb.measure.namespaces import UNSHARE_KILLED_MESSAGE
from tlb.measure.perf_stat import (
    EventPlan,
    PerfControlPipes,
    PointCounter,
    ProcessCounter,
    command_killed_with_parent,
    environment_in_c_locale,
    wait_for_exit_status,
)
from tlb.measure.record import CounterReading
from tlb.system.page_sizes import PAGE_KINDS
from tlb.system.processes import wait_or_kill
from tlb.system.reasons import REASON_TEXTS, Unavailable

# An answer that takes longer is a hang: ten times what was expected, and what a computer under load
# takes to start a process.
HANG_TIMES, HANG_S = 10.0, 120.0
_SOFTWARE = {event.quantity for event in SOFTWARE_EVENTS}  # which a session's kernel counts itself
_MOST_BYTES = 1 << 20  # of an answer; the largest, with a histogram, have some ten kilobytes

# To tell a CPU that went away from one that never was ours.
CPUS_ALLOWED_AT_START = (
    frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
)


def limit_s(expected_s: float) -> float:
    return HANG_S + HANG_TIMES * expected_s


class Session:
    """A running session, in a `with`.

    plan: what is counted of the whole process and of each point, the latter in group number
    `repeat` where hardware counts at all: what software counts, the kernel says itself. process:
    what was counted of the process, once it has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        pages: str,
        plan: EventPlan,
        repeat: int,
        expected_s: float,
    ):
        self._pages, self._plan, self._repeat, self._buffer = pages, plan, repeat, b""
        self._uncounted = {
            name: CounterReading(reason=code)
            for name, code in plan.lacking.items()
            if name not in _SOFTWARE
        }
        self.process: dict[str, CounterReading] = {}
        self._whole: ProcessCounter | None = None
        with contextlib.ExitStack() as stack:
            self._gate = stack.enter_context(PerfControlPipes()) if plan.counts_hardware else None
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            self._child = stack.enter_context(self._started(command, cwd))
            stack.callback(self._kill)
            if plan.of_process:
                self._whole = ProcessCounter(plan, self._child.pid)
                stack.callback(self._end_counting)
                self._send("go")
            self.mapped = self._read(limit_s(expected_s))
            self._stack = stack.pop_all()

    def _started(self, command: Sequence[str], cwd: Path) -> subprocess.Popen[bytes]:
        """Start the process; where it is counted, as a shell that becomes it once a line comes."""
        words = command_killed_with_parent(
            [*command, *(self._gate.kernel_words if self._gate else ())]
        )
        if self._plan.of_process:
            words = ["sh", "-c", 'read -r line && exec "$@"', "sh", *words]
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=cwd,
                bufsize=0,
                env=environment_in_c_locale(),
                start_new_session=True,
                pass_fds=self._gate.fds if self._gate else (),
            )
        except OSError as error:
            raise Unavailable(
                "kernel-failed", f"{command[0]} does not start: {error.strerror}"
            ) from None

    def _send(self, line: str) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which reading shows
            self._child.stdin.write(line.encode() + b"\n")

    def ask(self, line: str, expected_s: float) -> tuple[dict[str, Any], dict[str, CounterReading]]:
        """Return the answer to a line, and what was counted meanwhile."""
        pid = _last_child(self._child.pid) if self._gate else 0
        counting = PointCounter(self._plan, pid, self._gate, self._repeat) if self._gate else None
        self._send(line)
        try:
            answer = self._read(limit_s(expected_s), counts=counting is not None and counting.is_on)
        finally:
            counters = counting.end() if counting else self._uncounted
        return answer, counters

    def end(self, expected_s: float) -> dict[str, Any]:
        """End its input; return the last thing that it says. Its own exit status decides whether it
        ended well."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        last = self._read(limit_s(expected_s))
        if wait_for_exit_status(self._child, HANG_S):
            raise self._ended()
        self._end_counting()
        return last

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end_counting(self) -> None:
        if self._whole:
            self.process, self._whole = self._whole.end(), None

    def _kill(self) -> None:
        wait_or_kill(self._child, 0)

    def _read(self, timeout_s: float, counts: bool = False) -> dict[str, Any]:
        """Return the next line. counts: whether a perf answers the kernel at its gate."""
        assert self._child.stdout is not None
        deadline = time.monotonic() + timeout_s
        answers: list[IO[bytes] | int] = [self._child.stdout]
        answers += [self._gate.said] if self._gate and not counts else []
        while b"\n" not in self._buffer:
            left_s = max(deadline - time.monotonic(), 0)
            ready = select.select(answers, [], [], left_s)[0]
            if not ready:
                raise Unavailable("kernel-failed", f"no answer in {timeout_s:.0f} s")
            if self._gate and self._child.stdout not in ready:
                self._gate.answer()
                continue
            read = os.read(self._child.stdout.fileno(), 1 << 16)
            if not read:
                raise self._ended()
            self._buffer += read
            if len(self._buffer) > _MOST_BYTES:
                raise Unavailable("kernel-failed", "a line without an end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise Unavailable("kernel-failed", repr(line[:200])[2:-1])
        return answer

    def _ended(self) -> Unavailable:
        status = wait_or_kill(self._child, HANG_S)
        self._errors.seek(0)
        stderr = self._errors.read(1 << 16).decode(errors="replace")
        return why_ended(status, stderr, self._pages)


def _last_child(pid: int) -> int:
    """Return the process that this one became or started: what unshare runs is its child."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            return _last_child(int(child))
    return pid


def why_ended(status: int, stderr: str, pages: str) -> Unavailable:
    """Return why a kernel's process ended before its plan did. status: negative for a signal."""
    last = (stderr.strip().splitlines() or [""])[-1]
    if status == 3:
        return parse_kernel_reason(last)
    if status == 2:
        return Unavailable("bad-parameter", last[:300])
    killed = _signal_of(status, last)
    if killed == signal.SIGKILL:
        return Unavailable("oom-killed")
    if killed == signal.SIGBUS:
        is_pool = PAGE_KINDS[pages].source == "pool"
        if is_pool and (limits := pools.cgroup_limits_below(pages, inf)):
            return pools.limited(limits)
        return Unavailable("pool-empty" if is_pool else "memory-short", "SIGBUS while faulting in")
    how = f"exit status {status}" if status else "it ended before its input did"
    if killed in signal.valid_signals():
        how = f"signal {signal.Signals(killed).name}"
    return Unavailable("kernel-failed", f"{how}; {last[:200]}" if last else how)


def parse_kernel_reason(text: str) -> Unavailable:
    """Return what a kernel says that it lacks: {"reason": CODE, "detail": TEXT}."""
    try:
        said = json.loads(text)
        reason, detail = str(said["reason"]), str(said.get("detail", ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        reason, detail = "", text[:200]
    if reason == "thp-never" and not settings.has_thp():
        reason = "linux-lacks"  # the program sees only that madvise is refused
    if reason not in REASON_TEXTS:
        return Unavailable("kernel-failed", detail)
    return Unavailable(reason, detail)


def _signal_of(status: int, last: str) -> int:
    """Return the signal that ended the kernel, 0 for none. unshare states it as a shell does."""
    if status < 0 or 128 < status < 128 + signal.NSIG:
        return -status if status < 0 else status - 128
    if status == 1 and last.startswith(UNSHARE_KILLED_MESSAGE):
        return signal.SIGKILL
    return 0
