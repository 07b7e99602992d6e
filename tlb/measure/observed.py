"""Run a program that prints one line and waits, and read its smaps and status meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tlb.measure.toolchains import environment
from tlb.system import procfs
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable

# a program takes a second or two; under load ten times more; beyond that it hangs
TIME_LIMIT_S = 120.0
# the exit status of a program that the kernel refuses what it asks for; programs may have more such
REFUSED = 3


class Watched(NamedTuple):
    """A program's line, and its /proc smaps and status while it waited."""

    line: bytes
    smaps: str
    status: str


def watch(
    command: Sequence[str], refused: Mapping[int, str], pass_fds: Sequence[int] = ()
) -> Watched:
    """Run a program to its line, read its smaps, let it end. Nothing of it outlives the call.

    refused: reason codes by exit status. Raises Unavailable: those, kernel-hung, kernel-garbage,
    oom-killed, kernel-crashed.
    """
    name = Path(command[0]).name
    with tempfile.TemporaryFile() as stderr:
        child = _started(command, stderr, pass_fds)
        late = threading.Event()

        def end_late() -> None:
            late.set()
            _end(child)

        watchdog = threading.Timer(TIME_LIMIT_S, end_late)
        watchdog.start()
        with child:
            try:
                ran, more = _listen(child)
                code = child.wait() if not more else 0
            finally:
                watchdog.cancel()
                _end(child)
                watchdog.join()
        last = _last_line(stderr)
    if late.is_set():
        raise Unavailable("kernel-hung", f"{name} gave no answer in {TIME_LIMIT_S:.0f} s")
    if more:
        raise Unavailable("kernel-garbage", "more than one line")
    if code in refused:
        raise Unavailable(refused[code], last or "the kernel refuses it")
    if code == -signal.SIGKILL:
        raise Unavailable("oom-killed", name)
    if code or not ran.line:
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        raise Unavailable("kernel-crashed", "; ".join(filter(None, (how, last))))
    return ran


def _started(
    command: Sequence[str], stderr: IO[bytes], pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    try:  # without buffers, of which nothing is left to write to one that has ended
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=ROOT,
            bufsize=0,
            start_new_session=True,
            env=environment(),
            pass_fds=tuple(pass_fds),
        )
    except OSError as error:
        name = Path(command[0]).name
        raise Unavailable("kernel-crashed", f"{name}: {error.strerror}") from None


def _last_line(stderr: IO[bytes]) -> str:
    """Return the last line of what was printed, "" for nothing."""
    stderr.seek(0)
    lines = stderr.read(1 << 16).decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _listen(child: subprocess.Popen[bytes]) -> tuple[Watched, bytes]:
    """Return what a program printed, and the first byte beyond its line."""
    assert child.stdin and child.stdout  # pipes
    line = child.stdout.readline(1 << 16)
    smaps = status = ""
    if line.endswith(b"\n"):
        with contextlib.suppress(OSError):  # it has ended: its exit status says why
            with open(f"/proc/{child.pid}/smaps", errors="replace", newline="\n") as file:
                smaps = file.read()
            status = procfs.text(Path(f"/proc/{child.pid}/status"))
        with contextlib.suppress(OSError):
            child.stdin.write(b"\n")
    return Watched(line, smaps, status), child.stdout.read(1)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a program with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
