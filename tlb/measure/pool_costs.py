"""Measure what huge page pools do to other memory; settings are borrowed."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tlb.machine import memory
from tlb.machine.changed_settings import borrow
from tlb.measure.large_blocks import PAGEOUT, rooms
from tlb.system import procfs
from tlb.system.reasons import Unavailable
from tlb.system.smaps import of_process
from tlb.system.units import format_size

MIB = 1 << 20
ROUNDS = 6  # from so many values on, a median has an interval of 95 %
# of a pool: what other programs do to MemAvailable meanwhile is a hundredth of it
TAKEN_BYTES = 1 << 30
PLAIN_BYTES = 64 * MIB
_LISTED = re.compile(r"\s+count:\s+([0-9]{1,12})")  # pages in one CPU's list, in zoneinfo


def _pool(room: int) -> tuple[str, int]:
    """Return the setting of this size's pool and its number of pages. Raises
    Unavailable("setting-absent")."""
    name = f"sys/kernel/mm/hugepages/hugepages-{room >> 10}kB/nr_hugepages"
    number = procfs.number(Path("/", name))
    if number is None:
        raise Unavailable("setting-absent", f"/{name}")
    return name, number


def available_bytes(root: Path = Path("/")) -> int:
    """Return MemAvailable and the CPUs' own lists of free pages (/proc/zoneinfo), which it
    excludes."""
    listed = (_LISTED.fullmatch(line) for line in procfs.lines(root / "proc/zoneinfo"))
    pages = sum(int(line[1]) for line in listed if line)
    return memory.usable_memory(root).available_bytes + pages * os.sysconf("SC_PAGESIZE")


def pool_taken(room: int, leave: int) -> list[float]:
    """Return what MemAvailable loses over what a free pool grows by, by round. Raises Unavailable:
    setting-refused, memory-short."""
    name, number = _pool(room)
    shares = []
    for _ in range(ROUNDS):
        before = available_bytes()
        if before < leave + TAKEN_BYTES:
            raise Unavailable("memory-short", f"{format_size(before)} are available")
        borrow(name, str(number + TAKEN_BYTES // room))
        shares.append((before - available_bytes()) / (TAKEN_BYTES // room * room))
        borrow(name, str(number))
    return shares


def pool_pageout(room: int) -> bool:
    """Return whether a pool's page may be swapped out on request. Raises Unavailable."""
    name, number = _pool(room)
    borrow(name, str(number + 1))
    with rooms(1, room, pool=True) as held:
        held.fill(bytes([1]) * os.sysconf("SC_PAGESIZE"))
        try:
            held.advise(PAGEOUT)
        except OSError:
            return False
        return not held.kept("Private_Hugetlb")


def pool_plain(room: int) -> float:
    """Return the share of a plain heap array that lies in a pool with room for it. Raises
    Unavailable."""
    name, number = _pool(room)
    borrow(name, str(number + PLAIN_BYTES // room + 1))
    array = bytearray(PLAIN_BYTES)
    array[:: os.sysconf("SC_PAGESIZE")] = bytes([1]) * len(
        range(0, PLAIN_BYTES, os.sysconf("SC_PAGESIZE"))
    )
    return sum(one.pool_bytes for one in of_process(os.getpid())) / PLAIN_BYTES
