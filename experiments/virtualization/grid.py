"""Which points the chapter about guests measures: guests' pages on hosts' pages, and the same chase
outside."""

from __future__ import annotations

from tlb.measure.grid import DENSELY_SAMPLED_BELOW_BYTES, SMALLEST_LINE_COUNT, Scope, octaves
from tlb.measure.namespaces import FRESH_NAMESPACES_MODE
from tlb.measure.record import Point
from tlb.system.page_sizes import MAPPED_PAGE_SIZES

# Of the guest, under each of the inner guest's; a plain process has them too.
GUEST_PAGE_KINDS = ("4k", "thp", "2m", "1g")
# Where the steps are looked for, guest's page on host's: of 2 MiB pages the transparent kind, which
# takes no pool.
GUEST_HOST_PAGE_PAIRS = (("4k", "4k"), ("4k", "thp"), ("2m", "4k"), ("2m", "thp"))
# A process of 1 GiB takes up to ten seconds, most of them a guest's first faults.
MAX_QUICK_GUEST_BYTES = 256 << 20
NUMA_BYTES = 256 << 20
NUMA_PLACEMENTS = (
    "local-local",
    "remote-local",
    "local-remote",
    "remote-remote",
)  # memory, then page tables


def points(scope: Scope) -> list[Point]:
    """Return all chases: on pairs of page sizes, as in the loop that the page shows, and `others`."""
    return list(dict.fromkeys([*pairs(scope), *others(scope)]))


def others(scope: Scope) -> list[Point]:
    """Return the chases where the TLB's levels show, in fresh namespaces, on near and far memory, and
    in a guest whose page table has five levels."""
    sizes = coarse_line_counts(scope)
    wanted = [("page_chase", "4k", FRESH_NAMESPACES_MODE, sizes)]
    nodes = [min(sizes[-1], scope.lines(NUMA_BYTES))]
    wanted += [("numa_chase", "4k", mode, nodes) for mode in NUMA_PLACEMENTS]
    five = scope.chase("guest_chase", "4k", sizes[-1], "4k", levels=5)
    return [*steps(scope), *_chases(scope, wanted), *five]


def pairs(scope: Scope) -> list[Point]:
    """Return the chase on each page size of the guest, in a plain process and in an inner guest on
    each of its page sizes."""
    inner_guests = [("guest_chase", inner) for inner in MAPPED_PAGE_SIZES]
    chases = [("page_chase", ""), *inner_guests]
    wanted = [
        (kernel, pages, inner, coarse_line_counts(scope))
        for pages in GUEST_PAGE_KINDS
        for kernel, inner in chases
    ]
    return _chases(scope, wanted)


def steps(scope: Scope) -> list[Point]:
    """Return the pairs that tell what a TLB entry covers, at the many sizes
    where its levels show."""
    if scope.engine != "c":
        return []
    fine, hosts = scope.dense(), dict.fromkeys(host for _, host in GUEST_HOST_PAGE_PAIRS)
    wanted = [
        ("guest_chase", host, guest, fine if scope.is_fine else few(scope, guest, host))
        for guest, host in GUEST_HOST_PAGE_PAIRS
    ]
    return _chases(scope, [*wanted, *(("page_chase", host, "", fine) for host in hosts)])


def _chases(scope: Scope, wanted: list[tuple[str, str, str, list[int]]]) -> list[Point]:
    """Return the chases of kernels, host's pages, modes (the guest's pages) and numbers of lines,
    each with its packed control."""
    return [
        point
        for kernel, pages, mode, numbers in wanted
        for lines in numbers
        for point in scope.chase(kernel, pages, lines, mode)
    ]


def few(scope: Scope, guest: str, host: str) -> list[int]:
    """Where a coarse grid looks for the steps: on base pages throughout finely enough to find them,
    and on large pages throughout where the others' are. What lies between these two is placed by
    its price between the levels alone."""
    sizes = scope.dense()
    if (guest, host) == GUEST_HOST_PAGE_PAIRS[0]:
        near = 4 * scope.entries[0] if scope.entries else sizes[-1]
        return sorted({*sizes, *(n for n in scope.dense(2) if n <= near)})
    return (
        [*sizes[::2], *sizes[3:7:2]] if (guest, host) == GUEST_HOST_PAGE_PAIRS[-1] else sizes[:5:4]
    )


def coarse_line_counts(scope: Scope) -> list[int]:
    """The numbers of lines at which every kind of page is measured, and fresh namespaces: from
    inside the STLB to the largest."""
    top, dense = scope.most_lines, scope.lines(DENSELY_SAMPLED_BELOW_BYTES)
    if not scope.is_fine:
        top = min(top, scope.lines(MAX_QUICK_GUEST_BYTES))
    inside = dense // SMALLEST_LINE_COUNT
    if scope.entries:
        inside = 1 << (max(scope.entries[-1], 2 * SMALLEST_LINE_COUNT) // 2).bit_length() - 1
    return sorted({min(inside, top), *(octaves(dense, top, 1)[::2] if scope.is_fine else []), top})
