"""The gate of a kernel: how it tells whoever counts that its timed region begins and ends; and what
every perf is started with."""

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
    """The two pipes by which a kernel says when its timed region begins and ends, and is answered
    by whoever counts."""

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
        """Answer the kernel where nobody counts."""
        for _ in range(os.read(self.said, 100).count(b"\n")):
            os.write(self._answer, ACK)

    def is_heard(self, by: subprocess.Popen, timeout_s: float) -> bool:
        """Whether this perf answers: then it has opened its events and waits for the kernel. Else
        nothing is left to be answered."""
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
    """Where a perf prints its counts. In memory, so that a runner killed with -9 leaves no file
    behind; perf opens it by name, and has no other way."""
    return os.fdopen(os.memfd_create("tlb-perf"), "r+", errors="replace")


def plain_locale() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}  # elsewhere perf may print decimal commas


def dying_with_us(command: list[str]) -> list[str]:
    """The command, killed as this process ends: a perf would outlive a runner killed with -9, and
    the kernel with it."""
    return (
        [setpriv, "--pdeathsig", "KILL", "--", *command]
        if (setpriv := shutil.which("setpriv"))
        else command
    )
