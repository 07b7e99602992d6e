"""Which points the chapter about page walks measures: a random walk through graphs of each size, hop
by hop and per batch, and as many pages through more and more page tables."""

from __future__ import annotations

from math import log2
from typing import Any

from tlb.measure.catalogue import GRAPH_VERTEX_BYTES
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES, TABLE_ENTRY_BYTES

LARGE_PAGES = ("4k", "thp", "2m", "1g")
WALKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Of a coarse grid, whose walk in batches is that of one walker; the latter on large pages, which
# are a control.
FEW_WALKERS, FEWEST_WALKERS = (2, 4, 8, 16, 32), (8, 32)
PAGE_TOUCH_ORDERS = ("address", "visit", "shuffled")
# Of a coarse grid's graphs: a claim compares them from here on, and one of 4 GiB takes four seconds
# to make.
MOST_COARSE_BYTES = 2 << 30
MOST_TOUCHED_BYTES = 256 << 20  # of a coarse grid: 4 GiB take ten seconds to fault in page by page
LARGE_GRAPH_VERTICES = 1 << 24  # 1 GiB: past every cache, and a graph of it is ready in a second

PAGE_TABLE_ENTRIES_PER_LINE = CACHE_LINE_BYTES // TABLE_ENTRY_BYTES  # entries
PAGE_TABLE_LEVELS = (1, 2, 3)  # whose tables are counted, the lowest first
UNSTATED_ENTRIES = 4096  # where nothing states the last level's: as many as the largest x86-64 has
PAGE_TABLE_OPTION_NAMES = tuple(f"tables_{level}" for level in PAGE_TABLE_LEVELS)
LEAST_SWEPT = 5  # numbers of tables that a cache is found from, table_chases.py
MOST_UPPER = 32  # tables of the third level: 32 TiB of addresses, half of which are drawn
PageTablesPerLevel = tuple[int, int, int]  # of each level


def points(scope: Scope) -> list[Point]:
    """Return all points: the hops, as in the loop that the page shows, and `others`."""
    return [*hops(scope), *others(scope)]


def others(scope: Scope) -> list[Point]:
    """Return walks in batches, several at a time, and chases through page tables and over pages
    that were first touched in three orders."""
    graphs = [*batches(scope), *touches(scope), *several_walkers(scope)]
    return [*graphs, *table_chases(scope)]


# --- the graph


def hops(scope: Scope) -> list[Point]:
    """Walks timed hop by hop: each size, fewer on large pages."""
    sizes, few = graph_sizes(scope)
    return [
        scope.point("graph_walk", pages, "plain", vertices=n, per_hop=1)
        for pages in ("4k", "thp", "2m", "1g")
        for n in (sizes if pages == "4k" else few)
    ]


def graph_sizes(scope: Scope) -> tuple[list[int], list[int]]:
    """Vertices of the graphs on base and on large pages, from 256 KiB. A coarse profile has one
    size in two octaves, and every other of these on large pages."""
    most, fine = max_graph_vertices(scope), scope.is_fine
    sizes = [2**k for k in range(12, most.bit_length()) if fine or 2**k == most or k % 2 == 0]
    return sizes, sizes if fine else sorted({*sizes[::2], min(most, LARGE_GRAPH_VERTICES), most})


def batches(scope: Scope) -> list[Point]:
    """Walks timed per batch; of a coarse profile on page sizes that need no pool, and around four
    times the TLB's reach."""
    most, (sizes, few) = max_graph_vertices(scope), graph_sizes(scope)
    means = dict.fromkeys(LARGE_PAGES, sizes)
    if not scope.is_fine:
        around = sorted({*sizes, min(most, LARGE_GRAPH_VERTICES), *past(scope, most)})
        means = {BASE_PAGES: around, "thp": few}
    return [
        scope.point("graph_walk", pages, "plain", vertices=n)
        for pages, numbers in means.items()
        for n in numbers
    ]


def several_walkers(scope: Scope) -> list[Point]:
    """Walks that take turns in one thread."""
    many, fine = min(max_graph_vertices(scope), LARGE_GRAPH_VERTICES), scope.is_fine
    return [
        scope.point("graph_walk", pages, "plain", vertices=many, walkers=walkers)
        for pages in LARGE_PAGES[: 3 if fine else 2]
        for walkers in (WALKERS if fine else FEW_WALKERS if pages == BASE_PAGES else FEWEST_WALKERS)
    ]


