"""Run the programs of kernels/housekeeping/: first touches in fragmented memory, short-lived
programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from tlb.measure import build
from tlb.measure.session import lack
from tlb.system.processes import PROBE_S, run_whole
from tlb.system.reasons import Unavailable

_FOLDER = build.KERNELS / "housekeeping"


class Run(BaseModel, extra="forbid", frozen=True):
    """One run of first touches, ns: the first base page of each block, and quantiles over all.

    large: blocks that got a large page; room_ns: the mean of all touches of a block.
    """

    first_ns: tuple[int, ...]
    large: int
    room_ns: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    longest_ns: int

    @property
    def large_share(self) -> float:
        """The share of blocks that got a large page."""
        return self.large / len(self.first_ns)


class Memory(NamedTuple):
    """A running `fragments`: memory as it is, or fragmented."""

    process: subprocess.Popen[str]

    def plug(self) -> None:
        """Take the free large pages that there are by now. Raises Unavailable."""
        self._asked("plug")

    def touch(self, pages: str, rooms: int) -> Run:
        """Time first touches on "4k" or "thp". Raises Unavailable."""
        try:
            return Run.model_validate(self._asked(f"touch {pages} {rooms}"))
        except ValidationError as error:
            raise Unavailable("kernel-garbage", str(error.errors()[0]["msg"])) from None

    def _asked(self, line: str) -> dict[str, Any]:
        with suppress(OSError):  # where it ended, its last line says why
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return its next line. Raises Unavailable: its own reason, memory-short if it was
        killed."""
        return _parsed(self.process.stdout.readline())


def _parsed(line: str) -> dict[str, Any]:
    line = line or '{"reason": "memory-short", "detail": "it was ended"}'
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable("kernel-garbage", line[:80])
    if "reason" in answer:
        raise lack(line)
    return answer


@contextmanager
def memory(room_bytes: int, fill_bytes: int, leave_bytes: int) -> Iterator[Memory]:
    """Yield memory of which `fill_bytes` are fragmented, with no large page free; 0 leaves it as it
    is.

    `leave_bytes` stay available. Raises Unavailable: memory-whole, thp-never, no-compiler.
    """
    command = [
        str(build.program(_FOLDER / "fragments.c")),
        *map(str, (room_bytes, fill_bytes, leave_bytes)),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        made = Memory(process)
        made.answer()
        yield made
    finally:
        process.kill()
        with suppress(BrokenPipeError):  # what it was not told any more
            process.stdin.close()
        process.stdout.close()
        process.wait()


def lives(room_bytes: int, size_bytes: int, rounds: int) -> dict[str, list[int]]:
    """Return ns of programs that write so many bytes and end, by page size. Raises Unavailable."""
    command: Sequence[str] = [
        str(build.program(_FOLDER / "short_lived.c")),
        *map(str, (room_bytes, size_bytes, rounds)),
    ]
    try:
        done = run_whole(command, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        raise Unavailable("memory-short", f"no answer in {PROBE_S:.0f} s") from None
    times: dict[str, list[int]] = {"4k": [], "thp": []}
    for line in done.stdout.splitlines() or [""]:
        answer = _parsed(line)
        times[answer["pages"]].append(int(answer["ns"]))
    return times
