"""shootdown takes away what it says, and asks those CPUs that run the program and no others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.kernels import (
    checksum,
    needs_c,
    needs_thp,
    reason_of,
    run_c,
    unless_fragmented,
)

from experiments.lab.record import KernelReport

MODES = ("unmap", "protect", "discard")
CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
CALLS, FEWER, MANY = 64, 16, 64  # of a batch, by the pages of a call

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def shot(*given: object, **how: object) -> subprocess.CompletedProcess[str]:
    return run_c("shootdown", ["--region-ms", "1", *map(str, given)], **how)


def report_of(done: subprocess.CompletedProcess[str]) -> KernelReport:
    if done.returncode == 3 and reason_of(done)[0] == "no-collapse":
        pytest.skip("this kernel has no MADV_COLLAPSE")
    assert (done.returncode, done.stderr) == (0, "")
    return KernelReport.model_validate_json(done.stdout)


@needs_c
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lines", [1, 3, 65])
def test_each_call_takes_its_own_pages(mode: str, lines: int):
    report = report_of(shot("--mode", mode, "--lines", lines))
    calls, batches = CALLS if lines <= MANY else FEWER, len(report.batch_ns_per_access)
    assert report.accesses == calls * batches and 5 <= batches <= 16
    assert report.arena_bytes == calls * lines * os.sysconf("SC_PAGESIZE") and report.also == {"flushes_asked": 0}
    assert report.checksum == checksum([calls * lines] * batches)


@needs_c
@pytest.mark.skipif(CPUS < 2, reason="one CPU")
@pytest.mark.parametrize("mode", MODES)
def test_other_threads_are_asked_and_processes_apart_are_not(mode: str):
    beside = report_of(shot("--mode", mode, "--lines", 1, "--threads", 1))
    apart = report_of(shot("--mode", mode, "--lines", 1, "--threads", 1, "--apart", 1))
    assert (beside.also["flushes_asked"], apart.also["flushes_asked"]) == (beside.accesses, 0)
    if "flushes_seen" in beside.also:  # a busy computer may take the thread off its CPU, and its other programs ask too
        assert beside.also["flushes_seen"] / beside.accesses > 2 * apart.also["flushes_seen"] / apart.accesses


@needs_c
def test_a_part_of_a_large_page_leaves_base_pages_and_a_collapse_makes_large_ones():
    needs_thp()
    done = shot("--mode", "discard", "--pages", "thp", "--lines", 1)
    assert unless_fragmented(done.returncode, done.stdout, done.stderr).also == {"huge_bytes_after": 0.0}
    large = int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text()) // os.sysconf("SC_PAGESIZE")
    assert report_of(shot("--mode", "collapse", "--lines", large)).arena_bytes == FEWER * large * os.sysconf("SC_PAGESIZE")


@needs_c
def test_more_others_than_cpus_is_a_reason_and_so_is_one():
    done = run_c("shootdown", ["--threads", str(CPUS)])
    assert reason_of(done)[0] == "one-cpu"
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    done = subprocess.run([*one, *done.args[:1], "--threads", "1"], capture_output=True, text=True, timeout=60)
    assert reason_of(done)[0] == "one-cpu"
