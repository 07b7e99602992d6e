"""Tables of `make bench` about programs: `tlb where --prove` on ten that others wrote, beside a
comparison by hand; `tlb try` on programs with a known answer; and the cost of `tlb watch`."""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

from experiments.your_program import programs
from experiments.your_program.cases import PROGRAM_CASES
from tlb.cli import where
from tlb.machine import host
from tlb.measure import build
from tlb.measure.build import ROOT
from tlb.measure.grid import Scope, load_profile
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.store import Store
from tlb.programs.levers import LEVERS
from tlb.programs.runs import RunConditions, run_program
from tlb.programs.trial import Trial, TrialAim, run_trial, smallest_detectable_difference
from tlb.programs.trial_report import huge_page_share_in_words, runs_summary
from tlb.programs.watch import WatchState, attached_program, watch
from tlb.programs.where.proof import ALL_ALLOCATION_SITES, NO_ALLOCATION_SITES
from tlb.programs.where.report import WhereReport
from tlb.stats.effects import FEWEST_RATIO_PAIRS, paired_ratio
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import BASE_PAGES
from tlb.system.reasons import Unavailable
from tlb.system.units import format_ns, format_size

REFERENCE_PROGRAMS_FOLDER = build.KERNELS_FOLDER / "reference"
TableCells = tuple[str, ...]


@cache
def temporary_build_folder() -> tempfile.TemporaryDirectory[str]:
    """Return the folder that they are compiled into while this process lives."""
    return tempfile.TemporaryDirectory()


def compiled_c_program(source: Path, folder: str, *flags: str) -> str:
    """Compile a C program into `folder`; return its path. SystemExit without a compiler."""
    if (cc := build.compiler_or_prebuilt()) is None:
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


