"""Which points the chapter about layout measures: walks in blocks, prefetches, hash joins, and a
strided loop with the controls that take it apart."""

from __future__ import annotations

from functools import partial
from typing import Any

from tlb.measure.catalogue import GRAPH_VERTEX_BYTES
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES

WALK_STEPS_PER_SPREAD_BLOCK = 1 << 14  # in each block of vertices on pages of their own
# Vertices, 256 MiB, which the published walk never leaves; it calls that blocking.
PUBLISHED_BLOCK_VERTICES = 1 << 22
LARGE_PAGES = ("4k", "thp", "2m", "1g")
MOST_COARSE_BYTES = 2 << 30  # of a coarse grid's graphs: one of 4 GiB takes four seconds to make
MANY_VERTICES = 1 << 24  # 1 GiB: past every cache, and a graph of it is ready in a second
# Hops in a block: fewer than it has pages, some to a page, many.
BLOCK_STEPS = (1 << 10, 1 << 14, 1 << 18)
NEVER_LEFT_STEPS = 1 << 24  # hops in a block: more than a region has
DISTANCES = (0, 1, 4, 16)
MORE_DISTANCES = (2, 8, 32, 64)
FEW_DISTANCES = (0, 4, 16)  # of a coarse grid on large pages, which are a control
FAN_OUT_BITS = (2, 4, 5, 6, 7, 8, 10, 12)
JOIN_BITS = (6, 8, 10)  # of a coarse grid the last two
# Partitions inside a first level of 32 entries or more, and past twice one of 128 or fewer.
CONTROL_BITS = (4, 8)
# Strided sums.
ARRAY_BYTES = 256 << 20  # data/literature/stride_walk.csv
STRIDE_BYTES = tuple(8 << k for k in range(14))  # bytes, 8 B to 64 KiB
# Of the published ones those past a line, and the widest: what the article calls a page's stride
# has 4 KiB whatever a page here has.
NARROW_STRIDE, PAGE_STRIDE, TWO_PAGE_STRIDE, WIDEST_STRIDE = 512, 4 << 10, 8 << 10, STRIDE_BYTES[-1]
# Those whose controls are measured.
STRIDES_WITH_PACKED_CONTROL = (NARROW_STRIDE, PAGE_STRIDE, TWO_PAGE_STRIDE, WIDEST_STRIDE)
COARSE_STRIDES = (
    8,
    CACHE_LINE_BYTES,
    *STRIDES_WITH_PACKED_CONTROL,
)  # the published ones, and the widest
BYTES_WITHIN_L1_CACHE = 16 << 10  # in any first cache: eight loads of a line wait for nothing
STRIDE_SUM_PAGE_KINDS = (BASE_PAGES, "thp", "2m")


def points(scope: Scope) -> list[Point]:
    """Return all points, in the order of the loops that the page shows and the functions it
    calls."""
    changes = blocked_walks(scope) + prefetched_walks(scope) + joins(scope)
    controls = page_per_vertex(scope) + remedies(scope) + strided_sums(scope)
    return changes + controls + on_huge_pages(scope)


def on_huge_pages(scope: Scope) -> list[Point]:
    """Return scatters on each kind of pages, and prefetches and joins on huge pages."""
    points = []
    for pages in LARGE_PAGES[: 3 if scope.is_fine else 2]:
        points += scatters(scope, pages)
        if pages != BASE_PAGES:
            points += prefetched_walks(scope, pages) + joins(scope, pages)
    return points


