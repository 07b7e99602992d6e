"""collapse_chase visits the lines of page_chase before, during and after a thread beside it has its pages joined, or others, or none."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.kernels import (
    checksum,
    huge_page_bytes,
    needs_c,
    needs_thp,
    reason_of,
    run_c,
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
