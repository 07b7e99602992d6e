"""A program with known page walks, and a TLB to simulate it with."""

from pathlib import Path

from support.common import SUPPORT, compiled
from tlb.programs.where.valgrind import Levels, SimulatedTlb

SOURCE = SUPPORT / "known_walks.c"
FIRST, SECOND, WAYS = 64, 512, 8
GEOMETRY = SimulatedTlb(4096, 2 << 20, Levels(FIRST, SECOND, WAYS), Levels(64, 512, 8))


def built(tmp_path, source: Path, *flags: str) -> str:
    return str(compiled(source, tmp_path / source.stem, "-O1", "-g", *flags))


def line_of(word: str) -> int:
    lines = SOURCE.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if f"/* {word} */" in line)
