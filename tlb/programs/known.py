"""`tlb try` on programs whose answer is known: a table of `tlb bench`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tlb.inference.intervals import Interval
from tlb.inference.pairs import LEAST_PAIRS, paired_ratio
from tlb.lab.grid import Scope, profile
from tlb.lab.independent import INDEPENDENT, Cells, c_program, folder
from tlb.lab.rig import Rig
from tlb.lab.store import Store
from tlb.machine import host
from tlb.page_sizes import BASE
from tlb.programs.levers import LEVERS
from tlb.programs.report import side
from tlb.programs.trial import Aim, Trial, attempt, would_have_shown

TITLE = (
    "tlb try where the answer is known (to reach: the chapter's ratio within 5 %; no difference in 18 of 20; a difference in 1 of 20 "
    "at most without a lever; 2 % beside the program's own time)"
)
COLUMNS = ("program, lever", "tlb try", "known", "difference")
MIB, MILLIONS = 1024, 500  # the second takes half a second
TIMES = 20
PRINTED = re.compile(r"(\S+) ns")


def known() -> Iterator[Cells]:
    """The chase over 1 GiB against the chapter's rows of the same minutes; arithmetic, which no
    pages help; and what trying costs."""
    program = c_program(INDEPENDENT / "unadvised.c", folder().name)
    chase = attempt(Aim([program, "chase", str(MIB)], LEVERS["advise"], metric=PRINTED))
    peak = side(chase, True).peak
    yield (
        f"chase over 1 GiB, advise ({peak.pages.huge_bytes / peak.pages.resident_bytes:.0%} on large pages)",
        *beside_rows(chase.ratio(), ratio_of_rows(len(chase.pairs))),
    )
    sums = {
        name: [attempt(Aim([program, "sum", str(MILLIONS)], LEVERS[name])) for _ in range(TIMES)]
        for name in ("advise", "none")
    }
    seen = [
        trial.verdict == "no difference" and would_have_shown(trial.ratio()) <= trial.aim.within
        for trial in sums["advise"]
    ]
    yield "arithmetic, advise", f"no difference: {sum(seen)} of {TIMES}", "all", ""
    differ = sum(trial.verdict not in ("no difference", "cannot tell") for trial in sums["none"])
    yield "arithmetic, none", f"a difference: {differ} of {TIMES}", "none", ""
    yield (
        "beside its own time",
        f"{beside([chase]):.1%} (chase), {beside(sums['advise']):.1%} (arithmetic)",
        "",
        "",
    )


def beside_rows(tried: Interval, rows: Interval) -> tuple[str, str, str]:
    """Two ratios with their intervals, and by how much the first differs from the second."""
    apart = tried / rows
    return (
        f"{tried:.3f}",
        f"{rows:.3f}",
        f"{apart.value - 1:+.1%} ({apart.low - 1:+.1%} to {apart.high - 1:+.1%})",
    )


def ratio_of_rows(pairs: int) -> Interval:
    """What large pages leave of the chapter's chase over as much: fresh processes in so many pairs,
    and their ratio as a trial estimates its own. Times of a mapping come in clusters here, of which
    a ratio of medians and a typical ratio of pairs make two numbers."""
    rig = replace(
        Rig.of(host.inspect(), Store(Path(folder().name)), counters=False), usable_bytes=2**63
    )
    point = Scope(profile("full"), base_page_bytes=host.base_page_bytes()).point
    lines = (MIB << 20) // host.base_page_bytes()
    taken = [
        [
            rig.take(point("page_chase", pages, lines=lines, region_ms=150), i).ns_per_access
            for pages in ("thp", BASE)
        ]
        for i in range(max(pairs, LEAST_PAIRS))
    ]
    return paired_ratio(*zip(*taken, strict=True))


def beside(trials: list[Trial]) -> float:
    """What experiments take beside the runs of their programs, as a part of these."""
    own_s = sum(
        run.elapsed_s for trial in trials for lever in (False, True) for run in trial.runs(lever)
    )
    return sum(trial.spent_s for trial in trials) / own_s - 1
