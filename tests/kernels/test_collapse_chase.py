"""collapse_chase visits the lines of page_chase before, during and after a thread beside it has its pages joined, or others, or none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.kernels import (
    changed,
    checksum,
    huge_page_bytes,
    needs_c,
    needs_thp,
    reason_of,
    refused_by_c,
    run_c,
    run_program,
    visits,
)

from experiments.lab.record import KernelReport

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def chased(*given: object) -> KernelReport:
    done: subprocess.CompletedProcess[str] = run_c("collapse_chase", ["--region-ms", "1", "--seed", "7", *map(str, given)])
    if done.returncode == 3 and reason_of(done)[0] in ("no-collapse", "memory-short"):
        pytest.skip("this kernel joins no pages now")
    assert (done.returncode, done.stderr) == (0, "")
    return KernelReport.model_validate_json(done.stdout)


@needs_c
@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")
@pytest.mark.parametrize(("mode", "own", "joined"), [("none", 0, 0), ("other", 0, 1), ("address", 1, 1), ("random", 1, 1)])
def test_what_is_joined_is_large_afterwards_and_nothing_else(mode: str, own: int, joined: int):
    needs_thp()
    size = 3 * huge_page_bytes()
    report = chased("--mode", mode, "--lines", size // os.sysconf("SC_PAGESIZE"))
    assert (report.also["huge_bytes_after"], report.also["joined_bytes"]) == (own * size, joined * size)
    assert report.checksum == checksum(visits("page_chase", "cycle", report.lines, 7))
    assert report.accesses % 64 == 0 and len(report.batch_ns_per_access) == 16 and report.also["joined_ns"] > 0
    for phase in ("before", "during", "after"):
        assert 0 < report.also[f"{phase}_p50_ns"] <= report.also[f"{phase}_p999_ns"]


@needs_c
@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")
@pytest.mark.parametrize(("change", "code"), [
    ({"madvise(j->memory + j->order[i] * j->large, j->large, MADV_COLLAPSE)": "0"}, "kernel-garbage"),
    ({"    j->began_ns = now_ns();": "    pause();", "n < SLICES && (": "n < 4096 && (",
      "#define PATIENCE_NS 5000000000ull": "#define PATIENCE_NS 50000000ull"}, "neighbour-gone"),
    ({"#define SLICE 64": "#undef MADV_COLLAPSE\n#define MADV_COLLAPSE 222\n#define SLICE 64"}, "no-collapse")])
def test_what_was_not_joined_or_does_not_end_is_a_reason(change: dict[str, str], code: str, tmp_path: Path):
    needs_thp()
    lines = 2 * huge_page_bytes() // os.sysconf("SC_PAGESIZE")
    done = run_program(changed("collapse_chase", change, tmp_path), ["--mode", "address", "--lines", str(lines), "--region-ms", "1"])
    assert reason_of(done)[0] == code


@needs_c
def test_on_one_cpu_nobody_is_beside():
    program = run_c("collapse_chase", ["--lines", "1"]).args[0]
    assert reason_of(run_program("taskset", ["-c", str(CPUS[0]), program, "--lines", "512"]))[0] == "one-cpu"


@needs_c
@pytest.mark.parametrize("given", [["--lines", "513"], ["--pages", "thp", "--lines", "512"], ["--mode", "some"], ["--layout", "packed"]])
def test_what_makes_no_sense_is_refused_in_a_sentence(given: list[str]):
    refused_by_c("collapse_chase", given)


@needs_c
@pytest.mark.parametrize(("kernel", "given"), [("collapse_chase", []), ("shootdown", ["--mode", "collapse"])])
@pytest.mark.parametrize("large", ["(512ull << 20)", "0"])  # base pages of 64 KiB; no such pages
def test_where_a_large_page_is_another_one_that_is_a_reason(kernel: str, given: list[str], large: str, tmp_path: Path):
    program = changed(kernel, {'sysfs_number(THP "hpage_pmd_size", 0), common': f"{large}, common"}, tmp_path)
    lines = (2 << 20) // os.sysconf("SC_PAGESIZE")
    assert reason_of(run_program(program, [*given, "--lines", str(lines)]))[0] == "page-size-unsupported"
