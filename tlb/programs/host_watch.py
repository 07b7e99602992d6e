"""Watch all processes of this computer for some seconds, and rank them by the CPU time that huge
pages could save them at most."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tlb.programs import activity
from tlb.programs.activity import ProcessUsage
from tlb.programs.levers import Lever
from tlb.programs.runs import listening_ports
from tlb.programs.snapshots import process_has_no_thp
from tlb.programs.walk_price import WalkPrices
from tlb.programs.watch import SAMPLE_COST_FACTOR, WatchedProgram, WatchState, process_start_of
from tlb.programs.watch_report import HugePageGainBound, WatchReport, size_in_words
from tlb.system import procfs
from tlb.system.reasons import Unavailable

BUSY = 0.01  # of a CPU: programs that use less are counted, and not looked at
SHORT_S, SHORT_SAMPLES, LONG_S = 0.01, 3, 1.0  # windows, the short one several times
OVERHEAD = 0.01  # of a program's time that its samples may cost
_USAGE_SHARE = 0.5  # of the seconds, for CPU time alone
_WORKERS = 16  # programs sampled at once; they wait most of the time


class RankedProcess(NamedTuple):
    """A process that worked. cpus: CPU time over time. report: what was seen of it."""

    name: str
    cpus: float
    report: WatchReport

    @property
    def pid(self) -> int:
        return self.report.watched.target.pid

    @property
    def share(self) -> float | None:
        """The part of its CPU time that huge pages save at most; None if it is unknown."""
        bound = self.report.bound
        return bound.share if isinstance(bound, HugePageGainBound) else None

    @property
    def saved_cpus(self) -> float:
        """CPU time over time that huge pages save at most."""
        if self.report.is_huge:
            return 0.0
        return self.cpus * (1.0 if self.share is None else self.share)

    @property
    def lever(self) -> str:
        """The lever to try, or why there is none."""
        lever, worker_of = self.report.lever, self.report.watched.target.start.worker_of
        if isinstance(lever, Lever):
            return lever.name
        if lever is None:
            return ""
        return f"worker of {worker_of}" if worker_of else lever.code


@dataclass
class HostWatch:
    """ranked: processes that worked, the most to gain first. idle: how many did not. unread: how
    many could not be read, by the reason's code."""

    seconds: float
    ranked: list[RankedProcess] = field(default_factory=list)
    idle: int = 0
    unread: dict[str, int] = field(default_factory=dict)


def processes(proc: Path = activity.PROC) -> list[int]:
    """Return the processes of this computer, but for this command and its own."""
    own = os.getpid()
    return [pid for pid, _ in procfs.numbered(proc, "([0-9]+)") if pid != own]


def watch_all(
    seconds: float, prices: WalkPrices | Unavailable, wait: Callable[[float], object] = time.sleep
) -> HostWatch:
    """Watch for so many seconds."""
    begin, before = time.monotonic(), _usage(processes())
    wait(max(seconds * _USAGE_SHARE, seconds - SHORT_SAMPLES * SHORT_S - LONG_S - 1))
    elapsed_s = time.monotonic() - begin
    after = _usage(before)
    names = {pid: procfs.word(activity.PROC / str(pid) / "comm") for pid in after}
    used = {pid: after[pid] - before[pid] for pid in after}
    busy = [pid for pid, usage in used.items() if usage.cpu_s > BUSY * elapsed_s]
    made = HostWatch(seconds, idle=len(used) - len(busy))
    take = partial(_report, prices=prices, elapsed_s=elapsed_s, seconds=seconds, wait=wait)
    with ThreadPoolExecutor(_WORKERS) as pool:
        reports = [*pool.map(lambda pid: take(pid, used[pid]), busy)]
    for pid, report in zip(busy, reports, strict=True):
        if isinstance(report, WatchReport):
            ranked = RankedProcess(names[pid], used[pid].cpu_s / elapsed_s, report)
            made.ranked.append(ranked)
        elif report.code != "process-gone":
            made.unread[report.code] = made.unread.get(report.code, 0) + 1
    made.ranked.sort(key=lambda each: (-each.saved_cpus, -each.cpus))
    return made


