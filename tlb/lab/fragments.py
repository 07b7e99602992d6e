"""Two programs of kernels/housekeeping/ and what they print: memory in pieces with first touches in
it, and programs that live briefly."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from tlb.lab import build
from tlb.reasons import REASONS, Unavailable
from tlb.system.processes import run_whole

_FOLDER = build.KERNELS / "housekeeping"
SECONDS = 60  # a program of some MiB has ended long before


class Run(BaseModel, extra="forbid", frozen=True):
    """One run of first touches: of each room's first base page, and quantiles over all base pages,
    in ns. large: how many rooms got a large page; room_ns: of all touches of a room, on average."""

    first_ns: tuple[int, ...]
    large: int
    room_ns: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    longest_ns: int

    @property
    def large_share(self) -> float:
        """Which part of the rooms got a large page, 0 to 1."""
        return self.large / len(self.first_ns)


class Memory(NamedTuple):
    """A running `fragments`: memory as it is, or in pieces."""

    process: subprocess.Popen[str]

    def plug(self) -> None:
        """Takes the free large pages that there are by now. Raises Unavailable."""
        self._asked("plug")

    def touch(self, pages: str, rooms: int) -> Run:
        """First touches, on "4k" or "thp". Raises Unavailable."""
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
        """Its next line. Raises Unavailable: its own reason, or memory-short where it was ended."""
        return _parsed(self.process.stdout.readline())


def _parsed(line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line) if line else {"reason": "memory-short", "detail": "it was ended"}
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable("kernel-garbage", line[:80])
    if "reason" in answer:
        code = answer["reason"]
        raise Unavailable(
            code if code in REASONS else "kernel-garbage", str(answer.get("detail", ""))
        )
    return answer


@contextmanager
def memory(room_bytes: int, fill_bytes: int, leave_bytes: int) -> Iterator[Memory]:
    """Memory of which `fill_bytes` lie in pieces and nothing else is free as a large page; 0 leaves
    it as it is. `leave_bytes` stay available all the while. All is given back at the end. Raises
    Unavailable: memory-whole, thp-never, no-compiler."""
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
    """ns of programs that write so many bytes and end, by page size, in turns. Raises Unavailable."""
    command: Sequence[str] = [
        str(build.program(_FOLDER / "short_lived.c")),
        *map(str, (room_bytes, size_bytes, rounds)),
    ]
    try:
        done = run_whole(command, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable("memory-short", f"no answer in {SECONDS} s") from None
    times: dict[str, list[int]] = {"4k": [], "thp": []}
    for line in done.stdout.splitlines() or [""]:
        answer = _parsed(line)
        times[answer["pages"]].append(int(answer["ns"]))
    return times
