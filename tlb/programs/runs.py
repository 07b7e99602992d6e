"""Run a program once, or a server with its driver, and leave no process behind: time, output, what
Linux counted, and snapshots of the memory."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tlb.programs import children, snapshots
from tlb.programs.children import OutputDigest, PrintedNumber, ProgramOutput
from tlb.programs.collapse import CollapseResult, free_huge_bytes
from tlb.programs.levers import Lever
from tlb.programs.snapshots import MemorySnapshot
from tlb.system import processes, procfs
from tlb.system.reasons import Unavailable

if TYPE_CHECKING:
    import resource

PADDING = "TLB_PADDING"  # a variable that no program reads


@dataclass(frozen=True)
class RunConditions:
    """What each run of a command has. input_file: its stdin. prepare: a command that ends before
    it starts. metric: looked for in its output; quantile: of all numbers that match, else the last.
    is_shown: its output is copied to stderr."""

    input_file: Path = Path(os.devnull)
    prepare: tuple[str, ...] = ()
    metric: re.Pattern[str] | None = None
    quantile: float | None = None
    is_shown: bool = False


class RunPlace(NamedTuple):
    """What memory a run found; None where Linux does not say. free_huge_bytes: free in whole huge
    pages before it. stack_offset_bytes: how far into a page its stack began."""

    free_huge_bytes: int | None = None
    stack_offset_bytes: int | None = None


class ProgramRun(NamedTuple):
    """One run. status: exit code, or minus the signal that ended it. number: the one that it
    printed. last_lines: of its stderr. Faults, cpu_s and system_s, which is the part of it that Linux
    took, include children that it waited for. left:
    processes that it left running. With a driver, the first five are the driver's and the rest the
    server's; killed: whether the server ignored SIGTERM. given_bytes: see Lever."""

    elapsed_s: float
    status: int
    number: PrintedNumber | None
    last_lines: str
    written: tuple[OutputDigest, OutputDigest]  # stdout, stderr
    minor_faults: int
    major_faults: int
    cpu_s: float
    snapshots: tuple[MemorySnapshot, ...]
    left: int
    collapsed: CollapseResult | None
    killed: bool = False
    given_bytes: int = 0
    system_s: float = 0.0
    place: RunPlace = RunPlace()


def run_program(
    command: list[str],
    lever: Lever,
    *,
    limit_s: float,
    share: float,
    driver: ServerDriver | None = None,
    conditions: RunConditions = RunConditions(),
    after_s: float = 0.0,
    padding_bytes: int = 0,
) -> ProgramRun:
    """Run a command with a lever, without a shell. With a driver, the command is a server: the
    driver runs without the lever once the server is ready, and is what is timed.

    share: part of the time that snapshots may take. after_s: when a lever acts from outside.
    padding_bytes: of the environment, which moves the stack. Raises Unavailable: program-missing,
    no-time and no-time after limit_s, program-killed, prepare-failed."""
    limit_s -= _prepare(conditions.prepare, limit_s)
    mine, seen, collapsed = ServerProcesses(), list[MemorySnapshot](), list[CollapseResult]()
    old, place = lever.given_bytes(), RunPlace(free_huge_bytes())
    with processes.adopting(), lever.environment() as environment:
        start_s = time.monotonic()
        padded, given = {**environment, PADDING: "x" * padding_bytes}, conditions.input_file
        try:
            with children.started(command, padded, lever.starting, input_file=given) as program:
                place = place._replace(stack_offset_bytes=_stack_offset_bytes(program.pid))
                streams = children.streams_of(program, conditions.is_shown)
                with _observed(lever, mine, seen, collapsed, start_s, share, after_s):
                    done = _follow(program, streams, driver, mine, start_s, limit_s)
                killed = driver is not None and stop_server(program)
                usage, left = _reaped(program), processes.end(mine.all, children.GRACE_S)
                status, elapsed_s, output = done
                if status is None:
                    status = program.returncode
                    children.read_rest(streams)
        except BaseException:
            processes.end(mine.all, children.GRACE_S)
            raise
    of_memory = tuple(seen), left, next(iter(collapsed), None), killed, lever.given_bytes() - old
    return _run_of(elapsed_s, status, output, conditions, usage, of_memory, place)


