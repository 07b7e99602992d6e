"""Measure what Linux's housekeeping of memory costs; on request, because it changes settings. All
are restored.

Parts that this Linux lacks have a reason. Each part alternates, round by round, what it compares.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pydantic import ValidationError

from experiments.housekeeping.document import (
    FRAGMENTS,
    FREE,
    LARGE,
    Housekeeping,
    Idle,
    Lives,
    MemoryKind,
    Merged,
    Run,
    Swapped,
    Touched,
)
from tlb.machine import changed_settings, host, memory
from tlb.machine.changed_settings import DEFRAG, KSM_PAGES, KSM_RUN, KSM_SLEEP, SWAP, ZRAM, borrow
from tlb.measure import build
from tlb.measure.record import utc_now
from tlb.measure.session import lack
from tlb.system import procfs
from tlb.system.page_sizes import BASE
from tlb.system.processes import PROBE_S, run_whole
from tlb.system.reasons import Unavailable, required
from tlb.system.smaps import of_process
from tlb.system.units import format_size

# at the most on two CPUs of 24 GiB that others use too: most of it is memory that is taken and
# given back
SECONDS = 180
MIB = 1 << 20
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
# asm-generic/mman-common.h; the last since Linux 5.4
HUGE, NO_HUGE, MERGEABLE, PAGEOUT = 14, 15, 12, 21
MAP_HUGETLB = 0x40000
# of a pool: what other programs do to MemAvailable meanwhile is a hundredth of it
TAKEN_BYTES = 1 << 30
PLAIN_BYTES = 64 * MIB
_LISTED = re.compile(r"\s+count:\s+([0-9]{1,12})")  # pages in one CPU's list, in zoneinfo
_PROGRAMS = build.KERNELS / "housekeeping"


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
        measured_at=utc_now(),
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
    with fragmented_memory(room, 0, leave) as free:
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
    with fragmented_memory(room, fill, leave) as pieces:

        def plug() -> None:
            borrow(DEFRAG, "never")
            pieces.plug()

        yield from _in_turns(pieces, FRAGMENTS, plug)
        times: dict[int, dict[str, list[int]]] = {mib: {BASE: [], LARGE: []} for mib in SIZES_MIB}
        for mib in SIZES_MIB * ROUNDS:
            plug()
            borrow(DEFRAG, MODES[0])
            for pages, ns in short_lives(room, mib * MIB, 1).items():
                times[mib][pages] += ns
        yield from (_lives(FRAGMENTS, mib, ns) for mib, ns in times.items())


def _lives(memory: MemoryKind, mib: int, times: dict[str, list[int]]) -> Lives:
    return Lives(memory=memory, mib=mib, ns={pages: tuple(ns) for pages, ns in times.items()})


def _in_turns(
    where: FragmentsProgram, kind: MemoryKind, before: Callable[[], None]
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
    yield from (Touched(memory=kind, mode=mode, runs=tuple(of)) for mode, of in runs.items())


def lives(room: int) -> Iterator[Lives]:
    """Yield programs that live briefly in memory as it is."""
    for mib in SIZES_MIB:
        yield _lives(FREE, mib, short_lives(room, mib * MIB, ROUNDS))


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


# --- what huge page pools do to other memory


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


# --- the programs of kernels/housekeeping


class FragmentsProgram(NamedTuple):
    """A running `fragments`: memory as it is, or fragmented."""

    process: subprocess.Popen[str]

    def plug(self) -> None:
        """Take the free large pages that there are by now. Raises Unavailable."""
        self._asked("plug")

    def touch(self, pages: str, rooms: int) -> Run:
        """Time first touches on "4k" or "thp". Raises Unavailable."""
        try:
            return Run.model_validate(self._asked(f"touch {pages} {rooms}"))
        except ValidationError as error:
            raise Unavailable("kernel-garbage", str(error.errors()[0]["msg"])) from None

    def _asked(self, line: str) -> dict[str, Any]:
        assert self.process.stdin  # a pipe
        with suppress(OSError):  # where it ended, its last line says why
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return its next line. Raises Unavailable: its own reason, memory-short if it was
        killed."""
        assert self.process.stdout  # a pipe
        return _parsed(self.process.stdout.readline())


def _parsed(line: str) -> dict[str, Any]:
    line = line or '{"reason": "memory-short", "detail": "it was ended"}'
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Unavailable("kernel-garbage", line[:80])
    if "reason" in answer:
        raise lack(line)
    return answer


