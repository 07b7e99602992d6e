"""`tlb where --save` and `--baseline`: keep what a program counts, and compare it later."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tlb.cli import terminal
from tlb.machine import host as hosts
from tlb.programs.guard import guard_running
from tlb.programs.levers import LEVERS
from tlb.programs.runs import ProgramRun
from tlb.programs.trial import TrialAim
from tlb.programs.where import baseline, simulation, valgrind
from tlb.programs.where.baseline import Baseline
from tlb.programs.where.comparison import Comparison
from tlb.programs.where.valgrind import SimulatedTlb
from tlb.system.reasons import Unavailable

GREW = 5  # the exit code
THIS = "this computer"
DEFAULT_FAIL_ABOVE = "1%"


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
        comparison = Comparison(before, now, fail_above) if before else None
        self._write(now, comparison)
        _print(now, comparison, as_json)
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
        return THIS, valgrind.geometry(hosts.inspect())

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
        """Return what a command counts. Raises Unavailable: other-baseline before it runs,
        program-unfit."""
        valgrind.build_valgrind_tool()
        if before:
            before.check_comparable(command, name, geometry)
        simulation.check_sanitizer(command[0])
        with guard_running():
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
    ) -> simulation.Simulation:
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

    def _write(self, now: Baseline, comparison: Comparison | None) -> None:
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


def _print(now: Baseline, comparison: Comparison | None, as_json: bool) -> None:
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
