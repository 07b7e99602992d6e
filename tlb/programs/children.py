"""Start a program in a session of its own, read what it writes, and wait for its end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tlb.programs.guard import watched_over
from tlb.reasons import Unavailable

GRACE_S = 2.0  # between SIGTERM and SIGKILL
_CHUNK_BYTES = 1 << 20  # the largest pipe of an ordinary user (fs.pipe-max-size)
_KEPT_BYTES = 1 << 16  # of an output's beginning and of its end, where a number is looked for


class Written(NamedTuple):
    """What a program wrote to a stream. digest_of_words: without digits, which times and addresses
    do not change."""

    size_bytes: int
    digest: str
    digest_of_words: str


class Stream:
    """An output of a program: hashed, counted, and dropped except for its beginning and its end."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd, self.size_bytes, self.head, self.tail = fd, 0, b"", b""
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
        self.tail = (self.tail + chunk[-_KEPT_BYTES:])[-_KEPT_BYTES:]
        return len(chunk)

    @property
    def written(self) -> Written:
        return Written(self.size_bytes, self._all.hexdigest(), self._words.hexdigest())

    @property
    def kept(self) -> tuple[str, str]:
        """The end of the output and its beginning."""
        return self.tail.decode("utf-8", "replace"), self.head.decode("utf-8", "replace")

    def number(self, metric: re.Pattern[str]) -> float | None:
        """Return the last number in the pattern's group, from the end or else the beginning."""
        for kept in self.kept:
            for found in reversed(list(metric.finditer(kept))):
                with contextlib.suppress(ValueError, TypeError):
                    return float(found[1].replace(",", ""))
        return None


@contextlib.contextmanager
def started(
    command: list[str],
    environment: Mapping[str, str],
    starting: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    output: int = subprocess.PIPE,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own, so that Ctrl-C in the terminal reaches only this
    process, which ends the program in order. On exit the pipes are closed; nothing is waited for.

    Raises Unavailable("program-missing")."""
    try:
        with starting():
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                bufsize=0,
                start_new_session=True,
                env=os.environ | environment,
            )
    except (OSError, ValueError) as error:  # ValueError: a word with a NUL in it
        why = getattr(error, "strerror", None) or error
        raise Unavailable("program-missing", f"{command[0]}: {why}") from None
    try:
        with watched_over(child.pid):
            yield child
    finally:
        for pipe in filter(None, (child.stdout, child.stderr)):
            pipe.close()
        # Otherwise Popen would wait for a child that somebody else has reaped.
        child.returncode = -signal.SIGKILL if child.returncode is None else child.returncode


def streams_of(child: subprocess.Popen[bytes]) -> list[Stream]:
    return [Stream(pipe.fileno()) for pipe in (child.stdout, child.stderr)]


def drain(pid: int, streams: list[Stream], limit_s: float) -> None:
    """Read streams until the process ends. Raises Unavailable("program-endless") at limit_s of the
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
                raise Unavailable("program-endless")
            for key, _ in ready:
                if not key.data.read():
                    waiting.unregister(key.fd)


def read_rest(streams: list[Stream]) -> None:
    """Read what is still in the pipes of a program that has ended."""
    for stream in streams:
        while stream.read() > 0:
            pass


@contextlib.contextmanager
def pidfd(pid: int) -> Iterator[int]:
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)