def _stack_offset_bytes(pid: int) -> int | None:
    """Return how far into a page the stack of a process begins."""
    start = procfs.stack_start(pid)
    return start % os.sysconf("SC_PAGE_SIZE") if start else None


def _reaped(program: subprocess.Popen[bytes]) -> resource.struct_rusage:
    """Wait for the end of a program; return what it used."""
    _, status, usage = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    return usage


def _run_of(
    elapsed_s: float,
    status: int,
    output: list[children.ProgramOutput],
    conditions: RunConditions,
    usage: resource.struct_rusage,
    of_memory: tuple[tuple[MemorySnapshot, ...], int, CollapseResult | None, bool, int],
    place: RunPlace,
) -> ProgramRun:
    """Return a run. of_memory: its fields from snapshots to given_bytes."""
    return ProgramRun(
        elapsed_s,
        status,
        _number(output, conditions),
        output[1].last_lines,
        (output[0].written, output[1].written),
        usage.ru_minflt,
        usage.ru_majflt,
        usage.ru_utime + usage.ru_stime,
        *of_memory,
        system_s=usage.ru_stime,
        place=place,
    )


def _prepare(command: tuple[str, ...], limit_s: float) -> float:
    """Run a command to its end; return how long it took. Raises Unavailable("prepare-failed")."""
    begin_s = time.monotonic()
    if not command:
        return 0.0
    try:
        done = processes.run_in_own_session(command, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable("prepare-failed", str(error)) from None
    if done.returncode:
        raise Unavailable("prepare-failed", f"exit code {done.returncode}: {done.stderr}")
    return time.monotonic() - begin_s


def _follow(
    program: subprocess.Popen[bytes],
    streams: list[children.ProgramOutput],
    driver: ServerDriver | None,
    mine: ServerProcesses,
    start_s: float,
    limit_s: float,
) -> tuple[int | None, float, list[children.ProgramOutput]]:
    """Wait for the end of a driver, or else of the program. Return its exit code (None for the
    program, which is not reaped yet), its time in s, and its output."""
    if driver:
        wait_until_ready(streams, driver, mine, start_s + limit_s)
        return drive(driver, mine, streams, limit_s)
    children.drain(program.pid, streams, start_s + limit_s)
    return None, time.monotonic() - start_s, streams


def _number(
    streams: list[children.ProgramOutput], conditions: RunConditions
) -> PrintedNumber | None:
    """Return the number that --metric finds, of the first stream that has it."""
    metric, quantile = conditions.metric, conditions.quantile
    numbers = [stream.number(metric, quantile) for stream in streams] if metric else []
    return next((number for number in numbers if number is not None), None)


@contextlib.contextmanager
def _observed(
    lever: Lever,
    mine: ServerProcesses,
    seen: list[MemorySnapshot],
    collapsed: list[CollapseResult],
    start_s: float,
    share: float,
    after_s: float,
) -> Iterator[None]:
    """Take snapshots of the program meanwhile, and let a lever act that acts from outside."""
    stop = threading.Event()
    has_lever = lever.has_reached or (lambda pid: False)
    acts = lever.acts

    def act() -> None:
        if acts:
            collapsed.append(acts(mine, start_s, after_s, stop))
        # The next snapshot of the other thread may come too late.
        seen.append(snapshots.take(mine(), has_lever, start_s))

    recording = (seen, mine, has_lever, start_s, share, stop)
    threads = [threading.Thread(target=snapshots.record, args=recording)]
    threads += [threading.Thread(target=act)] if acts else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# --- a server and its driver, which is what is timed

_POLL_S = 0.01
# Polls in a row that see no process of a server before it counts as ended: /proc is read one
# process after the other, so a process that forks into the background can be missed.
_UNSEEN = 3
_SERVER_REMEDY = (
    "Run server and driver by hand until they work together; the server must outlive its driver."
)
_LISTENS, _ACCEPTS = "0A", 0x10000  # TCP_LISTEN in /proc/net/tcp, __SO_ACCEPTCON in /proc/net/unix
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")


class ServerDriver(NamedTuple):
    """A command that is run against a server. ready: what the server writes once it is ready; None:
    it is ready once it listens."""

    command: list[str]
    ready: re.Pattern[str] | None = None


class ServerProcesses:
    """Calling it gives the program's processes and whether each runs, without those of a driver."""

    def __init__(self) -> None:
        self._before = set(processes.process_descendants(os.getpid()))
        self._driver: int | None = None
        # While the driver starts and its PID is unknown: all processes that were there before.
        self._older: set[int] | None = None

    def all(self) -> dict[int, bool]:
        """Return the processes, with the driver's."""
        return snapshots.new_descendants(self._before)

    def __call__(self) -> dict[int, bool]:
        # `_older` is read after the list: a driver in the list has been announced by then.
        mine, older, driver = self.all(), self._older, self._driver
        drivers = {driver, *processes.process_descendants(driver)} if driver else set()
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
    driver: ServerDriver, server: ServerProcesses, logs: list[ProgramOutput], limit_s: float
) -> tuple[int, float, list[ProgramOutput]]:
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
    logs: list[ProgramOutput],
    driver: ServerDriver,
    server: Callable[[], dict[int, bool]],
    limit_s: float,
) -> None:
    """Read a server's output until it is ready. Raises Unavailable: program-killed, and no-time
    at limit_s of the monotonic clock."""
    unseen = 0
    while True:
        for stream in logs:
            stream.read()
        running = [pid for pid, runs in server().items() if runs]
        unseen = 0 if running else unseen + 1
        pattern, output = driver.ready, [text for stream in logs for text in stream.kept]
        ready = (
            any(map(pattern.search, output)) if pattern else any(map(accepts_connections, running))
        )
        if unseen == _UNSEEN:
            raise Unavailable(
                "program-killed",
                "the server ended before its driver: before it was ready",
                _SERVER_REMEDY,
            )
        if ready and running:
            return
        if time.monotonic() >= limit_s:
            raise Unavailable(
                "no-time",
                "the server was not ready",
                "Give the text that it prints when ready with --ready; without it, a listening socket counts.",
            )
        time.sleep(_POLL_S)


