"""Which points the chapter about page faults measures: first touches of a file and of fresh memory,
of memory that was left alone, and threads that map and take away."""

from __future__ import annotations

from typing import Any

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES

ARTICLE_FILE_BYTES = 12 << 20  # the published file
PAGES_WRITTEN_AT_ONCE = 1 << 16  # pages of it that one write has: more than it has
HUGE_PAGE_KIND = "thp"
ARTICLE_CHUNK_BYTES, ARTICLE_CHUNK_COUNT = (
    512 << 10,
    7,
)  # the published program's own, and as many as it was asked for
MOST_THREADS = 7  # published
COARSE_THREADS = (1, 2, 4, MOST_THREADS)  # of a coarse grid, and as many as there are CPUs
AGAIN_BYTES = 128 << 20  # a thousandth of its base pages are 32
# Linux tells a host of free pages two seconds after the first came free, and of a part of them at a
# time (mm/page_reporting.c, PAGE_REPORTING_DELAY and PAGE_REPORTING_CAPACITY): one wait is short of
# that, and one has room for two such times.
IDLE_MS = {BASE_PAGES: (0, 5000), HUGE_PAGE_KIND: (0, 1000, 5000)}
PREFAULT_BYTES, COARSE_BYTES = 256 << 20, 64 << 20  # as the chapter about keeping pages has them


def points(scope: Scope) -> list[Point]:
    return [*touches(scope), *again(scope), *churn(scope), *prefaults(scope)]


def touches(scope: Scope) -> list[Point]:
    """Return first touches of a file and of fresh memory; both with all
    pages populated before the first touch; and fresh memory in a memory
    cgroup and on large pages."""
    lines = min(scope.lines(ARTICLE_FILE_BYTES), scope.most_lines)
    ready, untouched = {"populate": 1}, {"populate": 0}
    ways: list[tuple[str, str, str, dict[str, Any]]] = [
        (BASE_PAGES, "file", "cycle", untouched),
        (BASE_PAGES, "file", "sequential", untouched),
        (BASE_PAGES, "file", "cycle", ready),
        (BASE_PAGES, "file", "cycle", untouched | {"written": PAGES_WRITTEN_AT_ONCE}),
        (BASE_PAGES, "anonymous", "cycle", untouched),
        (BASE_PAGES, "anonymous", "cycle", ready),
        (BASE_PAGES, "grouped", "cycle", untouched),
        (HUGE_PAGE_KIND, "anonymous", "cycle", untouched),
    ]
    return [
        scope.point("page_fault", pages, mode, order=order, lines=lines, **own)
        for pages, mode, order, own in ways
        if scope.pages_of(pages) <= lines
    ]


def again(scope: Scope) -> list[Point]:
    """Return memory that is used, freed, left alone, and touched again."""
    lines = min(scope.lines(AGAIN_BYTES), scope.most_lines)
    return [
        scope.point("touch_again", pages, lines=lines, idle_ms=idle)
        for pages, idles in IDLE_MS.items()
        for idle in (idles if scope.is_fine else (idles[0], idles[-1]))
        if scope.pages_of(pages) <= lines
    ]


def churn(scope: Scope) -> list[Point]:
    """Return records that each map and unmap a chunk, by threads, with their control; and by page
    size, with a chunk of a large page."""

    def records(mode: str, threads: int, chunk_bytes: int, pages: str = BASE_PAGES) -> Point:
        return scope.point(
            "map_churn",
            pages,
            mode,
            lines=ARTICLE_CHUNK_COUNT * chunk_bytes // CACHE_LINE_BYTES,
            threads=threads,
        )

    threads = {*COARSE_THREADS, min(scope.cpus, MOST_THREADS)}
    if scope.is_fine:
        threads = set(range(1, MOST_THREADS + 1))
    points = [
        records(mode, many, ARTICLE_CHUNK_BYTES)
        for mode in ("unmap", "keep")
        for many in sorted(threads)
    ]
    large = scope.pages_of(HUGE_PAGE_KIND) * scope.base_page_bytes
    if ARTICLE_CHUNK_COUNT * large <= scope.profile.max_working_set:
        points += [records("unmap", 1, large, pages) for pages in (BASE_PAGES, HUGE_PAGE_KIND)]
    return points


def prefaults(scope: Scope) -> list[Point]:
    """Return a heap that one thread fills, or two, each its half; and one on large pages."""
    lines = min(scope.lines(PREFAULT_BYTES if scope.is_fine else COARSE_BYTES), scope.most_lines)
    ways = [(BASE_PAGES, 1), *([(BASE_PAGES, 2)] if scope.cpus > 1 else []), (HUGE_PAGE_KIND, 1)]
    return [
        scope.point("prefault", pages, "touch", lines=lines, threads=threads)
        for pages, threads in ways
        if scope.pages_of(pages) <= lines
    ]
