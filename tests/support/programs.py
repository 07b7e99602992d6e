"""Programs for `tlb try`, and trials on runs that never were."""

import re
from pathlib import Path

from support.common import STRICT, SUPPORT, compiled
from tlb.programs.children import OutputDigest, PrintedNumber
from tlb.programs.collapse import CollapseResult
from tlb.programs.levers import LEVERS
from tlb.programs.runs import ProgramRun
from tlb.programs.snapshots import MemorySnapshot
from tlb.programs.trial import Trial, TrialAim
from tlb.system.smaps import SmapsRollup

# `tlb` with a measuring lock of the test's own, the first argument: what is measured decides nothing.
TLB_SCRIPT = """import sys
from functools import partial
from pathlib import Path
from tlb import cli
from tlb.cli import measure, trial
from tlb.system import files
lock = partial(files.measuring_lock, path=Path(sys.argv.pop(1)))
trial.measuring_lock = measure.measuring_lock = lock
cli.main()"""


def built(folder: Path, *flags: str) -> Path:
    """far_sum, compiled."""
    return compiled(SUPPORT / "far_sum.c", folder / "far_sum", *STRICT, "-pthread", *flags)


def answer(mib: int, passes: int) -> str:
    """What far_sum prints: each low byte comes as often as any other."""
    return f"sum={passes * (mib << 20) // 64 // 256 * sum(range(256))}\n"


def look(
    at_s: float = 0.5,
    huge_mib: int = 0,
    resident_mib: int = 100,
    reached: int = 0,
    without_thp: int = 0,
) -> MemorySnapshot:
    pages = SmapsRollup(resident_mib << 20, resident_mib << 20, huge_mib << 20, 0)
    return MemorySnapshot(at_s, 1, reached, pages, 1 << 16, without_thp)


def made(
    elapsed_s: float = 1.0,
    status: int = 0,
    number: PrintedNumber | None = None,
    out: str = "same",
    err: str = "",
    left: int = 0,
    looks: tuple[MemorySnapshot, ...] = (look(),),
    collapsed: CollapseResult | None = None,
    cpu_s: float | None = None,
) -> ProgramRun:
    """Return a run that never was; out and err stand for its outputs."""
    written = [OutputDigest(len(text), text, re.sub("[0-9]", "", text)) for text in (out, err)]
    used = (10, 0, elapsed_s if cpu_s is None else cpu_s, looks, left, collapsed)
    return ProgramRun(elapsed_s, status, number, err, (written[0], written[1]), *used)


def trial(
    without: ProgramRun,
    with_lever: ProgramRun,
    pairs: int = 7,
    lever: str = "advise",
    **aim: object,
) -> Trial:
    """Return a trial of equal pairs."""
    wanted = TrialAim(["program"], LEVERS[lever], **aim)
    return Trial(wanted, (without, with_lever), 16, [(without, with_lever)] * pairs, 9.0)
