"""Which points the chapter about page sizes measures: the same chase on each of them, the published
loop, and random touches."""

from __future__ import annotations

from typing import Any

from tlb.measure.grid import DENSELY_SAMPLED_BELOW_BYTES, SMALLEST_LINE_COUNT, Scope, octaves
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES, FULLY_SWEPT_PAGES, HUGE_PAGE_KINDS

# The published benchmark's sizes (data/literature/jmh_byte_array_touch.csv), and one past them.
TOUCH_BYTES = (1_000, 10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
# Of data/literature/hugepages_speedup.csv, and of the text beside it.
GATHER_BYTES = (2 << 20, 16 << 20, 256 << 20, 1 << 30, 4 << 30)
GATHER_PAGES = (BASE_PAGES, "thp", "2m", "1g")
TOUCH_PAGES = (BASE_PAGES, "thp", "2m")
# Of a coarse grid, with as much work again: inside a first cache, and past the last.
SPARE_BYTES = TOUCH_BYTES[0], TOUCH_BYTES[-2]


def points(scope: Scope) -> list[Point]:
    return chases(scope) + gathers(scope) + touches(scope)


def chases(scope: Scope) -> list[Point]:
    """Return the chase on each page size: so many lines, one in every base page, and its control,
    which packs them side by side."""
    return [
        point
        for pages, sizes in line_counts(scope).items()
        for lines in sizes
        for point in scope.chase("page_chase", pages, lines)
    ]


def line_counts(scope: Scope) -> dict[str, list[int]]:
    """Return by page size how many lines are chased. Between octaves where base pages and 2 MiB pages
    are compared line by line: do entries span what was mapped?"""
    sizes = octaves(SMALLEST_LINE_COUNT, scope.most_lines, 1)
    if scope.is_fine:
        fine = scope.dense(None if scope.engine == "c" else 1)
        return {
            pages: sorted({*sizes, *(fine if pages in (BASE_PAGES, "2m") else ())})
            for pages in FULLY_SWEPT_PAGES
        }
    # Every fourth octave, and the two largest sizes because 4 GiB of some page sizes may not be
    # available; more for claims that compare sizes one by one.
    far = scope.lines(DENSELY_SAMPLED_BELOW_BYTES)
    every, near = {*sizes[::4], *sizes[-2:]}, {*sizes[::2], *(n for n in sizes if n <= far)}
    compared = (BASE_PAGES, *HUGE_PAGE_KINDS)
    wanted = {pages: every | (near if pages in compared else set()) for pages in FULLY_SWEPT_PAGES}
    # What large pages gain is read against the steps of base pages.
    steps = scope.knees() if scope.entries else scope.dense(scope.profile.points_per_octave)
    wanted[BASE_PAGES].update(steps)
    return {pages: sorted(lines) for pages, lines in wanted.items()}


def gathers(scope: Scope) -> list[Point]:
    """The published program at its sizes, and at those that its text names."""
    return [
        scope.point("page_gather", pages, engine="numpy", layout="spread", lines=lines)
        for pages in GATHER_PAGES
        for lines in gather_lines(scope)
    ]


def gather_lines(scope: Scope) -> list[int]:
    """Return how many lines the published program reads, up to the largest working set."""
    sizes = [size for size in GATHER_BYTES if size <= scope.profile.max_working_set]
    return [scope.lines(size) for size in sizes]


def touches(scope: Scope) -> list[Point]:
    """Random reads of an array; and, up to the published sizes, with as much work again before
    each."""
    spared = TOUCH_BYTES[:-1] if scope.is_fine else SPARE_BYTES
    spares: tuple[dict[str, Any], ...] = ({}, {"spare_draws": 1})
    return [
        scope.point("random_touch", pages, bytes=size, **spare)
        for pages in TOUCH_PAGES
        for size in TOUCH_BYTES
        if size <= scope.profile.max_working_set
        for spare in spares
        if not spare or size in spared
    ]
