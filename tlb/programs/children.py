"""Start a program in a session of its own, read what it writes, and wait for its end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import NamedTuple

from tlb.machine.memory import cgroup_limits
from tlb.programs.executable import reason_against_start
from tlb.programs.guard import killed_by_guard_if_orphaned
from tlb.system import processes
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

GRACE_S = 2.0  # between SIGTERM and SIGKILL
_CHUNK_BYTES = 1 << 20  # the largest pipe of an ordinary user (fs.pipe-max-size)
# Of an output's beginning, and of its end, where numbers are looked for: a line for each of ten
# thousands of requests.
_KEPT_BYTES = 1 << 20
_SHOWN_LINES = 20  # of the stderr of a program that failed
# A number with commas: between groups of digits (1,234.5; in India 12,34,567), or before decimals,
# with points between the groups (1.234,5). 1,234 is both.
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{2,3})*,\d{3}(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
_DECIMAL = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?", re.IGNORECASE)


class OutputDigest(NamedTuple):
    """What a program wrote to a stream. digest_of_words: without digits, which times and addresses
    do not change."""

    size_bytes: int
    digest: str
    digest_of_words: str


class PrintedNumber(NamedTuple):
    """A printed number by both meanings of a comma: between thousands (1,250 is 1250), and before
    decimals (1.25). is_decimal: whether the output has a number of the second kind alone, as 0,25."""

    grouped: float
    decimal: float
    is_decimal: bool = False


class ProgramOutput:
    """An output of a program: hashed, counted, and dropped except for its beginning and its end.
    is_shown: whether it is copied to this process's stderr."""

    def __init__(self, fd: int, is_shown: bool = False) -> None:
        os.set_blocking(fd, False)
        self.fd, self.size_bytes, self.head, self.tail = fd, 0, bytearray(), bytearray()
        self.is_shown = is_shown
        self._all, self._words = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)

    def read(self) -> int:
        """Read what is there. Return its size: 0 at the end, -1 if nothing is there yet."""
        try:
            chunk = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return -1
        self.size_bytes += len(chunk)
        self._all.update(chunk)
        self._words.update(chunk.translate(None, b"0123456789"))
        self.head += chunk[: _KEPT_BYTES - len(self.head)]
        self.tail += chunk
        del self.tail[:-_KEPT_BYTES]
        if self.is_shown:
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
        return len(chunk)

    @property
    def written(self) -> OutputDigest:
        return OutputDigest(self.size_bytes, self._all.hexdigest(), self._words.hexdigest())

    @property
    def kept(self) -> tuple[str, str]:
        """The end of the output and its beginning."""
        return self.tail.decode("utf-8", "replace"), self.head.decode("utf-8", "replace")

    @property
    def last_lines(self) -> str:
        return "\n".join(self.kept[0].splitlines()[-_SHOWN_LINES:])

    def number(
        self, metric: re.Pattern[str], quantile: float | None = None
    ) -> PrintedNumber | None:
        """Return the last number in the pattern's group, from the end or else the beginning; or a
        quantile of all numbers there, None if not all of the output was kept."""
        for kept in self.kept[: 1 if quantile else 2]:
            numbers = [*_numbers(metric, kept)]
            if not numbers or (quantile and self.size_bytes > _KEPT_BYTES):
                continue
            grouped, decimal, are_decimal = zip(*numbers, strict=True)
            if quantile is None:
                return PrintedNumber(grouped[-1], decimal[-1], any(are_decimal))
            place = ceil(quantile * len(numbers)) - 1
            return PrintedNumber(sorted(grouped)[place], sorted(decimal)[place], any(are_decimal))
        return None


def _numbers(metric: re.Pattern[str], text: str) -> Iterator[PrintedNumber]:
    for found in metric.finditer(text):
        with contextlib.suppress(ValueError, AttributeError):  # AttributeError: an empty group
            yield parsed_number(found[1].strip())


def parsed_number(text: str) -> PrintedNumber:
    """Return a number by both meanings of its comma, which are equal unless it fits both. Raises
    ValueError for what is no number."""
    if "," not in text:
        return PrintedNumber(float(text), float(text))
    readings = []
    if _GROUPED.fullmatch(text):
        readings.append(float(text.replace(",", "")))
    if _DECIMAL.fullmatch(text):
        readings.append(float(text.replace(".", "").replace(",", ".")))
    if not readings:
        raise ValueError(f"{text} is no number")
    return PrintedNumber(readings[0], readings[-1], not _GROUPED.fullmatch(text))