def accepts_connections(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a process accepts connections, by TCP or a Unix socket, in its own network
    namespace."""
    return bool(listening_ports(pid, proc))


def listening_ports(pid: int, proc: Path = Path("/proc")) -> set[int]:
    """Return the TCP ports at which a process accepts connections, 0 for a Unix socket, in its own
    network namespace."""
    accepting, ports = _accepting(proc / str(pid) / "net"), set[int]()
    with contextlib.suppress(OSError):  # it ended, or is another user's
        for entry in (proc / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if (socket := _SOCKET.fullmatch(os.readlink(entry))) and socket[1] in accepting:
                    ports.add(accepting[socket[1]])
    return ports


def _accepting(net: Path) -> dict[str, int]:
    """Return the ports of the sockets that accept connections by inode, 0 for a Unix socket."""

    def rows(name: str) -> Iterable[list[str]]:
        return (line.split() for line in islice(procfs.lines(net / name), 1, None))

    tcp = [row for name in ("tcp", "tcp6") for row in rows(name) if len(row) > 9]
    unix = [row for row in rows("unix") if len(row) > 6]
    return {row[9]: int(row[1].rpartition(":")[2], 16) for row in tcp if row[3] == _LISTENS} | {
        row[6]: 0 for row in unix if int(row[3], 16) & _ACCEPTS
    }


def stop_server(server: subprocess.Popen[bytes]) -> bool:
    """Send SIGTERM, and SIGKILL after a while. Return whether it had to be killed.

    Raises Unavailable("program-killed") if it had failed before: its driver's result says nothing."""
    with children.pidfd(server.pid) as fd:
        if select.select([fd], [], [], 0)[0]:
            end = os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
            if end and end.si_status:  # exit code, or the signal that ended it
                name = None if end.si_code == os.CLD_EXITED else signal.strsignal(end.si_status)
                raise Unavailable(
                    "program-killed",
                    f"the server ended before its driver: {name or f'with status {end.si_status}'}",
                    _SERVER_REMEDY,
                )
            return False
        signal.pidfd_send_signal(fd, signal.SIGTERM)
        if select.select([fd], [], [], children.GRACE_S)[0]:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
