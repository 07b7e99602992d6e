"""The pages that a process touches in a while: cleared of their marks, left alone for a window, and
read again.

The mark is the bit that the processor sets in a page's entry as it walks to it. Clearing it flushes
no TLB (fs/proc/task_mmu.c, clear_refs_write, since Linux 5.11): a page whose translation a TLB
holds from before and keeps is touched without a walk, and is not seen. Those are at most as many as
the TLB has entries, and they pay nothing. A file's page that another program touches counts too.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tlb.page_sizes import BASE
from tlb.reasons import Unavailable
from tlb.system import procfs
from tlb.system.smaps import Mapping, mappings
from tlb.units import page_name

PROC = Path("/proc")
_SMAPS_BYTES = 1 << 26  # 65,530 mappings, which is vm.max_map_count, of 800 bytes each, and some
_TOUCHED = b"1"  # clear_refs of all pages: Documentation/filesystems/proc.rst
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, linux/sched.h
_ENDED = frozenset("ZX")


class Sight(NamedTuple):
    """What processes touched in a window. look_s: what clearing before it and reading after it
    took, meanwhile they may wait. mapped: bytes by page size, a key of words.pages.PAGES.
    active_bytes: touched, in whole pages as they are mapped; of it on 2 MiB pages between
    large_least and large_most, for a mapping states what is touched of all its pages together.
    denied: processes not to be looked at."""

    window_s: float
    look_s: float
    processes: int
    denied: int
    mappings: int
    mapped: dict[str, int]
    table_bytes: int
    active_bytes: int
    large_least: int
    large_most: int


class Used(NamedTuple):
    """What a process has used so far, with its threads: faults, and CPU time in s."""

    minor_faults: int = 0
    major_faults: int = 0
    user_s: float = 0.0
    kernel_s: float = 0.0

    def __add__(self, other: Used) -> Used:  # type: ignore[override]
        return Used(*(mine + its for mine, its in zip(self, other, strict=True)))

    def __sub__(self, other: Used) -> Used:
        return Used(*(mine - its for mine, its in zip(self, other, strict=True)))


def used(pid: int, proc: Path = PROC) -> Used:
    """Raises Unavailable("process-gone")."""
    fields = _stat(pid, proc)
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return Used(int(fields[7]), int(fields[9]), int(fields[11]) * tick_s, int(fields[12]) * tick_s)


def check(pid: int, proc: Path = PROC) -> None:
    """Raises Unavailable where a process cannot be watched: process-gone, process-kernel,
    process-denied, no-referenced."""
    if int(_stat(pid, proc)[6]) & _KERNEL_THREAD:
        raise Unavailable("process-kernel", f"process {pid}")
    if not os.access(proc / str(pid) / "smaps", os.F_OK) or not os.access(
        proc / str(pid) / "clear_refs", os.F_OK
    ):
        raise Unavailable("no-referenced")
    _write(pid, b"", proc)
    _read(pid, proc)


def sight(
    pids: Iterable[int],
    window_s: float,
    wait: Callable[[float], object],
    proc: Path = PROC,
    then: Callable[[list[tuple[int, list[Mapping]]]], object] = lambda read: None,
) -> Sight:
    """Clears, waits, and reads. A process that ends meanwhile counts for nothing. then: is given
    what was read, by process, after the look.

    Raises Unavailable: process-gone, process-denied where none is left that can be read."""
    begin = time.monotonic()
    cleared, lacking = [], []
    for pid in pids:
        try:
            _write(pid, _TOUCHED, proc)
            cleared.append(pid)
        except Unavailable as why:
            lacking.append(why)
    clear_s = time.monotonic() - begin
    if cleared:
        wait(window_s)
    begin = time.monotonic()
    read: list[tuple[int, list[Mapping]]] = []
    tables: list[int] = []
    for pid in cleared:
        try:
            read.append((pid, _read(pid, proc)))
            tables.append(
                procfs.kib(procfs.fields(procfs.text(proc / str(pid) / "status")).get("VmPTE", ""))
                or 0
            )
        except Unavailable as why:
            lacking.append(why)
    look_s = clear_s + time.monotonic() - begin
    if not read:
        raise next(
            (why for why in lacking if why.code != "process-gone"), Unavailable("process-gone")
        )
    denied = sum(why.code == "process-denied" for why in lacking)
    then(read)
    return summed(
        [(parsed, table) for (_, parsed), table in zip(read, tables, strict=True)],
        window_s,
        look_s,
        denied,
    )


def reading_s(pids: Iterable[int], proc: Path = PROC) -> float:
    """What reading alone takes, in s: a look that clears nothing, and tells nothing."""
    begin = time.monotonic()
    for pid in pids:
        with contextlib.suppress(Unavailable):
            _read(pid, proc)
    return time.monotonic() - begin


def summed(
    seen: list[tuple[list[Mapping], int]], window_s: float, look_s: float, denied: int = 0
) -> Sight:
    """What the mappings and the page tables of several processes come to; a page that two share
    counts in both."""
    every = [mapping for parsed, _ in seen for mapping in parsed]
    mapped = {
        BASE: sum(m.resident_bytes - m.huge_bytes for m in every),
        "thp": sum(m.thp_bytes for m in every),
    }
    for mapping in every:
        if mapping.pool_bytes:
            name = page_name(mapping.page_bytes)
            mapped[name] = mapped.get(name, 0) + mapping.pool_bytes
    touched = [(m.referenced_bytes, m.thp_bytes, m.resident_bytes - m.huge_bytes) for m in every]
    return Sight(
        window_s,
        look_s,
        len(seen),
        denied,
        len(every),
        mapped,
        sum(table for _, table in seen),
        sum(active for active, _, _ in touched),
        sum(max(active - base, 0) for active, _, base in touched),
        sum(min(active, thp) for active, thp, _ in touched),
    )


def _stat(pid: int, proc: Path) -> list[str]:
    """The fields of /proc/PID/stat from the state on, which is the first after the name's last
    bracket."""
    fields = procfs.text(proc / str(pid) / "stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in _ENDED:
        raise Unavailable("process-gone", f"process {pid}")
    return fields


def _write(pid: int, mark: bytes, proc: Path) -> None:
    """Opens a process' clear_refs and writes what is not empty."""
    try:
        fd = os.open(proc / str(pid) / "clear_refs", os.O_WRONLY)
        try:
            if mark:
                os.write(fd, mark)
        finally:
            os.close(fd)
    except OSError as why:
        raise _unavailable(pid, why) from None


def _read(pid: int, proc: Path) -> list[Mapping]:
    try:
        with (proc / str(pid) / "smaps").open("rb") as file:
            return mappings(file.read(_SMAPS_BYTES).decode("utf-8", "replace"))
    except OSError as why:
        raise _unavailable(pid, why) from None
    except ValueError:  # empty: it has ended, and its parent has not noticed yet
        raise Unavailable("process-gone", f"process {pid}") from None


def _unavailable(pid: int, why: OSError) -> Unavailable:
    return Unavailable(
        "process-denied" if isinstance(why, PermissionError) else "process-gone", f"process {pid}"
    )
