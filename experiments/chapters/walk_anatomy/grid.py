"""Which points the chapter about walks measures: as many pages through more and more tables, and pages a power of two apart."""

from __future__ import annotations

from experiments.lab.grid import Scope
from experiments.lab.record import Point

ENTRY_BYTES, LINE_BYTES = 8, 64
A_LINE = LINE_BYTES // ENTRY_BYTES  # entries
LEVELS = (1, 2, 3)  # whose tables are counted, the lowest first
UNSTATED_ENTRIES = 4096  # where nothing states the last level's: as many as the largest x86-64 has
TABLES = tuple(f"tables_{level}" for level in LEVELS)
MOST_UPPER = 32  # tables of the third level: 32 TiB of addresses, half of which are drawn
COLLIDING = 256  # pages: any second level of a TLB holds as many, and no table has fewer entries
HOT = 4  # one page in so many is drawn half of the time, and one time in so many of the other half
Tables = tuple[int, int, int]  # of each level


def points(scope: Scope) -> list[Point]:
    """Each once: what two sweeps share is one point."""
    pages, fanout = beyond(scope), scope.base_page_bytes // ENTRY_BYTES
    sweeps = [tables for level in LEVELS for tables in sweep(level, pages, fanout)]
    wanted = [*((pages, tables, "random") for tables in [*sweeps, *held_out(pages, fanout)]), held(pages, fanout)]
    chosen = [*wanted, *collisions(fanout)] if pages <= scope.most_lines else collisions(fanout)
    plain = [scope.point("table_chase", mode=mode, lines=lines, **dict(zip(TABLES, tables, strict=True))) for lines, tables, mode in chosen]
    return list(dict.fromkeys([*plain, *replaced(scope, pages, fanout)]))


def replaced(scope: Scope, pages: int, fanout: int) -> list[Point]:
    """Drawn visits of as many pages and of twice as many: all alike, and half of them among a quarter of the pages."""
    sizes = [(n, dict(zip(TABLES, sweep(1, n, fanout)[0], strict=True))) for n in (pages, 2 * pages) if n <= scope.most_lines]
    return [scope.point("table_chase", mode="random", order="random", lines=n, hot=hot, **tables)
            for n, tables in sizes for hot in (n, n // HOT)]


def beyond(scope: Scope) -> int:
    """Pages: a power of two, twice as many as the TLB's last level holds or more, so that nearly every visit walks."""
    return 1 << (2 * (scope.entries[-1] if scope.entries else UNSTATED_ENTRIES) - 1).bit_length()


def sweep(level: int, pages: int, fanout: int) -> list[Tables]:
    """The tables of each level along the sweep of one: of the lowest, from eight lines of entries in each to a page in each; of the next,
    as those stay, to eight tables below each, as many as a line of its entries leads to; of the third, as both stay, to MOST_UPPER. Above
    the one that is swept there are as few as can be. fanout: entries of a table."""
    def least(tables: int) -> int:
        return -(-tables // fanout)

    upper = pages // A_LINE
    return {
        1: [(n, least(n), least(least(n))) for n in _powers(pages // A_LINE**2, pages)],
        2: [(pages, n, least(n)) for n in _powers(least(pages), upper)],
        3: [(pages, upper, n) for n in _powers(least(upper), MOST_UPPER)]}[level]


def held(pages: int, fanout: int) -> tuple[int, Tables, str]:
    """(pages, tables, mode) of an eighth of the pages, which the TLB's last level holds, in as few tables."""
    return pages // 8, sweep(1, pages // 8, fanout)[0], "random"


def held_out(pages: int, fanout: int) -> list[Tables]:
    """Between the sweeps: what was found along them has to say what these cost."""
    between = [(pages // 2, pages // 16, 1), (pages // 4, pages // 32, 1), (pages // 2, pages // 32, 1), (pages // 2, pages // 16, 8)]
    return [tables for tables in between if tables[1] // tables[2] <= fanout]


def collisions(fanout: int) -> list[tuple[int, Tables, str]]:
    """(pages, tables, mode) of as many pages, a page, a table's span and a directory's apart: exactly, and at random places within."""
    homes: list[Tables] = [(1, 1, 1), (COLLIDING, 1, 1), (COLLIDING, COLLIDING, 1)]
    return [(COLLIDING, (max(home[0], least), *home[1:]), mode) for home in homes
            for mode, least in (("even", 1), ("random", max(COLLIDING * A_LINE // fanout, 1)))]


def _powers(least: int, most: int) -> list[int]:
    return [1 << k for k in range(40) if least <= 1 << k <= most]
