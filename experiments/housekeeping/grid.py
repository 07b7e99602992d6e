"""Which points the chapter about the kernel's housekeeping measures: pages collapsed, forks, and
sparse memory. What needs settings changed is the document of `tlb housekeeping measure`."""

from __future__ import annotations

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE

LARGE = "thp"
FORKED_MIB = (4, 16, 64)  # of a coarse grid the ends
ARENA_BYTES, ARENAS = 100 << 10, 64  # as published: a part of a large page's room
COLLAPSED_AREAS = ("none", "other", "address", "random")
COLLAPSED_BYTES = 64 << 20  # on base pages more than any TLB of those published reaches


def points(scope: Scope) -> list[Point]:
    return list(dict.fromkeys([*collapses(scope), *forks(scope)]))


def collapses(scope: Scope) -> list[Point]:
    """A large page made of base pages, on one CPU and beside others of the program; and a chase
    before, during and after."""
    lines = scope.lines(COLLAPSED_BYTES)
    fits = lines <= scope.most_lines and scope.cpus > 1 and lines % scope.pages_of(LARGE) == 0
    moved = [
        scope.point("shootdown", mode="collapse", lines=scope.pages_of(LARGE), threads=n)
        for n in (0, most_other_cpus(scope))
    ]
    chases = [scope.point("collapse_chase", mode=mode, lines=lines) for mode in COLLAPSED_AREAS]
    return [*moved, *(chases if fits else ())]


def most_other_cpus(scope: Scope) -> int:
    """Return on how many other CPUs the program runs at most: one less than a power of two."""
    return (1 << min(scope.cpus, 64).bit_length() - 1) - 1


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
