"""A program that runs, looked at from outside: the pages and page tables of all its processes, and
whether a lever reached them.

A look reads what the kernel keeps of each process, for which the kernel walks its page tables: the
more memory, the longer, and meanwhile the program waits where it wants to map or unmap. So a look
is as rare as its share of the time asks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tlb.system import procfs
from tlb.system.processes import descendants
from tlb.system.smaps import Rollup, rollup

# of the most that was resident: the last look at so much is of the program at work, and sees what
# was joined late
_FULL = 0.95
_LEAST_PAUSE_S = 0.002  # as long as a look at a small process takes
_NOTHING = Rollup(0, 0, 0, 0)


class Look(NamedTuple):
    """The processes of a program at one time. at_s: since it was started. reached: how many of them
    a lever was seen in."""

    at_s: float
    processes: int
    reached: int
    pages: Rollup
    table_bytes: int


Reached = Callable[[int], bool]  # whether a lever can be seen in a process


def of(
    processes: Iterable[int], reached: Reached, start_s: float, proc: Path = Path("/proc")
) -> Look:
    """A look at these processes; one that has ended, or that this user may not look at, counts for
    nothing. start_s: of the clock."""
    pages, tables, seen, with_lever = _NOTHING, 0, 0, 0
    for pid in processes:
        # The sums last: where they are there, the memory was when the rest was read.
        has_lever = reached(pid)
        stated = procfs.fields(procfs.text(proc / str(pid) / "status"))
        try:
            pages += rollup(procfs.text(proc / str(pid) / "smaps_rollup"))
        except ValueError:
            continue
        seen += 1
        tables += procfs.kib(stated.get("VmPTE", "")) or 0
        with_lever += has_lever
    return Look(
        time.monotonic() - start_s, seen, with_lever, pages, tables
    )  # when it is done: by then this much is there


def peak(looks: list[Look]) -> Look | None:
    """Of one run the last look at which nearly the most was resident; None of none that saw a page."""
    return (_full(looks) or [None])[-1]


def typical(peaks: list[Look]) -> Look | None:
    """Of the peaks of several runs, and of those at nearly the most, that with the middle of what
    is on large pages; None of none."""
    full = sorted(_full(peaks), key=lambda look: look.pages.huge_bytes)
    return full[len(full) // 2] if full else None


def _full(looks: list[Look]) -> list[Look]:
    most = max((look.pages.resident_bytes for look in looks), default=0)
    return [look for look in looks if most and look.pages.resident_bytes >= _FULL * most]


def settled_s(looks: list[Look]) -> float:
    """When nine tenths of what was resident at most was there for the first time; 0 without a look."""
    most = max((look.pages.resident_bytes for look in looks), default=0)
    return next((look.at_s for look in looks if look.pages.resident_bytes >= 0.9 * most), 0.0)


def own(before: set[int]) -> dict[int, bool]:
    """What this process has started, and what that has, but for what was there before."""
    return {pid: runs for pid, runs in descendants(os.getpid()).items() if pid not in before}


def watch(
    looks: list[Look],
    processes: Callable[[], dict[int, bool]],
    reached: Reached,
    start_s: float,
    share: float,
    stop: Event,
) -> None:
    """Looks at a program until `stop`, for such a share of the time; a thread's work."""
    pause_s = _LEAST_PAUSE_S
    while not stop.wait(pause_s):
        begin = time.monotonic()
        looks.append(of(processes(), reached, start_s))
        pause_s = max(_LEAST_PAUSE_S, (time.monotonic() - begin) * (1 / share - 1))
