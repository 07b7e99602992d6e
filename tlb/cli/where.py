"""`tlb where`."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tlb.cli import terminal
from tlb.cli.trial import MarkdownOption, interruptible_measuring_lock
from tlb.machine import host as hosts
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.record import CacheLineLayout, Point
from tlb.measure.store import Store, data_root
from tlb.programs import executable, reports
from tlb.programs.executable import reason_against_preload
from tlb.programs.guard import running_guard
from tlb.programs.levers import LEVERS
from tlb.programs.runs import ProgramRun
from tlb.programs.trial import TrialAim
from tlb.programs.walk_price import surveyed_tlb_entries
from tlb.programs.where import baseline, proof, report, simulation, valgrind
from tlb.programs.where.baseline import Baseline, BaselineComparison
from tlb.programs.where.valgrind import SimulatedTlb
from tlb.system.page_sizes import BASE_PAGES
from tlb.system.reasons import Unavailable
from tlb.system.units import MINUTES_PER_DAY, SECONDS_PER_DAY

# A chase that prices a walk: pages, in entries of the last level, and half a second in all.
TIMES_THE_ENTRIES, REGION_MS, REPEATS = 32, 20, 3
GREW = 5  # the exit code
THIS = "this computer"
DEFAULT_FAIL_ABOVE = "1%"

Minutes = Annotated[
    float,
    Option(min=0.01, max=MINUTES_PER_DAY, help="Of everything, with --prove or no simulation."),
]
Seconds = Annotated[
    float, Option(min=1, max=SECONDS_PER_DAY, help="End the program then, and the simulation.")
]


Machine = Annotated[
    str,
    Option(
        help="Its TLB, with --save: a published machine, or a file of `tlb geometry --json`.",
        autocompletion=lambda incomplete: terminal.completing(valgrind.machines())(incomplete),
    ),
]
ProgramVariables = Annotated[
    list[str],
    Option("--env", metavar="NAME=VALUE", help="With --save, --baseline: set a variable of it."),
]
Runs = Annotated[int, Option(min=1, max=99, help="With --save, --baseline: counts are medians.")]


def where(
    command: Annotated[list[str], Argument(metavar="-- COMMAND...", help="The program.")],
    prove: Annotated[
        bool, Option("--prove", help="Time it with none, some and all allocations on huge pages.")
    ] = False,
    minutes: Minutes = 5, seconds: Seconds = 600,
    failing: Annotated[
        bool, Option("--ignore-failure", help="Accept an exit code other than 0.")
    ] = False,
    save: Annotated[Path | None, Option(help="Write its counts to this file, a baseline.")] = None,
    baseline: Annotated[Path | None, Option(help="Compare its counts with this file's.")] = None,
    fail_above: Annotated[str, Option(help="Growth over the baseline for exit code 5.")] = DEFAULT_FAIL_ABOVE,
    machine: Machine = "", runs: Runs = 1, env: ProgramVariables = [],  # noqa: B006
    markdown: MarkdownOption = None,
    junit: Annotated[Path | None, Option(help="Also write a JUnit report.")] = None,
    as_json: terminal.Json = False,
    html: terminal.Html = None,
    callgrind: Annotated[Path | None, Option(help="Also write a file for KCachegrind.")] = None,
    collapsed: Annotated[
        Path | None, Option(help="Also write stacks for flame-graph tools.")
    ] = None,
    wait: terminal.Wait = 0,
) -> None:  # fmt: skip
    """Find which lines and allocations cost a program page walks, and what huge pages gain.

    It simulates this machine's TLB under Valgrind (Debian: apt install valgrind), about ten times
    slower than the program; --prove runs the program itself, and so does a computer that cannot
    simulate it. Ctrl-C during these runs shows what is finished. Exit codes as of `tlb try`; 5: more
    walks or pages than the --baseline allows."""
    files = {"markdown": markdown, "junit": junit, "callgrind": callgrind, "collapsed": collapsed}
    _check(command, html, save, files)
    gate = GateOptions(machine, save, baseline, fail_above, runs, env, markdown, junit)
    if gate.is_asked(
        {"prove": prove, "html": html, "callgrind": callgrind, "collapsed": collapsed}
    ):
        return gate.run(command, seconds, failing, as_json)
    with interruptible_measuring_lock("Interrupted; the program has ended.", wait), running_guard():
        needs_walks = bool(callgrind or collapsed)
        made = simulate_or_time(command, seconds, minutes, prove, needs_walks, failing)
    return _show_report(made, as_json, html, callgrind, collapsed)


def _check(
    command: list[str], html: Path | None, save: Path | None, files: dict[str, Path | None]
) -> None:
    """Raise Unavailable before anything runs, if it cannot: not-linux, bad-parameter,
    program-missing."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    terminal.check_files(html, save=save, **files)
    executable.check(command)


