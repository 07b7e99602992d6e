"""Which points the chapter about flushes measures: pages taken away while a program runs on one CPU
and on more, programs switched and started, chases beside neighbours, and pages that Linux collapses
or copies."""

from __future__ import annotations

from typing import Any

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES

HUGE_PAGE_KIND = "thp"
PAGES_WITHIN_STLB = (
    512  # pages: more than a first level of those published holds, and fewer than a last one
)
TAIL_MS = 30  # of region: for a 99th percentile of hundreds of slices

# --- shootdowns
MAPPING_SYSTEM_CALLS = ("unmap", "protect", "discard")
# Pages a call; Linux flushes up to 33 singly, and of more the whole TLB.
ONE_PAGE_PER_CALL, _, MANY = REMOVED = 1, 32, 512
PAGES_PER_DISCARD = 40  # pages a call: more than Linux flushes singly

# --- switches
SWITCH_MODES = ("alone", "thread", "process")
# pages after a switch; of a coarse grid the last two
CHASED = (64, PAGES_WITHIN_STLB, 8 * PAGES_WITHIN_STLB)
# of a last level that nothing states: as the largest x86-64 has
UNSTATED_ENTRIES = 8 * PAGES_WITHIN_STLB
HOPS_TIMED_AFTER_SWITCH = 64  # after a switch, of a cycle that the TLB does not hold

# --- neighbours
FAR_BYTES = 512 << 20  # whose lowest tables fill a second-level cache, and its lines more
STREAMED_MIB = (0, 1, 4, 16, 32, 64, 128)
COARSE_STREAMED_MIB = (0, 128)

# --- Linux's own work
FORKED_PROCESS_MIB = (4, 16, 64)  # of a coarse grid the ends
MALLOC_ARENA_BYTES, MALLOC_ARENA_COUNT = (
    100 << 10,
    64,
)  # as published: a part of a large page's room
COLLAPSED_AREAS = ("none", "other", "address", "random")
COLLAPSED_BYTES = 64 << 20  # on base pages more than any TLB of those published reaches


def points(scope: Scope) -> list[Point]:
    parts = (shootdowns, interrupted, switches, neighbours, collapses, forks)
    return list(dict.fromkeys(point for part in parts for point in part(scope)))


def other_cpu_counts(scope: Scope) -> list[int]:
    """How many other CPUs run the program: none, one, and so on, in octaves of all."""
    return [n for n in (0, 1, 3, 7, 15, 31, 63) if n < scope.cpus]


def shootdowns(scope: Scope) -> list[Point]:
    """Return calls that remove pages, while threads of the program run on
    other CPUs; beside separate processes; and on a part of a huge page."""

    def call(mode: str, pages: int, on: str = BASE_PAGES, **options: Any) -> Point:
        return scope.point("shootdown", on, mode, lines=pages, **options)

    counts = other_cpu_counts(scope)  # of threads on other CPUs, from 0
    sizes = REMOVED if scope.is_fine else (ONE_PAGE_PER_CALL, MANY)
    asked = [call("unmap", ONE_PAGE_PER_CALL, threads=n) for n in counts]
    for mode in MAPPING_SYSTEM_CALLS:  # unmap, protect, discard
        for pages in sizes:
            ends = (counts[0], counts[-1])
            asked += [call(mode, pages, threads=n) for n in ends]
        if counts[-1]:  # separate processes in the threads' place
            asked.append(call(mode, ONE_PAGE_PER_CALL, threads=counts[-1], apart=1))
        asked.append(call(mode, ONE_PAGE_PER_CALL, HUGE_PAGE_KIND, threads=0))
    return asked


def _beside(scope: Scope, mode: str, lines: int, **load: Any) -> list[Point]:
    region_ms = max(TAIL_MS, scope.profile.region_ms)
    return scope.chase("neighbour_chase", BASE_PAGES, lines, mode, region_ms=region_ms, **load)


