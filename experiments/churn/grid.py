"""Which points the chapter about churn measures: pages taken away, programs switched, started and
forked, and others beside them."""

from __future__ import annotations

from tlb.lab.grid import Scope
from tlb.lab.record import Point
from tlb.page_sizes import BASE

LARGE = "thp"
CALLS = ("unmap", "protect", "discard")
FEW, SOME, MANY = REMOVED = (
    1,
    32,
    512,
)  # pages a call; Linux flushes up to 33 singly, and of more the whole TLB
SWITCHES = ("alone", "thread", "process")
HELD = 512  # pages: more than a first level of those published holds, and fewer than a last one
CHASED = (64, HELD, 8 * HELD)  # pages after a switch; of a coarse grid the last two
UNSTATED_ENTRIES = (
    8 * HELD
)  # where nothing states the last level's: as many as the largest x86-64 has
FIRST_HOPS = 64  # after a switch, of a cycle that the TLB does not hold
PASSES = tuple(1 << octave for octave in range(7))  # rounds of a new process, kernels/cold_chase.c
FORKED_MIB = (4, 16, 64)  # of a coarse grid the ends
ARENA_BYTES, ARENAS = 100 << 10, 64  # as published: a part of a large page's room
FAR_BYTES = (
    512 << 20
)  # whose lowest tables are as large as a second-level cache, and its lines larger
STREAMED_MIB = (0, 1, 4, 16, 32, 64, 128)
COARSE_STREAMED_MIB = (0, 128)
DISCARDED = 40  # pages a call: more than Linux flushes singly
COLLAPSES = ("none", "other", "address", "random")
COLLAPSED_BYTES = 64 << 20  # on base pages more than any TLB of those published reaches
TAIL_MS = 30  # of region: for a 99th percentile of hundreds of slices


def points(scope: Scope) -> list[Point]:
    every = [
        *shootdowns(scope),
        *switches(scope),
        *starts(scope),
        *forks(scope),
        *neighbours(scope),
        *collapses(scope),
    ]
    return list(dict.fromkeys(every))


def others(scope: Scope) -> list[int]:
    """How many other CPUs run the program: none, one, and so on, in octaves of all."""
    return [n for n in (0, 1, 3, 7, 15, 31, 63) if n < scope.cpus]


def shootdowns(scope: Scope) -> list[Point]:
    """Each call on few and many pages, alone and beside most others; one call beside each number of
    them; beside as many processes that share nothing. Of a large page a part; and what the kernel
    moves by itself."""
    most = others(scope)[-1]
    by_pages = [
        (call, pages, n)
        for call in CALLS
        for pages in (REMOVED if scope.is_fine else (FEW, MANY))
        for n in (0, most)
    ]
    by_cpus = [(CALLS[0], FEW, n) for n in others(scope)]
    shared = [
        scope.point("shootdown", mode=call, lines=pages, threads=n)
        for call, pages, n in [*by_pages, *by_cpus]
    ]
    apart = [
        scope.point("shootdown", mode=call, lines=FEW, threads=most, apart=1)
        for call in CALLS
        if most
    ]
    parts = [scope.point("shootdown", LARGE, call, lines=FEW, threads=0) for call in CALLS]
    moved = [
        scope.point("shootdown", mode="collapse", lines=scope.pages_of(LARGE), threads=n)
        for n in (0, most)
    ]
    return [*shared, *apart, *parts, *moved]


def switches(scope: Scope) -> list[Point]:
    """A round of a chase after each switch; and the first hops of a cycle that the TLB does not
    hold."""
    walked = min(4 * (scope.entries[-1] if scope.entries else UNSTATED_ENTRIES), scope.most_lines)
    held = [
        point
        for mode in SWITCHES
        for lines in _chased(scope)
        for point in scope.chase("switch_chase", BASE, lines, mode)
    ]
    return [
        *held,
        *(
            scope.point("switch_chase", mode=mode, lines=walked, hops=FIRST_HOPS)
            for mode in SWITCHES
        ),
    ]


def _chased(scope: Scope) -> list[int]:
    return [
        lines for lines in (CHASED if scope.is_fine else CHASED[1:]) if lines <= scope.most_lines
    ]


def starts(scope: Scope) -> list[Point]:
    """The first rounds of a new process."""
    return [point for lines in _chased(scope) for point in scope.chase("cold_chase", BASE, lines)]


def forks(scope: Scope) -> list[Point]:
    """Forks by what is resident, and the writes after; a write to each large page's room; arenas
    apart, and side by side."""
    sizes = [
        scope.lines(mib << 20)
        for mib in FORKED_MIB[:: 1 if scope.is_fine else 2]
        if mib << 20 <= scope.profile.max_working_set
    ]
    used = max(ARENA_BYTES // scope.base_page_bytes, 1)
    written = [
        scope.point("fork_write", pages, "write", lines=lines)
        for pages in (BASE, LARGE)
        for lines in sizes
    ]
    single = [
        scope.point("fork_write", pages, "write", lines=ARENAS // 2, used=1)
        for pages in (BASE, LARGE)
    ]
    arenas = [
        scope.point("fork_write", pages, "touch", lines=ARENAS * used, used=n)
        for pages in (BASE, LARGE)
        for n in (used, 0)
    ]
    return [*written, *single, *arenas]


def far(scope: Scope) -> int:
    """Lines of a chase whose tables compete for the caches."""
    return min(scope.lines(FAR_BYTES), scope.most_lines)


def neighbours(scope: Scope) -> list[Point]:
    """The far chase beside streams, and one that the TLB holds beside a thread that gives pages
    back; on the core's other thread."""

    def beside(mode: str, lines: int, **load: int) -> list[Point]:
        return scope.chase(
            "neighbour_chase",
            BASE,
            lines,
            mode,
            region_ms=max(TAIL_MS, scope.profile.region_ms),
            **load,
        )

    near = min(HELD, scope.most_lines)
    alone = [*beside("alone", far(scope)), *beside("alone", near)]
    if scope.cpus < 2:
        return alone
    streams = [
        point
        for mib in (STREAMED_MIB if scope.is_fine else COARSE_STREAMED_MIB)
        for point in beside("other", far(scope), stream_kib=mib << 10)
    ]
    taken = [
        point for pages in (0, DISCARDED) for point in beside("other", near, discard_pages=pages)
    ]
    shared = [
        point
        for lines in (0, scope.lines(32 << 20))
        for point in beside("sibling", near, walk_lines=lines)
    ]
    return [*(alone if scope.is_fine else ()), *streams, *taken, *shared]


def collapses(scope: Scope) -> list[Point]:
    """A chase before, during and after the kernel makes large pages of base pages."""
    lines = scope.lines(COLLAPSED_BYTES)
    fits = lines <= scope.most_lines and scope.cpus > 1 and lines % scope.pages_of(LARGE) == 0
    return (
        [scope.point("collapse_chase", mode=mode, lines=lines) for mode in COLLAPSES]
        if fits
        else []
    )
