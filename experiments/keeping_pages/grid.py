"""Which points the chapter about getting pages measures: faulting in on each size, and one chase up
the ladder of sizes."""

from __future__ import annotations

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES, FULLY_SWEPT_PAGES, HUGE_PAGE_KINDS, PAGE_KINDS

# Enough that the ends do not count; of a coarse grid a quarter.
PREFAULT_BYTES, COARSE_BYTES = 256 << 20, 64 << 20
# on base pages seven loads in eight walk; a page of four times the size and more has entries for
# all
TIMES_THE_REACH = 8
USUAL_ENTRIES = 2048  # of the last level, where nothing states them


def points(scope: Scope) -> list[Point]:
    return prefaults(scope) + ladder(scope)


def prefaults(scope: Scope) -> list[Point]:
    """Return the fillings of fresh memory: by writes (touch), by Linux
    (populate) and by memset, from one thread and from one on each CPU if each
    has whole pages. Other sizes of mTHP than 64 KiB are only touched; a coarse
    grid omits them, and only touches pages of 64 KiB and 1 GiB."""
    lines = min(scope.lines(PREFAULT_BYTES if scope.is_fine else COARSE_BYTES), scope.most_lines)
    ways = [("touch", 1), ("populate", 1), ("memset", 1)]
    if scope.cpus > 1:
        ways += [("touch", scope.cpus), ("populate", scope.cpus)]
    sizes = [pages for pages in _offered(scope) if scope.is_fine or pages in FULLY_SWEPT_PAGES]
    every = FULLY_SWEPT_PAGES if scope.is_fine else (BASE_PAGES, *HUGE_PAGE_KINDS)
    return [
        scope.point("prefault", pages, mode, lines=lines, threads=threads)
        for pages in sizes
        for mode, threads in (ways if pages in every else ways[:1])
        if threads == 1 or threads * scope.pages_of(pages) <= lines
    ]


def ladder(scope: Scope) -> list[Point]:
    """The chase on every page size that one entry of the last level's table can be part of, over
    several times the TLB's reach. Of a coarse grid, on every other one of those between."""
    between = [pages for pages in _offered(scope) if pages not in FULLY_SWEPT_PAGES]
    skipped = [] if scope.is_fine else between[1::2]
    reach = TIMES_THE_REACH * max(scope.entries, default=USUAL_ENTRIES)
    lines = min(1 << reach.bit_length() - 1, scope.most_lines)
    return [
        point
        for pages in _offered(scope)
        if PAGE_KINDS[pages].source != "pool" and pages not in skipped
        for point in scope.chase("page_chase", pages, lines)
    ]


def _offered(scope: Scope) -> list[str]:
    """The base page and those that are larger: where it has 64 KiB there is no smaller one."""
    return [
        pages
        for pages, size in PAGE_KINDS.items()
        if size.size_bytes is None or size.size_bytes > scope.base_page_bytes
    ]
