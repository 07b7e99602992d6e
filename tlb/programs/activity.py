"""Sample which pages processes touch: clear the accessed bits, wait for a window, read them.

The processor sets the bit in a page's entry when it walks to it. Clearing the bits flushes no TLB
(fs/proc/task_mmu.c, clear_refs_write, since Linux 5.11), so a page whose translation stays in a TLB
is touched without a walk and is missed. Such pages are at most as many as the TLB has entries, and
pay nothing. A page of a file that another program touches counts too.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median_high
from typing import NamedTuple, TypeVar

from tlb.system import procfs
from tlb.system.page_sizes import BASE_PAGES
from tlb.system.reasons import Unavailable
from tlb.system.smaps import SmapsMapping, mappings_of_process, unreadable_process_error
from tlb.system.units import page_size_name

PROC = Path("/proc")
_ALL_PAGES = b"1"  # for clear_refs: Documentation/filesystems/proc.rst
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, linux/sched.h
_HOTTEST = 12  # mappings that a sample keeps; a report names fewer

Found = TypeVar("Found")
ProcessMappings = list[tuple[int, list[SmapsMapping]]]  # PIDs with their mappings


class ProcessUsage(NamedTuple):
    """What a process with its threads has used: faults, and CPU time in s."""

    minor_faults: int = 0
    major_faults: int = 0
    user_s: float = 0.0
    kernel_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.kernel_s

    def _with(self, other: ProcessUsage, sign: int) -> ProcessUsage:
        return ProcessUsage(
            self.minor_faults + sign * other.minor_faults,
            self.major_faults + sign * other.major_faults,
            self.user_s + sign * other.user_s,
            self.kernel_s + sign * other.kernel_s,
        )

    def __add__(self, other: ProcessUsage) -> ProcessUsage:  # type: ignore[override]
        return self._with(other, 1)

    def __sub__(self, other: ProcessUsage) -> ProcessUsage:
        return self._with(other, -1)


class TouchedMapping(NamedTuple):
    """A mapping of which a sample saw base pages touched. touched_bytes: in base pages, at most;
    huge_bytes: on huge pages."""

    pid: int
    start: int
    end: int
    name: str
    resident_bytes: int
    huge_bytes: int
    touched_bytes: int


class ActivitySample(NamedTuple):
    """What processes touched in a window. took_s: for clearing and reading, while they may wait.
    mapped: bytes by page size, a key of PAGES or page_name. active_bytes: touched, in whole pages
    as they are mapped; of it on huge pages at least huge_least and at most huge_most, because
    Linux gives one number for all pages of a mapping. unread: processes that could not be read, by
    the reason's code. at_s: when it began, since watching did; used: what the processes had used by
    then; cpu_share: CPU time over time from then to its end. run_s: CPU time from the clearing to
    the reading, to the nanosecond; threads: of all processes. hottest: the mappings with most base
    pages touched, in that order."""

    window_s: float
    took_s: float
    processes: int
    unread: dict[str, int]
    mappings: int
    mapped: dict[str, int]
    table_bytes: int
    active_bytes: int
    huge_least: int
    huge_most: int
    at_s: float = 0.0
    used: ProcessUsage = ProcessUsage()
    cpu_share: float = 0.0
    run_s: float = 0.0
    threads: int = 1
    hottest: tuple[TouchedMapping, ...] = ()

    @property
    def resident_bytes(self) -> int:
        return sum(self.mapped.values())

    @property
    def base_bytes(self) -> int:
        """What was touched on base pages, at most."""
        return self.active_bytes - self.huge_least


def used(pid: int, proc: Path = PROC) -> ProcessUsage:
    """Return what a process has used so far. Raises Unavailable("process-gone")."""
    stat = _stat(pid, proc)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return ProcessUsage(int(stat[7]), int(stat[9]), int(stat[11]) * tick_s, int(stat[12]) * tick_s)


def used_with_children_s(pid: int, proc: Path = PROC) -> float:
    """Return the CPU time in s that a process and the children that it waited for have used so
    far; 0 for one that has ended."""
    with contextlib.suppress(Unavailable):
        return sum(map(int, _stat(pid, proc)[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def run_time(pid: int, proc: Path = PROC) -> tuple[float, int]:
    """Return the CPU time in s of a process's threads, to the nanosecond, and their number; of
    threads that have ended nothing. (0, 0) for a process that has ended, or without schedstat."""
    files = (proc / str(pid) / "task").glob("*/schedstat")
    times = [words[0] for file in files if (words := procfs.text(file).split())]
    return sum(map(int, times)) / 1e9, len(times)


def running_s(pid: int, proc: Path = PROC) -> float:
    """Return how long a process has run, in s; 0 for one that has ended."""
    with contextlib.suppress(Unavailable, ValueError):
        up_s = float((procfs.text(proc / "uptime") or "0").split()[0])
        return max(up_s - int(_stat(pid, proc)[19]) / os.sysconf("SC_CLK_TCK"), 0.0)
    return 0.0


def parent(pid: int, proc: Path = PROC) -> int:
    """Return the parent of a process. Raises Unavailable("process-gone")."""
    return int(_stat(pid, proc)[1])


def is_kernel_thread(pid: int, proc: Path = PROC) -> bool:
    """Return whether a process is a thread of Linux. Raises Unavailable("process-gone")."""
    return bool(int(_stat(pid, proc)[6]) & _KERNEL_THREAD)


def check(pid: int, proc: Path = PROC) -> None:
    """Raise Unavailable if a process cannot be watched: process-gone,
    not-permitted, linux-lacks."""
    if is_kernel_thread(pid, proc):
        raise Unavailable(
            "process-gone",
            f"process {pid} is a thread of Linux",
            "Name the process that does the work, as `ps` lists it.",
        )
    if not all((proc / str(pid) / name).exists() for name in ("smaps", "clear_refs")):
        raise Unavailable("linux-lacks", f"/proc/{pid} has no smaps or clear_refs")
    _clear(pid, b"", proc)
    mappings_of_process(pid, proc)


def sample(
    pids: Iterable[int], window_s: float, wait: Callable[[float], object], proc: Path = PROC
) -> tuple[ActivitySample, ProcessMappings]:
    """Clear the bits, wait, and read them; without processes that end meanwhile. Raises
    Unavailable: process-gone, not-permitted or linux-lacks if none can be read."""
    failed: list[Unavailable] = []

    def each(call: Callable[[int], Found], pids: Iterable[int]) -> dict[int, Found]:
        done = dict[int, Found]()
        for pid in pids:
            try:
                done[pid] = call(pid)
            except Unavailable as why:
                failed.append(why)
        return done

    pids = [*pids]
    before = {pid: run_time(pid, proc) for pid in pids}
    begin = time.monotonic()
    cleared = each(lambda pid: _clear(pid, _ALL_PAGES, proc), pids)
    took_s = time.monotonic() - begin
    if cleared:
        wait(window_s)
    begin = time.monotonic()
    read = each(lambda pid: (mappings_of_process(pid, proc), _table_bytes(pid, proc)), cleared)
    took_s += time.monotonic() - begin
    after = {pid: run_time(pid, proc) for pid in read}
    unread = [why for why in failed if why.code != "process-gone"]
    if not read:
        raise unread[0] if unread else Unavailable("process-gone")
    total = summed([*read.values()], window_s, took_s, Counter(why.code for why in unread))
    found = [(pid, mappings) for pid, (mappings, _) in read.items()]
    return total._replace(
        run_s=sum(max(after[pid][0] - before[pid][0], 0.0) for pid in read),
        threads=sum(threads for _, threads in after.values()),
        hottest=hottest(found),
    ), found


def hottest(read: ProcessMappings) -> tuple[TouchedMapping, ...]:
    """Return the mappings of which most base pages were touched."""
    touched = [
        TouchedMapping(pid, m.start, m.end, m.name, m.resident_bytes, m.huge_bytes, size_bytes)
        for pid, mappings in read
        for m in mappings
        if (size_bytes := min(m.referenced_bytes, m.resident_bytes - m.huge_bytes))
    ]
    touched.sort(key=lambda mapping: mapping.touched_bytes, reverse=True)
    return (*touched[:_HOTTEST],)


def resident_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Return the resident memory of processes without the pool's pages, at next to no cost."""
    pages = (procfs.text(proc / str(pid) / "statm").split()[1:2] for pid in pids)
    return sum(int(page) for found in pages for page in found) * mmap.PAGESIZE


