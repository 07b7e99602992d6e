"""The gate by which a kernel tells perf when its timed region begins and ends."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from typing import IO

from tlb.system.processes import status_within

ACK = b"ack\n\0"  # perf's answer, of five bytes


class Gate:
    """The two pipes of a gate: the kernel's commands, and the acknowledgements of whoever
    counts."""

    def __init__(self) -> None:
        self.said, self._control = os.pipe()  # what the kernel says, and where it writes that
        self._ack, self._answer = os.pipe()
        self.fds = (self.said, self._control, self._ack, self._answer)

    @property
    def kernel_words(self) -> list[str]:
        return ["--perf-fds", f"{self._control},{self._ack}"]

    @property
    def perf_words(self) -> list[str]:
        return ["--delay=-1", "--control", f"fd:{self.said},{self._answer}"]

    def answer(self) -> None:
        """Acknowledge to the kernel where nobody counts."""
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
        status_within(by, 0)
        if select.select([self.said], [], [], 0)[0]:
            os.read(self.said, 100)
        return False

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            os.close(fd)


def output_file() -> IO[str]:
    """Return a file in memory for perf's counts: a runner killed with -9 leaves nothing behind."""
    return os.fdopen(os.memfd_create("tlb-perf"), "r+", errors="replace")


def plain_locale() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}  # elsewhere perf may print decimal commas


def dying_with_us(command: list[str]) -> list[str]:
    """Return the command, to be killed when this process ends: perf would outlive a killed
    runner."""
    return (
        [setpriv, "--pdeathsig", "KILL", "--", *command]
        if (setpriv := shutil.which("setpriv"))
        else command
    )
