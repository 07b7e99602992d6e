"""Which points the chapter about the graph measures: each size on each page size, hop by hop and
per batch; and many walks at once."""

from __future__ import annotations

from math import log2

from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE

VERTEX_BYTES = 64  # kernels/graph.h
LARGE_PAGES = ("4k", "thp", "2m", "1g")
WALKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Of a coarse grid, whose walk in batches is that of one walker; the latter on large pages, which
# are a control.
FEW_WALKERS, FEWEST_WALKERS = (2, 4, 8, 16, 32), (8, 32)
TOUCHES = ("address", "visit", "shuffled")
# Of a coarse grid's graphs: a claim compares them from here on, and one of 4 GiB takes four seconds
# to make.
MOST_COARSE_BYTES = 2 << 30
MOST_TOUCHED_BYTES = 256 << 20  # of a coarse grid: 4 GiB take ten seconds to fault in page by page
MANY_VERTICES = 1 << 24  # 1 GiB: past every cache, and a graph of it is ready in a second


def points(scope: Scope) -> list[Point]:
    """A coarse profile has one size in two octaves, that around four times the TLB's reach, every
    other one on large pages, and means per batch on page sizes that need no pool."""
    most, fine = most_vertices(scope), scope.is_fine
    # from 256 KiB
    sizes = [2**k for k in range(12, most.bit_length()) if fine or 2**k == most or k % 2 == 0]
    many = min(most, MANY_VERTICES)
    few = sizes if fine else sorted({*sizes[::2], many, most})
    clocked = [
        scope.point("graph_walk", pages, "plain", vertices=n, per_hop=1)
        for pages in LARGE_PAGES
        for n in (sizes if pages == BASE else few)
    ]
    means = dict.fromkeys(LARGE_PAGES, sizes)
    if not fine:
        means = {BASE: sorted({*sizes, many, *past(scope, most)}), "thp": few}
    batched = [
        scope.point("graph_walk", pages, "plain", vertices=n)
        for pages, numbers in means.items()
        for n in numbers
    ]
    several = [
        scope.point("graph_walk", pages, "plain", vertices=many, walkers=walkers)
        for pages in LARGE_PAGES[: 3 if fine else 2]
        for walkers in (WALKERS if fine else FEW_WALKERS if pages == BASE else FEWEST_WALKERS)
    ]
    return clocked + batched + touches(scope) + several


def most_vertices(scope: Scope) -> int:
    most = scope.profile.max_working_set
    most = most if scope.is_fine else min(most, MOST_COARSE_BYTES)
    return 1 << (most // VERTEX_BYTES).bit_length() - 1


def past(scope: Scope, most: int) -> list[int]:
    """The power of two of vertices nearest to four times the last level's reach, which a claim
    compares; none without entries."""
    wanted = [4 * n * scope.base_page_bytes / VERTEX_BYTES for n in scope.entries[-1:]]
    return [1 << round(log2(vertices)) for vertices in wanted if vertices <= most]


def touches(scope: Scope) -> list[Point]:
    """The first chapter's chase over pages that were first touched in three orders, at the largest
    size and at a quarter of it."""
    sizes = {scope.most_lines, scope.most_lines // 4}
    if not scope.is_fine:
        sizes = {min(scope.most_lines, scope.lines(MOST_TOUCHED_BYTES))}
    return [
        scope.point("first_touch", mode=mode, lines=lines)
        for lines in sorted(sizes)
        for mode in TOUCHES
        if scope.engine == "c"
    ]
