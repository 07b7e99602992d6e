"""`tlb where`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tlb.cli import shown
from tlb.cli.trial import measuring
from tlb.lab.measuring_setup import Rig
from tlb.lab.record import Point
from tlb.lab.store import Store, data_root
from tlb.machine import host as hosts
from tlb.page_sizes import BASE
from tlb.programs.executable import why_no_preload
from tlb.programs.levers import LEVERS
from tlb.programs.reach import Reach
from tlb.programs.runs import run
from tlb.programs.trial import Aim
from tlb.programs.where import proof, report, samples, simulation, valgrind
from tlb.reasons import Unavailable
from tlb.system.files import IS_CLONE

REGION_MS, REPEATS = 20, 3  # of a chase that prices a walk: a second in all
TIMES_THE_ENTRIES = (4, 32)  # pages of the two chases, in entries of the last level
Command = Annotated[list[str], Argument(metavar="-- COMMAND...", help="The program.")]


def where(
    command: Command,
    prove: Annotated[
        bool, Option("--prove", help="Time it with none, some and all allocations on huge pages.")
    ] = False,
    minutes: Annotated[float, Option(min=0.01, help="Of --prove; six rounds are made.")] = 5,
    seconds: Annotated[
        float, Option(min=1, help="End the program then, and the simulation.")
    ] = 600,
    as_json: shown.Json = False,
    html: Annotated[Path | None, Option(help="Also write a page to this file.")] = None,
    callgrind: Annotated[Path | None, Option(help="Also write a file for KCachegrind.")] = None,
    collapsed: Annotated[
        Path | None, Option(help="Also write stacks for flame-graph tools.")
    ] = None,
    wait: Annotated[float, Option(min=0, help="Seconds to wait for another measurement.")] = 0,
) -> None:
    """Find which lines and allocations cost a program page walks, and what huge pages gain.

    It simulates this machine's TLB under Valgrind (Debian: apt install valgrind), about ten times
    slower than the program; --prove runs the program itself, and so does a computer that cannot
    simulate it. Exit codes as of `tlb try`."""
    _check(html, callgrind, collapsed)
    with measuring("Interrupted; the program has ended.", wait):
        made = found(command, seconds, minutes, prove, bool(callgrind or collapsed))
    _show(made, as_json)
    if html:
        from tlb.programs.where.page import page

        shown.write(html, page(made))
    if callgrind:
        shown.write(callgrind, report.callgrind(made.found))
    if collapsed:
        shown.write(collapsed, report.collapsed(made.found))


def _show(made: report.Report, as_json: bool) -> None:
    if as_json:
        print(json.dumps(made.document(), indent=1))
        return
    for head, rows in made.tables().values():
        shown.table(head, rows)
    shown.parts([*made.sentences(), *made.commands()])


def _check(html: Path | None, *files: Path | None) -> None:
    """Raise Unavailable before anything is measured: not-linux, no-book, bad-parameter."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    if html and not IS_CLONE:
        raise Unavailable("no-book", "--html")
    for file in filter(None, (html, *files)):
        if file.is_dir() or not file.parent.is_dir():
            raise Unavailable("bad-parameter", f"{file} is not a file in an existing folder")


def _surveyed() -> tuple[int, ...]:
    """Return the entries for base pages that a survey of this computer has found; () without."""
    reach = Reach.of(hosts.inspect(), Store(data_root()))
    return () if reach.source.get(BASE) == "CPUID" else reach.entries.get(BASE, ())


def found(
    command: list[str], seconds: float, minutes: float, prove: bool, needs_walks: bool
) -> report.Report:
    """Simulate a program, or if it cannot be and only times are wanted, time it alone. Raises
    Unavailable."""
    native_s = _native_s(command, seconds)
    if prove and native_s is None:
        raise Unavailable("program-endless", "--prove runs it to its end")
    if prove and (why := why_no_preload(command[0])):
        raise Unavailable("lever-absent", why)
    try:
        made = _simulated(command, seconds, native_s)
    except Unavailable as lacking:
        if needs_walks or native_s is None:
            raise
        found = simulation.unsimulated(command, seconds, lacking)
        shown.stage(f"Timing it without a simulation. {lacking}")
        made = report.Report(command, None, found, native_s, 0.0)
    if not prove and made.geometry:
        return made
    shown.stage("Timing it with none, some and all allocations on huge pages.")
    done = proof.prove(command, made.candidates(), minutes, _tell)
    if not made.geometry:
        made.found.code |= samples.lines_of(each for by in done.sampled for each in by.values())
    return replace(made, proof=done)


def _simulated(command: list[str], seconds: float, native_s: float | None) -> report.Report:
    valgrind.tool()  # before anything takes long
    geometry = valgrind.geometry(hosts.inspect(), _surveyed())
    walk_ns = _walk_ns(geometry.base.second)
    took = "did not end" if native_s is None else f"takes {native_s:.2g} s"
    shown.stage(f"Simulating; by itself the program {took}.")
    found = simulation.simulate(command, geometry.option, seconds)
    return report.Report(command, geometry, found, native_s, walk_ns)


def _tell(made: proof.Proof) -> None:
    if sys.stderr.isatty():
        print(f"\rround {len(made.rounds)} ", end="", file=sys.stderr, flush=True)


def _native_s(command: list[str], seconds: float) -> float | None:
    """Return how long a run takes by itself; None if it did not end in so many seconds. Raises
    Unavailable: program-missing, program-failed, program-killed."""
    try:
        done = run(command, LEVERS["none"], limit_s=seconds, share=0.01)
    except Unavailable as why:
        if why.code != "program-endless":
            raise
        return None
    return Aim(command, LEVERS["none"]).checked(done).elapsed_s


def _walk_ns(entries: int) -> float:
    """Return the most that a walk costs now that overlaps with nothing: of two chases, one line a
    page less the same lines packed."""
    rig = Rig.of(hosts.inspect(), Store(data_root()).own, counters=False)

    def chase_ns(layout: str, lines: int, repeat: int) -> float:
        shape = {"layout": layout, "lines": lines, "region_ms": REGION_MS}
        point = Point(kernel="page_chase", pages=BASE, **shape)
        return rig.take(point, repeat).ns_per_access

    return max(
        chase_ns("spread", lines, repeat) - chase_ns("packed", lines, repeat)
        for lines in (times * entries for times in TIMES_THE_ENTRIES)
        for repeat in range(REPEATS)
    )