def interrupted(scope: Scope) -> list[Point]:
    """A chase that the TLB holds, alone and beside a thread that gives pages back or only runs."""
    lines = min(PAGES_WITHIN_STLB, scope.most_lines)
    if scope.cpus < 2:
        return _beside(scope, "alone", lines)
    taken = [
        point
        for pages in (0, PAGES_PER_DISCARD)
        for point in _beside(scope, "other", lines, discard_pages=pages)
    ]
    return [*(_beside(scope, "alone", lines) if scope.is_fine else ()), *taken]


def switches(scope: Scope) -> list[Point]:
    """A round of a chase after each switch, and of a new process; and the first hops of a cycle
    that the TLB does not hold."""
    walked = min(4 * max(scope.entries[-1:], default=UNSTATED_ENTRIES), scope.most_lines)
    chased = [n for n in CHASED[0 if scope.is_fine else 1 :] if n <= scope.most_lines]
    rounds = [("switch_chase", mode) for mode in SWITCH_MODES] + [("cold_chase", "")]
    held = [
        point
        for kernel, mode in rounds
        for lines in chased
        for point in scope.chase(kernel, BASE_PAGES, lines, mode)
    ]
    return held + [
        scope.point("switch_chase", mode=mode, lines=walked, hops=HOPS_TIMED_AFTER_SWITCH)
        for mode in SWITCH_MODES
    ]


def lines_beyond_caches(scope: Scope) -> int:
    """Lines of a chase whose tables compete for the caches."""
    return min(scope.lines(FAR_BYTES), scope.most_lines)


def neighbours(scope: Scope) -> list[Point]:
    """The far chase alone and beside streams, and one that the TLB holds beside a chase on the
    core's other thread."""
    alone = _beside(scope, "alone", lines_beyond_caches(scope))
    if scope.cpus < 2:
        return alone
    streams = [
        point
        for mib in (STREAMED_MIB if scope.is_fine else COARSE_STREAMED_MIB)
        for point in _beside(scope, "other", lines_beyond_caches(scope), stream_kib=mib << 10)
    ]
    held = min(PAGES_WITHIN_STLB, scope.most_lines)
    shared = [
        point
        for lines in (0, scope.lines(32 << 20))
        for point in _beside(scope, "sibling", held, walk_lines=lines)
    ]
    return [*(alone if scope.is_fine else ()), *streams, *shared]


def collapses(scope: Scope) -> list[Point]:
    """A large page made of base pages, on one CPU and beside others of the program; and a chase
    before, during and after."""
    lines = scope.lines(COLLAPSED_BYTES)
    fits = (
        lines <= scope.most_lines and scope.cpus > 1 and lines % scope.pages_of(HUGE_PAGE_KIND) == 0
    )
    moved = [
        scope.point("shootdown", mode="collapse", lines=scope.pages_of(HUGE_PAGE_KIND), threads=n)
        for n in (0, other_cpu_counts(scope)[-1])
    ]
    chases = [scope.point("collapse_chase", mode=mode, lines=lines) for mode in COLLAPSED_AREAS]
    return [*moved, *(chases if fits else ())]


def forks(scope: Scope) -> list[Point]:
    """Forks by what is resident, and the writes after; a write to each large page's room; arenas
    apart, and side by side."""
    sizes = [
        scope.lines(mib << 20)
        for mib in FORKED_PROCESS_MIB[:: 1 if scope.is_fine else 2]
        if mib << 20 <= scope.profile.max_working_set
    ]
    used = max(MALLOC_ARENA_BYTES // scope.base_page_bytes, 1)
    written = [
        scope.point("fork_write", pages, "write", lines=lines)
        for pages in (BASE_PAGES, HUGE_PAGE_KIND)
        for lines in sizes
    ]
    single = [
        scope.point("fork_write", pages, "write", lines=MALLOC_ARENA_COUNT // 2, used=1)
        for pages in (BASE_PAGES, HUGE_PAGE_KIND)
    ]
    arenas = [
        scope.point("fork_write", pages, "touch", lines=MALLOC_ARENA_COUNT * used, used=n)
        for pages in (BASE_PAGES, HUGE_PAGE_KIND)
        for n in (used, 0)
    ]
    return [*written, *single, *arenas]
