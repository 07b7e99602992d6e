"""Compare a process that runs already before and after its memory is collapsed into huge pages.

Collapsing cannot be undone, so there are no pairs and no verdict: what the process would have done
without it is unknown. The windows of each side show how much it drifts by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import log
from statistics import median
from threading import Event
from typing import Any, NamedTuple

from tlb.programs import activity, collapse, snapshots
from tlb.programs.collapse import AddressRange, CollapseResult
from tlb.programs.guard import running_guard
from tlb.programs.levers import LEVERS
from tlb.programs.runs import ProgramRun, run_program
from tlb.programs.snapshots import MemorySnapshot
from tlb.programs.text import render_template_lines
from tlb.programs.trial import MIN_RUN_TIMEOUT_S, SNAPSHOT_TIME_SHARE, TrialAim, format_seconds
from tlb.programs.trial_report import huge_page_share_in_words, snapshot_document
from tlb.programs.watch import WatchedProgram, attached_program
from tlb.stats.intervals import Interval, median_interval
from tlb.system.processes import process_descendants
from tlb.system.reasons import Unavailable
from tlb.system.units import format_size

MOST_WINDOWS = 12  # a side; from six on, a median's interval covers 95 %


class WindowValues(NamedTuple):
    """A quantity of the windows before and after. name: as a report has it."""

    name: str
    before: list[float]
    after: list[float]

    @property
    def ratio(self) -> Interval | None:
        """The median after over the median before; None without a window on each side, or where
        a median is 0."""
        if not all(side and median(side) for side in (self.before, self.after)):
            return None
        return median_interval(self.after) / median_interval(self.before)

    @property
    def drifts(self) -> list[float]:
        """For each side the median of its second half over that of its first."""
        sides = [(side, len(side) // 2) for side in (self.before, self.after) if len(side) > 1]
        halves = [(median(side[:half]), median(side[-half:])) for side, half in sides]
        return [second / first for first, second in halves if first]

    @property
    def is_drift(self) -> bool:
        """Whether the change is no more than the drift."""
        ratio = self.ratio
        drifts = [abs(log(drift)) for drift in self.drifts if drift]
        if ratio is None or not drifts:
            return False
        return abs(log(ratio.value)) <= max(drifts)


@dataclass
class BeforeAfterComparison:
    """aim: its command runs in each window, before and after, once a window; the CPU time of these
    runs is that of the process. memory: snapshots before collapsing and after the last window.
    ended: why it stopped early, or ""."""

    pid: int
    aim: TrialAim
    runs_before: list[ProgramRun] = field(default_factory=list)
    runs_after: list[ProgramRun] = field(default_factory=list)
    memory: list[MemorySnapshot] = field(default_factory=list)
    collapsed: CollapseResult | None = None
    thp_disabled: bool = False
    ended: str = ""
    is_interrupted: bool = False

    @property
    def measured(self) -> WindowValues:
        """What the aim compares: time, or the printed number."""
        values = self.aim.values([*self.runs_before, *self.runs_after])
        number = len(self.runs_before)
        return WindowValues(self.aim.value_name, values[:number], values[number:])

    @property
    def cpu_time(self) -> WindowValues:
        """The CPU time of the process in s, which other programs on the computer change less."""
        sides = ([run.cpu_s for run in side] for side in (self.runs_before, self.runs_after))
        return WindowValues("CPU time of the process", *sides)


def check(pid: int) -> None:
    """Raise Unavailable if a process cannot be measured so: what `attached_program` raises, process-gone,
    linux-lacks, not-permitted."""
    with attached_program(pid):
        if pid == os.getpid() or os.getpid() in process_descendants(pid):
            raise Unavailable(
                "process-gone",
                f"{pid} is this command, or has started it",
                "Name the process that does the work, as `ps` lists it.",
            )
    collapse.check()
    if collapse.refusal(pid) == "EPERM":
        raise collapse.not_permitted()


def compare(
    pid: int,
    aim: TrialAim,
    only: AddressRange | None = None,
    tell: Callable[[BeforeAfterComparison], None] = lambda comparison: None,
) -> BeforeAfterComparison:
    """Measure a process before and after collapsing; `tell` is called after each window. only: no
    memory but that of these addresses. If the
    process ends after collapsing, or the time is over, or Ctrl-C is pressed after the first window,
    the windows before it stay.

    Raises Unavailable: what `check`, `run_program` and `Aim.checked` raise."""
    check(pid)
    comparison = BeforeAfterComparison(pid, aim, thp_disabled=snapshots.process_has_no_thp(pid))
    begin = time.monotonic()
    end_s = begin + aim.minutes * 60
    with running_guard(), attached_program(pid) as target:
        _window(comparison, end_s)  # does not count: the command itself is still read from a disk
        half_s = (time.monotonic() + end_s) / 2
        try:
            _fill(comparison, comparison.runs_before, half_s, end_s, target, tell)
            comparison.memory.append(snapshot(pid, begin))
            comparison.collapsed = collapse.collapse_all(
                partial(family, pid), begin, 0.0, Event(), only
            )
            _check_runs(target)
            _fill(comparison, comparison.runs_after, end_s, end_s, target, tell)
        except Unavailable as why:
            if not comparison.collapsed:
                raise
            comparison.ended = why.text
        except KeyboardInterrupt:
            if not comparison.runs_before:
                raise
            comparison.ended, comparison.is_interrupted = "It was interrupted.", True
        comparison.memory.append(snapshot(pid, begin))
    return comparison


def _fill(
    comparison: BeforeAfterComparison,
    side: list[ProgramRun],
    until_s: float,
    end_s: float,
    target: WatchedProgram,
    tell: Callable[[BeforeAfterComparison], None],
) -> None:
    """Measure one window at least, none that would end after until_s of the monotonic clock, and at
    most those that count. end_s: when a window that runs is ended."""
    took_s = 0.0
    while not side or (len(side) < MOST_WINDOWS and time.monotonic() + took_s < until_s):
        window = _window(comparison, end_s)
        _check_runs(target)  # a process that ended meanwhile was not measured
        took_s = window.elapsed_s
        side.append(window)
        tell(comparison)


def _check_runs(target: WatchedProgram) -> None:
    if target.ended(0):
        raise Unavailable("process-gone", f"process {target.pid} ended meanwhile")


def _window(comparison: BeforeAfterComparison, end_s: float) -> ProgramRun:
    """Run the driver. Return its run, with the CPU time that the process took meanwhile."""
    aim, begun_s = comparison.aim, _cpu_s(comparison.pid)
    done = run_program(
        aim.command,
        LEVERS["none"],
        limit_s=max(end_s - time.monotonic(), MIN_RUN_TIMEOUT_S),
        share=SNAPSHOT_TIME_SHARE,
        conditions=aim.conditions,
    )
    return aim.checked(done)._replace(cpu_s=max(_cpu_s(comparison.pid) - begun_s, 0.0))


def _cpu_s(pid: int) -> float:
    """Return the CPU time in s of a process and all that it has started, ended ones included."""
    return sum(activity.used_with_children_s(each) for each in family(pid))


def family(pid: int) -> dict[int, bool]:
    """Return a process and its descendants, and whether each runs."""
    return {pid: True, **process_descendants(pid)}


def snapshot(pid: int, start_s: float) -> MemorySnapshot:
    return snapshots.take(family(pid), lambda pid: False, start_s)


def remarks(comparison: BeforeAfterComparison) -> list[str]:
    """Return the result in sentences: the change, then the drift, then what was collapsed."""
    collapsed = comparison.collapsed
    return render_template_lines(
        "before_after",
        comparison=comparison,
        quantities=[comparison.measured, comparison.cpu_time],
        collapsed=collapsed,
        errors=collapsed.errors if collapsed else (),
    )


def rows(comparison: BeforeAfterComparison) -> list[tuple[str, str, str]]:
    """Return the rows of a table: quantity, before, after."""
    aim, memory = comparison.aim, [each for each in comparison.memory if each.processes]
    measured, cpu_time = comparison.measured, comparison.cpu_time

    def row(name: str, show: Callable[[Any], str], given: list) -> tuple[str, str, str]:
        before, after = [*map(show, given), "ended", "ended"][:2]
        return name, before, after

    def medians(values: WindowValues) -> list[float]:
        return [median(side) for side in (values.before, values.after) if side]

    return [
        row(measured.name, aim.format, medians(measured)),
        row(cpu_time.name, format_seconds, medians(cpu_time)),
        row("on huge pages", huge_page_share_in_words, memory),
        row("resident", lambda each: format_size(each.pages.resident_bytes), memory),
        row("page tables", lambda each: format_size(each.table_bytes), memory),
    ]


def document(comparison: BeforeAfterComparison) -> dict[str, Any]:
    """Return everything as JSON has it: bytes, seconds, and the ratio of after to before."""
    measured = comparison.measured
    return {
        "pid": comparison.pid,
        "command": comparison.aim.command,
        "lever": "collapse",
        "quantity": comparison.aim.quantity,
        **_values_document(measured),
        "cpu_time": _values_document(comparison.cpu_time),
        "pages": [
            {"processes": each.processes, **snapshot_document(each)} for each in comparison.memory
        ],
        "collapsed": comparison.collapsed and comparison.collapsed._asdict(),
        "remarks": remarks(comparison),
    }


def _values_document(values: WindowValues) -> dict[str, Any]:
    ratio = values.ratio
    return {
        "ratio": ratio and ratio.as_dict(),
        "drifts": values.drifts,
        "before": values.before,
        "after": values.after,
    }