def _usage(pids: Iterable[int]) -> dict[int, ProcessUsage]:
    """Return what processes have used so far, without threads of Linux and those that ended."""
    found = dict[int, ProcessUsage]()
    for pid in pids:
        try:
            if not activity.is_kernel_thread(pid):
                found[pid] = activity.used(pid)
        except Unavailable:
            continue
    return found


def _report(
    pid: int,
    usage: ProcessUsage,
    prices: WalkPrices | Unavailable,
    elapsed_s: float,
    seconds: float,
    wait: Callable[[float], object],
) -> WatchReport | Unavailable:
    """Return what is seen of a process in some short windows and a long one, or why it cannot be
    read. One so large that these would cost too much of its time has the long one alone."""
    target = WatchedProgram(pid, lambda: [pid], lambda seconds: False, process_start_of(pid))
    watched = WatchState(target, OVERHEAD, usage={pid: usage}, elapsed_s=elapsed_s)
    try:
        reading_s = activity.reading_s([pid])
        many = SAMPLE_COST_FACTOR * 2 * reading_s * (SHORT_SAMPLES + 1) <= OVERHEAD * seconds
        for window_s in [SHORT_S] * SHORT_SAMPLES * many + [LONG_S]:
            sample, _ = activity.sample([pid], window_s, wait)
            watched.samples = [*watched.samples, sample]
            watched.sampling_s += sample.took_s
    except Unavailable as why:
        return why
    watched.ports = frozenset(listening_ports(pid))
    watched.thp_disabled = process_has_no_thp(pid)
    return WatchReport(watched, prices)


# --- as a table and as JSON

# The last columns go first where the terminal is narrow.
HEAD = ("program", "PID", "can gain", "lever", "CPU", "touches in 1 s", "on huge pages")


def rows(made: HostWatch) -> list[tuple[str, ...]]:
    return [
        (
            each.name,
            str(each.pid),
            _gain_words(each),
            each.lever,
            f"{each.cpus:.0%}",
            size_in_words(each.report.largest.active_bytes),
            _huge_words(each.report),
        )
        for each in made.ranked
    ]


def _huge_words(report: WatchReport) -> str:
    last = report.watched.samples[-1]
    huge_bytes = last.resident_bytes - last.mapped["4k"]
    return f"{size_in_words(huge_bytes)} of {size_in_words(last.resident_bytes)}"


def _gain_words(each: RankedProcess) -> str:
    if each.report.is_huge:
        return "is on them"
    if each.share is None:
        return "unknown"
    return "nothing" if each.report.is_small else f"up to {each.share:.0%}"


def sentences(made: HostWatch) -> list[str]:
    """Return the answer, what the table leaves out, and what to do next."""
    worth = next((each for each in made.ranked if each.lever and not each.report.is_huge), None)
    found = list[str]()
    if worth is None:
        found.append("Huge pages can save little in each of these processes.")
    elif worth.share is not None:
        gain = f"up to {worth.share:.0%} of its CPU time"
        found.append(f"Huge pages can save most in {worth.name} ({worth.pid}): {gain}.")
    found.append(f"{made.idle:,} more processes used less than {BUSY:.0%} of a CPU.")
    if made.unread:
        number, codes = sum(made.unread.values()), ", ".join(made.unread)
        found.append(f"{number:,} could not be read ({codes}): run this as their user or as root.")
    return [*found, f"Next: tlb watch {worth.pid}"] if worth else found


def document(made: HostWatch) -> dict[str, Any]:
    """Return everything as JSON has it: bytes, and shares of CPU time."""
    return {
        "seconds": made.seconds,
        "idle": made.idle,
        "unread": made.unread,
        "processes": [
            {
                "name": each.name,
                "pid": each.pid,
                "cpus": each.cpus,
                "touched_bytes": each.report.largest.active_bytes,
                "mapped": each.report.watched.samples[-1].mapped,
                "bound": each.share,
                "is_huge": each.report.is_huge,
                "lever": each.lever or None,
            }
            for each in made.ranked
        ],
    }
