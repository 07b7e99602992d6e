"""What `tlb where --prove` says about ten programs that nobody here wrote, beside a comparison by
hand: a table of `tlb bench`."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from experiments.your_program import programs
from experiments.your_program.cases import CASES
from tlb.cli import where
from tlb.measure.build import ROOT
from tlb.measure.independent import Cells
from tlb.programs.levers import LEVERS
from tlb.programs.runs import run
from tlb.programs.where.proof import ALL, NONE
from tlb.programs.where.report import Report
from tlb.stats.intervals import Interval
from tlb.stats.pairs import paired_ratio
from tlb.system.reasons import Unavailable

TITLE = "tlb where --prove on programs of others, and huge pages for everything, compared by hand"
COLUMNS = (
    "program",
    "tlb where",
    "chosen over none",
    "all over none",
    "by hand",
    "most that walks cost",
    "s",
)
PAIRS = 9  # of the comparison by hand
MINUTES = 13.0  # no program begins after so many, and the last one takes one or two
SIMULATION_S = 20.0
PROOF_MINUTES = 1.5  # with the simulation, which may take half of them
# NumPy asks for huge pages by itself, so that a comparison with none has to tell it not to.
NONE_AT_ALL, EVERYTHING = LEVERS["numpy-off"], LEVERS["advise"]
_LIBRARY = str(ROOT / "tlb")
OTHERS: dict[str, list[str]] = {
    "git grep": ["git", "grep", "--no-index", "-c", "-E", "[a-z]+_[a-z]+ = [a-z]+", "--", _LIBRARY],
    "sha256sum": ["sha256sum", "@/lines.txt"],
}
TAKEN = ("numpy", "dict", "sqlite", "gcc", "node", "xz", "sort", "perl")  # the longest last


def advice(pairs: int = PAIRS, names: Sequence[str] = (*OTHERS, *TAKEN)) -> Iterator[Cells]:
    """Yield a row a program: what was chosen, and how long it takes with that and with everything
    on huge pages, over the time with nothing on them; by `tlb where`, and by pairs that share
    neither its library nor its rounds."""
    begin = time.monotonic()
    for name in names:
        started = time.monotonic()
        if started - begin > 60 * MINUTES:
            yield name, "no-time"
            continue
        try:
            command = _command(name)
            made = where.simulate_or_time(command, SIMULATION_S, PROOF_MINUTES, True, False)
            cells = _said(made)
            yield name, *cells, _text(huge_over_none(command, pairs)), *_costs(made, started)
        except Unavailable as why:
            yield name, why.code


def _command(name: str) -> list[str]:
    if name in CASES:
        return programs.ready(CASES[name])[1]
    command = programs.ready(CASES["sort"])[1]  # for its input
    folder = command[-1].rpartition("/")[0]
    return [word.replace("@", folder, 1) for word in OTHERS[name]]


def _said(made: Report) -> tuple[str, str, str]:
    assert made.proof, "tlb where was run without a proof"
    proof = made.proof
    chosen = proof.smallest
    origins = [site.origin for site in made.sites if site.id in chosen]
    said = "; ".join(origins) or "everything" if chosen else made.verdict
    ratios = [_text(proof.ratio(sites)) for sites in (chosen, ALL) if sites != NONE]
    return said, ratios[0] if chosen else "", ratios[-1]


def _costs(made: Report, started: float) -> tuple[str, str]:
    most = made.found.lacking
    if made.geometry and made.native_s:
        most = f"{made.most_saved_s / made.native_s:.0%}"
    return most, f"{time.monotonic() - started:.0f}"


def huge_over_none(command: list[str], pairs: int) -> Interval:
    """Return the time of a command with everything on huge pages over that with nothing on them,
    in interleaved pairs of which either comes first at random."""
    drawn, times = random.Random(1), {True: list[float](), False: list[float]()}
    for _ in range(pairs):
        for is_huge in drawn.sample((True, False), 2):
            lever = EVERYTHING if is_huge else NONE_AT_ALL
            done = run(command, lever, limit_s=120, share=0.01)
            times[is_huge].append(done.elapsed_s)
    return paired_ratio(times[True], times[False])


def _text(ratio: Interval) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
