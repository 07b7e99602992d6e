"""Count page walks with Cachegrind, where the tool of `tool/` cannot be built: a cache with lines
of a page is a TLB. It does not know which walks overlap, nor which allocation they read."""

from __future__ import annotations

from collections.abc import Iterable

from tlb.programs.where.simulation import Counts, Line, Simulated, counted
from tlb.programs.where.valgrind import Geometry
from tlb.system.reasons import Unavailable


def rounded(geometry: Geometry) -> Geometry:
    """Return the geometry with as many sets as Cachegrind can simulate: a power of two."""
    base = geometry.base
    sets = 1 << (base.second // base.ways).bit_length() - 1
    return geometry._replace(base=base._replace(second=sets * base.ways))


def options(geometry: Geometry) -> list[str]:
    """Return the caches of a rounded geometry: bytes, ways, bytes of a line."""
    (first, second, ways), page = geometry.base, geometry.page_bytes
    caches = {"I1": (first, first), "D1": (first, first), "LL": (second, ways)}
    return [f"--{name}={n * page},{most},{page}" for name, (n, most) in caches.items()]


def count(
    command: list[str], geometry: Geometry, seconds: float, why: Unavailable, status: int = 0
) -> Simulated:
    """Run a command under Cachegrind; return misses and walks of lines, and the sites, whose walks
    are unknown, by size. why: what the tool lacks; status: its exit code by itself. Raises as
    `counted` does."""
    words = ["--cache-sim=yes", *options(geometry)]
    found = counted(command, "cachegrind", words, seconds, add, status=status)
    found.lacking = str(why)
    return found


def add(made: Simulated, output: Iterable[str]) -> None:
    """Add what one process counted (Valgrind manual, section 5.9, Cachegrind's file format)."""
    events, names = list[str](), {"fl": "", "fn": ""}
    for record in output:
        kind, _, text = record.partition("=")
        if record.startswith("events: "):
            events = record.split()[1:]
        elif kind in names:
            names[kind] = text.replace("???", "")  # unknown
        elif record[:1].isdigit():
            number, *counts = map(int, record.split())
            of = dict(zip(events, counts, strict=True))
            misses, walks = of["D1mr"] + of["D1mw"], of["DLmr"] + of["DLmw"]  # reads and writes
            made.lines[Line(names["fn"], names["fl"], number)] += Counts(misses, walks)
            made.instructions += of["Ir"]
