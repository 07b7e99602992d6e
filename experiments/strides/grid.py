"""Which points the chapter about strides measures: the published loop at each stride, and the
controls that take it apart."""

from __future__ import annotations

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE

ARRAY_BYTES = 256 << 20  # data/literature/stride_walk.csv
LINE_BYTES = 64
STRIDES = tuple(8 << k for k in range(14))  # bytes, 8 B to 64 KiB
# Of the published ones those past a line, and the widest: what the article calls a page's stride
# has 4 KiB whatever a page here has.
NARROW_STRIDE, PAGE_STRIDE, TWO_PAGE_STRIDE, WIDEST_STRIDE = 512, 4 << 10, 8 << 10, STRIDES[-1]
CONTROLLED_STRIDES = (
    NARROW_STRIDE,
    PAGE_STRIDE,
    TWO_PAGE_STRIDE,
    WIDEST_STRIDE,
)  # whose controls are measured
COARSE_STRIDES = (
    8,
    64,
    NARROW_STRIDE,
    PAGE_STRIDE,
    TWO_PAGE_STRIDE,
    WIDEST_STRIDE,
)  # the published ones, and the widest
BYTES_IN_FIRST_CACHE = (
    16 << 10
)  # in any first cache: eight loads of a line with nothing to wait for
PAGE_SIZES = (BASE, "thp", "2m")


def points(scope: Scope) -> list[Point]:
    """The loop as published, and over what a first cache holds; and its controls."""
    array = min(ARRAY_BYTES, scope.profile.max_working_set)

    def staggered(stride: int) -> tuple[int, int]:
        """A line more than the stride: as many lines, on all sets of the caches in turn and not on
        the few that a power of two visits."""
        return array, stride + LINE_BYTES

    def packed(stride: int) -> tuple[int, int]:
        """As many lines side by side."""
        return array // stride * LINE_BYTES, LINE_BYTES

    strides = STRIDES if scope.is_fine else COARSE_STRIDES
    loops = [(array, stride) for stride in strides] + [
        staggered(stride) for stride in CONTROLLED_STRIDES
    ]
    wanted = [(pages, "plain", "sequential", *loop) for pages in PAGE_SIZES for loop in loops]
    near = [(BYTES_IN_FIRST_CACHE, STRIDES[0]), *map(packed, CONTROLLED_STRIDES)]
    wanted += [(BASE, "plain", "sequential", *loop) for loop in near]
    # By a list in order, and by a shuffled one, which no prefetcher follows.
    wanted += [
        (BASE, "listed", order, *control(stride))
        for stride in (
            CONTROLLED_STRIDES if scope.is_fine else (NARROW_STRIDE, PAGE_STRIDE, WIDEST_STRIDE)
        )
        for control in (staggered, packed)
        for order in ("sequential", "cycle")
    ]
    return [
        scope.point("stride_sum", pages, mode, order=order, bytes=size, step_bytes=step)
        for pages, mode, order, size, step in wanted
        if step <= size
    ]