def _show_report(
    made: report.WhereReport,
    as_json: bool,
    html: Path | None,
    callgrind: Path | None,
    collapsed: Path | None,
) -> None:
    _print(made, as_json)
    if html:
        terminal.write(html, reports.where_page(made))
    for file, text in ((callgrind, made.found.callgrind), (collapsed, made.found.collapsed)):
        if file:
            terminal.write(file, text())
    if made.is_interrupted:
        raise SystemExit(130)


def _print(made: report.WhereReport, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                reports.document("where", made.document(), hosts.inspect_machine()), indent=1
            )
        )
        return
    for head, rows in made.tables().values():
        terminal.table(head, rows)
    terminal.parts([*made.sentences(), *made.commands()])


def simulate_or_time(
    command: list[str],
    seconds: float,
    minutes: float,
    prove: bool,
    needs_walks: bool,
    ignore_failure: bool = False,
) -> report.WhereReport:
    """Simulate a program, or time it if it cannot be and no walks are needed. With a proof, all of it
    ends after so many minutes: the simulation at half of them. Raises Unavailable."""
    limit_s = time.monotonic() + 60 * minutes
    if prove:
        seconds = min(seconds, 30 * minutes)
    alone = simulation.run_until(command, LEVERS["none"], seconds)
    if alone:
        TrialAim(command, LEVERS["none"], ignore_failure=ignore_failure).checked(alone)
    if prove and alone is None:
        raise Unavailable("no-time", "--prove runs it to its end")
    if prove and (why := reason_against_preload(command[0])):
        raise Unavailable(
            "program-unfit",
            f"the lever had no effect in any of its processes: {why}",
            "Use a lever that needs no cooperation, such as --lever collapse.",
        )
    simulation.check_sanitizer(command[0])
    try:
        made = _simulated(command, seconds, alone)
    except Unavailable as lacking:
        if needs_walks or alone is None:
            raise
        terminal.stage(f"{lacking} Its runs are timed instead, for up to {minutes:g} minutes.")
        made = report.WhereReport(
            command, None, simulation.sites_of(command, seconds, lacking), alone.elapsed_s, 0.0
        )
    if alone is None or (made.geometry and not prove):
        return made
    return _proved(made, alone, limit_s)


def _proved(made: report.WhereReport, alone: ProgramRun, limit_s: float) -> report.WhereReport:
    """Return the report with a proof, if a round of it was finished. Raises Unavailable, and
    KeyboardInterrupt if there is nothing to show."""
    terminal.stage("Timing it with none, some and all allocations on huge pages.")
    found = made.found
    sites = [site.id for site in made.sites] if made.knows_sites else [*found.sites]
    done = proof.prove(
        made.command, sites, alone.elapsed_s, limit_s, partial(_show, limit_s), alone.status
    )
    if not made.geometry and not done.rounds:
        if done.is_interrupted:
            raise KeyboardInterrupt
        raise Unavailable("no-time", "no round was finished in --minutes")
    if not made.knows_sites:
        found.locate(done.samples())
    return replace(
        made,
        proof=done if done.rounds else None,
        is_interrupted=done.is_interrupted,
        lacks_time=not done.rounds,
    )


def _show(limit_s: float, done: proof.AllocationSitesProof) -> None:
    left_s = max(limit_s - time.monotonic(), 0)
    terminal.progress(f"round {len(done.rounds)}, at most {left_s:.0f} s left")


