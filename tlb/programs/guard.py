"""Kill a program under test when the command that started it is killed: SIGKILL leaves that command
no time to do so itself.

The guard is a process of its own. It knows the running programs from a pipe, whose end tells it
that the command is gone. PR_SET_PDEATHSIG would need code between fork and exec: that fork takes 8
to 17 ms of a program's time here, where vfork takes 0.6, and the signal reaches the program alone
and nothing that it has started. The guard reaches what a program has started and what shares its
session; not a daemon that has left both. It first puts back the settings of Linux that a lever
changed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tlb.system.files import ROOT, SETTINGS_JOURNAL
from tlb.system.processes import process_descendants
from tlb.system.reasons import Unavailable

_LIMIT_S = 10.0  # for SIGKILL to act; what hangs in the kernel outlives it
_PAUSE_S = 0.01
_guards: list[IO[bytes]] = []


@contextlib.contextmanager
def running_guard() -> Iterator[None]:
    """Keep a guard running meanwhile: programs inside `killed_by_guard_if_orphaned` are killed if this process
    ends without ending them."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    ) as process:  # no signal of the terminal reaches it
        assert process.stdin is not None  # a pipe
        _guards.append(process.stdin)
        try:
            yield
        finally:
            _guards.pop()


@contextlib.contextmanager
def killed_by_guard_if_orphaned(pid: int) -> Iterator[None]:
    """Have the guard, where there is one, kill a program that was started with a session of its
    own."""
    _tell(f"+{pid}")
    try:
        yield
    finally:
        _tell(f"-{pid}")


def _tell(line: str) -> None:
    if _guards:
        with contextlib.suppress(OSError):  # it was killed, and the program is run without it
            _guards[-1].write(f"{line}\n".encode())


def main() -> None:
    """Read which programs start and end; at the end of the input, put settings back and kill those
    that still run."""
    programs = set[int]()
    for line in sys.stdin.buffer:
        change = programs.add if line.startswith(b"+") else programs.discard
        change(int(line[1:]))
    if Path("/", SETTINGS_JOURNAL).exists():
        from tlb.machine import (
            changed_settings,  # half a second to import, which most ends need not take
        )

        with contextlib.suppress(Unavailable):
            changed_settings.restore(Path("/"), "try")
    limit_s = time.monotonic() + _LIMIT_S
    while (left := members(programs)) and time.monotonic() < limit_s:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def members(programs: set[int]) -> set[int]:
    """Return the running processes that are one of these programs, were started by one, or are in
    the session of one."""
    if not programs:
        return set()
    running = {pid for pid, runs in process_descendants(0).items() if runs}
    started = {pid for program in programs for pid in process_descendants(program)}
    return running & (programs | started | {pid for pid in running if _session(pid) in programs})


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # it has ended
        return None


if __name__ == "__main__":
    main()