def _most(scope: Scope) -> int:
    most = scope.profile.max_working_set
    most = most if scope.is_fine else min(most, MOST_COARSE_BYTES)
    return 1 << (most // GRAPH_VERTEX_BYTES).bit_length() - 1


def graph_vertices(scope: Scope) -> int:
    """Return the vertices of the graph that is walked in blocks and with prefetches."""
    return min(_most(scope), MANY_VERTICES if scope.is_fine else MANY_VERTICES // 2)


def block_sizes(scope: Scope) -> list[int]:
    """Return the vertices of a block: from 128 KiB, half of what 64 entries reach, to 64 or 128
    MiB."""
    largest = min(22, graph_vertices(scope).bit_length() - 1)
    return [2**k for k in range(11, largest, 2 if scope.is_fine else 3)]


def hops_in_a_block(scope: Scope) -> tuple[int, ...]:
    """Return after how many hops a walk leaves a block."""
    return BLOCK_STEPS[: 3 if scope.is_fine else 2]


def blocked_walks(scope: Scope) -> list[Point]:
    """Return the walk without blocks, and in blocks, for each size and number of hops in a
    block."""
    walk = partial(scope.point, "graph_walk", vertices=graph_vertices(scope))
    return [walk(mode="plain")] + [
        walk(mode="blocked", block_vertices=block, block_steps=hops)
        for block in block_sizes(scope)
        for hops in hops_in_a_block(scope)
    ]


def page_per_vertex(scope: Scope) -> list[Point]:
    """Walks over vertices a page apart, and as many side by side: in blocks of half as many pages
    as the last TLB level has entries, of 4 and 16 times as many, and in one."""
    inside = 1 << (max(scope.entries, default=2048) // 2).bit_length() - 1
    most = min(scope.most_lines, inside * scope.base_page_bytes // GRAPH_VERTEX_BYTES)
    vertices = 1 << most.bit_length() - 1
    blocks = [inside * times for times in (1, 4, 16) if inside * times < vertices]
    modes: list[tuple[str, dict[str, Any]]] = [
        ("blocked", {"block_vertices": n, "block_steps": WALK_STEPS_PER_SPREAD_BLOCK})
        for n in blocks
    ]
    modes.append(("plain", {}))
    return [
        scope.point("graph_walk", mode=mode, layout=layout, vertices=vertices, **own)
        for mode, own in modes
        for layout in ("spread", "packed")
    ]


def distances(scope: Scope, pages: str = BASE_PAGES) -> tuple[int, ...]:
    """Return how many hops ahead a walk prefetches; 0 for no prefetch."""
    if scope.is_fine:
        return DISTANCES + MORE_DISTANCES
    return DISTANCES if pages == BASE_PAGES else FEW_DISTANCES


def prefetched_walks(scope: Scope, pages: str = BASE_PAGES) -> list[Point]:
    """Return the walk along a known path, prefetched from each distance."""
    vertices = graph_vertices(scope)
    return [
        scope.point("graph_walk", pages, "prefetch", vertices=vertices, distance=hops)
        for hops in distances(scope, pages)
    ]


def remedies(scope: Scope) -> list[Point]:
    """Hop by hop at the largest size: each page size, blocks inside the reach of the last TLB
    level, and the published one, which the walk does not leave."""
    vertices, blocks = _most(scope), []
    if scope.entries:
        inside = (
            1 << (scope.entries[-1] * scope.base_page_bytes // GRAPH_VERTEX_BYTES).bit_length() - 1
        )
        sizes = (inside, inside // 4)[: 2 if scope.is_fine else 1]
        blocks = [(block, BLOCK_STEPS[1]) for block in sizes if 4 <= block < vertices]
    if vertices > PUBLISHED_BLOCK_VERTICES:
        blocks.append((PUBLISHED_BLOCK_VERTICES, NEVER_LEFT_STEPS))
    modes: list[tuple[str, str, dict[str, Any]]] = [(pages, "plain", {}) for pages in LARGE_PAGES]
    for block, steps in blocks:
        modes.append((BASE_PAGES, "blocked", {"block_vertices": block, "block_steps": steps}))
    return [
        scope.point("graph_walk", pages, mode, vertices=vertices, per_hop=1, **own)
        for pages, mode, own in modes
    ]


def join_rows(scope: Scope) -> int:
    """Return the rows of each of the two relations that are joined."""
    return max(1 << 10, min(1 << 21, scope.profile.max_working_set // 2048))


def _has_controls_alone(scope: Scope, pages: str) -> bool:
    return not scope.is_fine and (pages != BASE_PAGES or scope.profile.points_per_octave == 1)


def join_bits(scope: Scope, pages: str = BASE_PAGES) -> tuple[int, ...]:
    """Return the bits of the hash by which a join is partitioned."""
    if _has_controls_alone(scope, pages):
        return CONTROL_BITS[-1:]
    return JOIN_BITS[0 if scope.is_fine else 1 :]


def joins(scope: Scope, pages: str = BASE_PAGES) -> list[Point]:
    """Return a hash join as it is, and in partitions."""
    rows = join_rows(scope)
    return [scope.point("radix_partition", pages, "naive", tuples=rows)] + [
        scope.point("radix_partition", pages, "partitioned", tuples=rows, bits=bits)
        for bits in join_bits(scope, pages)
    ]


def scatters(scope: Scope, pages: str) -> list[Point]:
    """Return rows scattered into partitions, in one pass and in two."""
    in_one_pass: tuple[int, ...] = FAN_OUT_BITS
    in_two: tuple[int, ...] = FAN_OUT_BITS[-2:]
    if not scope.is_fine:
        in_one_pass, in_two = FAN_OUT_BITS[1::2], FAN_OUT_BITS[-1:]
    if _has_controls_alone(scope, pages):
        in_one_pass, in_two = CONTROL_BITS, ()
    scatter = partial(scope.point, "radix_partition", pages, "partition", tuples=join_rows(scope))
    return [scatter(bits=bits) for bits in in_one_pass] + [
        scatter(bits=bits, passes=2) for bits in in_two
    ]


def strided_sums(scope: Scope) -> list[Point]:
    """The loop as published, and over what a first cache holds; and its controls."""
    array = min(ARRAY_BYTES, scope.profile.max_working_set)

    def staggered(stride: int) -> tuple[int, int]:
        """A line more than the stride: as many lines, on all sets of the caches in turn and not on
        the few that a power of two visits."""
        return array, stride + CACHE_LINE_BYTES

    def packed(stride: int) -> tuple[int, int]:
        """As many lines side by side."""
        return array // stride * CACHE_LINE_BYTES, CACHE_LINE_BYTES

    strides = STRIDE_BYTES if scope.is_fine else COARSE_STRIDES
    loops = [(array, stride) for stride in strides] + [
        staggered(stride) for stride in STRIDES_WITH_PACKED_CONTROL
    ]
    wanted = [
        (pages, "plain", "sequential", *loop) for pages in STRIDE_SUM_PAGE_KINDS for loop in loops
    ]
    near = [(BYTES_WITHIN_L1_CACHE, STRIDE_BYTES[0]), *map(packed, STRIDES_WITH_PACKED_CONTROL)]
    wanted += [(BASE_PAGES, "plain", "sequential", *loop) for loop in near]
    # By a list in order, and by a shuffled one, which no prefetcher follows.
    wanted += [
        (BASE_PAGES, "listed", order, *control(stride))
        for stride in (
            STRIDES_WITH_PACKED_CONTROL
            if scope.is_fine
            else (NARROW_STRIDE, PAGE_STRIDE, WIDEST_STRIDE)
        )
        for control in (staggered, packed)
        for order in ("sequential", "cycle")
    ]
    return [
        scope.point("stride_sum", pages, mode, order=order, bytes=size, step_bytes=step)
        for pages, mode, order, size, step in wanted
        if step <= size
    ]