def _simulated(command: list[str], seconds: float, alone: ProgramRun | None) -> report.WhereReport:
    """Simulate a program that ran `alone` before, or did not end. Raises Unavailable."""
    lacking = None  # why Cachegrind simulates, if it does
    try:  # before anything takes long
        valgrind.build_valgrind_tool()
    except Unavailable as why:
        if not shutil.which("valgrind"):
            raise
        lacking = why
    host, store = hosts.inspect_machine(), Store(data_root())
    geometry = valgrind.geometry(host, surveyed_tlb_entries(host, store))
    rig, second = MeasuringSetup.of(host, store.own, counters=False), geometry.base.second
    walk_ns, hit_ns = _extra_ns(rig, TIMES_THE_ENTRIES * second), _extra_ns(rig, second // 2)
    native_s, status = (alone.elapsed_s, alone.status) if alone else (None, 0)
    took = "did not end" if native_s is None else f"takes {native_s:.2g} s"
    terminal.stage(f"Simulating; by itself the program {took}.")
    if lacking:
        geometry = simulation.rounded_for_cachegrind(geometry)
        counted = simulation.count_by_cachegrind(command, geometry, seconds, lacking, status)
    else:
        counted = simulation.simulate(command, geometry.option, seconds, status)
    faults_s = report.most_faults_s(alone) if alone else 0.0
    return report.WhereReport(
        command, geometry, counted, native_s, walk_ns, hit_ns=hit_ns, faults_s=faults_s
    )


def _extra_ns(rig: MeasuringSetup, lines: int) -> float:
    """Return the most that translation adds now to a load that overlaps with nothing: of two chases
    over so many lines, one line a page less the same lines packed. With half as many lines as the
    second level has entries that level answers, with many times as many a walk does."""

    def chase_ns(layout: CacheLineLayout, repeat: int) -> float:
        point = Point(
            kernel="page_chase", pages=BASE_PAGES, layout=layout, lines=lines, region_ms=REGION_MS
        )
        return rig.take(point, repeat).ns_per_access

    extra = (chase_ns("spread", repeat) - chase_ns("packed", repeat) for repeat in range(REPEATS))
    return max(0.0, *extra)


# --- --save and --baseline: keep what a program counts, and compare it later


@dataclass(frozen=True)
class GateOptions:
    """The options of `tlb where` that keep or compare counts."""

    machine: str
    save: Path | None
    against: Path | None
    fail_above: str
    runs: int
    env: list[str]
    markdown: Path | None
    junit: Path | None

    def is_asked(self, others: dict[str, object]) -> bool:
        """Return whether counts are kept or compared. others: options that then have no sense. Raises
        Unavailable("bad-parameter") for options that do not go together."""
        is_asked = bool(self.save or self.against)
        if not self.against:
            _refuse(self._of_a_comparison, "takes --baseline")
        if is_asked:
            _refuse(others, "goes without --save and --baseline")
        else:
            of_both = {"machine": self.machine, "runs": self.runs > 1, "env": self.env}
            _refuse(of_both, "takes --save or --baseline")
        return is_asked

    @property
    def _of_a_comparison(self) -> dict[str, object]:
        is_other = self.fail_above != DEFAULT_FAIL_ABOVE
        return {"fail-above": is_other, "markdown": self.markdown, "junit": self.junit}

    def run(self, command: list[str], seconds: float, ignore_failure: bool, as_json: bool) -> None:
        """Simulate a command; keep and compare what it counts. Raises Unavailable, and
        SystemExit(GREW)."""
        fail_above = _share(self.fail_above)
        before = Baseline.read(self.against) if self.against else None
        name, geometry = self._geometry(before)
        fixed = baseline.fixed_environment(command, _variables(self.env))
        now = self._simulated(command, name, geometry, fixed, seconds, ignore_failure, before)
        comparison = BaselineComparison(before, now, fail_above) if before else None
        self._write(now, comparison)
        _print_counts(now, comparison, as_json)
        if comparison and comparison.grown:
            raise SystemExit(GREW)

    def _geometry(self, before: Baseline | None) -> tuple[str, SimulatedTlb]:
        """Return the TLB to simulate: --machine's, else the baseline's, else this computer's. Raises
        Unavailable: bad-parameter, no-geometry."""
        if self.machine:
            is_name = self.machine in valgrind.machines()
            name = self.machine if is_name else Path(self.machine).stem
            return name, valgrind.named_geometry(self.machine)
        if before:
            return before.machine, SimulatedTlb.of_document(before.geometry)
        return THIS, valgrind.geometry(hosts.inspect_machine())

    def _simulated(
        self,
        command: list[str],
        name: str,
        geometry: SimulatedTlb,
        fixed: list[str],
        seconds: float,
        ignore_failure: bool,
        before: Baseline | None,
    ) -> Baseline:
        """Return what a command counts. Raises Unavailable: program-unfit, for another
        baseline before it runs."""
        valgrind.build_valgrind_tool()
        if before:
            before.check_comparable(command, name, geometry)
        simulation.check_sanitizer(command[0])
        with running_guard():
            alone = self._alone(command, seconds, ignore_failure) if ignore_failure else None
            status = alone.status if alone else 0
            try:
                found = [
                    self._run(command, geometry, fixed, seconds, status, number)
                    for number in range(self.runs)
                ]
            except Unavailable as why:
                if why.code == "program-unfit":  # the program may be to blame
                    self._alone(command, seconds, ignore_failure)
                raise
        return Baseline.of(command, name, geometry, found)

    def _alone(self, command: list[str], seconds: float, ignore_failure: bool) -> ProgramRun | None:
        """Return a run without Valgrind; None if it did not end. Raises Unavailable: program-failed,
        program-killed."""
        alone = simulation.run_until(command, LEVERS["none"], seconds)
        return alone and TrialAim(command, LEVERS["none"], ignore_failure=ignore_failure).checked(
            alone
        )

    def _run(
        self,
        command: list[str],
        geometry: SimulatedTlb,
        fixed: list[str],
        seconds: float,
        status: int,
        number: int,
    ) -> simulation.SimulationResult:
        """Return what one run counts. Raises Unavailable: program-unfit, no-time."""
        terminal.progress(f"run {number + 1} of {self.runs}")
        made = simulation.simulate(command, geometry.option, seconds, status, fixed)
        if made.is_cut:
            raise Unavailable(
                "program-unfit",
                "it did not end in --seconds, and counts are of a whole run",
                "Give it less to do, or more --seconds.",
            )
        return made

    def _write(self, now: Baseline, comparison: BaselineComparison | None) -> None:
        texts = {self.save: lambda: now.model_dump_json(indent=1) + "\n"}
        if comparison:
            texts |= {self.markdown: comparison.markdown, self.junit: comparison.junit}
        for file, text in texts.items():
            if file:
                terminal.write(file, text())


def _refuse(options: dict[str, object], why: str) -> None:
    """Raise Unavailable("bad-parameter") for the first option that is given."""
    if given := [name for name, value in options.items() if value]:
        raise Unavailable("bad-parameter", f"--{given[0]} {why}")


def _print_counts(now: Baseline, comparison: BaselineComparison | None, as_json: bool) -> None:
    if as_json:
        document = comparison.document() if comparison else now.model_dump(mode="json")
        print(json.dumps(document, indent=1))
        return
    if comparison is None:
        totals = [f"{now.totals[metric]:,} {words}" for metric, words in baseline.METRICS.items()]
        terminal.parts([f"Simulated TLB: {now.machine}. {', '.join(totals)}."])
        return
    for head, rows in comparison.tables().values():
        terminal.table(head, rows)
    terminal.parts(comparison.sentences())


def _share(text: str) -> float:
    """Return --fail-above as a share. Raises Unavailable("bad-parameter")."""
    if not (number := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?) ?%?", text)):
        raise Unavailable("bad-parameter", f"--fail-above is a percentage such as 1%, not {text!r}")
    return float(number[1]) / 100


def _variables(assignments: list[str]) -> dict[str, str]:
    """Return --env by name. Raises Unavailable("bad-parameter")."""
    made = {}
    for assignment in assignments:
        name, sign, value = assignment.partition("=")
        if not (name and sign) or "\0" in assignment:
            raise Unavailable("bad-parameter", f"--env takes NAME=VALUE, not {assignment!r}")
        made[name] = value
    return made