def reading_s(pids: Iterable[int], proc: Path = PROC) -> float:
    """Return the time in s that reading the bits takes, without clearing any."""
    begin = time.monotonic()
    for pid in pids:
        with contextlib.suppress(Unavailable):
            mappings_of_process(pid, proc)
    return time.monotonic() - begin


def summed(
    read: list[tuple[list[SmapsMapping], int]],
    window_s: float,
    took_s: float,
    unread: dict[str, int] | None = None,
) -> ActivitySample:
    """Return the sum over processes, each with its mappings and the bytes of its page tables. A
    page that two of them share counts twice."""
    every = [mapping for found, _ in read for mapping in found]
    base = {id(m): m.resident_bytes - m.huge_bytes for m in every}
    mapped = {BASE_PAGES: sum(base.values()), "thp": sum(m.thp_bytes for m in every)}
    for m in every:
        if m.pool_bytes:
            name = page_size_name(m.page_bytes)
            mapped[name] = mapped.get(name, 0) + m.pool_bytes
    return ActivitySample(
        window_s,
        took_s,
        len(read),
        unread or {},
        len(every),
        mapped,
        table_bytes=sum(table for _, table in read),
        active_bytes=sum(m.referenced_bytes for m in every),
        huge_least=sum(max(m.referenced_bytes - base[id(m)], 0) for m in every),
        huge_most=sum(min(m.referenced_bytes, m.thp_bytes) for m in every),
    )


