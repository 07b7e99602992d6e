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
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tlb.programs import children, snapshots
from tlb.programs.children import Number, Written
from tlb.programs.collapse import Collapsed
from tlb.programs.levers import Lever
from tlb.programs.servers import Driver, ServerProcesses, drive, stop_server, wait_until_ready
from tlb.programs.snapshots import Snapshot
from tlb.system import processes
from tlb.system.reasons import Unavailable

PADDING = "TLB_PADDING"  # a variable that no program reads


@dataclass(frozen=True)
class Conditions:
    """What each run of a command has. input_file: its stdin. prepare: a command that ends before
    it starts. metric: looked for in its output; quantile: of all numbers that match, else the last.
    is_shown: its output is copied to stderr."""

    input_file: Path = Path(os.devnull)
    prepare: tuple[str, ...] = ()
    metric: re.Pattern[str] | None = None
    quantile: float | None = None
    is_shown: bool = False


class Run(NamedTuple):
    """One run. status: exit code, or minus the signal that ended it. number: the one that it
    printed. last_lines: of its stderr. Faults, cpu_s and system_s, which is the part of it that Linux
    took, include children that it waited for. left:
    processes that it left running. With a driver, the first five are the driver's and the rest the
    server's; killed: whether the server ignored SIGTERM. given_bytes: see Lever."""

    elapsed_s: float
    status: int
    number: Number | None
    last_lines: str
    written: tuple[Written, Written]  # stdout, stderr
    minor_faults: int
    major_faults: int
    cpu_s: float
    snapshots: tuple[Snapshot, ...]
    left: int
    collapsed: Collapsed | None
    killed: bool = False
    given_bytes: int = 0
    system_s: float = 0.0


def run(
    command: list[str],
    lever: Lever,
    *,
    limit_s: float,
    share: float,
    driver: Driver | None = None,
    conditions: Conditions = Conditions(),
    after_s: float = 0.0,
    padding_bytes: int = 0,
) -> Run:
    """Run a command with a lever, without a shell. With a driver, the command is a server: the
    driver runs without the lever once the server is ready, and is what is timed.

    share: part of the time that snapshots may take. after_s: when a lever acts from outside.
    padding_bytes: of the environment, which moves the stack. Raises Unavailable: program-missing,
    program-endless and server-silent after limit_s, server-ended, prepare-failed."""
    _prepare(conditions.prepare, limit_s)
    mine, seen, collapsed = ServerProcesses(), list[Snapshot](), list[Collapsed]()
    before = lever.given_bytes()
    with processes.adopting(), lever.environment() as environment:
        start_s = time.monotonic()
        padded, given = environment | {PADDING: "x" * padding_bytes}, conditions.input_file
        try:
            with children.started(command, padded, lever.starting, input_file=given) as program:
                streams = children.streams_of(program, conditions.is_shown)
                with _observed(lever, mine, seen, collapsed, start_s, share, after_s):
                    done = _follow(program, streams, driver, mine, start_s, limit_s)
                killed = driver is not None and stop_server(program)
                *used, system_s = _reaped(program)
                left = processes.end(mine.all, children.GRACE_S)
                status, elapsed_s, streams = done
                if status is None:
                    status = program.returncode
                    children.read_rest(streams)
        except BaseException:
            processes.end(mine.all, children.GRACE_S)
            raise
    ends = tuple(seen), left, next(iter(collapsed), None), killed, lever.given_bytes() - before
    return Run(elapsed_s, status, *_printed(streams, conditions), *used, *ends, system_s)


def _reaped(program: subprocess.Popen[bytes]) -> tuple[int, int, float, float]:
    """Wait for the end of a program; return faults and CPU times as a Run has them."""
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_minflt, used.ru_majflt, used.ru_utime + used.ru_stime, used.ru_stime


def _printed(
    streams: list[children.Stream], conditions: Conditions
) -> tuple[Number | None, str, tuple[Written, Written]]:
    written = streams[0].written, streams[1].written
    return _number(streams, conditions), streams[1].last_lines, written


def _prepare(command: tuple[str, ...], limit_s: float) -> None:
    """Run a command to its end. Raises Unavailable("prepare-failed")."""
    if not command:
        return
    try:
        done = processes.run_whole(command, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable("prepare-failed", str(error)) from None
    if done.returncode:
        raise Unavailable("prepare-failed", f"exit code {done.returncode}: {done.stderr}")


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


def _number(streams: list[children.Stream], conditions: Conditions) -> Number | None:
    """Return the number that --metric finds, of the first stream that has it."""
    metric, quantile = conditions.metric, conditions.quantile
    numbers = [stream.number(metric, quantile) for stream in streams] if metric else []
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
