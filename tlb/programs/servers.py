"""Drive a server: wait until it is ready, run its driver, and stop it. The driver is what is timed;
levers and snapshots are of the server."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tlb.programs import children, snapshots
from tlb.programs.children import Stream
from tlb.system import processes, procfs
from tlb.system.reasons import Unavailable

_POLL_S = 0.01
# Polls in a row that see no process of a server before it counts as ended: /proc is read one
# process after the other, so a process that forks into the background can be missed.
_UNSEEN = 3
_LISTENS, _ACCEPTS = "0A", 0x10000  # TCP_LISTEN in /proc/net/tcp, __SO_ACCEPTCON in /proc/net/unix
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")


class Driver(NamedTuple):
    """A command that is run against a server. ready: what the server writes once it is ready; None:
    it is ready once it listens."""

    command: list[str]
    ready: re.Pattern[str] | None = None


class ServerProcesses:
    """Calling it gives the program's processes and whether each runs, without those of a driver."""

    def __init__(self) -> None:
        self._before = set(processes.descendants(os.getpid()))
        self._driver: int | None = None
        # While the driver starts and its PID is unknown: all processes that were there before.
        self._older: set[int] | None = None

    def all(self) -> dict[int, bool]:
        """Return the processes, with the driver's."""
        return snapshots.own_processes(self._before)

    def __call__(self) -> dict[int, bool]:
        # `_older` is read after the list: a driver in the list has been announced by then.
        mine, older, driver = self.all(), self._older, self._driver
        drivers = {driver, *processes.descendants(driver)} if driver else set()
        return {
            pid: runs
            for pid, runs in mine.items()
            if pid not in drivers and (older is None or pid in older)
        }

    def driver_starts(self) -> None:
        self._older = set(self.all())

    def driver_started(self, pid: int) -> None:
        self._driver, self._older = pid, None


def drive(
    driver: Driver, server: ServerProcesses, logs: list[Stream], limit_s: float
) -> tuple[int, float, list[Stream]]:
    """Run a driver to its end while the server's output is read. Return its exit code, its time and
    its output."""
    server.driver_starts()
    begin_s = time.monotonic()
    with children.started(driver.command, {}) as child:
        server.driver_started(child.pid)
        output = children.streams_of(child)
        children.drain(child.pid, [*output, *logs], begin_s + limit_s)
        elapsed_s = time.monotonic() - begin_s
        child.returncode = os.waitstatus_to_exitcode(os.wait4(child.pid, 0)[1])
        children.read_rest(output)
    return child.returncode, elapsed_s, output


def wait_until_ready(
    logs: list[Stream], driver: Driver, server: Callable[[], dict[int, bool]], limit_s: float
) -> None:
    """Read a server's output until it is ready. Raises Unavailable: server-ended, and server-silent
    at limit_s of the monotonic clock."""
    unseen = 0
    while True:
        for stream in logs:
            stream.read()
        running = [pid for pid, runs in server().items() if runs]
        unseen = 0 if running else unseen + 1
        pattern, output = driver.ready, [text for stream in logs for text in stream.kept]
        ready = any(map(pattern.search, output)) if pattern else any(map(listens, running))
        if unseen == _UNSEEN:
            raise Unavailable("server-ended", "before it was ready")
        if ready and running:
            return
        if time.monotonic() >= limit_s:
            raise Unavailable("server-silent")
        time.sleep(_POLL_S)


def listens(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a process accepts connections, by TCP or a Unix socket, in its own network
    namespace."""
    accepting = _accepting(proc / str(pid) / "net")
    with contextlib.suppress(OSError):  # it ended, or is another user's
        for entry in (proc / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if (socket := _SOCKET.fullmatch(os.readlink(entry))) and socket[1] in accepting:
                    return True
    return False


def _accepting(net: Path) -> set[str]:
    """Return the inodes of the sockets that accept connections."""

    def rows(name: str) -> Iterable[list[str]]:
        return (line.split() for line in islice(procfs.lines(net / name), 1, None))

    tcp = [row for name in ("tcp", "tcp6") for row in rows(name) if len(row) > 9]
    unix = [row for row in rows("unix") if len(row) > 6]
    return {row[9] for row in tcp if row[3] == _LISTENS} | {
        row[6] for row in unix if int(row[3], 16) & _ACCEPTS
    }


def stop_server(server: subprocess.Popen[bytes]) -> bool:
    """Send SIGTERM, and SIGKILL after a while. Return whether it had to be killed.

    Raises Unavailable("server-ended") if it had failed before: its driver's result says nothing."""
    with children.pidfd(server.pid) as fd:
        if select.select([fd], [], [], 0)[0]:
            end = os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
            if end.si_status:  # exit code, or the signal that ended it
                name = None if end.si_code == os.CLD_EXITED else signal.strsignal(end.si_status)
                raise Unavailable("server-ended", name or f"with status {end.si_status}")
            return False
        signal.pidfd_send_signal(fd, signal.SIGTERM)
        if select.select([fd], [], [], children.GRACE_S)[0]:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
