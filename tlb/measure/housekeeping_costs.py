"""Measure what the kernel's own housekeeping costs; on request, because it changes settings. All
are put back.

Parts that a kernel lacks have a reason. Each part alternates, round by round, what it compares.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from tlb.machine import changed_settings, host, memory
from tlb.machine.changed_settings import DEFRAG, KSM_PAGES, KSM_RUN, KSM_SLEEP, SWAP, ZRAM, borrow
from tlb.measure import fragmented_memory
from tlb.measure.fragmented_memory import Run
from tlb.measure.housekeeping import (
    FRAGMENTS,
    FREE,
    Housekeeping,
    Idle,
    Lives,
    Merged,
    Swapped,
    Touched,
)
from tlb.measure.large_blocks import HUGE, MERGEABLE, NO_HUGE, PAGEOUT, Rooms, rooms
from tlb.measure.pool_costs import pool_pageout, pool_plain, pool_taken
from tlb.measure.record import now
from tlb.system import procfs
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable, required
from tlb.system.units import format_size

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
    changed_settings.restore()
    inspected = host.inspect()
    if inspected.os != "Linux":
        raise Unavailable("not-linux")
    room, (leave, fill) = inspected.thp.page_bytes or 2 * MIB, plan(leave_bytes)
    parts = _Parts(say)
    before = changed_settings.value(DEFRAG)
    with rooms(IDLE_ROOMS, room) as left:
        begun = leave_idle(left)
        parts.add("touched", lambda: [*touched(room, leave)])
        parts.add("lives", lambda: [*lives(room)])
        parts.add("merged", lambda: [merged(room) for _ in range(ROUNDS)])
        parts.add("swapped", lambda: swapped(room))
        parts.add("pool_taken", lambda: pool_taken(room, leave))
        parts.add("pool_pageout", lambda: pool_pageout(room))
        parts.add("pool_plain", lambda: pool_plain(room))
        parts.add("idle", lambda: idle(left, begun))
    parts.add("pieces", lambda: [*in_pieces(room, fill, leave)])
    for more in parts.found.pop("pieces", ()):
        name = "touched" if isinstance(more, Touched) else "lives"
        parts.found.setdefault(name, []).append(more)
    return Housekeeping(
        measured_at=now(),
        state=host.state(inspected),
        defrag=before,
        room_bytes=room,
        leave_bytes=leave,
        nodes=nodes(),
        lacking=parts.lacking,
        **parts.found,
    )


class _Parts:
    """The document's parts that were measured, and the reason codes of the others."""

    def __init__(self, say: Callable[[str], None]):
        self.found: dict[str, Any] = {}
        self.lacking: dict[str, str] = {}
        self._say = say

    def add(self, name: str, make: Callable[[], Any]) -> None:
        """Measure a part with settings that are put back after it. Raises Unavailable where
        settings cannot be changed at all."""
        self._say(name)
        try:
            with changed_settings.borrowing():
                self.found[name] = make()
        except Unavailable as why:
            if why.code in ("setting-denied", "setting-journal", "setting-held"):
                raise
            self.lacking[name] = why.code


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
    with fragmented_memory.memory(room, 0, leave) as free:
        # a hypervisor may have to find the memory first, which is no part of this
        free.touch(LARGE, ROOMS)
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
    with fragmented_memory.memory(room, fill, leave) as pieces:

        def plug() -> None:
            borrow(DEFRAG, "never")
            pieces.plug()

        yield from _in_turns(pieces, FRAGMENTS, plug)
        times: dict[int, dict[str, list[int]]] = {mib: {BASE: [], LARGE: []} for mib in SIZES_MIB}
        for mib in SIZES_MIB * ROUNDS:
            plug()
            borrow(DEFRAG, MODES[0])
            for pages, ns in fragmented_memory.lives(room, mib * MIB, 1).items():
                times[mib][pages] += ns
        yield from (Lives(memory=FRAGMENTS, mib=mib, ns=ns) for mib, ns in times.items())


def _in_turns(
    where: fragmented_memory.Memory, name: str, before: Callable[[], None]
) -> Iterator[Touched]:
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
        yield Lives(memory=FREE, mib=mib, ns=fragmented_memory.lives(room, mib * MIB, ROUNDS))


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
            # parts them again: stopped, it would count for ever pages that are long gone
            borrow(KSM_RUN, "2")
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
    if changed_settings.value(ZRAM) not in ("", "0") or changed_settings.value(SWAP) != "off":
        raise Unavailable("zram-busy")
    page = os.sysconf("SC_PAGESIZE")
    borrow(ZRAM, str(ZRAM_BYTES))
    # the head of a swap area, version 1 (linux/swap.h, union swap_header)
    with Path("/", SWAP).open("r+b") as device:
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
