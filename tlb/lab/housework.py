"""Measure what the kernel's own housekeeping costs; on request, because it changes settings. All
are put back.

Parts that a kernel lacks have a reason. Each part alternates, round by round, what it compares.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from tlb.lab import fragments
from tlb.lab.fragments import Run
from tlb.lab.housekeeping import (
    FRAGMENTS,
    FREE,
    Housekeeping,
    Idle,
    Lives,
    Merged,
    Swapped,
    Touched,
)
from tlb.lab.rooms import HUGE, MERGEABLE, NO_HUGE, PAGEOUT, Rooms, rooms
from tlb.machine import borrowed, host, memory
from tlb.machine.borrowed import DEFRAG, KSM_PAGES, KSM_RUN, KSM_SLEEP, SWAP, ZRAM, borrow
from tlb.page_sizes import BASE
from tlb.reasons import Unavailable, required
from tlb.system import procfs
from tlb.system.smaps import mappings
from tlb.units import format_size

# at the most on two CPUs of 24 GiB that others use too: most of it is memory that is taken and
# given back
SECONDS = 180
MIB = 1 << 20
LARGE = "thp"
# Linux, Documentation/admin-guide/mm/transhuge.rst
MODES = ("always", "defer", "defer+madvise", "madvise", "never")
ROUNDS = 6  # from so many values on, a median has an interval of 95 %
ROOMS = 8  # of a run: more would use up what memory there is in pieces
SIZES_MIB = (1, 4, 16, 64)  # of programs that live briefly
SLACK_BYTES = 1 << 30  # in pieces beyond what others are left: what all runs take
MOST_BYTES = 64 << 30  # to have so much memory end takes a minute
# seconds to wait for it: of equal pages a few stay, which others are merged into
MERGED_ROOMS, MERGE_S, MOST_MERGED = 8, 10.0, 0.99
SWAPPED_ROOMS, ZRAM_BYTES = 8, 128 * MIB
IDLE_ROOMS, IDLE_S = 32, 30.0  # beyond two of khugepaged's sleeps, of 10 s where nobody set them
# of a pool: what other programs do to MemAvailable meanwhile is a hundredth of it
TAKEN_BYTES = 1 << 30
PLAIN_BYTES = 64 * MIB
ZONES_BYTES = 1 << 24  # a few lines for each of a machine's CPUs
SCAN = {KSM_PAGES: "20000", KSM_SLEEP: "5", KSM_RUN: "1"}
THP = Path("sys/kernel/mm/transparent_hugepage")


def plan(leave_bytes: int | None = None, root: Path = Path("/")) -> tuple[int, int]:
    """Return bytes left to others (by default 15 % of memory, at least 1 GiB) and bytes to
    fragment."""
    leave = leave_bytes or max(1 << 30, memory.usable_memory(root).total_bytes * 15 // 100)
    return leave, 2 * (leave + SLACK_BYTES)


def measure(
    leave_bytes: int | None = None, say: Callable[[str], None] = lambda part: None
) -> Housekeeping:
    """Return the document of this computer; say: called before each part. Raises Unavailable:
    not-linux, setting-denied, setting-journal, setting-held."""
    borrowed.restore()
    inspected = host.inspect()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    room, (leave, fill) = inspected.thp.page_bytes or 2 * MIB, plan(leave_bytes)
    found: dict[str, Any] = {}
    lacking: dict[str, str] = {}

    def part(name: str, make: Callable[[], Any]) -> None:
        say(name)
        try:
            with (
                borrowed.borrowing()
            ):  # put back after each: a part is measured with the others' settings as they were
                found[name] = make()
        except Unavailable as why:
            if why.code in ("setting-denied", "setting-journal", "setting-held"):
                raise
            lacking[name] = why.code

    before = borrowed.value(DEFRAG)
    with rooms(IDLE_ROOMS, room) as left:
        begun = leave_idle(left)
        part("touched", lambda: [*touched(room, leave)])
        part("lives", lambda: [*lives(room)])
        part("merged", lambda: [merged(room) for _ in range(ROUNDS)])
        part("swapped", lambda: swapped(room))
        part("pool_taken", lambda: pool_taken(room, leave))
        part("pool_pageout", lambda: pool_pageout(room))
        part("pool_plain", lambda: pool_plain(room))
        part("idle", lambda: idle(left, begun))
    part("pieces", lambda: [*in_pieces(room, fill, leave)])
    for more in found.pop("pieces", ()):
        found.setdefault("touched" if isinstance(more, Touched) else "lives", []).append(more)
    return Housekeeping(
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        state=host.state(inspected),
        defrag=before,
        room_bytes=room,
        leave_bytes=leave,
        nodes=nodes(),
        lacking=lacking,
        **found,
    )


def nodes(root: Path = Path("/")) -> int:
    """Return the number of NUMA nodes with memory; 1 if not stated."""
    return max(1, len(procfs.cpu_list(procfs.word(root / "sys/devices/system/node/has_memory"))))


def modes(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the modes of defrag. Raises Unavailable("setting-absent")."""
    return required(
        tuple(procfs.text(root / DEFRAG).replace("[", "").replace("]", "").split()),
        f"/{DEFRAG}",
        "setting-absent",
    )


