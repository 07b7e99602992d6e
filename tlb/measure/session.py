"""A session: one process that maps memory once and then measures a point for each line of its
standard input (kernels/session.c).

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
from typing import Any

from tlb.machine import pools, settings
from tlb.measure import perf
from tlb.measure.attached import Counting
from tlb.measure.events import SOFTWARE
from tlb.measure.gate import Gate, dying_with_us, plain_locale
from tlb.measure.namespaces import UNSHARE_WAS_KILLED
from tlb.measure.record import Quantity
from tlb.system.page_sizes import PAGES
from tlb.system.processes import status_within
from tlb.system.reasons import REASONS, Unavailable

# An answer that takes longer is a hang: ten times what was expected, and what a computer under load
# takes to start a process.
HANG_TIMES, HANG_S = 10.0, 120.0
_SOFTWARE = {event.quantity for event in SOFTWARE}  # which a session's kernel counts itself
_MOST_BYTES = 1 << 20  # of an answer; the largest, with a histogram, have some ten kilobytes

# To tell a CPU that went away from one that never was ours.
CPUS_AT_START = (
    frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
)


def limit_s(expected_s: float) -> float:
    return HANG_S + HANG_TIMES * expected_s


class Session:
    """A running session, in a `with`. plan: what is counted of each point, its group number
    `repeat`, where hardware counts at all: what software counts, the kernel says itself."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        pages: str,
        plan: perf.Plan,
        repeat: int,
        expected_s: float,
    ):
        self._pages, self._plan, self._repeat, self._buffer = pages, plan, repeat, b""
        self._uncounted = {
            name: Quantity(reason=code)
            for name, code in plan.lacking.items()
            if name not in _SOFTWARE
        }
        with contextlib.ExitStack() as stack:
            self._gate = stack.enter_context(Gate()) if plan.counts_hardware else None
            self._errors = stack.enter_context(tempfile.TemporaryFile())
            words = [*command, *(self._gate.kernel_words if self._gate else ())]
            try:
                self._child = stack.enter_context(
                    subprocess.Popen(
                        dying_with_us(words),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=self._errors,
                        cwd=cwd,
                        bufsize=0,
                        env=plain_locale(),
                        start_new_session=True,
                        pass_fds=self._gate.fds if self._gate else (),
                    )
                )
            except OSError as error:
                raise Unavailable(
                    "kernel-crashed", f"{command[0]} does not start: {error.strerror}"
                ) from None
            stack.callback(self._kill)
            self.mapped = self._read(limit_s(expected_s))
            self._stack = stack.pop_all()

    def ask(self, line: str, expected_s: float) -> tuple[dict[str, Any], dict[str, Quantity]]:
        """The answer to a line, and what was counted meanwhile."""
        counting = (
            Counting(self._plan, self._child.pid, self._gate, self._repeat) if self._gate else None
        )
        with contextlib.suppress(BrokenPipeError):  # it has ended, which reading shows
            self._child.stdin.write(line.encode() + b"\n")
        try:
            answer = self._read(limit_s(expected_s), counts=counting is not None and counting.is_on)
        finally:
            counters = counting.end() if counting else self._uncounted
        return answer, counters

    def end(self, expected_s: float) -> dict[str, Any]:
        """Ends its input; the last thing that it says."""
        self._child.stdin.close()
        return self._read(limit_s(expected_s))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _kill(self) -> None:
        status_within(self._child, 0)

    def _read(self, timeout_s: float, counts: bool = False) -> dict[str, Any]:
        """The next line. counts: whether a perf answers the kernel at its gate."""
        deadline = time.monotonic() + timeout_s
        said = [self._gate.said] if self._gate and not counts else []
        while b"\n" not in self._buffer:
            ready = select.select(
                [self._child.stdout, *said], [], [], max(deadline - time.monotonic(), 0)
            )[0]
            if not ready:
                raise Unavailable("kernel-hung", f"no answer in {timeout_s:.0f} s")
            if self._child.stdout not in ready:
                self._gate.answer()
                continue
            read = os.read(self._child.stdout.fileno(), 1 << 16)
            if not read:
                raise self._ended()
            self._buffer += read
            if len(self._buffer) > _MOST_BYTES:
                raise Unavailable("kernel-garbage", "a line without an end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise Unavailable("kernel-garbage", repr(line[:200])[2:-1])
        return answer

    def _ended(self) -> Unavailable:
        status = status_within(self._child, HANG_S)
        self._errors.seek(0)
        run = perf.Run("", self._errors.read(1 << 16).decode(errors="replace"), status, {})
        return why_ended(run, self._pages) or Unavailable(
            "kernel-crashed", "it ended before its input did"
        )


def why_ended(
    run: perf.Run, pages: str, cpu: int | None = None, what: str = ""
) -> Unavailable | None:
    """Why a kernel's process gave no answer; None where it may have given one. what: of which
    point, in words.

    Under perf a killed kernel shows as empty output and status 0.
    """
    last = (run.stderr.strip().splitlines() or [""])[-1]
    if run.status == 3 or (not run.stdout.strip() and last.startswith("{")):
        return lack(last)
    if run.status == 2:
        gone = "not one this process may use" in last and (cpu is None or cpu in CPUS_AT_START)
        return Unavailable("cpu-gone" if gone else "bad-parameter", last[:300])
    killed = _signal_of(run, last)
    if killed == signal.SIGKILL:
        return Unavailable("oom-killed", what)
    if killed == signal.SIGBUS:
        is_pool = PAGES[pages].source == "pool"
        if is_pool and (limits := pools.limits_under(pages, inf)):
            return Unavailable("pool-limited", limits)
        return Unavailable("pool-empty" if is_pool else "memory-short", "SIGBUS while faulting in")
    if run.status or not run.stdout.strip():
        how = (
            f"signal {signal.Signals(killed).name}"
            if killed in iter(signal.Signals)
            else f"exit status {run.status}"
        )
        return Unavailable("kernel-crashed", f"{how}; {last[:200]}" if last else how)
    return None


def lack(text: str) -> Unavailable:
    """What a kernel says that it lacks: {"reason": CODE, "detail": TEXT}."""
    try:
        said = json.loads(text)
        reason, detail = str(said["reason"]), str(said.get("detail", ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        reason, detail = "", text[:200]
    if reason == "thp-never" and not settings.has_thp():
        reason = "setting-absent"  # the program sees only that madvise is refused
    return (
        Unavailable(reason, detail) if reason in REASONS else Unavailable("kernel-garbage", detail)
    )


def _signal_of(run: perf.Run, last: str) -> int:
    """The signal that ended the kernel, 0 for none. perf exits 0 and leaves its name as the last
    word on stderr."""
    if run.status < 0 or 128 < run.status < 128 + signal.NSIG:
        return -run.status if run.status < 0 else run.status - 128
    if run.status == 1 and last.startswith(UNSHARE_WAS_KILLED):
        return signal.SIGKILL
    named = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
    return (
        named.get(last.rpartition(": ")[2].removesuffix(" (core dumped)"), 0)
        if not run.stdout.strip()
        else 0
    )
