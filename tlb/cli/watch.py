"""`tlb watch`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from rich.console import Group
from rich.live import Live
from typer import Argument, Option

from tlb.cli import terminal
from tlb.programs import executable
from tlb.system.reasons import Unavailable
from tlb.system.units import DAY_S

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tlb.measure.perf_stat import EventPlan
    from tlb.measure.record import Quantity
    from tlb.programs.reach import TlbReach
    from tlb.programs.watch import WatchedProgram, WatchState
    from tlb.programs.watch_report import WatchReport

_PID_DIGITS = 7  # of the largest PID in Linux, 4,194,304 (PID_MAX_LIMIT)
Words = Annotated[
    list[str], Argument(metavar="PID | -- COMMAND...", help="A process, or a program to start.")
]

Seconds = Annotated[float, Option(min=0, max=DAY_S, help="How long; 0: until it ends, or Ctrl-C.")]
Overhead = Annotated[float, Option(min=0.01, max=50, help="Allowed cost, % of the program's time.")]


def watch(
    target: Words,
    seconds: Seconds = 60,
    overhead: Overhead = 1,
    as_json: terminal.Json = False,
    prometheus: Annotated[
        str, Option(metavar="[HOST:]PORT", help="Serve metrics, on the loopback interface.")
    ] = "",
) -> None:
    """Watch how much memory a running program touches and what translation can cost it."""
    from tlb.machine import host as hosts
    from tlb.measure import perf
    from tlb.measure.store import Store, data_root
    from tlb.programs.prometheus import parsed_address, serving_metrics
    from tlb.programs.reach import TlbReach
    from tlb.programs.watch import watch as watch_target
    from tlb.programs.watch_report import WatchReport

    beginning = _target(target)
    if prometheus:
        parsed_address(prometheus)
    host, store = hosts.inspect(), Store(data_root())
    reach, plan = TlbReach.of(host, store), perf.plan(host.microarchitecture)
    with beginning as program:
        counting = _Counting(plan, program)
        try:
            with ExitStack() as screen:
                tell, seconds = _teller(screen, reach, as_json), seconds or math.inf
                if prometheus:
                    tell = _both(screen.enter_context(serving_metrics(prometheus)), tell)
                watched = watch_target(program, seconds, overhead / 100, tell, counting.pause)
        except KeyboardInterrupt:
            print("Interrupted before a first sample.", file=sys.stderr)
            raise SystemExit(130) from None
    report = WatchReport(watched, reach, counting.counts, counting.loads)
    if not report.is_idle and isinstance(reach.prices, Unavailable):
        terminal.stage("Timing page walks on this computer.")
        with suppress(KeyboardInterrupt):  # what was seen is shown without prices
            report = replace(report, reach=reach.timed(host, store, report.largest))
    _show(report, as_json)


def _show(report: WatchReport, as_json: bool) -> None:
    from tlb.programs.watch_report import watch_document

    if as_json:
        print(json.dumps(watch_document(report), indent=1))
    else:
        terminal.out.print(_tables(report))
        terminal.parts(report.sentences())


class _Counting:
    """Counts events of the program in the pauses between samples, one group of events in each.
    pause: None if page walks cannot be counted. loads: see Report."""

    def __init__(self, plan: EventPlan, program: WatchedProgram) -> None:
        self._plan, self._pid, self._pauses = plan, program.pid, 0
        self._turns: list[dict[str, Quantity]] = []
        self.loads: dict[int, int] | str = plan.lacking.get("walk", "no-time")
        can_count = any(event.quantity == "walk" for event in plan.events)
        self.pause: Callable[[float], None] | None = self._count if can_count else None

    def _count(self, seconds: float) -> None:
        from tlb.measure.perf_stat import counted, sampled_page_sizes

        self._pauses += 1
        if self._pauses == 2:  # by then the program has started up
            self.loads = sampled_page_sizes(self._plan, self._pid, seconds)
        else:
            self._turns.append(counted(self._plan, self._pid, seconds, len(self._turns)))

    @property
    def counts(self) -> list[dict[str, Quantity]] | str:
        return self._turns if self.pause else self._plan.lacking.get("walk", "no-perf")


def _target(words: list[str]) -> AbstractContextManager[WatchedProgram]:
    """Return the process or the program to watch. Raises Unavailable("bad-parameter")."""
    from tlb.programs.watch import attached_program, started_program

    pid = words[0]
    if not pid:
        raise Unavailable("bad-parameter", "give a PID or a program, not an empty word")
    if pid.isdigit() and words[1:] and words[1].startswith("-"):
        raise Unavailable("bad-parameter", f"options stand before the PID: {words[1]}")
    if len(words) > 1 or not pid.lstrip("-").isdigit():
        executable.check(words)
        return started_program(words)
    if not (pid.isascii() and pid.isdigit() and len(pid) <= _PID_DIGITS and int(pid)):
        raise Unavailable("bad-parameter", f"a PID is a number from 1 on, not {pid[:20]}")
    return attached_program(int(pid))


def _teller(screen: ExitStack, reach: TlbReach, as_json: bool) -> Callable[[WatchState], None]:
    """Return what is called after each sample: it updates a table in a terminal, prints a line
    elsewhere, and does nothing with --json."""
    from tlb.programs.watch_report import WatchReport, duration_words

    if as_json:
        return lambda watched: None
    if sys.stdout.isatty():
        live = screen.enter_context(Live(transient=True, auto_refresh=False))
        return lambda watched: live.update(_tables(WatchReport(watched, reach)), refresh=True)

    def line(watched: WatchState) -> None:
        latest = watched.samples[-1].window_s
        report = WatchReport(watched, reach)
        window, size, on_huge, level, *_ = report.window_row(latest)
        touched = f"touches {size} in {window}, {on_huge} on {report.large_size} pages: {level}"
        print(f"{duration_words(watched.elapsed_s)}: {touched}", flush=True)

    return line


def _both(
    first: Callable[[WatchState], None], second: Callable[[WatchState], None]
) -> Callable[[WatchState], None]:
    def tell(watched: WatchState) -> None:
        first(watched)
        second(watched)

    return tell


def _tables(report: WatchReport) -> Group:
    pages = terminal.rows(("", ""), report.page_rows())
    on_huge = f"of it on {report.large_size} pages"
    head = ("in", "it touches", on_huge, "TLB level", "samples", "a sample takes")
    return Group(pages, "", terminal.rows(head, report.window_rows()), "")
