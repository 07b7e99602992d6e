"""Which points the chapter about walks measures: as many pages through more and more tables, and
pages a power of two apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tlb.measure.grid import Scope
from tlb.measure.record import Point

ENTRY_BYTES, LINE_BYTES, SMALLEST_PAGE = 8, 64, 4 << 10
ENTRIES_PER_LINE = LINE_BYTES // ENTRY_BYTES  # entries
LEVELS = (1, 2, 3)  # whose tables are counted, the lowest first
UNSTATED_ENTRIES = 4096  # where nothing states the last level's: as many as the largest x86-64 has
TABLES = tuple(f"tables_{level}" for level in LEVELS)
LEAST_SWEPT = 5  # numbers of tables that a cache is found from, models.py
MOST_UPPER = 32  # tables of the third level: 32 TiB of addresses, half of which are drawn
COLLIDING_PAGES = (
    256  # pages: any second level of a TLB holds as many, and no table has fewer entries
)
# Pages between pages, a power of two: 1 GiB of 4 KiB, at which COLLIDING_PAGES of them take the addresses
# that page_chase has.
MOST_STRIDE = 1 << 18
POWER_OF_TWO_STRIDES = [1 << k for k in range(MOST_STRIDE.bit_length())]
PADDED_STRIDES = (1 << 6, 1 << 9, 1 << 12)  # strides that are also made a page wider
HOT_ONE_PAGE_IN = (
    4  # one page in so many is drawn half of the time, and one time in so many of the other half
)
Tables = tuple[int, int, int]  # of each level


def points(scope: Scope) -> list[Point]:
    """Each once: what two sweeps share is one point."""
    pages, fanout = pages_beyond_tlb(scope), scope.base_page_bytes // ENTRY_BYTES
    sweeps = [
        tables for level in LEVELS for tables in thinned(scope, table_sweep(level, pages, fanout))
    ]
    wanted = [
        (pages, tables, "random")
        for tables in [*sweeps, *held_out_tables(pages, fanout)[:: 1 if scope.is_fine else 2]]
    ]
    chosen = (
        [*wanted, *colliding_pages(fanout)]
        if pages <= scope.most_lines
        else colliding_pages(fanout)
    )
    plain = [
        scope.point("table_chase", mode=mode, lines=lines, **_named(tables))
        for lines, tables, mode in chosen
    ]
    near = first_beyond(scope.entries)
    cycles = [
        _cycle(scope, n, fanout) for n in (near // 8, near, pages // 8) if 0 < n <= scope.most_lines
    ]
    drawn = [point for n in (near, pages) if n for point in replaced(scope, n, fanout)]
    return list(dict.fromkeys([*plain, *cycles, *drawn, *strides(scope)]))


def _cycle(scope: Scope, pages: int, fanout: int, **drawn: Any) -> Point:
    """Pages in as few tables as they may be in."""
    tables = _named(fewest_tables(pages, fanout))
    return scope.point("table_chase", mode="random", lines=pages, **tables, **drawn)


def _named(tables: Tables) -> dict[str, Any]:
    return dict(zip(TABLES, tables, strict=True))


def fewest_tables(pages: int, fanout: int) -> Tables:
    """Tables of each level for so many pages, a line of entries to each page."""
    return table_sweep(1, pages, fanout)[0] if pages >= ENTRIES_PER_LINE**2 else (1, 1, 1)


def replaced(scope: Scope, pages: int, fanout: int) -> list[Point]:
    """Drawn visits of as many pages and of twice as many: all alike, and half of them among a
    quarter of the pages."""
    sizes = [n for n in (pages, 2 * pages) if n <= scope.most_lines]
    return [
        _cycle(scope, n, fanout, order="random", hot=hot)
        for n in sizes
        for hot in (n, n // HOT_ONE_PAGE_IN)
    ]


def thinned(scope: Scope, tables: list[Tables]) -> list[Tables]:
    """A sweep; of a coarse grid LEAST_SWEPT points of it and no fewer, evenly, its ends among them.
    From the lowest level's a cache is found without its last point."""
    least = LEAST_SWEPT + (len({n for n, *_ in tables}) > 1)
    steps = range(least) if not scope.is_fine and len(tables) > least else []
    return [tables[round(step * (len(tables) - 1) / (least - 1))] for step in steps] or tables