def max_graph_vertices(scope: Scope) -> int:
    most = scope.profile.max_working_set
    most = most if scope.is_fine else min(most, MOST_COARSE_BYTES)
    return 1 << (most // GRAPH_VERTEX_BYTES).bit_length() - 1


def past(scope: Scope, most: int) -> list[int]:
    """The power of two of vertices nearest to four times the last level's reach, which a claim
    compares; none without entries."""
    wanted = [4 * n * scope.base_page_bytes / GRAPH_VERTEX_BYTES for n in scope.entries[-1:]]
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
        for mode in PAGE_TOUCH_ORDERS
        if scope.engine == "c"
    ]


# --- the page tables


def table_chases(scope: Scope) -> list[Point]:
    """As many pages, more than the TLB holds, through more and more tables of each level; and
    visits that hit, and visits drawn at random, which price a miss."""
    pages, fanout = pages_beyond_tlb(scope), scope.base_page_bytes // TABLE_ENTRY_BYTES
    if pages > scope.most_lines:
        return []
    chases = [
        scope.point("table_chase", mode="random", lines=pages, **_named(tables))
        for level in PAGE_TABLE_LEVELS
        for tables in thinned(scope, page_table_sweep(level, pages, fanout))
    ]
    hits = _cycle(scope, pages // 8, fanout)
    drawn = _cycle(scope, pages, fanout, order="random", hot=pages)
    return list(dict.fromkeys([*chases, hits, drawn]))  # what two sweeps share is one point


def _cycle(scope: Scope, pages: int, fanout: int, **drawn: Any) -> Point:
    """Pages in as few tables as they may be in."""
    tables = _named(fewest_page_tables(pages, fanout))
    return scope.point("table_chase", mode="random", lines=pages, **tables, **drawn)


def _named(tables: PageTablesPerLevel) -> dict[str, Any]:
    return dict(zip(PAGE_TABLE_OPTION_NAMES, tables, strict=True))


def fewest_page_tables(pages: int, fanout: int) -> PageTablesPerLevel:
    """Tables of each level for so many pages, a line of entries to each page."""
    return (
        page_table_sweep(1, pages, fanout)[0]
        if pages >= PAGE_TABLE_ENTRIES_PER_LINE**2
        else (1, 1, 1)
    )


def thinned(scope: Scope, tables: list[PageTablesPerLevel]) -> list[PageTablesPerLevel]:
    """A sweep; of a coarse grid LEAST_SWEPT points of it and no fewer, evenly, its ends among them.
    From the lowest level's a cache is found without its last point."""
    least = LEAST_SWEPT + (len({n for n, *_ in tables}) > 1)
    steps = range(least) if not scope.is_fine and len(tables) > least else []
    return [tables[round(step * (len(tables) - 1) / (least - 1))] for step in steps] or tables


def twice(entries: int) -> int:
    """Pages: a power of two, twice as many as there are entries or more, so that nearly every visit
    misses them."""
    return 1 << (2 * entries - 1).bit_length()


def pages_beyond_tlb(scope: Scope) -> int:
    """Pages that are twice as many as the TLB's last level holds, or more."""
    return twice(scope.entries[-1] if scope.entries else UNSTATED_ENTRIES)


def page_table_sweep(level: int, pages: int, fanout: int) -> list[PageTablesPerLevel]:
    """The tables of each level along the sweep of one: of the lowest, from eight lines of entries
    in each to a page in each; of the next, as those stay, to eight tables below each, as many as a
    line of its entries leads to; of the third, as both stay, to MOST_UPPER. Above the one that is
    swept there are as few as can be. fanout: entries of a table."""

    def least(tables: int) -> int:
        return -(-tables // fanout)

    upper = pages // PAGE_TABLE_ENTRIES_PER_LINE
    return {
        1: [
            (n, least(n), least(least(n)))
            for n in _powers(pages // PAGE_TABLE_ENTRIES_PER_LINE**2, pages)
        ],
        2: [(pages, n, least(n)) for n in _powers(least(pages), upper)],
        3: [(pages, upper, n) for n in _powers(least(upper), MOST_UPPER)],
    }[level]


def _powers(least: int, most: int) -> list[int]:
    return [1 << k for k in range(40) if least <= 1 << k <= most]
