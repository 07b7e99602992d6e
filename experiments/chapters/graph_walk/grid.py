"""Which points the chapter about the graph measures: each size on each page size, hop by hop and per batch; and many walks at once."""

from __future__ import annotations

from experiments.lab.grid import Scope
from experiments.lab.record import Point

VERTEX_BYTES = 64  # kernels/graph.h
LARGE_PAGES = ("4k", "thp", "2m", "1g")
WALKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
FEW_WALKERS = (1, 2, 4, 6, 8, 12, 16, 32)
TOUCHES = ("address", "visit", "shuffled")
MOST_TOUCHED_BYTES = 1 << 30  # 4 GiB take ten seconds to fault in page by page
MANY_VERTICES = 1 << 24  # 1 GiB: past every cache, and a graph of it is ready in a second


def points(scope: Scope) -> list[Point]:
    """Past the caches a process takes a second a GiB to fill the graph. So a coarse profile goes from 64 MiB on in steps of four octaves
    and then two, and has means per batch on page sizes that need no pool."""
    most, fine = 1 << (scope.profile.max_working_set // VERTEX_BYTES).bit_length() - 1, scope.is_fine
    sizes = [2**k for k in range(12, most.bit_length()) if fine or 2**k == most or k <= 20 or k % 2 == 0 and k > 22]  # from 256 KiB
    clocked = [scope.point("graph_walk", pages, "plain", vertices=n, per_hop=1) for pages in LARGE_PAGES for n in sizes]
    batched = [scope.point("graph_walk", pages, "plain", vertices=n) for pages in LARGE_PAGES[: 4 if fine else 2] for n in sizes]
    return clocked + batched + touches(scope) + [
        scope.point("graph_walk", pages, "plain", vertices=min(most, MANY_VERTICES), walkers=walkers)
        for pages in LARGE_PAGES[: 3 if fine else 2] for walkers in (WALKERS if fine else FEW_WALKERS)]


def touches(scope: Scope) -> list[Point]:
    """The first chapter's chase over pages that were first touched in three orders, at the largest size and at a quarter of it."""
    sizes = {scope.most_lines, scope.most_lines // 4} if scope.is_fine else {min(scope.most_lines, scope.lines(MOST_TOUCHED_BYTES))}
    return [scope.point("first_touch", mode=mode, lines=lines) for lines in sorted(sizes) for mode in TOUCHES if scope.engine == "c"]