@contextmanager
def fragmented_memory(
    room_bytes: int, fill_bytes: int, leave_bytes: int
) -> Iterator[FragmentsProgram]:
    """Yield memory of which `fill_bytes` are fragmented, with no large page free; 0 leaves it as it
    is.

    `leave_bytes` stay available. Raises Unavailable: memory-whole, thp-never, no-compiler.
    """
    command = [
        str(build.program(_PROGRAMS / "fragments.c")),
        *map(str, (room_bytes, fill_bytes, leave_bytes)),
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with suppress(BrokenPipeError), process:  # what it was not told any more
        try:
            made = FragmentsProgram(process)
            made.answer()
            yield made
        finally:
            process.kill()


def short_lives(room_bytes: int, size_bytes: int, rounds: int) -> dict[str, list[int]]:
    """Return ns of programs that write so many bytes and end, by page size. Raises Unavailable."""
    command: Sequence[str] = [
        str(build.program(_PROGRAMS / "short_lived.c")),
        *map(str, (room_bytes, size_bytes, rounds)),
    ]
    try:
        done = run_whole(command, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        raise Unavailable("memory-short", f"no answer in {PROBE_S:.0f} s") from None
    times: dict[str, list[int]] = {"4k": [], "thp": []}
    for line in done.stdout.splitlines() or [""]:
        answer = _parsed(line)
        times[answer["pages"]].append(int(answer["ns"]))
    return times


# --- memory of this process in blocks of one large page


class Rooms:
    """`count` aligned blocks of `room_bytes`; from the pool, of whole large pages.

    Raises Unavailable: memory-short, pool-empty.
    """

    def __init__(self, count: int, room_bytes: int, *, pool: bool = False) -> None:
        self.count, self.room_bytes = count, room_bytes
        self.bytes = count * room_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_HUGETLB if pool else 0)
        try:
            self._memory = mmap.mmap(-1, self.bytes + (0 if pool else room_bytes), flags=flags)
        except OSError as error:
            raise Unavailable(
                "pool-empty" if pool else "memory-short", error.strerror or ""
            ) from error
        self._view = (ctypes.c_char * len(self._memory)).from_buffer(self._memory)
        begin = ctypes.addressof(self._view)
        self._skip = -begin % room_bytes
        self.address = begin + self._skip

    def advise(self, advice: int) -> None:
        """Call madvise(2) for all blocks. Raises OSError."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if libc.madvise(self.address, self.bytes, advice):
            raise OSError(ctypes.get_errno(), "madvise")

    def fill(self, content: bytes) -> None:
        """Write the same content to each base page, which it is as long as."""
        for at in range(self._skip, self._skip + self.bytes, len(content)):
            self._memory[at : at + len(content)] = content

    def write_ns(self, at: int) -> int:
        """Return ns of writing one byte, with tens of ns of Python's own."""
        begin = time.perf_counter_ns()
        self._memory[self._skip + at] = 7
        return time.perf_counter_ns() - begin

    def read_ns(self, at: int) -> int:
        """Return ns of reading one byte."""
        begin = time.perf_counter_ns()
        self._memory[self._skip + at]
        return time.perf_counter_ns() - begin

    def kept(self, field: str, smaps: Path = Path("/proc/self/smaps")) -> int:
        """Return the blocks' bytes by a field of smaps: Rss, AnonHugePages, Swap."""
        return sum(
            procfs.kib(fields.get(field, "")) or 0 for fields in self._mappings(procfs.lines(smaps))
        )

    def _mappings(self, smaps: Iterable[str]) -> Iterator[dict[str, str]]:
        begin = end = 0
        fields: dict[str, str] = {}
        for line in (*smaps, "0-0 "):
            name, _, rest = line.partition(" ")
            if name.endswith(":"):
                fields[name[:-1]] = rest.strip()
            elif "-" in name:
                if self.address < end and begin < self.address + self.bytes:
                    yield fields
                begin, end = (int(part, 16) for part in name.split("-"))
                fields = {}

    def close(self) -> None:
        """Give all of it back."""
        del self._view
        self._memory.close()


@contextmanager
def rooms(count: int, room_bytes: int, *, pool: bool = False) -> Iterator[Rooms]:
    """Yield blocks; give them back at the end."""
    made = Rooms(count, room_bytes, pool=pool)
    try:
        yield made
    finally:
        made.close()
