"""Report a trial to a person (verdict, remarks, table) and to a program (JSON)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tlb.programs import snapshots
from tlb.programs.collapse import Collapsed
from tlb.programs.runs import ProgramRun
from tlb.programs.snapshots import Snapshot
from tlb.programs.text import sentences
from tlb.programs.trial import Trial, smallest_detectable_difference
from tlb.stats.effects import FEWEST_RATIO_PAIRS, paired_ratio
from tlb.stats.intervals import Interval, median_interval
from tlb.system import procfs
from tlb.system.units import format_ns, format_size

# A lever that moves less than this part of the memory to huge pages did nothing: two runs of one
# program differ by as much.
_MOVED = 0.01
_SHMEM = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_ROUNDING = 1e-9  # of a bound that is a tenth of a per cent exactly


class Side(NamedTuple):
    """The runs without a lever, or with it: medians over those that count. peak: the typical
    snapshot at the largest resident size; None if the runs ended before a snapshot."""

    value: Interval
    peak: Snapshot | None
    minor_faults: float
    major_faults: float
    cpu_s: float
    statuses: tuple[int, ...]


def runs_summary(trial: Trial, lever: bool) -> Side:
    runs = trial.runs(lever)
    counting = runs[1:] or runs
    values = trial.values(lever) or trial.aim.values(runs)
    peaks = [peak for run in runs if (peak := snapshots.at_peak(run.snapshots))]
    return Side(
        median_interval(values),
        snapshots.typical(peaks),
        median(run.minor_faults for run in counting),
        median(run.major_faults for run in counting),
        median(run.cpu_s for run in counting),
        tuple(sorted({run.status for run in runs})),
    )


def verdict_sentence(trial: Trial) -> str:
    """Return the verdict with the ratio that it rests on."""
    if not trial.pairs:
        return f"Cannot tell: no pair was completed. {_enough(trial)}"
    ratio, whose = trial.ratio(), "the driver" if trial.aim.driver else "the program"
    what = f"{whose}'s time" if trial.aim.metric is None else f"the number that {whose} prints"
    first, second = trial.aim.sides
    other = "without" if trial.aim.against.name == "none" else first
    if not trial.has_verdict:
        found = f"{second}, {what} was {ratio.value:.3f} times what it is {other}"
        pairs = f"{len(trial.pairs)} pair{'s' * (len(trial.pairs) > 1)}"
        return f"Cannot tell: in {pairs}, {found}. {_enough(trial)}"
    found = f"{second.capitalize()}, {what} is {ratio:.3f} times what it is {other}"
    verdict = trial.verdict.capitalize()
    if trial.verdict == "no difference":
        # Rounded up, so that what the sentence rules out is ruled out.
        shown = ceil(1000 * smallest_detectable_difference(ratio) - _ROUNDING) / 10
        verdict = f"No difference: one of more than {shown} % would have shown"
    elif trial.verdict == "differs, by less than asked":
        verdict = f"It differs, by less than the {100 * trial.aim.within:g} % asked for"
    return f"{verdict}. {found} ({len(trial.pairs)} pairs)."


def _enough(trial: Trial) -> str:
    """Return in a sentence how many minutes a verdict takes."""
    minutes = f"{trial.minutes_needed:g} minutes"
    return f"A verdict takes {FEWEST_RATIO_PAIRS} pairs, and here they take about {minutes} (--minutes)."


def trial_remarks(trial: Trial) -> list[str]:
    """Return what a reader has to know beside the verdict, one sentence each."""
    runs, collapses = trial.runs(False) + trial.runs(True), _collapses(trial)
    without, with_lever = runs_summary(trial, False), runs_summary(trial, True)
    return sentences(
        "trial",
        trial=trial,
        lever=trial.aim.lever,
        without=without,
        with_lever=with_lever,
        outputs=list(_outputs(trial)),
        moved=without.peak and with_lever.peak and _has_moved(without.peak, with_lever.peak),
        given_bytes=median(run.given_bytes for run in trial.runs(True)),
        collapses=collapses,
        collapsed_bytes=median([each.bytes for each in collapses] or [0]),
        net_ratio=_net_ratio(trial),
        errors={error for each in collapses for error in each.errors},
        killed=sum(run.killed for run in runs),
        left=max(run.left for run in runs),
        has_rollup=Path("/proc/self/smaps_rollup").exists(),
        shmem_setting=procfs.chosen(_SHMEM),
    )


def _outputs(trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield the streams that are not always the same, and in what they differ."""
    for n, stream in enumerate(("stdout", "stderr")):
        without, with_lever = ([run.written[n] for run in trial.runs(on)] for on in (False, True))
        words = [{written.digest_of_words for written in each} for each in (without, with_lever)]
        if len({written.digest for written in without + with_lever}) == 1:
            continue
        if len(words[0] | words[1]) == 1:
            yield stream, "differs between runs, but only in digits"
        elif len(words[0]) > 1:
            yield stream, "differs between runs, without the lever too"
        else:
            yield stream, "is different with the lever"


