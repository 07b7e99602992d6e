"""Report a trial to a person (verdict, remarks, table) and to a program (JSON)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tlb.programs import snapshots
from tlb.programs.collapse import CollapseResult
from tlb.programs.runs import ProgramRun
from tlb.programs.snapshots import MemorySnapshot
from tlb.programs.text import render_template_lines
from tlb.programs.trial import (
    MAX_WRONG_VERDICT_SHARE,
    MIN_RUN_PAIRS,
    ComparedQuantity,
    Trial,
    format_seconds,
    random_run_orders,
    smallest_detectable_difference,
)
from tlb.stats.effects import paired_ratio
from tlb.stats.intervals import Interval, median_interval
from tlb.stats.scatter import largest_ratio_between_groups
from tlb.system import procfs
from tlb.system.units import format_size

# A lever that moves less than this part of the memory to huge pages did nothing: two runs of one
# program differ by as much.
_MOVED = 0.01
_SHMEM = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
_ROUNDING = 1e-9  # of a bound that is a tenth of a per cent exactly
_CACHE_LINE_BYTES = 64


class Side(NamedTuple):
    """The runs without a lever, or with it: medians over those that count. peak: the typical
    snapshot at the largest resident size; None if the runs ended before a snapshot."""

    value: Interval
    peak: MemorySnapshot | None
    minor_faults: float
    major_faults: float
    cpu_s: float
    statuses: tuple[int, ...]
    free_huge_bytes: float | None


def runs_summary(trial: Trial, lever: bool) -> Side:
    runs = trial.runs(lever)
    counting = runs[1:] or runs
    values = trial.values(lever) or trial.aim.values(runs)
    free = [run.place.free_huge_bytes for run in counting if run.place.free_huge_bytes is not None]
    peaks = [peak for run in runs if (peak := snapshots.at_peak(run.snapshots))]
    return Side(
        median_interval(values),
        snapshots.typical(peaks),
        median(run.minor_faults for run in counting),
        median(run.major_faults for run in counting),
        median(run.cpu_s for run in counting),
        tuple(sorted({run.status for run in runs})),
        median(free) if free else None,
    )


def verdict_sentences(trial: Trial) -> list[str]:
    """Return the verdicts with the ratios that they rest on, one sentence each."""
    if not trial.pairs:
        return [f"Cannot tell: no pair was completed. {_enough(trial)}"]
    if trial.has_verdict:
        return [_verdict_sentence(trial, quantity) for quantity in trial.quantities]
    pairs = f"{len(trial.pairs)} pair{'s' * (len(trial.pairs) > 1)}"
    found = [
        _ratio_words(trial, quantity, f"{quantity.ratio.value:.3f}", "was")
        for quantity in trial.quantities
        if quantity.ratio
    ]
    return [f"Cannot tell: in {pairs}, {' and '.join(found)}. {_enough(trial)}"]


def _verdict_sentence(trial: Trial, quantity: ComparedQuantity) -> str:
    label, ratio = quantity.title, quantity.ratio
    if ratio is None:
        return f"{label}: cannot tell, because some runs took none that Linux counted."
    words = _ratio_words(trial, quantity, f"{ratio:.3f}", "is")
    verdict: str = quantity.verdict
    if quantity.verdict == "no difference":
        # Rounded up, so that what the sentence rules out is ruled out.
        shown = ceil(1000 * smallest_detectable_difference(ratio) - _ROUNDING) / 10
        verdict = f"no difference; one of more than {shown} % would have shown"
    elif quantity.verdict == "differs, by less than asked":
        verdict = f"differs, by less than the {100 * quantity.within:g} % asked for"
    return f"{label}: {verdict}. {words[0].upper()}{words[1:]} ({len(trial.pairs)} pairs)."


def _ratio_words(trial: Trial, quantity: ComparedQuantity, ratio: str, verb: str) -> str:
    """Return in words that a quantity is so many times what it is on the other side."""
    aim = trial.aim
    timed = "driver" if aim.driver else "program"
    owner = "server" if aim.driver and quantity.name == "cpu_s" else timed
    first, second = aim.sides
    is_printed = quantity.name not in ("elapsed_s", "cpu_s")
    what = (
        f"the number that the {timed} prints" if is_printed else f"the {owner}'s {quantity.label}"
    )
    if aim.versus:
        return f"{what} {verb} {ratio} times with {second} what it {verb} with {first}"
    other = "without" if aim.against.name == "none" else first
    return f"{second}, {what} {verb} {ratio} times what it is {other}"


def _enough(trial: Trial) -> str:
    """Return in a sentence how many minutes a verdict takes."""
    minutes = f"{trial.minutes_needed:g} minutes"
    return f"A verdict takes {MIN_RUN_PAIRS} pairs, and here they take about {minutes} (--minutes)."


def trial_remarks(trial: Trial) -> list[str]:
    """Return what a reader has to know beside the verdict, one sentence each."""
    runs, collapses = trial.runs(False) + trial.runs(True), _collapses(trial)
    without, with_lever = runs_summary(trial, False), runs_summary(trial, True)
    return render_template_lines(
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
        stack_effects=list(zip(trial.aim.sides, stack_effects(trial), strict=True)),
        free_bytes=min(
            (run.place.free_huge_bytes for run in runs if run.place.free_huge_bytes is not None),
            default=None,
        ),
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
            yield stream, f"differs between runs, {trial.aim.sides[0]} too"
        else:
            yield stream, f"is different with {'--versus' if trial.aim.versus else 'the lever'}"


def stack_effects(trial: Trial) -> tuple[float, float]:
    """Return for each side how many times as much CPU time it takes at most where its stack begins elsewhere in
    a cache line; 1 where that decides nothing. Linux draws the place for each run, in steps of 16
    bytes, and `tlb try` moves it too; both sides see all places."""
    return _stack_effect(trial, False), _stack_effect(trial, True)


def _stack_effect(trial: Trial, lever: bool) -> float:
    runs = [run for run in trial.runs(lever)[1:] if run.place.stack_offset_bytes is not None]
    places = [(run.place.stack_offset_bytes or 0) % _CACHE_LINE_BYTES for run in runs]
    return largest_ratio_between_groups([run.cpu_s for run in runs], places)


def _has_moved(before: MemorySnapshot, after: MemorySnapshot) -> bool:
    """Return whether the lever changed how much memory is on huge pages."""
    least = _MOVED * max(before.pages.resident_bytes, after.pages.resident_bytes)
    return abs(after.pages.huge_bytes - before.pages.huge_bytes) > least


def _collapses(trial: Trial) -> list[CollapseResult]:
    return [run.collapsed for run in trial.runs(True) if run.collapsed]


def _net_ratio(trial: Trial) -> Interval | None:
    """Return the ratio without the time of collapsing, during which the program runs on."""

    def net_s(run: ProgramRun) -> float:
        return run.elapsed_s - (run.collapsed.took_s if run.collapsed else 0)

    is_timed = trial.aim.metric is None and not trial.aim.driver
    without, with_lever = ([net_s(run) for run in trial.runs(on)[1:]] for on in (False, True))
    is_known = is_timed and trial.pairs and min(with_lever) > 0
    return paired_ratio(with_lever, without) if is_known else None


def huge_page_share_in_words(snapshot: MemorySnapshot) -> str:
    pages = snapshot.pages
    share = pages.huge_bytes / max(pages.resident_bytes, 1)
    return f"{format_size(pages.huge_bytes)}, {share:.0%}"


def trial_table_rows(trial: Trial) -> list[tuple[str, str, str]]:
    """Return the rows of a table: quantity, without the lever, with it."""
    without, with_lever = runs_summary(trial, False), runs_summary(trial, True)

    def row(name: str, show: Callable[[Side], str]) -> tuple[str, str, str]:
        return name, show(without), show(with_lever)

    def at_peak(name: str, show: Callable[[MemorySnapshot], str]) -> tuple[str, str, str]:
        return row(name, lambda each: show(each.peak) if each.peak else "ended too soon")

    return [
        row(trial.aim.value_name, lambda each: trial.aim.format(each.value.value)),
        row("CPU time", lambda each: format_seconds(each.cpu_s)),
        at_peak("on huge pages, at work", huge_page_share_in_words),
        at_peak("resident, at work", lambda peak: format_size(peak.pages.resident_bytes)),
        at_peak("page tables, at work", lambda peak: format_size(peak.table_bytes)),
        row("page faults", lambda each: f"{each.minor_faults:,.0f}"),
        row("page faults that read a disk", lambda each: f"{each.major_faults:,.0f}"),
        row("free in 2 MiB blocks, before", lambda each: _size_words(each.free_huge_bytes)),
    ]


def _size_words(size_bytes: float | None) -> str:
    return "unknown" if size_bytes is None else format_size(int(size_bytes))


def sweep_head(trial: Trial) -> tuple[str, ...]:
    columns = [(f"{each.label} ratio", f"{each.label} verdict") for each in trial.quantities]
    return "command", *trial.aim.sides, *columns[0], *columns[1]


def sweep_row(trial: Trial) -> tuple[str, ...]:
    """Return a trial as a row under `sweep_head`."""
    values = [trial.aim.format(runs_summary(trial, on).value.value) for on in (False, True)]
    verdicts = [
        (f"{each.ratio:.3f}" if each.ratio else "none", each.verdict) for each in trial.quantities
    ]
    return shlex.join(trial.aim.command), *values, *verdicts[0], *verdicts[1]


def markdown(trials: Sequence[Trial]) -> str:
    """Return trials as a Markdown table, one a row."""
    head = sweep_head(trials[0])
    rows = [head, ["---"] * len(head), *map(sweep_row, trials)]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def document(trial: Trial) -> dict[str, Any]:
    """Return everything as JSON has it: bytes, seconds, the ratio of the second side to the first, and
    each run."""
    aim = trial.aim
    return {
        "command": aim.command,
        "versus": [*aim.versus],
        "driver": aim.driver.command if aim.driver else [],
        "within": aim.within,
        "pairs": len(trial.pairs),
        "wrong_at_most": MAX_WRONG_VERDICT_SHARE,
        "quantities": [_quantity_document(each) for each in trial.quantities],
        "seed": trial.seed,
        "remarks": trial_remarks(trial),
        "spent_s": trial.spent_s,
        "sides": [_side_document(trial, False), _side_document(trial, True)],
        "runs": [*_run_documents(trial)],
    }


def _quantity_document(quantity: ComparedQuantity) -> dict[str, Any]:
    ratio = quantity.ratio
    rules_out = ratio and quantity.verdict == "no difference"
    return {
        "name": quantity.name,
        "better": "higher" if quantity.higher else "lower",
        "verdict": quantity.verdict,
        "ratio": ratio and ratio.as_dict(),
        "would_have_shown": smallest_detectable_difference(ratio) if ratio and rules_out else None,
    }


def _run_documents(trial: Trial) -> Iterator[dict[str, Any]]:
    """Yield each run: pair 0 is the rehearsal, which does not count, and the second side is 1."""
    firsts = random_run_orders(trial.seed)
    for number, pair in enumerate((trial.rehearsal, *trial.pairs)):
        is_lever_first = number > 0 and next(firsts)
        for side, (run, value) in enumerate(zip(pair, trial.aim.values(pair), strict=True)):
            yield {
                "pair": number,
                "side": side,
                "position": 1 + (side == 0) if is_lever_first else 1 + side,
                "value": value,
                "elapsed_s": run.elapsed_s,
                "cpu_s": run.cpu_s,
                "exit_code": run.status,
                "minor_faults": run.minor_faults,
                "major_faults": run.major_faults,
                **run.place._asdict(),
                "collapsed": run.collapsed and run.collapsed._asdict(),
            }


def _side_document(trial: Trial, lever: bool) -> dict[str, Any]:
    found, (_, changed) = runs_summary(trial, lever), trial.aim.side(lever)
    is_seen = trial.aim.lever.has_reached is not None
    return {
        "name": trial.aim.sides[lever],
        "lever": changed.name,
        "does": changed.does,
        "value": found.value.as_dict(),
        "exit_codes": list(found.statuses),
        "peak": found.peak
        and {
            "processes": found.peak.processes,
            "reached": found.peak.reached if is_seen else None,
            **snapshot_document(found.peak),
        },
        "minor_faults": found.minor_faults,
        "major_faults": found.major_faults,
        "cpu_s": found.cpu_s,
        "free_huge_bytes": found.free_huge_bytes,
        "stack_effect": stack_effects(trial)[lever],
    }


def snapshot_document(snapshot: MemorySnapshot) -> dict[str, int]:
    pages = snapshot.pages
    return {**pages._asdict(), "huge_bytes": pages.huge_bytes, "table_bytes": snapshot.table_bytes}
