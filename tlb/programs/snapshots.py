"""Take snapshots of a running program's memory: pages and page tables of all its processes, and how
many of them a lever has reached.

Linux walks the page tables of a process to answer, which takes longer the more memory it has, and
the program waits meanwhile if it maps or unmaps. So snapshots may take only a share of the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tlb.system import procfs
from tlb.system.processes import descendants
from tlb.system.smaps import Rollup, rollup

# A snapshot with this part of the largest resident size is of the program at work. The last such
# snapshot also sees what khugepaged collapsed late.
_FULL = 0.95
_FILLED = 0.9  # of the largest resident size: the program has built its data
_LEAST_PAUSE_S = 0.002  # as long as a snapshot of a small process takes

HasLever = Callable[[int], bool]  # whether a lever has reached a process, by its PID


class Snapshot(NamedTuple):
    """A program's memory at one time. at_s: since its start. reached: processes with the lever.
    without_thp: processes for which prctl has disabled transparent huge pages."""

    at_s: float
    processes: int
    reached: int
    pages: Rollup
    table_bytes: int
    without_thp: int = 0


def has_no_thp(status: Mapping[str, str]) -> bool:
    """Return whether prctl has disabled transparent huge pages for a process, by the fields of its
    /proc/PID/status."""
    return status.get("THP_enabled") == "0"


def take(
    pids: Iterable[int], has_lever: HasLever, start_s: float, proc: Path = Path("/proc")
) -> Snapshot:
    """Return a snapshot of these processes, without those that ended or may not be read.

    start_s: the program's start by the monotonic clock."""
    pages, table_bytes, seen, reached, without_thp = Rollup(0, 0, 0, 0), 0, 0, 0, 0
    for pid in pids:
        # The sums are read last: memory that they show was there when the rest was read.
        is_reached = has_lever(pid)
        status = procfs.fields(procfs.text(proc / str(pid) / "status"))
        try:
            pages += rollup(procfs.text(proc / str(pid) / "smaps_rollup"))
        except ValueError:
            continue
        seen += 1
        table_bytes += procfs.kib(status.get("VmPTE", "")) or 0
        reached += is_reached
        without_thp += has_no_thp(status)
    return Snapshot(time.monotonic() - start_s, seen, reached, pages, table_bytes, without_thp)


def at_peak(snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """Return the last snapshot of a run near its largest resident size; None without any."""
    return (_full(snapshots) or [None])[-1]


def typical(peaks: Iterable[Snapshot]) -> Snapshot | None:
    """Return the peak with the median amount of huge pages; None without any."""
    full = sorted(_full(peaks), key=lambda snapshot: snapshot.pages.huge_bytes)
    return full[len(full) // 2] if full else None


def _most_bytes(snapshots: Iterable[Snapshot]) -> int:
    return max((snapshot.pages.resident_bytes for snapshot in snapshots), default=0)


def _full(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    snapshots = list(snapshots)
    most = _most_bytes(snapshots)
    return [each for each in snapshots if most and each.pages.resident_bytes >= _FULL * most]


def filled_s(snapshots: Iterable[Snapshot]) -> float:
    """Return when 90 % of the largest resident size was first there; 0 without a snapshot."""
    snapshots = list(snapshots)
    least = _FILLED * _most_bytes(snapshots)
    return next((each.at_s for each in snapshots if each.pages.resident_bytes >= least), 0.0)


def own_processes(before: set[int]) -> dict[int, bool]:
    """Return the descendants of this process that are not in `before`, and whether each runs."""
    return {pid: runs for pid, runs in descendants(os.getpid()).items() if pid not in before}


def record(
    snapshots: list[Snapshot],
    processes: Callable[[], dict[int, bool]],
    has_lever: HasLever,
    start_s: float,
    share: float,
    stop: Event,
) -> None:
    """Append snapshots of a program until `stop`, for at most `share` of the time."""
    pause_s = _LEAST_PAUSE_S
    while not stop.wait(pause_s):
        begin = time.monotonic()
        snapshots.append(take(processes(), has_lever, start_s))
        pause_s = max(_LEAST_PAUSE_S, (time.monotonic() - begin) * (1 / share - 1))
