"""Which points the chapter about strides measures: the published loop at each stride, and the
controls that take it apart."""

from __future__ import annotations

from tlb.lab.grid import Scope
from tlb.lab.record import Point
from tlb.page_sizes import BASE

ARRAY_BYTES = 256 << 20  # data/literature/stride_walk.csv
LINE_BYTES = 64
STRIDES = tuple(8 << k for k in range(14))  # bytes, 8 B to 64 KiB
# Of the published ones those past a line, and the widest: what the article calls a page's stride
# has 4 KiB whatever a page here has.
NARROW, PAGE_STRIDE, TWO_PAGES, WIDE = 512, 4 << 10, 8 << 10, STRIDES[-1]
CONTROLLED = (NARROW, PAGE_STRIDE, TWO_PAGES, WIDE)  # whose controls are measured
COARSE_STRIDES = (8, 64, NARROW, PAGE_STRIDE, TWO_PAGES, WIDE)  # the published ones, and the widest
NEAR_BYTES = 16 << 10  # in any first cache: eight loads of a line with nothing to wait for
PAGES = (BASE, "thp", "2m")


def points(scope: Scope) -> list[Point]:
    array = min(ARRAY_BYTES, scope.profile.max_working_set)
    every = [
        *published(scope, array),
        *staggered(scope, array),
        *packed(scope, array),
        *listed(scope, array),
    ]
    return [
        point
        for point in every
        if dict(point.options)["step_bytes"] <= dict(point.options)["bytes"]
    ]


def _sum(
    scope: Scope,
    array: int,
    step: int,
    pages: str = BASE,
    mode: str = "plain",
    order: str = "sequential",
) -> Point:
    return scope.point("stride_sum", pages, mode, order=order, bytes=array, step_bytes=step)


def published(scope: Scope, array: int) -> list[Point]:
    """The loop as published; and over what a first cache holds."""
    strides = STRIDES if scope.is_fine else COARSE_STRIDES
    return [
        *(_sum(scope, array, step, pages) for pages in PAGES for step in strides),
        _sum(scope, NEAR_BYTES, STRIDES[0]),
    ]


def staggered(scope: Scope, array: int) -> list[Point]:
    """A line more than the stride: as many lines, on all sets of the caches in turn and not on the
    few that a power of two visits."""
    return [_sum(scope, array, step + LINE_BYTES, pages) for pages in PAGES for step in CONTROLLED]


def packed(scope: Scope, array: int) -> list[Point]:
    """As many lines side by side."""
    return [_sum(scope, array // step * LINE_BYTES, LINE_BYTES) for step in CONTROLLED]


def listed(scope: Scope, array: int) -> list[Point]:
    """The staggered lines, and those side by side, by a list in order and by a shuffled one, which
    no prefetcher follows."""
    strides = CONTROLLED if scope.is_fine else (NARROW, PAGE_STRIDE, WIDE)
    return [
        _sum(scope, size, step, mode="listed", order=order)
        for stride in strides
        for size, step in ((array, stride + LINE_BYTES), (array // stride * LINE_BYTES, LINE_BYTES))
        for order in ("sequential", "cycle")
    ]