def strides(scope: Scope) -> list[Point]:
    """COLLIDING pages of addresses, each of them one of eight of memory, a power of two of pages
    apart, and some a page more than that."""
    most = MOST_STRIDE * SMALLEST_PAGE // scope.base_page_bytes
    padded = [n + 1 for n in PADDED_STRIDES if n < most]
    each = 1 if scope.is_fine else 2
    apart = sorted(
        {*[n for n in POWER_OF_TWO_STRIDES if n <= most][::each], *(n - 1 for n in padded)}
    )
    return [
        scope.point("page_chase", layout="alias", lines=COLLIDING_PAGES, stride_pages=n)
        for n in [*apart, *padded]
    ]


def twice(entries: int) -> int:
    """Pages: a power of two, twice as many as there are entries or more, so that nearly every visit
    misses them."""
    return 1 << (2 * entries - 1).bit_length()


def pages_beyond_tlb(scope: Scope) -> int:
    """Pages that are twice as many as the TLB's last level holds, or more."""
    return twice(scope.entries[-1] if scope.entries else UNSTATED_ENTRIES)


def first_beyond(entries: Sequence[int]) -> int:
    """Pages that are twice as many as the first of two levels holds, or more, while the last holds
    twice as many again; 0 where it cannot."""
    return pages if len(entries) > 1 and 2 * (pages := twice(entries[0])) <= entries[-1] else 0


def table_sweep(level: int, pages: int, fanout: int) -> list[Tables]:
    """The tables of each level along the sweep of one: of the lowest, from eight lines of entries
    in each to a page in each; of the next, as those stay, to eight tables below each, as many as a
    line of its entries leads to; of the third, as both stay, to MOST_UPPER. Above the one that is
    swept there are as few as can be. fanout: entries of a table."""

    def least(tables: int) -> int:
        return -(-tables // fanout)

    upper = pages // ENTRIES_PER_LINE
    return {
        1: [(n, least(n), least(least(n))) for n in _powers(pages // ENTRIES_PER_LINE**2, pages)],
        2: [(pages, n, least(n)) for n in _powers(least(pages), upper)],
        3: [(pages, upper, n) for n in _powers(least(upper), MOST_UPPER)],
    }[level]


def held_out_tables(pages: int, fanout: int) -> list[Tables]:
    """Between the sweeps: what was found along them has to say what these cost."""
    between = [
        (pages // 2, pages // 16, 1),
        (pages // 4, pages // 32, 1),
        (pages // 2, pages // 32, 1),
        (pages // 2, pages // 16, 8),
    ]
    return [tables for tables in between if tables[1] // tables[2] <= fanout]


def colliding_pages(fanout: int) -> list[tuple[int, Tables, str]]:
    """(pages, tables, mode) of as many pages, a page, a table's span and a directory's apart:
    exactly, and at random places within."""
    homes: list[Tables] = [
        (1, 1, 1),
        (COLLIDING_PAGES, 1, 1),
        (COLLIDING_PAGES, COLLIDING_PAGES, 1),
    ]
    return [
        (COLLIDING_PAGES, (max(home[0], least), *home[1:]), mode)
        for home in homes
        for mode, least in (
            ("even", 1),
            ("random", max(COLLIDING_PAGES * ENTRIES_PER_LINE // fanout, 1)),
        )
    ]


def _powers(least: int, most: int) -> list[int]:
    return [1 << k for k in range(40) if least <= 1 << k <= most]
