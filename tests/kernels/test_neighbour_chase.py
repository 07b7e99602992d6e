"""neighbour_chase visits the lines of page_chase beside a thread that does what it was told, on a CPU of the kind that was asked for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.common import software_plan
from support.kernels import changed, checksum, measured, needs_c, reason_of, run_c, run_program, visits

from experiments.lab.record import KernelReport, Point

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def beside(*given: object) -> KernelReport:
    done: subprocess.CompletedProcess[str] = run_c("neighbour_chase", ["--region-ms", "1", "--seed", "7", *map(str, given)])
    assert (done.returncode, done.stderr) == (0, "")
    return KernelReport.model_validate_json(done.stdout)


@needs_c
@pytest.mark.parametrize("layout", ["spread", "packed"])
@pytest.mark.parametrize("lines", [1, 100, 300])
def test_it_visits_what_a_second_loop_says_by_slices(lines: int, layout: str):
    report = beside("--layout", layout, "--lines", lines)
    assert report.checksum == checksum(visits("page_chase", "cycle", lines, 7))
    assert report.accesses == 256 * report.also["slices"] and len(report.batch_ns_per_access) == 16 and report.also["turns"] == 0
    assert 0 < report.also["p50_ns"] <= report.also["p99_ns"] <= report.also["p999_ns"]


@needs_c
@two_cpus
@pytest.mark.parametrize("load", [[], ["--stream_kib", 64], ["--walk_lines", 100], ["--discard_pages", 40]])
def test_a_thread_beside_has_turns_while_the_chase_runs(load: list[object]):
    assert beside("--mode", "other", "--lines", 512, "--region-ms", 50, *load).also["turns"] > 0


@needs_c
@two_cpus
def test_on_which_cpu_the_thread_runs_is_what_sysfs_says_of_the_core(tmp_path: Path):
    """Two made-up cores of two threads each, of which this process has some."""
    pairs, begins = f"of == {CPUS[-1]} ? cpu == {CPUS[0]} : 0", "    char path[128], list[256]"

    def run(siblings: str, mode: str) -> subprocess.CompletedProcess[str]:
        program = changed("neighbour_chase", {begins: f"    return {siblings};\n{begins}"}, tmp_path)
        return run_program("taskset", ["-c", f"{CPUS[0]},{CPUS[-1]}", str(program), "--mode", mode, "--lines", "64", "--region-ms", "1"])

    assert reason_of(run(pairs, "other")) == ("one-cpu", f"beside CPU {CPUS[-1]}, of 2")
    assert reason_of(run("0", "sibling")) == ("no-sibling", f"beside CPU {CPUS[-1]}, of 2")
    assert KernelReport.model_validate_json(run(pairs, "sibling").stdout).cpu == CPUS[-1]


@needs_c
def test_on_one_cpu_there_is_nobody_beside_and_alone_there_is():
    one = ["taskset", "-c", str(CPUS[0]), *run_c("neighbour_chase", ["--lines", "1", "--region-ms", "1"]).args[:1]]
    assert reason_of(subprocess.run([*one, "--mode", "other"], capture_output=True, text=True, timeout=60))[0] == "one-cpu"
    assert subprocess.run([*one, "--lines", "9", "--region-ms", "1"], capture_output=True, timeout=60).returncode == 0


@needs_c
@two_cpus
@pytest.mark.parametrize("point", [
    Point(kernel="neighbour_chase", mode="other", lines=64, region_ms=1),
    Point(kernel="switch_chase", mode="thread", lines=64, region_ms=1),
    Point(kernel="shootdown", order="sequential", mode="unmap", lines=1, region_ms=1, options={"threads": 1}),
    Point(kernel="cold_chase", lines=64, region_ms=1)], ids=lambda point: point.kernel)
def test_what_runs_beside_others_is_not_counted_for_perf_would_count_those_too(point: Point):
    counted = measured(point, plan=software_plan()).counters
    assert counted and {quantity.value for quantity in counted.values()} == {None}


# What /proc/interrupts may hold, with C for the CPU that is measured on; and the flushes that it says this CPU saw.
INTERRUPTS = {
    "two CPUs": ("       CPU0   CPUC\n  9:  1  2  IO-APIC\nTLB:  11  22   TLB shootdowns\n", 22),
    "more than 32 bits": ("       CPUC   CPU900\n RES: 5 6\nTLB:  4294967296  3   TLB shootdowns\n", 2**32),
    "no such line": ("     CPUC\nIPI0:  7\n", None), "nothing": ("", None)}


@needs_c
@pytest.mark.parametrize("name", INTERRUPTS)
def test_flushes_are_read_in_the_column_of_the_cpu_whatever_others_are_online(name: str, tmp_path: Path):
    table, seen = INTERRUPTS[name]
    if name == "two CPUs" and CPUS[-1] == 0:
        pytest.skip("one CPU")
    (tmp_path / "interrupts").write_text(table.replace("CPUC", f"CPU{CPUS[-1]}"))
    program = changed("neighbour_chase", {'fopen("/proc/interrupts", "r")': f'fopen("{tmp_path}/interrupts", "r")',
                                          "(double)(after - before)": "(double)(after - before * 0)"}, tmp_path)
    told = KernelReport.model_validate_json(run_program(program, ["--lines", "9", "--region-ms", "1"]).stdout).also
    assert told.get("flushes_seen") == seen
