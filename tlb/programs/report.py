"""What came of an experiment, for a person and for a program: the verdict in words, what was seen
from outside, and what differed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil
from statistics import median
from typing import Any, NamedTuple

from tlb.inference.intervals import Interval, median_interval
from tlb.programs import looks
from tlb.programs.looks import Look
from tlb.programs.runs import Run
from tlb.programs.trial import Trial, would_have_shown
from tlb.prose import listed
from tlb.units import format_ns, format_size

# Less than this part of the memory more on large pages is as much as two runs of one program differ
# by.
_MOVED = 0.01
_ROUNDING = 1e-9  # of a bound that is a tenth of a per cent exactly


class Side(NamedTuple):
    """The runs without a lever, or with it. peak: a look at the most memory, of the run in the
    middle; None where none was in time. Medians over the runs that count; faults and CPU time are
    of all the program's processes."""

    value: Interval
    peak: Look | None
    minor_faults: float
    major_faults: float
    cpu_s: float
    statuses: tuple[int, ...]


def side(trial: Trial, lever: bool) -> Side:
    runs = trial.runs(lever)
    counting = runs[1:] or runs
    peaks = [peak for run in runs if (peak := looks.peak(list(run.looks)))]
    medians = (
        median(getattr(run, name) for run in counting)
        for name in ("minor_faults", "major_faults", "cpu_s")
    )
    return Side(
        median_interval([trial.aim.value(run) for run in counting]),
        looks.typical(peaks),
        *medians,
        tuple(sorted({run.status for run in runs})),
    )


def verdict_sentence(trial: Trial) -> str:
    """The verdict with the ratio that it rests on."""
    driven = trial.aim.driver is not None
    ratio, what = (
        trial.ratio(),
        ("The driver's time" if driven else "The time")
        if trial.aim.metric is None
        else ("What the driver prints" if driven else "What it prints"),
    )
    told = f"{what} with {trial.aim.lever.name} is {ratio:.3f} times what it is without, in {len(trial.pairs)} pairs."
    match trial.verdict:
        case "differs, by less than asked":
            return f"It differs, by less than the {100 * trial.aim.within:g} % asked for. {told}"
        case "no difference":
            return f"No difference, and one over {ceil(1000 * would_have_shown(ratio) - _ROUNDING) / 10} % would have shown. {told}"
        case "cannot tell" if trial.pairs:
            return f"Cannot tell. {told}"
        case "cannot tell":
            return "Cannot tell: there is no pair."
        case word:
            return f"{word.capitalize()}. {told}"


def remarks(trial: Trial) -> list[str]:
    """What has to be known beside the verdict, a sentence each: what differed first."""
    return [
        *_exits(trial),
        *_outputs(trial),
        *_reach(trial),
        *_joined(trial),
        *_left(trial),
        *([trial.ended] if trial.ended else []),
    ]


def _exits(trial: Trial) -> Iterator[str]:
    without, with_lever = (
        "or ".join(f"{status} " for status in sorted(statuses)).strip()
        for statuses in trial.statuses
    )
    its = "Its driver's" if trial.aim.driver else "Its"
    if without != with_lever:
        yield f"{its} exit code is {without} as it is and {with_lever} with the lever: it does not do the same, and its times say nothing."
    elif without != "0":
        yield f"{its} exit code is {without}, with the lever and without."


def _outputs(trial: Trial) -> Iterator[str]:
    who = "its driver" if trial.aim.driver else "it"
    for n, stream in enumerate(("stdout", "stderr")):
        sides = [[run.written[n] for run in trial.runs(lever)] for lever in (False, True)]
        exact, words = (
            [{getattr(written, name) for written in side} for side in sides]
            for name in ("digest", "digest_of_words")
        )
        if len(exact[0] | exact[1]) == 1:
            continue
        if len(words[0] | words[1]) == 1:
            yield f"What {who} writes to {stream} differs from run to run in digits alone."
        elif len(words[0]) > 1:
            yield f"What {who} writes to {stream} differs from run to run, as it is too."
        else:
            yield f"What {who} writes to {stream} is something else with the lever than without."


def _reach(trial: Trial) -> Iterator[str]:
    """Whether the lever did anything to the pages, with the evidence."""
    peaks, lever = [side(trial, on).peak for on in (False, True)], trial.aim.lever
    if lever.name == "none":
        return
    if None in peaks:
        yield "It ended before its memory could be looked at, so nothing shows whether the lever reached it."
        return
    (without, before), (with_lever, after) = ((peak.pages.huge_bytes, peak) for peak in peaks)
    if abs(with_lever - without) <= _MOVED * max(
        before.pages.resident_bytes, after.pages.resident_bytes
    ) and not _joined_bytes(trial):
        yield (
            f"The lever made next to no difference to its pages: at the peak, {format_size(with_lever)} of "
            f"{format_size(after.pages.resident_bytes)} are on huge pages with it, and {format_size(without)} of "
            f"{format_size(before.pages.resident_bytes)} without it."
        )
    if lever.seen and after.reached < after.processes:
        yield f"The lever was seen in {after.reached} of its {after.processes} processes."


