"""Which points the chapter about the cliff measures. Every spread point has its packed control: the
same number of lines."""

from __future__ import annotations

from tlb.measure.grid import DENSELY_SAMPLED_BELOW_BYTES, SMALLEST_LINE_COUNT, Scope, octaves
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES

# Of data/literature/tlb_pressure.csv; and 256 KiB, which the text beside it gives a time for.
PUBLISHED_BYTES = tuple(
    size << 10 for size in (256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
)
STORES = ("load", "store", "load-clean", "store-clean")
RANDOM_UP_TO_BYTES = 256 << 20  # 1 - C/M is within 5 % of 1 long before


def points(scope: Scope) -> list[Point]:
    """The chase in a random cycle, spread and packed, then in two other orders, the gather and the
    stores."""
    chases = {"cycle": line_counts(scope)} | other_orders(scope)
    found = [point for order, sizes in chases.items() for point in _chases(scope, order, sizes)]
    return found + gathers(scope) + published(scope) + stores(scope)


def other_orders(scope: Scope) -> dict[str, list[int]]:
    """Return by order how many lines are chased in it."""
    most = min(scope.most_lines, scope.lines(RANDOM_UP_TO_BYTES))
    return {"random": drawn(scope, most), "sequential": in_order(scope, most)}


def _chases(scope: Scope, order: str, sizes: list[int]) -> list[Point]:
    return [point for n in sizes for point in scope.chase("page_chase", BASE_PAGES, n, order=order)]


def line_counts(scope: Scope) -> list[int]:
    """Lines of the chase in a cycle: finer where points are quick, and finest around the knees. The
    engine numba gets a coarser grid."""
    per_octave = 1 if scope.engine == "numba" else scope.per_octave
    dense = scope.lines(DENSELY_SAMPLED_BELOW_BYTES)
    far = [n for n in octaves(dense, scope.most_lines, max(per_octave // 2, 1)) if n > dense]
    return sorted({*scope.dense(per_octave), *far, *scope.knees()})


def drawn(scope: Scope, most: int) -> list[int]:
    """Lines of the chase in random order. Of a coarse grid two an octave from half of the last
    level's entries to four times as many, where 1 - C/M bends; one in two octaves beyond, and in
    four below."""
    fine = octaves(SMALLEST_LINE_COUNT, most, 1 if scope.engine == "numba" else scope.per_octave)
    if scope.is_fine or not scope.entries:
        return fine
    low, high = scope.entries[-1] / 2, 4 * scope.entries[-1]
    below, beyond = [n for n in fine if n < low], [n for n in fine if n > high]
    return sorted({*below[::4], *octaves(low, min(high, most), 2), *beyond[::2]})


def in_order(scope: Scope, most: int) -> list[int]:
    """Lines of the chase in sequential order: one in two octaves, of a coarse grid below the last
    level's entries one in four."""
    sizes = [n for n in octaves(SMALLEST_LINE_COUNT, scope.most_lines, 1)[::2] if n <= most]
    if scope.is_fine:
        return sizes
    return sorted({*sizes[::2], *(n for n in sizes if n > max(scope.entries, default=0))})


def gathers(scope: Scope) -> list[Point]:
    """Independent loads; of a coarse grid at the published program's sizes, and without the
    control, from which nothing is taken off."""
    if scope.is_fine:
        return [
            point
            for n in octaves(SMALLEST_LINE_COUNT, scope.most_lines, 1)
            for point in scope.chase("page_gather", BASE_PAGES, n)
        ]
    return [scope.point("page_gather", layout="spread", lines=n) for n in published_lines(scope)]


def stores(scope: Scope) -> list[Point]:
    """Loads and stores, each with and without their pages' accessed and dirty bits set, past the
    TLB's reach and, of a fine grid, at 1 GiB."""
    sizes = {max(4 * max(scope.entries, default=0), scope.lines(64 << 20))}
    sizes |= {scope.lines(1 << 30)} if scope.is_fine else set()
    return [
        point
        for lines in sorted(sizes)
        if lines <= scope.most_lines and scope.engine == "c"
        for mode in STORES
        for point in scope.chase("page_store", BASE_PAGES, lines, mode)
    ]


def published(scope: Scope) -> list[Point]:
    """The published program; of a coarse grid with its control at the largest size alone, where a
    price is compared."""
    sizes = published_lines(scope)
    return [
        scope.point("page_gather", engine="numpy", layout=layout, lines=lines)
        for lines in sizes
        for layout in ("spread", "packed")
        if scope.is_fine or layout == "spread" or lines == sizes[-1]
    ]


def published_lines(scope: Scope) -> list[int]:
    """The published sizes and those that the text names, and around this computer's reach where the
    published ones were."""
    sizes = {scope.lines(size) for size in PUBLISHED_BYTES} | {
        n for entries in scope.entries[-1:] for n in (entries // 2, 2 * entries)
    }
    return [lines for lines in sorted(sizes) if lines <= scope.most_lines]
