"""Run a program once, or a server with its driver, and leave no process behind: time, output, what
Linux counted, and snapshots of the memory."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from tlb.programs import children, snapshots
from tlb.programs.children import Written
from tlb.programs.collapse import Collapsed
from tlb.programs.levers import Lever
from tlb.programs.servers import Driver, ServerProcesses, drive, stop_server, wait_until_ready
from tlb.programs.snapshots import Snapshot
from tlb.system import processes


class Run(NamedTuple):
    """One run. status: exit code, or minus the signal that ended it. value: the number that it
    printed. Faults and cpu_s include children that it waited for. left: processes that it left
    running. With a driver, the first four are the driver's and the rest the server's; killed:
    whether the server ignored SIGTERM."""

    elapsed_s: float
    status: int
    value: float | None
    written: tuple[Written, Written]  # stdout, stderr
    minor_faults: int
    major_faults: int
    cpu_s: float
    snapshots: tuple[Snapshot, ...]
    left: int
    collapsed: Collapsed | None
    killed: bool = False


def run(
    command: list[str],
    lever: Lever,
    *,
    limit_s: float,
    share: float,
    driver: Driver | None = None,
    metric: re.Pattern[str] | None = None,
    after_s: float = 0.0,
) -> Run:
    """Run a command with a lever, without a shell and with empty input. With a driver, the command
    is a server: the driver runs without the lever once the server is ready, and is what is timed.

    share: part of the time that snapshots may take. after_s: when a lever acts that acts from
    outside. Raises Unavailable: program-missing, program-endless and server-silent after limit_s,
    server-ended. However this ends, none of the processes is left."""
    mine = ServerProcesses()
    seen, collapsed = list[Snapshot](), list[Collapsed]()
    with processes.adopting(), lever.environment() as environment:
        start_s = time.monotonic()
        try:
            with children.started(command, environment, lever.starting) as program:
                streams = children.streams_of(program)
                with _observed(lever, mine, seen, collapsed, start_s, share, after_s):
                    done = _follow(program, streams, driver, mine, start_s, limit_s)
                killed = driver is not None and stop_server(program)
                _, wait_status, used = os.wait4(program.pid, 0)
                program.returncode = os.waitstatus_to_exitcode(wait_status)
                left = processes.end(mine.all, children.GRACE_S)
                status, elapsed_s, streams = done
                if status is None:
                    status = program.returncode
                    children.read_rest(streams)
        except BaseException:
            processes.end(mine.all, children.GRACE_S)
            raise
    written = streams[0].written, streams[1].written
    counted = used.ru_minflt, used.ru_majflt, used.ru_utime + used.ru_stime
    ends = tuple(seen), left, collapsed[0] if collapsed else None, killed
    return Run(elapsed_s, status, _number(streams, metric), written, *counted, *ends)


def _follow(
    program: subprocess.Popen[bytes],
    streams: list[children.Stream],
    driver: Driver | None,
    mine: ServerProcesses,
    start_s: float,
    limit_s: float,
) -> tuple[int | None, float, list[children.Stream]]:
    """Wait for the end of a driver, or else of the program. Return its exit code (None for the
    program, which is not reaped yet), its time in s, and its output."""
    if driver:
        wait_until_ready(streams, driver, mine, start_s + limit_s)
        return drive(driver, mine, streams, limit_s)
    children.drain(program.pid, streams, start_s + limit_s)
    return None, time.monotonic() - start_s, streams


def _number(streams: list[children.Stream], metric: re.Pattern[str] | None) -> float | None:
    """Return the number that --metric finds, of the first stream that has it."""
    numbers = [stream.number(metric) for stream in streams] if metric else []
    return next((number for number in numbers if number is not None), None)


@contextlib.contextmanager
def _observed(
    lever: Lever,
    mine: ServerProcesses,
    seen: list[Snapshot],
    collapsed: list[Collapsed],
    start_s: float,
    share: float,
    after_s: float,
) -> Iterator[None]:
    """Take snapshots of the program meanwhile, and let a lever act that acts from outside."""
    stop = threading.Event()
    has_lever = lever.has_reached or (lambda pid: False)

    def act() -> None:
        collapsed.append(lever.acts(mine, start_s, after_s, stop))
        # The next snapshot of the other thread may come too late.
        seen.append(snapshots.take(mine(), has_lever, start_s))

    recording = (seen, mine, has_lever, start_s, share, stop)
    threads = [threading.Thread(target=snapshots.record, args=recording)]
    threads += [threading.Thread(target=act)] if lever.acts else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
