"""Which points the chapter about TLB shootdowns measures: pages taken away while a program runs on
one CPU and on more, and a chase beside a thread that gives pages back."""

from __future__ import annotations

from typing import Any

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE

LARGE = "thp"
MEMORY_CALLS = ("unmap", "protect", "discard")
# Pages a call; Linux flushes up to 33 singly, and of more the whole TLB.
ONE_PAGE, _, MANY = REMOVED = 1, 32, 512
PAGES_THE_TLB_HOLDS = (
    512  # pages: more than a first level of those published holds, and fewer than a last one
)
DISCARDED_PAGES = 40  # pages a call: more than Linux flushes singly
TAIL_MS = 30  # of region: for a 99th percentile of hundreds of slices


def points(scope: Scope) -> list[Point]:
    return list(dict.fromkeys([*shootdowns(scope), *victims(scope)]))


def other_cpu_counts(scope: Scope) -> list[int]:
    """How many other CPUs run the program: none, one, and so on, in octaves of all."""
    return [n for n in (0, 1, 3, 7, 15, 31, 63) if n < scope.cpus]


def shootdowns(scope: Scope) -> list[Point]:
    """Each call on few and many pages, alone and beside most others; one call beside each number of
    them; beside as many processes that share nothing; and of a large page a part."""
    most = other_cpu_counts(scope)[-1]
    by_pages = [
        (call, pages, n)
        for call in MEMORY_CALLS
        for pages in (REMOVED if scope.is_fine else (ONE_PAGE, MANY))
        for n in (0, most)
    ]
    by_cpus = [(MEMORY_CALLS[0], ONE_PAGE, n) for n in other_cpu_counts(scope)]
    shared = [
        scope.point("shootdown", mode=call, lines=pages, threads=n)
        for call, pages, n in [*by_pages, *by_cpus]
    ]
    apart = [
        scope.point("shootdown", mode=call, lines=ONE_PAGE, threads=most, apart=1)
        for call in MEMORY_CALLS
        if most
    ]
    parts = [
        scope.point("shootdown", LARGE, call, lines=ONE_PAGE, threads=0) for call in MEMORY_CALLS
    ]
    return [*shared, *apart, *parts]


def victims(scope: Scope) -> list[Point]:
    """A chase that the TLB holds, alone and beside a thread that gives pages back or only runs."""

    def beside(mode: str, **load: Any) -> list[Point]:
        lines = min(PAGES_THE_TLB_HOLDS, scope.most_lines)
        region_ms = max(TAIL_MS, scope.profile.region_ms)
        return scope.chase("neighbour_chase", BASE, lines, mode, region_ms=region_ms, **load)

    if scope.cpus < 2:
        return beside("alone")
    taken = [
        point for pages in (0, DISCARDED_PAGES) for point in beside("other", discard_pages=pages)
    ]
    return [*(beside("alone") if scope.is_fine else ()), *taken]
