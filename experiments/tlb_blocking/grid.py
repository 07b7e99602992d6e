"""Which points the chapter about blocking measures."""

from __future__ import annotations

from experiments.tlb_blocking.analysis import APART_STEPS, PUBLISHED_BLOCK, VERTEX_BYTES
from tlb.lab.grid import Scope
from tlb.lab.record import Point
from tlb.page_sizes import BASE

LARGE_PAGES = ("4k", "thp", "2m", "1g")
MOST_COARSE_BYTES = 2 << 30  # of a coarse grid's graphs: one of 4 GiB takes four seconds to make
MANY_VERTICES = 1 << 24  # 1 GiB: past every cache, and a graph of it is ready in a second
BLOCK_STEPS = (
    1 << 10,
    1 << 14,
    1 << 18,
)  # hops in a block: fewer than it has pages, some to a page, many
STAY_STEPS = 1 << 24  # hops in a block: more than a region has
DISTANCES = (0, 1, 4, 16)
MORE_DISTANCES = (2, 8, 32, 64)
FEW_DISTANCES = (0, 4, 16)  # of a coarse grid on large pages, which are a control
FAN_OUT_BITS = (2, 4, 5, 6, 7, 8, 10, 12)
JOIN_BITS = (6, 8, 10)  # of a coarse grid the last two
CONTROL_BITS = (
    4,
    8,
)  # partitions inside a first level of 32 entries and more, and past twice one of 128 and fewer


def points(scope: Scope) -> list[Point]:
    """Walks in blocks, walks that ask ahead, the remedies side by side, and a join."""
    return blocks(scope) + apart(scope) + ahead(scope) + remedies(scope) + joins(scope)


def _most(scope: Scope) -> int:
    """The vertices of the largest graph."""
    most = (
        scope.profile.max_working_set
        if scope.is_fine
        else min(scope.profile.max_working_set, MOST_COARSE_BYTES)
    )
    return 1 << (most // VERTEX_BYTES).bit_length() - 1


def _many(scope: Scope) -> int:
    return min(_most(scope), MANY_VERTICES if scope.is_fine else MANY_VERTICES // 2)


def blocks(scope: Scope) -> list[Point]:
    """Blocks from 128 KiB, half of what 64 entries reach, to 64 or 128 MiB; and the walk without
    them."""
    vertices = _many(scope)
    sizes = [2**k for k in range(11, min(22, vertices.bit_length() - 1), 2 if scope.is_fine else 3)]
    return [scope.point("graph_walk", mode="plain", vertices=vertices)] + [
        scope.point(
            "graph_walk", mode="blocked", vertices=vertices, block_vertices=block, block_steps=steps
        )
        for block in sizes
        for steps in BLOCK_STEPS[: 3 if scope.is_fine else 2]
    ]


def apart(scope: Scope) -> list[Point]:
    """Walks over vertices each on a page of its own, and as many side by side, which lie on half as
    many pages as the last TLB level has entries: in blocks of that many vertices, of 4 and 16 times
    as many, and in one."""
    inside = 1 << (max(scope.entries, default=2048) // 2).bit_length() - 1
    vertices = (
        1 << min(scope.most_lines, inside * scope.base_page_bytes // VERTEX_BYTES).bit_length() - 1
    )
    modes = [
        ("blocked", {"block_vertices": inside * times, "block_steps": APART_STEPS})
        for times in (1, 4, 16)
        if inside * times < vertices
    ] + [("plain", {})]
    return [
        scope.point("graph_walk", mode=mode, layout=layout, vertices=vertices, **own)
        for mode, own in modes
        for layout in ("spread", "packed")
    ]


def ahead(scope: Scope) -> list[Point]:
    """Prefetches of the vertex some hops ahead, by page size."""
    vertices, distances = _many(scope), DISTANCES + MORE_DISTANCES * scope.is_fine
    return [
        scope.point("graph_walk", pages, "prefetch", vertices=vertices, distance=distance)
        for pages in LARGE_PAGES[: 3 if scope.is_fine else 2]
        for distance in (distances if scope.is_fine or pages == BASE else FEW_DISTANCES)
    ]


def remedies(scope: Scope) -> list[Point]:
    """Hop by hop at the largest size: each page size, blocks inside the reach of the last TLB
    level, and the published one, which the walk does not leave."""
    vertices = _most(scope)
    inside = (
        1 << (scope.entries[-1] * scope.base_page_bytes // VERTEX_BYTES).bit_length() - 1
        if scope.entries
        else 0
    )
    return (
        [
            scope.point("graph_walk", pages, "plain", vertices=vertices, per_hop=1)
            for pages in LARGE_PAGES
        ]
        + [
            scope.point(
                "graph_walk",
                mode="blocked",
                vertices=vertices,
                block_vertices=block,
                block_steps=BLOCK_STEPS[1],
                per_hop=1,
            )
            for block in (inside, inside // 4)[: 2 if scope.is_fine else 1]
            if 4 <= block < vertices
        ]
        + [
            scope.point(
                "graph_walk",
                mode="blocked",
                vertices=vertices,
                block_vertices=PUBLISHED_BLOCK,
                block_steps=STAY_STEPS,
                per_hop=1,
            )
        ]
        * (vertices > PUBLISHED_BLOCK)
    )


def joins(scope: Scope) -> list[Point]:
    """Partitioning by fan-out in one pass and two, and whole joins.

    A coarse profile has the numbers that are compared, on page sizes that need no pool, on large
    ones and with the coarsest profile no more than controls. 4 GiB: 32 MiB a table of rows, 192 MiB
    in all.
    """
    rows = max(1 << 10, min(1 << 21, scope.profile.max_working_set // 2048))
    fine = scope.is_fine
    modes = [("partition", {"bits": b}) for b in (FAN_OUT_BITS if fine else FAN_OUT_BITS[1::2])]
    modes += [("partition", {"bits": b, "passes": 2}) for b in FAN_OUT_BITS[-2 if fine else -1 :]]
    modes += [("naive", {})] + [("partitioned", {"bits": b}) for b in JOIN_BITS[0 if fine else 1 :]]
    controls = [("partition", {"bits": b}) for b in CONTROL_BITS] + [
        ("naive", {}),
        ("partitioned", {"bits": CONTROL_BITS[-1]}),
    ]
    coarsest = scope.profile.points_per_octave == 1
    return [
        scope.point("radix_partition", pages, mode, tuples=rows, **own)
        for pages in LARGE_PAGES[: 3 if fine else 2]
        for mode, own in (modes if fine or pages == BASE and not coarsest else controls)
    ]