def _stat(pid: int, proc: Path) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which ends at the last bracket."""
    fields = procfs.text(proc / str(pid) / "stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX":  # ended, and not reaped
        raise Unavailable("process-gone", f"process {pid}")
    return fields


def _table_bytes(pid: int, proc: Path) -> int:
    return procfs.kib(procfs.fields(procfs.text(proc / str(pid) / "status")).get("VmPTE", "")) or 0


def _clear(pid: int, value: bytes, proc: Path) -> None:
    """Open clear_refs of a process, and write a value that is not empty."""
    try:
        with (proc / str(pid) / "clear_refs").open("wb", buffering=0) as file:
            if value:
                file.write(value)
    except OSError as error:
        raise unreadable_process_error(pid, error) from None


# --- samples of the program at work, and those of its start-up

_RESIZED = 2.0  # memory of another phase is so many times as large or as small
_FAR_LESS = 1.5  # so many times less than before is another phase, and no scatter of samples
_AS_BUSY = 0.5  # of the CPU time a second: a program that idles touches less in any phase


def samples_after_start(samples: Sequence[ActivitySample]) -> list[ActivitySample]:
    """Return the samples of the program at work, in order. A start-up takes at most the first half
    of the time, so the later half always stays.

    A sample is of the start-up if the program's memory was far larger or smaller than in the later
    half, or if it touches far more than any later sample of a window as long: in one phase, more
    time touches more."""
    if not samples:
        return []
    middle_s = (samples[0].at_s + samples[-1].at_s) / 2
    later = [sample.resident_bytes for sample in samples if sample.at_s >= middle_s]
    level = median_high(later)
    after = list[ActivitySample]()  # the later samples but for those that another one outdoes
    for n in range(len(samples) - 1, -1, -1):
        sample = samples[n]
        is_resized = not level / _RESIZED <= sample.resident_bytes <= level * _RESIZED
        if sample.at_s < middle_s and (is_resized or _is_contradicted(sample, after)):
            return [*samples[n + 1 :]]
        if not any(_outdoes(other, sample) for other in after):
            after = [other for other in after if not _outdoes(sample, other)] + [sample]
    return [*samples]


def phase_change_windows(samples: Sequence[ActivitySample]) -> tuple[float, float] | None:
    """Return two windows in s, of which the longer touched far less, so that the samples are of
    several phases; None without any."""
    for sample in samples:
        if _is_contradicted(sample, [each for each in samples if each is not sample]):
            longer = [each.window_s for each in samples if each.window_s > sample.window_s]
            return (sample.window_s, min(longer)) if longer else None
    return None


def _outdoes(one: ActivitySample, other: ActivitySample) -> bool:
    """Whether one sample is as long and as busy as the other and touches as much, so that it is the
    stronger evidence of what later windows touch."""
    return (
        one.window_s >= other.window_s
        and one.cpu_share >= other.cpu_share
        and one.active_bytes >= other.active_bytes
    )


def _is_contradicted(sample: ActivitySample, others: Sequence[ActivitySample]) -> bool:
    """Whether a sample touches far more than all others of windows as long or longer in which the
    program was as busy."""
    comparable = [
        other.active_bytes
        for other in others
        if other.window_s >= sample.window_s and other.cpu_share >= _AS_BUSY * sample.cpu_share
    ]
    return bool(comparable) and sample.active_bytes > _FAR_LESS * max(comparable)
