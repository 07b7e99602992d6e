"""`tlb watch`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from tlb.cli import terminal
from tlb.system.reasons import Unavailable, none_if_unavailable
from tlb.system.units import SECONDS_PER_DAY, format_ns, format_size

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tlb.measure.perf_stat import EventPlan
    from tlb.measure.record import CounterReading
    from tlb.programs.reports import ReportName
    from tlb.programs.walk_price import WalkPrices
    from tlb.programs.watch import WatchedProgram, WatchState
    from tlb.programs.watch_report import WatchReport

_PID_DIGITS = 7  # of the largest PID in Linux, 4,194,304 (PID_MAX_LIMIT)
_ALL_S = 10.0  # for all processes
Words = Annotated[
    list[str] | None,
    Argument(metavar="PID | -- COMMAND...", help="A process, or a program to start."),
]
Seconds = Annotated[
    float | None,
    Option(
        min=0,
        max=SECONDS_PER_DAY,
        help="How long, default 30, with --all 10; 0: until it ends, or Ctrl-C.",
    ),
]
Overhead = Annotated[float, Option(min=0.01, max=50, help="Allowed cost, % of the program's time.")]
_DEFAULT_S = 30.0
TextTable = tuple[Sequence[str], Sequence[Sequence[str]]]  # head and rows


def watch(
    target: Words = None,
    every: Annotated[bool, Option("--all", help="All processes of this computer, ranked.")] = False,
    seconds: Seconds = None,
    overhead: Overhead = 1,
    as_json: terminal.Json = False,
    html: terminal.Html = None,
) -> None:
    """Say how much huge pages can gain a running program at most, and print a line that tries it.

    Examples: `tlb watch --all`; `tlb watch PID`. It samples which pages the program touches, which costs it 1 % of
    its time; nothing is changed."""
    terminal.check_files(html=html)
    if every:
        if target:
            raise Unavailable("bad-parameter", "--all takes no PID and no COMMAND")
        return _watch_all(_ALL_S if seconds is None else max(seconds, 2.0), as_json, html)
    from tlb.programs.watch import watch as watch_target

    time_s = _DEFAULT_S if seconds is None else seconds or math.inf
    with _target(target or [""]) as program:
        counting = _Counting(program)
        try:
            watched = watch_target(program, time_s, overhead / 100, _teller(time_s), counting.pause)
        except KeyboardInterrupt:
            print("Interrupted before a first sample.", file=sys.stderr)
            raise SystemExit(130) from None
        from tlb.programs import collapse  # from here on, what no sample has to wait for
        from tlb.programs.watch_report import WatchReport

        forecast = None
        if not (program.was_started or watched.has_ended):
            forecast = none_if_unavailable(collapse.forecast, program.pids())
    prices = _prices()
    _show(WatchReport(watched, prices, counting.counts, forecast), as_json, html)


def _prices() -> WalkPrices | Unavailable:
    """Return this computer's prices, timed now if this boot has none."""
    from tlb.programs import walk_price

    try:
        return walk_price.kept_or_timed(terminal.stage)
    except KeyboardInterrupt:  # what was seen is shown without prices
        return Unavailable("no-time")
    except Unavailable as why:
        return why


def _watch_all(seconds: float, as_json: bool, html: Path | None) -> None:
    from tlb.programs import host_watch

    prices = _prices()
    made = host_watch.watch_all(seconds, prices)
    unpriced = isinstance(prices, Unavailable)
    sentences = [f"What they can gain is unknown. {prices}"] if unpriced else []
    tables: dict[str, TextTable] = {"Processes": (host_watch.HEAD, [*host_watch.rows(made)])}
    sentences += host_watch.sentences(made)
    _print("watch-all", host_watch.document(made), sentences, tables, as_json, html)


def _show(report: WatchReport, as_json: bool, html: Path | None) -> None:
    from tlb.programs.watch_report import MAPPINGS_TABLE_HEAD, watch_document

    tables: dict[str, TextTable] = {
        "Its memory": (("", ""), report.page_rows()),
        "Its mappings": (MAPPINGS_TABLE_HEAD, report.mapping_rows()),
    }
    _print("watch", watch_document(report), report.sentences(), tables, as_json, html)


def _print(
    kind: ReportName,
    document: dict[str, Any],
    sentences: list[str],
    tables: dict[str, TextTable],
    as_json: bool,
    html: Path | None,
) -> None:
    """Print a report, or as JSON, and write its page."""
    from tlb.machine import host as hosts
    from tlb.programs import reports

    if as_json:
        print(json.dumps(reports.document(kind, document, hosts.inspect_machine()), indent=1))
    else:
        for head, rows in tables.values():
            terminal.table(head, rows)
        terminal.parts(sentences)
    if html:
        name = document.get("command", ["all processes"])
        terminal.write(
            html, reports.watch_page(name[0] if name else "a program", sentences, tables)
        )


class _Counting:
    """Counts events of the program in the pauses between samples, one group of events in each.
    perf is looked for in the first pause, so that the first sample does not wait for it."""

    def __init__(self, program: WatchedProgram) -> None:
        self._pid = program.pid
        self._plan: EventPlan | None = None
        self._turns: list[dict[str, CounterReading]] = []

    def pause(self, seconds: float) -> bool:
        """Count for so many seconds. Return False at once if page walks cannot be counted."""
        if self._plan is None:
            self._plan = _event_plan()
        if not _counts_walks(self._plan):
            return False
        from tlb.measure.perf_stat import count_process_events

        self._turns.append(count_process_events(self._plan, self._pid, seconds, len(self._turns)))
        return True

    @property
    def counts(self) -> list[dict[str, CounterReading]] | str:
        if self._plan is None:
            return "no-time"
        lacking = self._plan.lacking.get("walk", "no-perf")
        return self._turns if _counts_walks(self._plan) else lacking


def _event_plan() -> EventPlan:
    from tlb.machine import host as hosts
    from tlb.measure import perf

    return perf.plan(hosts.inspect_machine().microarchitecture)


def _counts_walks(plan: EventPlan) -> bool:
    return any(event.quantity == "walk_cycles" for event in plan.events)


def _target(words: list[str]) -> AbstractContextManager[WatchedProgram]:
    """Return the process or the program to watch. Raises Unavailable("bad-parameter")."""
    from tlb.programs import executable
    from tlb.programs.watch import attached_program, started_program

    pid = words[0]
    if not pid:
        raise Unavailable("bad-parameter", "give a PID, a program or --all")
    if pid.isdigit() and words[1:] and words[1].startswith("-"):
        raise Unavailable("bad-parameter", f"options stand before the PID: {words[1]}")
    if len(words) > 1 or not pid.lstrip("-").isdigit():
        executable.check(words)
        return started_program(words)
    if not (pid.isascii() and pid.isdigit() and len(pid) <= _PID_DIGITS and int(pid)):
        raise Unavailable("bad-parameter", f"a PID is a number from 1 on, not {pid[:20]}")
    return attached_program(int(pid))


def _teller(seconds: float) -> Callable[[WatchState], None]:
    """Return what is called after each sample: it shows in a terminal how far watching is."""

    def tell(watched: WatchState) -> None:
        latest = watched.samples[-1]
        touched = f"{format_size(latest.active_bytes)} in {format_ns(latest.window_s * 1e9)}"
        left = f" of {format_ns(seconds * 1e9)}" if math.isfinite(seconds) else ""
        terminal.progress(f"{format_ns(watched.elapsed_s * 1e9)}{left}: touched {touched}")

    return tell
