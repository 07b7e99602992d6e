"""Which points the chapter about code measures: jumps to one page after another, by how far they
can be foreseen, and large texts."""

from __future__ import annotations

from typing import Any

from tlb.measure.grid import Scope, octaves
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES

# By what the front end can know of where a jump leads: it stands in the instruction; it is the same
# each time round; it is random.
JUMP_KINDS = {
    "direct": ("direct", "cycle"),
    "learned": ("listed", "cycle"),
    "random": ("listed", "random"),
}
# The most: four times the largest second level that is stated for instructions, and more.
LEAST_LINES, MAX_CODE_LINES = 16, 16384
CODE_SIZES_MIB = (1, 10, 30, 100, 200)  # of code that is all used: 30 and 100 are published
CODE_LINES_PER_EXECUTED_LINE = (
    2,
    5,
    10,
)  # lines of the largest text, one of which is hot: half, a fifth, a tenth
HUGE_CODE_PAGE_KIND = "thp"
# Of a coarse grid: the texts that claims compare with the smallest, and the smallest part that is
# hot.
COARSE_MIB, COARSE_EVERY = (1, 30, 100), (10,)


def points(scope: Scope) -> list[Point]:
    """Return jumps of each kind to lines spread over pages and packed,
    random ones to aliased pages and on large pages, and large texts. A
    coarse grid has fewer numbers of lines."""
    lines = octaves(LEAST_LINES, min(MAX_CODE_LINES, scope.most_lines), 2)
    shape, fitted = lines, lines
    if not scope.is_fine:
        shape, fitted = sorted({*lines[::8], lines[-1]}), lines[::2]
    # A line of code to a page, and as many side by side.
    jumps = [
        scope.point("code_chase", mode=mode, order=order, layout=layout, lines=n)
        for mode, order in JUMP_KINDS.values()
        for layout in ("spread", "packed")
        for n in shape
    ]
    # Many pages of addresses that are all the same eight pages of memory.
    # Random, so that a TLB of C entries holds C of M pages whatever it
    # replaces.
    aliased = [
        scope.point("code_chase", mode="listed", order="random", layout="alias", lines=n)
        for n in fitted
    ]
    large = [
        scope.point("code_chase", HUGE_CODE_PAGE_KIND, "listed", order="random", lines=n)
        for n in shape
    ]
    return list(dict.fromkeys([*jumps, *aliased, *large, *texts(scope)]))


def texts(scope: Scope) -> list[Point]:
    """So many MiB of code of which every line is jumped to; the largest with a part that is hot, a
    line in so many; and as much hot code side by side: each on base pages and on large ones."""
    fit = [
        mib << 20
        for mib in (CODE_SIZES_MIB if scope.is_fine else COARSE_MIB)
        if mib << 20 <= scope.profile.max_working_set
    ]
    wanted: list[tuple[int, dict[str, Any]]] = [(size, {}) for size in fit]
    for every in CODE_LINES_PER_EXECUTED_LINE if scope.is_fine else COARSE_EVERY:
        for size in fit[-1:]:
            wanted += [(size, {"every": every}), (size // every, {})]
    return [
        scope.point(
            "code_chase",
            pages,
            "listed",
            order="random",
            layout="packed",
            lines=size // CACHE_LINE_BYTES,
            **own,
        )
        for pages in (BASE_PAGES, HUGE_CODE_PAGE_KIND)
        for size, own in wanted
    ]
