"""A process that is ended with all that it started, and a thread that runs on one CPU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any


def run_whole(command: Sequence[str], *, timeout: float | None, **how: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with its output captured, in a session of its own: on a time limit (subprocess.TimeoutExpired), Ctrl-C or
    any other end of the wait everything that the command started is killed, which `subprocess.run` leaves alive.

    Raises OSError where the command does not start. `how` are arguments of subprocess.Popen.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                          errors="replace", start_new_session=True, **how) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, child.returncode, stdout, stderr)


@contextlib.contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """This thread runs on one CPU alone meanwhile; a system that pins no threads leaves it where it is. Raises OSError where the
    thread may not run there."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