@contextlib.contextmanager
def started(
    command: list[str],
    environment: Mapping[str, str],
    starting: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    output: int = subprocess.PIPE,
    input_file: Path = Path(os.devnull),
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own, so that Ctrl-C in the terminal reaches only this
    process, which ends the program in order. On exit the pipes are closed; nothing is waited for.

    Raises Unavailable: program-missing, bad-parameter for an input that cannot be read."""
    try:
        given = input_file.open("rb")
    except OSError as error:
        raise Unavailable("bad-parameter", f"--input {input_file}: {error.strerror}") from None
    try:
        with starting(), given:
            child = subprocess.Popen(
                command,
                stdin=given,
                stdout=output,
                stderr=output,
                bufsize=0,
                start_new_session=True,
                env=os.environ | environment,
            )
    except (OSError, ValueError) as error:  # ValueError: a word with a NUL in it
        why = reason_against_start(command[0]) or getattr(error, "strerror", None) or error
        raise Unavailable("program-missing", f"{command[0]}: {why}") from None
    processes.end_first(child.pid)  # and not the command that reports it
    try:
        with killed_by_guard_if_orphaned(child.pid):
            yield child
    finally:
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()
        # Otherwise Popen would wait for a child that somebody else has reaped.
        child.returncode = -signal.SIGKILL if child.returncode is None else child.returncode


def signal_in_words(status: int) -> str:
    """Return which signal has ended a program, by its negative exit code, with the limits for which
    Linux sends it: SIGKILL where memory runs out, SIGBUS where pages of a pool do."""
    name = signal.strsignal(-status) or f"signal {-status}"
    controllers: dict[int, str] = {signal.SIGKILL: "memory", signal.SIGBUS: "hugetlb"}
    controller = controllers.get(-status)
    limits = cgroup_limits(Path("/"), controller) if controller else {}
    return ", ".join([name, *(f"{file} is {format_size(most)}" for file, most in limits.items())])


def streams_of(child: subprocess.Popen[bytes], are_shown: bool = False) -> list[ProgramOutput]:
    pipes = [pipe for pipe in (child.stdout, child.stderr) if pipe]
    return [ProgramOutput(pipe.fileno(), are_shown) for pipe in pipes]


def drain(pid: int, streams: list[ProgramOutput], limit_s: float) -> None:
    """Read streams until the process ends. Raises Unavailable("no-time") at limit_s of the
    monotonic clock."""
    with selectors.DefaultSelector() as waiting, pidfd(pid) as ended:
        waiting.register(ended, selectors.EVENT_READ)
        for stream in streams:
            waiting.register(stream.fd, selectors.EVENT_READ, stream)
        while True:
            ready = waiting.select(max(limit_s - time.monotonic(), 0))
            if any(key.data is None for key, _ in ready):
                return
            if not ready and time.monotonic() >= limit_s:
                raise Unavailable(
                    "no-time",
                    "one run of the program did not end",
                    "Give the program less to do, or more time with --minutes; a server needs a --driver.",
                )
            for key, _ in ready:
                if not key.data.read():
                    waiting.unregister(key.fd)


def read_rest(streams: list[ProgramOutput]) -> None:
    """Read what is still in the pipes of a program that has ended."""
    for stream in streams:
        while stream.read() > 0:
            pass


def no_pidfd(why: str) -> Unavailable:
    """Return why this process gets no file descriptor of a process."""
    return Unavailable(
        "linux-lacks",
        f"pidfd_open: {why}",
        "Use Linux 5.3 or newer; in a container, a seccomp profile that allows the call.",
    )


@contextlib.contextmanager
def pidfd(pid: int) -> Iterator[int]:
    """Yield a file descriptor of a process. Raises ProcessLookupError, and Unavailable("linux-lacks")
    where Linux or a seccomp profile refuses."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        raise no_pidfd(str(error.strerror)) from None
    try:
        yield fd
    finally:
        os.close(fd)