def count_and_share_cells(
    gate: Iterable[float | None], whole: Iterable[float | None]
) -> TableCells:
    """Return the medians of two counts and the first as a part of the second, as texts."""
    a, b = (
        statistics.median(counted) if (counted := [n for n in side if n is not None]) else None
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


ADVICE = (
    "tlb where --prove on programs of others, and huge pages for everything, compared by hand",
    (
        "program",
        "tlb where",
        "chosen over none",
        "all over none",
        "by hand",
        "most that walks cost",
        "s",
    ),
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


def advice(pairs: int = PAIRS, names: Sequence[str] = (*OTHERS, *TAKEN)) -> Iterator[TableCells]:
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
    if name in PROGRAM_CASES:
        return programs.ready(PROGRAM_CASES[name])[1]
    command = programs.ready(PROGRAM_CASES["sort"])[1]  # for its input
    folder = command[-1].rpartition("/")[0]
    return [word.replace("@", folder, 1) for word in OTHERS[name]]


def _said(made: WhereReport) -> tuple[str, str, str]:
    assert made.proof  # simulate_or_time was asked for one
    proof, chosen = made.proof, made.proof.smallest
    origins = [site.origin for site in made.sites if site.id in chosen]
    said = "; ".join(origins) or "everything" if chosen else made.verdict
    ratios = [
        _text(proof.ratio(sites))
        for sites in (chosen, ALL_ALLOCATION_SITES)
        if sites != NO_ALLOCATION_SITES
    ]
    return said, ratios[0] if chosen else "", ratios[-1]


def _costs(made: WhereReport, started: float) -> tuple[str, str]:
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
            done = run_program(command, lever, limit_s=120, share=0.01)
            times[is_huge].append(done.elapsed_s)
    return paired_ratio(times[True], times[False])


def _text(ratio: Interval) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


# --- tlb try where the answer is known, and the cost of tlb watch

KNOWN = (
    "tlb try where the answer is known (to reach: the chapter's ratio within 5 %; no difference in "
    "18 of 20; a difference in 1 of 20 without a lever; 2 % beside the program's own time)",
    ("program, lever", "tlb try", "known", "difference"),
)
MIB, MILLIONS = 1024, 500  # the second takes half a second
TIMES = 20
PRINTS = RunConditions(metric=re.compile(r"(\S+) ns"))
OVERHEAD = (
    "A program of fixed work, watched and not (to reach: 1 %)",
    ("it touches", "allowed", "samples", "a sample", "watched over not", "predicted cost"),
)
SIZES, ALLOWED = (64 << 20, 1 << 30), 0.01
SECONDS = 12.0  # a sample of 1 GiB takes 20 to 60 ms, and is paid for in 4 to 12 s
# Reads random bytes with NumPy's own loop, which shares no code with the sampling.
_WORK = """import sys, time
import numpy as np
size, rounds = int(sys.argv[1]), int(sys.argv[2])
array = np.ones(size, np.uint8)
drawn = np.random.default_rng(1).integers(0, size, 1 << 20)
print("ready", flush=True)
begin = time.perf_counter()
for _ in range(rounds):
    array[drawn].sum()
print(time.perf_counter() - begin, flush=True)
"""


def known() -> Iterator[TableCells]:
    """Yield rows: the chase over 1 GiB against the chapter's kernel in the same minutes, arithmetic
    that no pages help, and what trying costs."""
    program = compiled_c_program(
        REFERENCE_PROGRAMS_FOLDER / "unadvised.c", temporary_build_folder().name
    )
    chase = run_trial(TrialAim([program, "chase", str(MIB)], LEVERS["advise"], conditions=PRINTS))
    tried, kernel = chase.ratio(), kernel_ratio(len(chase.pairs))
    apart, peak = tried / kernel, runs_summary(chase, True).peak
    yield (
        f"chase over 1 GiB, advise ({huge_page_share_in_words(peak) if peak else 'nothing'} on huge pages)",
        f"{tried:.3f}",
        f"{kernel:.3f}",
        f"{apart.value - 1:+.1%} ({apart.low - 1:+.1%} to {apart.high - 1:+.1%})",
    )
    sums = {
        name: [
            run_trial(TrialAim([program, "sum", str(MILLIONS)], LEVERS[name])) for _ in range(TIMES)
        ]
        for name in ("advise", "none")
    }
    equal = sum(
        trial.verdict == "no difference"
        and smallest_detectable_difference(trial.ratio()) <= trial.aim.within
        for trial in sums["advise"]
    )
    yield "arithmetic, advise", f"no difference: {equal} of {TIMES}", "all", ""
    differ = sum(trial.verdict not in ("no difference", "cannot tell") for trial in sums["none"])
    yield "arithmetic, none", f"a difference: {differ} of {TIMES}", "none", ""
    costs = f"{trial_cost([chase]):.1%} (chase), {trial_cost(sums['advise']):.1%} (arithmetic)"
    yield "beside its own time", costs, "", ""


def kernel_ratio(pairs: int) -> Interval:
    """Return the ratio of the kernel's chase with and without huge pages, in pairs of fresh
    processes: times of mappings come in clusters, so medians would give another number."""
    rig = MeasuringSetup.of(
        host.inspect_machine(), Store(Path(temporary_build_folder().name)), counters=False
    )
    rig = replace(rig, usable_bytes=2**63)
    point = Scope(load_profile("full"), base_page_bytes=host.base_page_bytes()).point
    lines = (MIB << 20) // host.base_page_bytes()
    taken = [
        [
            rig.take(point("page_chase", pages, lines=lines, region_ms=150), i).ns_per_access
            for pages in ("thp", BASE_PAGES)
        ]
        for i in range(max(pairs, FEWEST_RATIO_PAIRS))
    ]
    return paired_ratio([huge for huge, _ in taken], [base for _, base in taken])


def trial_cost(trials: list[Trial]) -> float:
    """Return the time that trials take beside their programs, as a part of the programs' time."""
    runs = [run for trial in trials for lever in (False, True) for run in trial.runs(lever)]
    return sum(trial.spent_s for trial in trials) / sum(run.elapsed_s for run in runs) - 1


def overhead() -> Iterator[TableCells]:
    """Yield a row a size: six pairs of the same work, watched and not, in turn."""
    for size in SIZES:
        rounds = max(int(100 * SECONDS / _work(size, 100, False)[0]), 1)
        watched, alone = zip(
            *(
                (_work(size, rounds, True), _work(size, rounds, False))
                for _ in range(FEWEST_RATIO_PAIRS)
            ),
            strict=True,
        )
        ratio = paired_ratio([s for s, _ in watched], [s for s, _ in alone])
        seen = [each for _, each in watched if each]
        samples = sum(len(each.samples) for each in seen)
        sampling_s = sum(each.sampling_s for each in seen)
        yield (
            format_size(size),
            f"{ALLOWED:.0%}",
            str(samples),
            format_ns(1e9 * sampling_s / samples),
            f"{ratio:.4f}",
            f"{sum(each.cost for each in seen) / len(seen):.2%}",
        )


def _work(size: int, rounds: int, is_watched: bool) -> tuple[float, WatchState | None]:
    """Return how long the work took by its own clock, and what was seen of it."""
    command = [sys.executable, "-c", _WORK, str(size), str(rounds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None  # a pipe
        child.stdout.readline()
        watched = None
        if is_watched:
            with attached_program(child.pid) as target:
                watched = watch(target, inf, ALLOWED, lambda watched: None)
        return float(child.stdout.readline()), watched