# --- first touches, and programs that live briefly


def touched(room: int, leave: int) -> Iterator[Touched]:
    """Yield first touches of memory as it is."""
    with fragments.memory(room, 0, leave) as free:
        free.touch(
            LARGE, ROOMS
        )  # a hypervisor may have to find the memory first, which is no part of this
        yield from _in_turns(free, FREE, lambda: None)


def in_pieces(room: int, fill: int, leave: int) -> Iterator[Touched | Lives]:
    """Yield the same in fragmented memory, and programs that live briefly there, with defrag at
    always. Raises Unavailable("memory-whole"), also if too much memory would have to be filled."""
    usable = memory.usable_memory()
    if not fill + leave <= usable.usable_bytes == usable.available_bytes <= MOST_BYTES:
        raise Unavailable(
            "memory-whole",
            f"{format_size(usable.usable_bytes)} may be used of "
            f"{format_size(usable.available_bytes)}",
        )
    borrow(DEFRAG, "never")  # what takes the free large pages makes none
    with fragments.memory(room, fill, leave) as pieces:

        def plug() -> None:
            borrow(DEFRAG, "never")
            pieces.plug()

        yield from _in_turns(pieces, FRAGMENTS, plug)
        times: dict[int, dict[str, list[int]]] = {mib: {BASE: [], LARGE: []} for mib in SIZES_MIB}
        for mib in SIZES_MIB * ROUNDS:
            plug()
            borrow(DEFRAG, MODES[0])
            for pages, ns in fragments.lives(room, mib * MIB, 1).items():
                times[mib][pages] += ns
        yield from (Lives(memory=FRAGMENTS, mib=mib, ns=ns) for mib, ns in times.items())


def _in_turns(where: fragments.Memory, name: str, before: Callable[[], None]) -> Iterator[Touched]:
    """Yield runs by mode and on base pages; each round begins with another mode."""
    listed = modes()
    runs: dict[str, list[Run]] = {mode: [] for mode in (*listed, "")}
    for n in range(ROUNDS):
        for mode in (*listed[n % len(listed) :], *listed[: n % len(listed)]):
            before()
            borrow(DEFRAG, mode)
            runs[mode].append(where.touch(LARGE, ROOMS))
        runs[""].append(where.touch(BASE, ROOMS))
    yield from (Touched(memory=name, mode=mode, runs=of) for mode, of in runs.items())


def lives(room: int) -> Iterator[Lives]:
    """Yield programs that live briefly in memory as it is."""
    for mib in SIZES_MIB:
        yield Lives(memory=FREE, mib=mib, ns=fragments.lives(room, mib * MIB, ROUNDS))


# --- what is merged, swapped, taken by a pool, and joined in the background


