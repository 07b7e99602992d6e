"""A process that is ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
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
