"""One run of a program from its start to its end, with nothing of it left: its time, what it wrote,
what the kernel counted of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from tlb.programs import looks
from tlb.programs.guard import watched_over
from tlb.programs.levers import Joined, Lever
from tlb.programs.looks import Look
from tlb.reasons import Unavailable
from tlb.system import processes

GRACE_S = 2.0  # between asking a process to end and killing it
_CHUNK_BYTES = 1 << 20  # the largest pipe of an ordinary user (fs.pipe-max-size)
_KEPT_BYTES = (
    1 << 16
)  # of what a program writes, at its beginning and at its end: where a number is looked for
_DIGITS = b"0123456789"


class Written(NamedTuple):
    """What a program wrote to a stream: how much, its digest, and that of the same without digits,
    which times and addresses do not change."""

    size_bytes: int
    digest: str
    digest_of_words: str


class Run(NamedTuple):
    """One run. status: its exit code, or less than zero for the signal that ended it. value: the
    number that it printed. left: how many processes it left running. Faults and cpu_s are of all
    its processes that it waited for. Of a server with a driver, the first four are the driver's and
    the rest the server's; killed: whether that had to be, since it did not end when asked."""

    elapsed_s: float
    status: int
    value: float | None
    written: tuple[Written, Written]  # stdout, stderr
    minor_faults: int
    major_faults: int
    cpu_s: float
    looks: tuple[Look, ...]
    left: int
    joined: Joined | None
    killed: bool = False


class Stream:
    """What a program writes to a pipe: hashed, counted, and dropped but for its beginning and its
    end."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd, self.size_bytes, self.head, self.tail = fd, 0, b"", b""
        self._all, self._words = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)

    def read(self) -> int:
        """Takes what is there; 0 at the end, and -1 where there is nothing yet."""
        try:
            chunk = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return -1
        self.size_bytes += len(chunk)
        self._all.update(chunk)
        self._words.update(chunk.translate(None, _DIGITS))
        self.head += chunk[: _KEPT_BYTES - len(self.head)]
        self.tail = (self.tail + chunk[-_KEPT_BYTES:])[-_KEPT_BYTES:]
        return len(chunk)

    @property
    def written(self) -> Written:
        return Written(self.size_bytes, self._all.hexdigest(), self._words.hexdigest())

    def number(self, metric: re.Pattern[str]) -> float | None:
        """The last number that the pattern's group finds at the end of what was written, or else at
        its beginning."""
        for kept in (self.tail, self.head):
            for found in reversed(list(metric.finditer(kept.decode("utf-8", "replace")))):
                with contextlib.suppress(ValueError, TypeError):
                    return float(found[1].replace(",", ""))
        return None


def run(
    command: list[str],
    lever: Lever,
    *,
    limit_s: float,
    share: float,
    metric: re.Pattern[str] | None = None,
    after_s: float = 0.0,
) -> Run:
    """Runs a command with a lever, without a shell, with nothing to read; share: of the time that
    looks may take; after_s: when a lever that acts from outside acts.

    Raises Unavailable: program-missing, program-endless after limit_s. However this ends, none of
    the program's processes is left.
    """
    mine = partial(looks.own, set(processes.descendants(os.getpid())))
    seen: list[Look] = []
    joined: list[Joined] = []
    with processes.adopting(), lever.around() as environment:
        start_s = time.monotonic()
        try:
            with (
                started(command, environment, lever.starting) as child,
                beside(lever, mine, seen, joined, start_s, share, after_s),
            ):
                streams = [Stream(pipe.fileno()) for pipe in (child.stdout, child.stderr)]
                drain(child.pid, streams, start_s + limit_s)
                elapsed_s = time.monotonic() - start_s
                _, status, used = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(
                    status
                )  # else Popen waits for a child that is gone
                left = processes.end(mine, GRACE_S)
                for stream in streams:  # what was still in the pipe
                    while stream.read() > 0:
                        pass
        except BaseException:
            processes.end(mine, GRACE_S)
            raise
    return Run(
        elapsed_s,
        child.returncode,
        printed(streams, metric),
        (streams[0].written, streams[1].written),
        used.ru_minflt,
        used.ru_majflt,
        used.ru_utime + used.ru_stime,
        tuple(seen),
        left,
        joined[0] if joined else None,
    )


def printed(streams: list[Stream], metric: re.Pattern[str] | None) -> float | None:
    """The number that --metric looks for, of the first stream that has it."""
    return next(
        (number for stream in streams if metric and (number := stream.number(metric)) is not None),
        None,
    )


@contextlib.contextmanager
def started(
    command: list[str],
    environment: Mapping[str, str],
    starting: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in a session of its own, so that the terminal's Ctrl-C reaches us alone,
    who end it in order. The pipes are closed after; the process is not waited for."""
    try:
        with starting():
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=os.environ | environment,
            )
    except (OSError, ValueError) as why:  # ValueError: a word with a NUL in it
        raise Unavailable(
            "program-missing", f"{command[0]}: {getattr(why, 'strerror', None) or why}"
        ) from None
    try:
        with watched_over(child.pid):
            yield child
    finally:
        child.stdout.close()
        child.stderr.close()
        child.returncode = -signal.SIGKILL if child.returncode is None else child.returncode


@contextlib.contextmanager
def beside(
    lever: Lever,
    mine: Callable[[], dict[int, bool]],
    seen: list[Look],
    joined: list[Joined],
    start_s: float,
    share: float,
    after_s: float,
) -> Iterator[None]:
    """Looks at the program meanwhile, and lets a lever act on it that acts from outside."""
    stop = threading.Event()

    def act() -> None:
        joined.append(lever.acts(mine, start_s, after_s, stop))
        seen.append(
            looks.of(mine(), lever.reached, start_s)
        )  # the next look of the others may come too late

    threads = [
        threading.Thread(target=looks.watch, args=(seen, mine, lever.reached, start_s, share, stop))
    ]
    threads += [threading.Thread(target=act)] if lever.acts else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def drain(pid: int, streams: list[Stream], limit_s: float) -> None:
    """Reads what a process writes until it ends. Raises Unavailable("program-endless") at limit_s
    of the clock."""
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


@contextlib.contextmanager
def pidfd(pid: int) -> Iterator[int]:
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)
