"""`tlb where`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from tlb.cli import shown
from tlb.reasons import Unavailable
from tlb.system.files import disk_errors, measuring_lock

if TYPE_CHECKING:
    from tlb.machine.host import Host
    from tlb.programs.where.proof import Proof
    from tlb.programs.where.report import Report

REGION_MS, REPEATS = 20, 3  # of a chase that prices a walk: a second in all
TIMES_THE_ENTRIES = (4, 32)  # pages of the two chases, in entries of the last level
Command = Annotated[list[str], Argument(metavar="-- COMMAND...", help="The program.")]


def where(
    command: Command,
    prove: Annotated[
        bool, Option("--prove", help="Time it with none, some and all allocations on huge pages.")
    ] = False,
    minutes: Annotated[float, Option(min=0.01, help="Of --prove; six rounds are made.")] = 5,
    seconds: Annotated[float, Option(min=1, help="End the simulation then.")] = 600,
    as_json: shown.Json = False,
    callgrind: Annotated[Path | None, Option(help="Also write a file for KCachegrind.")] = None,
    collapsed: Annotated[
        Path | None, Option(help="Also write stacks for flame-graph tools.")
    ] = None,
    wait: Annotated[float, Option(min=0, help="Seconds to wait for another measurement.")] = 0,
) -> None:
    """Find which lines and allocations cost a program page walks, and what huge pages gain.

    It simulates this machine's TLB under Valgrind (Debian: apt install valgrind), about ten times
    slower than the program; --prove runs the program itself. Exit codes as of `tlb try`."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    try:
        with measuring_lock(wait):
            made = _found(command, seconds, minutes if prove else 0.0)
    except KeyboardInterrupt:
        print("Interrupted; the program has ended.", file=sys.stderr)
        raise SystemExit(130) from None
    if as_json:
        print(json.dumps(made.document(), indent=1))
    else:
        _show(made)
    _write(made, callgrind, collapsed)


def _found(command: list[str], seconds: float, minutes: float) -> Report:
    """Simulate a program and, with minutes, prove which allocations matter. Raises Unavailable."""
    from tlb.machine import host as hosts
    from tlb.programs.where import proof, report, simulation

    host = hosts.inspect()
    options, native_s, walk_ns = simulation.geometry(host), _native_s(command), _walk_ns(host)
    shown.stage(f"Simulating; the program takes {native_s:.2g} s by itself.")
    found = simulation.simulate(command, options, seconds)
    made = report.Report(command, found, native_s, walk_ns)
    if not minutes:
        return made
    shown.stage("Timing it with none, some and all allocations on huge pages.")
    sites = [site.id for site in made.sites]
    return replace(made, proof=proof.prove(command, sites, minutes, _tell))


def _tell(proof: Proof) -> None:
    if sys.stderr.isatty():
        print(f"\rround {len(proof.rounds)} ", end="", file=sys.stderr, flush=True)


def _write(made: Report, callgrind: Path | None, collapsed: Path | None) -> None:
    from tlb.programs.where import report

    for path, text in ((callgrind, report.callgrind), (collapsed, report.collapsed)):
        if path:
            with disk_errors(path):
                path.write_text(text(made.found), encoding="utf-8")


def _show(made: Report) -> None:
    from tlb.programs.where import report

    if made.lines:
        shown.table(report.LINES, made.line_rows())
    if made.sites:
        shown.table(report.SITES, made.site_rows())
    if made.proof:
        shown.table(("on huge pages", "time", "ratio"), made.proof_rows())
    shown.parts([*made.sentences(), *made.commands()])


def _native_s(command: list[str]) -> float:
    """Return how long a run takes by itself. Raises Unavailable: program-missing, program-failed."""
    from tlb.programs.levers import LEVERS
    from tlb.programs.runs import run
    from tlb.programs.trial import Aim

    aim = Aim(command, LEVERS["none"])
    return aim.checked(run(command, LEVERS["none"], limit_s=600, share=0.01)).elapsed_s


def _walk_ns(host: Host) -> tuple[float, float]:
    """Return what a walk costs now that overlaps with nothing: the least and the most of two
    chases, one line a page less the same lines packed."""
    from tlb.lab.record import Point
    from tlb.lab.rig import Rig
    from tlb.lab.store import Store, data_root
    from tlb.machine.host import tlb_entries
    from tlb.page_sizes import BASE

    rig, prices = Rig.of(host, Store(data_root()).own, counters=False), []
    for times in TIMES_THE_ENTRIES:
        lines = times * tlb_entries(host)[-1]
        for repeat in range(REPEATS):
            ns = {
                layout: rig.take(
                    Point(
                        kernel="page_chase",
                        pages=BASE,
                        layout=layout,
                        lines=lines,
                        region_ms=REGION_MS,
                    ),
                    repeat,
                ).ns_per_access
                for layout in ("spread", "packed")
            }
            prices.append(ns["spread"] - ns["packed"])
    return max(min(prices), 0.0), max(prices)