def _has_moved(before: Snapshot, after: Snapshot) -> bool:
    """Return whether the lever changed how much memory is on huge pages."""
    least = _MOVED * max(before.pages.resident_bytes, after.pages.resident_bytes)
    return abs(after.pages.huge_bytes - before.pages.huge_bytes) > least


def _collapses(trial: Trial) -> list[Collapsed]:
    return [run.collapsed for run in trial.runs(True) if run.collapsed]


def _net_ratio(trial: Trial) -> Interval | None:
    """Return the ratio without the time of collapsing, during which the program runs on."""

    def net_s(run: ProgramRun) -> float:
        return run.elapsed_s - (run.collapsed.took_s if run.collapsed else 0)

    is_timed = trial.aim.metric is None and not trial.aim.driver
    without, with_lever = ([net_s(run) for run in trial.runs(on)[1:]] for on in (False, True))
    is_known = is_timed and trial.pairs and min(with_lever) > 0
    return paired_ratio(with_lever, without) if is_known else None


def huge_share_words(snapshot: Snapshot) -> str:
    pages = snapshot.pages
    share = pages.huge_bytes / max(pages.resident_bytes, 1)
    return f"{format_size(pages.huge_bytes)}, {share:.0%}"


def trial_table_rows(trial: Trial) -> list[tuple[str, str, str]]:
    """Return the rows of a table: quantity, without the lever, with it."""
    without, with_lever = runs_summary(trial, False), runs_summary(trial, True)

    def row(name: str, show: Callable[[Side], str]) -> tuple[str, str, str]:
        return name, show(without), show(with_lever)

    def at_peak(name: str, show: Callable[[Snapshot], str]) -> tuple[str, str, str]:
        return row(name, lambda each: show(each.peak) if each.peak else "ended too soon")

    return [
        row(trial.aim.value_name, lambda each: trial.aim.format(each.value.value)),
        row("CPU time", lambda each: format_ns(each.cpu_s * 1e9)),
        at_peak("on huge pages, at work", huge_share_words),
        at_peak("resident, at work", lambda peak: format_size(peak.pages.resident_bytes)),
        at_peak("page tables, at work", lambda peak: format_size(peak.table_bytes)),
        row("page faults", lambda each: f"{each.minor_faults:,.0f}"),
        row("page faults that read a disk", lambda each: f"{each.major_faults:,.0f}"),
    ]


def sweep_head(trial: Trial) -> tuple[str, str, str, str, str]:
    return "command", *trial.aim.sides, "ratio", "verdict"


def sweep_row(trial: Trial) -> tuple[str, str, str, str, str]:
    """Return a trial as a row under `sweep_head`."""
    without, with_lever = (
        trial.aim.format(runs_summary(trial, lever).value.value) for lever in (False, True)
    )
    ratio = f"{trial.ratio():.3f}" if trial.pairs else "none"
    return shlex.join(trial.aim.command), without, with_lever, ratio, trial.verdict


def markdown(trials: Sequence[Trial]) -> str:
    """Return trials as a Markdown table, one a row."""
    head = sweep_head(trials[0])
    rows = [head, ["---"] * len(head), *map(sweep_row, trials)]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def document(trial: Trial) -> dict[str, Any]:
    """Return everything as JSON has it: bytes, seconds, the ratio of with to without, and `values`
    in pairs of without and with."""
    aim, ratio = trial.aim, trial.ratio() if trial.pairs else None
    shown = (
        smallest_detectable_difference(ratio)
        if ratio and trial.verdict == "no difference"
        else None
    )
    return {
        "command": aim.command,
        "driver": aim.driver and aim.driver.command,
        "lever": aim.lever.name,
        "does": aim.lever.does,
        "against": aim.against.name,
        "quantity": aim.quantity,
        "better": "higher" if aim.higher else "lower",
        "within": aim.within,
        "verdict": trial.verdict,
        "ratio": ratio and ratio.as_dict(),
        "pairs": len(trial.pairs),
        "would_have_shown": shown,
        "seed": trial.seed,
        "remarks": trial_remarks(trial),
        "spent_s": trial.spent_s,
        "without": _side_document(trial, False),
        "with": _side_document(trial, True),
        "values": [
            list(pair) for pair in zip(trial.values(False), trial.values(True), strict=True)
        ],
    }


def _side_document(trial: Trial, lever: bool) -> dict[str, Any]:
    found = runs_summary(trial, lever)
    is_seen = trial.aim.lever.has_reached is not None
    return {
        "value": found.value.as_dict(),
        "exit_codes": list(found.statuses),
        "peak": found.peak
        and {
            "processes": found.peak.processes,
            "reached": found.peak.reached if is_seen else None,
            **pages_document(found.peak),
        },
        "minor_faults": found.minor_faults,
        "major_faults": found.major_faults,
        "cpu_s": found.cpu_s,
        "joined": [each._asdict() for each in _collapses(trial)] if lever else [],
    }


def pages_document(snapshot: Snapshot) -> dict[str, int]:
    pages = snapshot.pages
    return {**pages._asdict(), "huge_bytes": pages.huge_bytes, "table_bytes": snapshot.table_bytes}
