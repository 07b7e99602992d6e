"""switch_chase and cold_chase visit the lines of page_chase, after switches that happen and in processes that are new."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.kernels import changed, checksum, needs_c, reason_of, run_c, run_program, visits

from experiments.chapters.churn.grid import PASSES
from experiments.lab.record import KernelReport

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def run(kernel: str, *given: object) -> subprocess.CompletedProcess[str]:
    return run_c(kernel, ["--region-ms", "1", "--seed", "7", *map(str, given)])


def report_of(done: subprocess.CompletedProcess[str]) -> KernelReport:
    if done.returncode == 3 and reason_of(done)[0] == "no-populate":
        pytest.skip("this kernel has no MADV_POPULATE_READ")
    assert (done.returncode, done.stderr) == (0, "")
    return KernelReport.model_validate_json(done.stdout)


@needs_c
@pytest.mark.parametrize("layout", ["spread", "packed"])
@pytest.mark.parametrize("lines", [1, 2, 100])
def test_both_visit_what_a_second_loop_says(lines: int, layout: str):
    due = checksum(visits("page_chase", "cycle", lines, 7))
    for kernel, modes in (("switch_chase", ("alone", "thread", "process")), ("cold_chase", ("",))):
        for mode in modes:
            report = report_of(run(kernel, *(["--mode", mode] if mode else []), "--layout", layout, "--lines", lines))
            assert report.checksum == due and report.accesses % lines == 0 < report.ns_per_access and report.lines == lines


@needs_c
@pytest.mark.parametrize(("mode", "own"), [("thread", 2), ("process", 1), ("alone", 0)])
def test_a_partner_is_switched_to_once_a_round(mode: str, own: int):
    """Of a thread both ways are the program's own, of a process one: one waits, or is put aside for who was woken."""
    report = report_of(run("switch_chase", "--mode", mode, "--lines", 64))
    rounds, switches = report.accesses // 64, report.voluntary_switches + report.involuntary_switches
    assert own * rounds <= switches <= own * rounds + rounds // 2 + 20 and report.also.keys() == {"switch_ns"}


@needs_c
def test_hops_are_a_part_of_a_longer_cycle():
    report = report_of(run("switch_chase", "--mode", "process", "--lines", 1000, "--hops", 64))
    assert report.accesses % 64 == 0 and report.options == (("hops", 64),)
    assert report.checksum == checksum(visits("page_chase", "cycle", 1000, 7))


@needs_c
def test_a_new_process_faults_in_no_round_and_tells_of_each_octave():
    report = report_of(run("cold_chase", "--lines", 200))
    assert report.also["faults_in_passes"] == 0
    assert report.also.keys() == {"spawn_ns", "exec_ns", "faults_in_passes", *(f"pass_{n}_ns" for n in PASSES)}
    assert min(value for name, value in report.also.items() if name != "faults_in_passes") > 0


@needs_c
def test_pages_that_a_new_process_lacks_are_faults_and_are_counted(tmp_path: Path):
    program = changed("cold_chase", {"if (madvise(n->base, n->bytes, MADV_POPULATE_READ) ||": "if ("}, tmp_path)
    report = KernelReport.model_validate_json(run_program(program, ["--lines", "200", "--region-ms", "1"]).stdout)
    assert report.also["faults_in_passes"] > 0
