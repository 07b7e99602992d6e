"""Which points the chapter about the cliff measures. Every spread point has its packed control: the same number of lines."""

from __future__ import annotations

from experiments.lab.grid import DENSE_BELOW_BYTES, SMALLEST_LINES, Scope, octaves
from experiments.lab.record import Point

# Of data/literature/tlb_pressure.csv; and 256 KiB, which the text beside it gives a time for.
PUBLISHED_BYTES = tuple(size << 10 for size in (256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20))
STORES = ("load", "store", "load-clean", "store-clean")
RANDOM_UP_TO_BYTES = 256 << 20  # 1 - C/M is within 5 % of 1 long before


def points(scope: Scope) -> list[Point]:
    """The chase in three orders and the gather. Starting a numba process takes a second, so that engine gets a coarser grid."""
    per_octave = 1 if scope.engine == "numba" else scope.profile.points_per_octave
    dense, most = scope.lines(DENSE_BELOW_BYTES), scope.most_lines
    sizes = scope.dense(per_octave) + [n for n in octaves(dense, most, max(per_octave // 2, 1)) if n > dense]
    zoom = knees(scope) if scope.profile.points_per_octave > 1 else []
    random_most, coarse = min(most, scope.lines(RANDOM_UP_TO_BYTES)), octaves(SMALLEST_LINES, most, 1)
    wanted = [("page_chase", "cycle", sorted({*sizes, *zoom})),
              ("page_chase", "random", octaves(SMALLEST_LINES, random_most, per_octave)),
              ("page_chase", "sequential", [n for n in coarse[::2] if n <= random_most]),
              ("page_gather", "cycle", coarse)]
    chases = [point for kernel, order, numbers in wanted for lines in numbers for point in scope.chase(kernel, "4k", lines, order=order)]
    return chases + published(scope) + stores(scope)


def stores(scope: Scope) -> list[Point]:
    """Loads and stores, each with and without their pages' accessed and dirty bits set, past the TLB's reach and at 1 GiB."""
    sizes = {max(4 * max(scope.entries, default=0), scope.lines(64 << 20)), scope.lines(1 << 30)} if scope.engine == "c" else set()
    return [point for lines in sorted(sizes) if lines <= scope.most_lines for mode in STORES
            for point in scope.chase("page_store", "4k", lines, mode)]


def published(scope: Scope) -> list[Point]:
    """The published program: at its sizes and those that its text names, and around this computer's reach where its own were."""
    sizes = {scope.lines(size) for size in PUBLISHED_BYTES} | {n for entries in scope.entries[-1:] for n in (entries // 2, 2 * entries)}
    return [scope.point("page_gather", engine="numpy", layout=layout, lines=lines) for lines in sorted(sizes) if lines <= scope.most_lines
            for layout in ("spread", "packed")]


def knees(scope: Scope) -> list[int]:
    """An octave each side of each TLB level's entries, half a decade of pages, at steps of 9 % (19 % under numba)."""
    steps = 4 if scope.engine == "numba" else 8
    return [n for entries in scope.entries for n in octaves(entries / 2**0.75, entries * 2, steps) if n <= scope.most_lines]
