"""shootdown takes away what it says, and asks those CPUs that run the program and no others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.kernels import (
    changed,
    checksum,
    needs_c,
    needs_thp,
    reason_of,
    refused_by_c,
    run_c,
    run_program,
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
@pytest.mark.parametrize("line", ["munmap(from, bytes)", "madvise(from, bytes, MADV_DONTNEED)"])
def test_a_call_that_takes_nothing_is_no_record(line: str, tmp_path: Path):
    program = changed("shootdown", {f"failed = {line};": "failed = 0;"}, tmp_path)
    mode = "unmap" if "munmap" in line else "discard"
    code, _ = reason_of(run_program(program, ["--mode", mode, "--lines", "2", "--region-ms", "1"]))
    assert code == "kernel-garbage"


@needs_c
@pytest.mark.skipif(CPUS < 2, reason="one CPU")
@pytest.mark.parametrize("change", [
    {"take_turns(o);": "_exit(0);"}, {"if (getppid() != parent ||": "if (getppid() == parent ||"}, {"++*o->turns;": "pause();"}])
def test_a_neighbour_that_dies_or_stands_still_is_a_reason(change: dict[str, str], tmp_path: Path):
    program = changed("shootdown", change | {"#define PATIENCE_NS 5000000000ull": "#define PATIENCE_NS 50000000ull"}, tmp_path)
    code, _ = reason_of(run_program(program, ["--threads", "1", "--apart", "1", "--region-ms", "1"]))
    assert code == "neighbour-gone"


@needs_c
def test_more_others_than_cpus_is_a_reason_and_so_is_one():
    done = run_c("shootdown", ["--threads", str(CPUS)])
    assert reason_of(done)[0] == "one-cpu"
    one = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    done = subprocess.run([*one, *done.args[:1], "--threads", "1"], capture_output=True, text=True, timeout=60)
    assert reason_of(done)[0] == "one-cpu"


@needs_c
@pytest.mark.parametrize("given", [["--pages", "2m"], ["--stride-pages", "2"], ["--mode", "collapse", "--lines", "3"],
                                   ["--mode", "collapse", "--pages", "thp", "--lines", "512"], ["--apart", "2"], ["--layout", "packed"]])
def test_what_makes_no_sense_is_refused_in_a_sentence(given: list[str]):
    refused_by_c("shootdown", given)
