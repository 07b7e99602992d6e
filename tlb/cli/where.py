"""`tlb where`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from tlb.cli import shown
from tlb.cli.trial import measuring
from tlb.reasons import Unavailable

if TYPE_CHECKING:
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
    exclusive: Annotated[
        bool, Option("--exclusive", help="The L2 TLB holds what the L1 TLB has dropped.")
    ] = False,
    hashed: Annotated[bool, Option("--hashed", help="Its sets are chosen by a hash.")] = False,
    wait: Annotated[float, Option(min=0, help="Seconds to wait for another measurement.")] = 0,
) -> None:
    """Find which lines and allocations cost a program page walks, and what huge pages gain.

    It simulates this machine's TLB under Valgrind (Debian: apt install valgrind), about ten times
    slower than the program; --prove runs the program itself. Exit codes as of `tlb try`."""
    from tlb.machine import host as hosts
    from tlb.programs.where import report, simulation

    if sys.platform != "linux":
        raise Unavailable("not-linux")
    options = simulation.geometry(hosts.inspect(), exclusive=exclusive, hashed=hashed)
    with measuring("Interrupted; the program has ended.", wait):
        made = _found(command, options, seconds, minutes if prove else 0.0)
    if as_json:
        print(json.dumps(made.document(), indent=1))
    else:
        _show(made)
    if callgrind:
        shown.write(callgrind, report.callgrind(made.found))
    if collapsed:
        shown.write(collapsed, report.collapsed(made.found))


def _found(command: list[str], options: list[str], seconds: float, minutes: float) -> Report:
    """Simulate a program and, with minutes, prove which allocations matter. Raises Unavailable."""
    from tlb.programs.where import proof, report, simulation

    native_s, walk_ns = _native_s(command), _walk_ns()
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


def _walk_ns() -> float:
    """Return the most that a walk costs now that overlaps with nothing: of two chases, one line a
    page less the same lines packed."""
    from tlb.lab.record import Point
    from tlb.lab.rig import Rig
    from tlb.lab.store import Store, data_root
    from tlb.machine import host as hosts
    from tlb.page_sizes import BASE

    host = hosts.inspect()
    rig = Rig.of(host, Store(data_root()).own, counters=False)

    def chase_ns(layout: str, lines: int, repeat: int) -> float:
        shape = {"layout": layout, "lines": lines, "region_ms": REGION_MS}
        point = Point(kernel="page_chase", pages=BASE, **shape)
        return rig.take(point, repeat).ns_per_access

    return max(
        chase_ns("spread", lines, repeat) - chase_ns("packed", lines, repeat)
        for lines in (times * hosts.tlb_entries(host)[-1] for times in TIMES_THE_ENTRIES)
        for repeat in range(REPEATS)
    )
