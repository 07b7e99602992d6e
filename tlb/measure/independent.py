"""Reference programs that share no code with the kernels: compile, run and compare them."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from tlb.measure import build

REFERENCE_PROGRAMS = build.KERNELS_FOLDER / "reference"
TableCells = tuple[str, ...]


@cache
def temporary_build_folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder that they are compiled into while this process lives."""
    return tempfile.TemporaryDirectory()


def compiled_c_program(source: Path, folder: str, *flags: str) -> str:
    """Compile a C program into `folder`; return its path. SystemExit without a compiler."""
    if (cc := build.compiler()) is None:
        raise SystemExit(f"{source.name} needs a C compiler: apt install gcc libc6-dev.")
    subprocess.run(
        [
            *cc.command,
            "-O2",
            "-std=gnu11",
            *flags,
            "-o",
            binary := f"{folder}/{source.stem}",
            str(source),
        ],
        check=True,
    )
    return binary


def medians_over_rounds(rounds: Iterable[Sequence[float]]) -> list[float]:
    """Return the median of each number over rounds in which every program ran once."""
    return [statistics.median(numbers) for numbers in zip(*rounds, strict=True)]


def comparison_cells(ours: float, theirs: float, decimals: int = 2) -> TableCells:
    """Return two numbers and the relative difference of the first from the second, as texts."""
    return f"{ours:.{decimals}f}", f"{theirs:.{decimals}f}", f"{ours / theirs - 1:+.1%}"


def share_cells(gate: Iterable[float | None], whole: Iterable[float | None]) -> TableCells:
    """Return the medians of two counts and the first as a part of the second, as texts."""
    a, b = (
        statistics.median(known) if (known := [n for n in side if n is not None]) else None
        for side in (gate, whole)
    )
    # A region that faults nothing, or a loop that never misses, leaves nothing to compare with but
    # zero.
    part = (
        "–"
        if a is None or b is None
        else f"{a / b:.3%}"
        if b
        else "none of none"
        if not a
        else "all"
    )
    return *("–" if n is None else f"{n:,.0f}" for n in (a, b)), part