def merged(room: int) -> Merged:
    """Return one round. Raises Unavailable: setting-absent, no-merging."""
    page = os.sysconf("SC_PAGESIZE")
    content = bytes([1]) * page
    sharing = Path("/sys/kernel/mm/ksm/pages_sharing")
    for name, wanted in SCAN.items():
        borrow(name, wanted)
    with rooms(MERGED_ROOMS, room) as equal, rooms(MERGED_ROOMS, room) as own:
        equal.advise(HUGE)
        own.advise(NO_HUGE)
        for one in (equal, own):
            one.fill(content)
        large, shared = equal.kept("AnonHugePages"), procfs.number(sharing) or 0
        equal.advise(MERGEABLE)
        end, saved = time.monotonic() + MERGE_S, 0
        while saved < MOST_MERGED * equal.bytes and time.monotonic() < end:
            time.sleep(0.05)
            saved = ((procfs.number(sharing) or 0) - shared) * page
        if saved < equal.bytes // 2:
            raise Unavailable(
                "no-merging",
                f"{format_size(max(saved, 0))} of {format_size(equal.bytes)} in {MERGE_S:.0f} s",
            )
        after = equal.kept("AnonHugePages")
        ns = [
            int(median(one.write_ns(at) for at in range(0, one.bytes, page)))
            for one in (equal, own)
        ]
        if not shared:
            borrow(
                KSM_RUN, "2"
            )  # parts them again: stopped, it would count for ever pages that are long gone
        return Merged(
            bytes=equal.bytes,
            saved_bytes=saved,
            large_before=large,
            large_after=after,
            merged_write_ns=ns[0],
            own_write_ns=ns[1],
        )


def swapped(room: int) -> list[Swapped]:
    """Return rounds on base and large pages in turn, on a zram device of their own. Raises
    Unavailable: setting-absent, zram-busy."""
    if borrowed.value(ZRAM) not in ("", "0") or borrowed.value(SWAP) != "off":
        raise Unavailable("zram-busy")
    page = os.sysconf("SC_PAGESIZE")
    borrow(ZRAM, str(ZRAM_BYTES))
    with Path("/", SWAP).open(
        "r+b"
    ) as device:  # the head of a swap area, version 1 (linux/swap.h, union swap_header)
        device.seek(1024)
        device.write(struct.pack("=III", 1, ZRAM_BYTES // page - 1, 0))
        device.seek(page - 10)
        device.write(b"SWAPSPACE2")
    borrow(SWAP, "on")
    made = []
    for pages in (BASE, LARGE) * ROUNDS:
        with rooms(SWAPPED_ROOMS, room) as some:
            some.advise(HUGE if pages == LARGE else NO_HUGE)
            some.fill(os.urandom(page // 4) * 4)  # what can be compressed, and is not all one byte
            some.advise(PAGEOUT)
            out = some.kept("Swap")
            ns = tuple(some.read_ns(at) for at in range(0, some.bytes, room))
            made.append(
                Swapped(
                    pages=pages,
                    bytes=some.bytes,
                    out_bytes=out,
                    in_bytes=out - some.kept("Swap"),
                    read_ns=ns,
                )
            )
    return made


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
    counts = re.findall(
        r"^\s+count:\s+([0-9]{1,12})$",
        procfs.text(root / "proc/zoneinfo", ZONES_BYTES),
        re.MULTILINE,
    )
    return memory.usable_memory(root).available_bytes + sum(map(int, counts)) * os.sysconf(
        "SC_PAGESIZE"
    )


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
    return (
        sum(one.pool_bytes for one in mappings(Path("/proc/self/smaps").read_text())) / PLAIN_BYTES
    )


def leave_idle(left: Rooms) -> float:
    """Fill memory on base pages that may become large; return when, by the monotonic clock."""
    left.advise(NO_HUGE)
    left.fill(bytes(range(256)) * (os.sysconf("SC_PAGESIZE") // 256))
    left.advise(HUGE)
    return time.monotonic()


def idle(left: Rooms, begun: float) -> Idle:
    """Return what became of them, at least IDLE_S later."""
    time.sleep(max(0.0, begun + IDLE_S - time.monotonic()))
    words = {
        name: procfs.number(Path("/") / THP / "khugepaged" / name)
        for name in ("scan_sleep_millisecs", "pages_to_scan")
    }
    return Idle(
        seconds=round(time.monotonic() - begun, 1),
        bytes=left.bytes,
        large_bytes=left.kept("AnonHugePages"),
        scan_sleep_ms=words["scan_sleep_millisecs"],
        pages_to_scan=words["pages_to_scan"],
    )
