"""Programs for `tlb try`, and experiments on runs that never were."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.common import SUPPORT
from tlb.machine.compiler import compiler
from tlb.programs.levers import LEVERS, Joined
from tlb.programs.looks import Look
from tlb.programs.runs import Run, Written
from tlb.programs.trial import Aim, Trial
from tlb.system.smaps import Rollup


def built(folder: Path, *flags: str) -> Path:
    """far_sum, compiled."""
    cc = compiler()
    assert cc is not None
    program = folder / "far_sum"
    ours = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([*cc.command, *ours, *flags, "-o", program, SUPPORT / "far_sum.c"], check=True)
    return program


def answer(mib: int, passes: int) -> str:
    """What far_sum prints: each low byte comes as often as any other."""
    return f"sum={passes * (mib << 20) // 64 // 256 * sum(range(256))}\n"


def look(
    at_s: float = 0.5,
    huge_mib: int = 0,
    resident_mib: int = 100,
    reached: int = 0,
    processes: int = 1,
) -> Look:
    return Look(
        at_s,
        processes,
        reached,
        Rollup(resident_mib << 20, resident_mib << 20, huge_mib << 20, 0),
        1 << 16,
    )


def made(
    elapsed_s: float = 1.0,
    status: int = 0,
    value: float | None = None,
    out: str = "same",
    err: str = "",
    left: int = 0,
    looks: tuple[Look, ...] = (look(),),
    joined: Joined | None = None,
) -> Run:
    """A run; out and err stand for what it wrote, of which words are what is no digit."""
    written = tuple(
        Written(len(text), text, "".join(c for c in text if not c.isdigit())) for text in (out, err)
    )
    return Run(
        elapsed_s, status, value, (written[0], written[1]), 10, 0, elapsed_s, looks, left, joined
    )


def trial(
    without: Run, with_lever: Run, pairs: int = 6, lever: str = "advise", **aim: object
) -> Trial:
    """An experiment all of whose runs were alike."""
    return Trial(
        Aim(["program"], LEVERS[lever], **aim),
        (without, with_lever),
        16,
        [(without, with_lever)] * pairs,
        9.0,
    )  # type: ignore[arg-type]