def _joined(trial: Trial) -> Iterator[str]:
    runs = [run for run in trial.runs(True) if run.joined]
    if not runs:
        return
    took_s, at_s = (
        median(getattr(run.joined, name) for run in runs) for name in ("took_s", "at_s")
    )
    yield (
        f"Collapsing {format_size(_joined_bytes(trial))} into huge pages took {format_ns(took_s * 1e9)}, from {format_ns(at_s * 1e9)} "
        "after the start on."
    )
    if (
        trial.pairs
        and trial.aim.metric is None
        and not trial.aim.driver
        and all(run.elapsed_s > _joining_s(run) for run in runs)
    ):
        ratio = trial.ratio(lambda run: run.elapsed_s - _joining_s(run))
        yield f"Without these seconds, in which it runs on slowly, the ratio is {ratio:.3f}: the most that joining can give."
    yield from refused({error for run in runs for error in run.joined.errors})


def refused(errors: Iterable[str]) -> list[str]:
    """Say with which errors Linux left memory as it was, or nothing without an error."""
    named = [
        f"{error} (nothing is mapped there, or it cannot be collapsed)"
        if error == "EINVAL"
        else error
        for error in sorted(errors)
    ]
    return [f"Some of its memory Linux did not collapse: {listed(named)}."] if named else []


def _joined_bytes(trial: Trial) -> int:
    """Return how much a run with the lever had collapsed, the median; 0 for other levers."""
    return int(median([run.joined.bytes for run in trial.runs(True) if run.joined] or [0]))


def _joining_s(run: Run) -> float:
    return run.joined.took_s if run.joined else 0.0


def _left(trial: Trial) -> Iterator[str]:
    if killed := sum(run.killed for lever in (False, True) for run in trial.runs(lever)):
        yield f"The server did not end when it was asked to (SIGTERM), and was killed {'once' if killed == 1 else f'{killed} times'}."
    if most := max(run.left for lever in (False, True) for run in trial.runs(lever)):
        yield (
            f"It left {most} processes running, which were ended after each run."
            if most > 1
            else ("It left a process running, which was ended after each run.")
        )


def rows(trial: Trial) -> list[tuple[str, str, str]]:
    """What a table shows: the quantity, as it is, with the lever."""
    sides = [side(trial, lever) for lever in (False, True)]

    def shown(peak: Look | None, name: str) -> str:
        if peak is None:
            return "ended before a look"
        pages = peak.pages
        return {
            "large": f"{format_size(pages.huge_bytes)}, {pages.huge_bytes / pages.resident_bytes:.0%}",
            "resident": format_size(pages.resident_bytes),
            "tables": format_size(peak.table_bytes),
        }[name]

    told = (
        (lambda value: format_ns(value * 1e9))
        if trial.aim.metric is None
        else (lambda value: f"{value:g}")
    )
    return [
        (
            "time" if trial.aim.metric is None else "what is printed",
            *(told(s.value.value) for s in sides),
        ),
        ("CPU time", *(format_ns(s.cpu_s * 1e9) for s in sides)),
        ("on large pages, at the peak", *(shown(s.peak, "large") for s in sides)),
        ("resident, at the peak", *(shown(s.peak, "resident") for s in sides)),
        ("page tables, at the peak", *(shown(s.peak, "tables") for s in sides)),
        ("faults", *(f"{s.minor_faults:,.0f}" for s in sides)),
        ("faults that waited for a disk", *(f"{s.major_faults:,.0f}" for s in sides)),
    ]


def document(trial: Trial) -> dict[str, Any]:
    """All of it for a program. Sizes in bytes, times in seconds; the ratio is of with to without,
    and so many `values` are pairs of without and with."""
    aim, ratio = trial.aim, trial.ratio() if trial.pairs else None
    return {
        "command": aim.command,
        "driver": aim.driver and aim.driver.command,
        "lever": aim.lever.name,
        "does": aim.lever.does,
        "quantity": "elapsed_s" if aim.metric is None else aim.metric.pattern,
        "better": "higher" if aim.higher else "lower",
        "within": aim.within,
        "verdict": trial.verdict,
        "ratio": ratio and ratio._asdict(),
        "pairs": len(trial.pairs),
        "would_have_shown": would_have_shown(ratio) if trial.verdict == "no difference" else None,
        "seed": trial.seed,
        "remarks": remarks(trial),
        "spent_s": trial.spent_s,
        "without": _of_side(trial, False),
        "with": _of_side(trial, True),
        "values": [[aim.value(run) for run in pair] for pair in trial.pairs],
    }


def _of_side(trial: Trial, lever: bool) -> dict[str, Any]:
    told = side(trial, lever)
    peak = told.peak and {
        "processes": told.peak.processes,
        "reached": told.peak.reached if trial.aim.lever.seen else None,
        **told.peak.pages._asdict(),
        "huge_bytes": told.peak.pages.huge_bytes,
        "table_bytes": told.peak.table_bytes,
    }
    joined = [run.joined._asdict() for run in trial.runs(lever) if run.joined]
    return {
        "value": told.value._asdict(),
        "exit_codes": list(told.statuses),
        "peak": peak,
        "minor_faults": told.minor_faults,
        "major_faults": told.major_faults,
        "cpu_s": told.cpu_s,
        "joined": joined,
    }
