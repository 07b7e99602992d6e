"""One run of a server with a driver: what is measured is the driver, what a lever acts on and what
is looked at is the server."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tlb.programs import looks, runs
from tlb.programs.levers import Joined, Lever
from tlb.programs.looks import Look
from tlb.programs.runs import Run, Stream
from tlb.reasons import Unavailable
from tlb.system import processes, procfs

_ASK_S = 0.01  # between two looks whether a server is ready
# Looks in a row that see no process of a server, until it has ended: /proc is read one process
# after the other, and one that goes into the background meanwhile is in none of what was read.
_UNSEEN = 3
_LISTENS, _ACCEPTS = "0A", 0x10000  # TCP_LISTEN in /proc/net/tcp, __SO_ACCEPTCON in /proc/net/unix
_KEPT = re.compile(r"socket:\[([0-9]+)\]")


class Driver(NamedTuple):
    """What is run against a server. ready: what the server writes once it serves; None: it is ready
    once it listens."""

    command: list[str]
    ready: re.Pattern[str] | None = None


class _Serving:
    """The processes of a server, when called; those of its driver, which runs beside it, are left
    out."""

    def __init__(self) -> None:
        self._before = set(processes.descendants(os.getpid()))
        self._known: list[
            set[int]
        ] = []  # what there is before the driver, until its number is known
        self._driver: list[int] = []

    def all(self) -> dict[int, bool]:
        """With the driver's."""
        return looks.own(self._before)

    def __call__(self) -> dict[int, bool]:
        mine, known = (
            self.all(),
            self._known[:],
        )  # in this order: a driver that is among them is announced, one way or the other
        apart = {pid for first in self._driver for pid in (first, *processes.descendants(first))}
        return {
            pid: runs
            for pid, runs in mine.items()
            if pid not in apart and (not known or pid in known[0])
        }

    @contextlib.contextmanager
    def beside(self, command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
        """The driver, started, and when that was begun."""
        self._known.append(set(self.all()))
        begin_s = time.monotonic()
        with runs.started(command, {}) as child:
            self._driver.append(child.pid)
            self._known.clear()
            yield child, begin_s


def serve(
    command: list[str],
    driver: Driver,
    lever: Lever,
    *,
    limit_s: float,
    share: float,
    metric: re.Pattern[str] | None = None,
    after_s: float = 0.0,
) -> Run:
    """Starts a server with a lever, runs its driver without one once it is ready, and ends it;
    otherwise as `runs.run`.

    Raises Unavailable: program-missing, server-silent and program-endless after limit_s,
    server-ended. However this ends, nothing of the two is left.
    """
    serving = _Serving()
    seen: list[Look] = []
    joined: list[Joined] = []
    with processes.adopting(), lever.around() as environment:
        start_s = time.monotonic()
        try:
            with runs.started(command, environment, lever.starting) as server:
                logs = _streams(server)
                with runs.beside(lever, serving, seen, joined, start_s, share, after_s):
                    _wait_until_ready(logs, driver, serving, start_s + limit_s)
                    status, elapsed_s, told = _driven(driver, serving, logs, limit_s)
                used, killed = _ended(server)
                left = processes.end(serving.all, runs.GRACE_S)
        except BaseException:
            processes.end(serving.all, runs.GRACE_S)
            raise
    return Run(
        elapsed_s,
        status,
        runs.printed(told, metric),
        (told[0].written, told[1].written),
        used.ru_minflt,
        used.ru_majflt,
        used.ru_utime + used.ru_stime,
        tuple(seen),
        left,
        joined[0] if joined else None,
        killed,
    )


def _driven(
    driver: Driver, serving: _Serving, logs: list[Stream], limit_s: float
) -> tuple[int, float, list[Stream]]:
    """Runs a driver to its end, while what the server writes is read: its exit code, its time, and
    what it wrote."""
    with serving.beside(driver.command) as (child, begin_s):
        told = _streams(child)
        runs.drain(child.pid, [*told, *logs], begin_s + limit_s)
        elapsed_s = time.monotonic() - begin_s
        child.returncode = os.waitstatus_to_exitcode(os.wait4(child.pid, 0)[1])
        for stream in told:  # what was still in the pipe
            while stream.read() > 0:
                pass
    return child.returncode, elapsed_s, told


def _streams(child: subprocess.Popen[bytes]) -> list[Stream]:
    return [Stream(pipe.fileno()) for pipe in (child.stdout, child.stderr)]


def _wait_until_ready(
    logs: list[Stream], driver: Driver, serving: Callable[[], dict[int, bool]], limit_s: float
) -> None:
    """Reads what a server writes until it is ready. Raises Unavailable: server-ended, server-silent
    at limit_s of the clock."""
    unseen = 0  # looks in a row
    while True:
        for stream in logs:
            stream.read()
        running = [pid for pid, runs in serving().items() if runs]
        unseen = 0 if running else unseen + 1
        if driver.ready is None:
            ready = any(map(listens, running))
        else:
            ready = any(
                driver.ready.search(kept.decode("utf-8", "replace"))
                for stream in logs
                for kept in (stream.head, stream.tail)
            )
        if unseen == _UNSEEN:
            raise Unavailable("server-ended", "before it was ready")
        if ready and running:
            return
        if time.monotonic() >= limit_s:
            raise Unavailable("server-silent")
        time.sleep(_ASK_S)


def listens(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process waits for others to connect: by TCP or by a Unix socket, in its own
    network."""
    accepting = _accepting(proc / str(pid) / "net")
    with contextlib.suppress(OSError):  # it ended, or is another user's
        for entry in (proc / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if (socket := _KEPT.fullmatch(os.readlink(entry))) and socket[1] in accepting:
                    return True
    return False


def _accepting(net: Path) -> set[str]:
    """The inodes of the sockets that accept connections."""

    def rows(name: str) -> Iterable[list[str]]:
        return (
            words
            for line in procfs.text(net / name, 1 << 24).splitlines()[1:]
            if len(words := line.split()) > 6
        )

    tcp = {
        words[9]
        for name in ("tcp", "tcp6")
        for words in rows(name)
        if words[3] == _LISTENS and len(words) > 9
    }
    return tcp | {words[6] for words in rows("unix") if int(words[3], 16) & _ACCEPTS}


def _ended(server: subprocess.Popen[bytes]) -> tuple[resource.struct_rusage, bool]:
    """Asks a server to end, and kills it after a while. Returns what it used, and whether it had to
    be killed.

    Raises Unavailable("server-ended") where it had ended before, by a fault: what its driver was
    answered says nothing."""
    killed = False
    with runs.pidfd(server.pid) as fd:
        gone = bool(select.select([fd], [], [], 0)[0])
        if not gone:
            signal.pidfd_send_signal(fd, signal.SIGTERM)
            if killed := not select.select([fd], [], [], runs.GRACE_S)[0]:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
    _, status, used = os.wait4(server.pid, 0)
    server.returncode = os.waitstatus_to_exitcode(status)
    if gone and server.returncode:
        raise Unavailable(
            "server-ended",
            f"with the exit code {server.returncode}"
            if server.returncode > 0
            else (signal.strsignal(-server.returncode) or f"signal {-server.returncode}"),
        )
    return used, killed
