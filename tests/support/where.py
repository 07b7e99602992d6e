"""A program with known page walks, and a TLB to simulate it with."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.common import ROOT
from tlb.machine.compiler import compiler
from tlb.programs.where.valgrind import Geometry, Levels

SOURCE = ROOT / "tests/support/known_walks.c"
FIRST, SECOND, WAYS = 64, 512, 8
GEOMETRY = Geometry(4096, Levels(FIRST, SECOND, WAYS), Levels(64, 512, 8))


def built(tmp_path: Path, source: Path, *flags: str) -> str:
    cc = compiler()
    assert cc
    program = tmp_path / source.stem
    subprocess.run([*cc.command, "-O1", "-g", *flags, "-o", program, source], check=True)
    return str(program)
