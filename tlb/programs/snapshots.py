"""Take snapshots of a running program's memory: pages and page tables of all its processes, and how
many of them a lever has reached.

Linux walks the page tables of a process to answer, which takes longer the more memory it has, and
the program waits meanwhile if it maps or unmaps. So snapshots may take only a share of the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import NamedTuple

from tlb.system import procfs
from tlb.system.processes import process_descendants
from tlb.system.smaps import SmapsRollup, parse_smaps_rollup

# What a program holds for less than a tenth of its run, as to read its input, is not its work.
_LASTING = 0.1
# A snapshot so near to the size of the work is of the program at work. The last such snapshot also
# sees what khugepaged collapsed late.
_FULL = 0.95
_FILLED = 0.9  # of that size: the program has built its data
_LEAST_PAUSE_S = 0.002  # as long as a snapshot of a small process takes

HasLever = Callable[[int], bool]  # whether a lever has reached a process, by its PID


class MemorySnapshot(NamedTuple):
    """A program's memory at one time. at_s: since its start. reached: processes with the lever.
    without_thp: processes for which prctl has disabled transparent huge pages."""

    at_s: float
    processes: int
    reached: int
    pages: SmapsRollup
    table_bytes: int
    without_thp: int = 0


def has_no_thp(status: Mapping[str, str]) -> bool:
    """Return whether prctl has disabled transparent huge pages for a process, by the fields of its
    /proc/PID/status."""
    return status.get("THP_enabled") == "0"


def process_has_no_thp(pid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether prctl has disabled transparent huge pages for a process."""
    return has_no_thp(procfs.fields(procfs.text(proc / str(pid) / "status")))


def take(
    pids: Iterable[int], has_lever: HasLever, start_s: float, proc: Path = Path("/proc")
) -> MemorySnapshot:
    """Return a snapshot of these processes, without those that ended or may not be read.

    start_s: the program's start by the monotonic clock."""
    pages, table_bytes, seen, reached, without_thp = SmapsRollup(0, 0, 0, 0), 0, 0, 0, 0
    for pid in pids:
        # The sums are read last: memory that they show was there when the rest was read.
        is_reached = has_lever(pid)
        status = procfs.fields(procfs.text(proc / str(pid) / "status"))
        try:
            pages += parse_smaps_rollup(procfs.text(proc / str(pid) / "smaps_rollup"))
        except ValueError:
            continue
        seen += 1
        table_bytes += procfs.kib(status.get("VmPTE", "")) or 0
        reached += is_reached
        without_thp += has_no_thp(status)
    return MemorySnapshot(
        time.monotonic() - start_s, seen, reached, pages, table_bytes, without_thp
    )


def at_peak(snapshots: Iterable[MemorySnapshot]) -> MemorySnapshot | None:
    """Return the last snapshot of a run near the largest resident size that lasted; None without
    any."""
    near = _near(snapshots, _FULL)
    return near[-1] if near else None


def typical(peaks: Iterable[MemorySnapshot]) -> MemorySnapshot | None:
    """Return the peak of several runs with the median amount of huge pages, of those that are no
    smaller than others; None without any."""
    peaks = list(peaks)
    least = _FULL * max((peak.pages.resident_bytes for peak in peaks), default=0)
    full = [peak for peak in peaks if peak.pages.resident_bytes >= least]
    full.sort(key=lambda snapshot: snapshot.pages.huge_bytes)
    return full[len(full) // 2] if full else None


def filled_s(snapshots: Iterable[MemorySnapshot]) -> float:
    """Return when the size that lasted was first nearly there; 0 without a snapshot."""
    return next((each.at_s for each in _near(snapshots, _FILLED)), 0.0)


def _near(snapshots: Iterable[MemorySnapshot], part: float) -> list[MemorySnapshot]:
    """Return the snapshots of a run whose resident size is so near to the largest that lasted."""
    snapshots = list(snapshots)
    level = _lasting_bytes(snapshots)
    return [
        each
        for each in snapshots
        if level and part * level <= each.pages.resident_bytes <= level / part
    ]


def _lasting_bytes(snapshots: Sequence[MemorySnapshot]) -> int:
    """Return the largest resident size that was there, or more, for a tenth of the time."""
    ends = [later.at_s for later in snapshots[1:]] + [each.at_s for each in snapshots[-1:]]
    held = [
        (each.pages.resident_bytes, end - each.at_s)
        for each, end in zip(snapshots, ends, strict=True)
    ]
    left_s = _LASTING * sum(seconds for _, seconds in held)
    for resident_bytes, seconds in sorted(held, reverse=True):
        left_s -= seconds
        if left_s <= 0:
            return resident_bytes
    return 0


def new_descendants(before: set[int]) -> dict[int, bool]:
    """Return the descendants of this process that are not in `before`, and whether each runs."""
    return {
        pid: runs for pid, runs in process_descendants(os.getpid()).items() if pid not in before
    }


def record(
    snapshots: list[MemorySnapshot],
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
