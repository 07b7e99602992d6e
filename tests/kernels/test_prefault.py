"""prefault makes every page ready in every batch, and gives it back."""

import os
import subprocess
import sys

import numpy as np
import pytest
from support.common import preloadable
from support.kernels import (
    checksum,
    huge_page_bytes,
    needs_c,
    needs_thp,
    reason_of,
    run_c,
    unless_fragmented,
)

from tlb.measure import build
from tlb.measure.record import KernelOutput

MODES = ("touch", "populate", "memset")
CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
pytestmark = [pytest.mark.measures, pytest.mark.measuring, needs_c]


def prefault(*given: object, **how: object) -> subprocess.CompletedProcess[str]:
    return run_c("prefault", ["--region-ms", "1", *map(str, given)], **how)


def words(mode: str, pages: int) -> list[int]:
    """The first word of each page afterwards."""
    return [
        {"touch": page + 1, "memset": 0x0101010101010101, "populate": 0}[mode]
        for page in range(pages)
    ]


def made_ready(done: subprocess.CompletedProcess[str]) -> KernelOutput:
    if done.returncode == 3 and reason_of(done)[0] == "linux-lacks":
        pytest.skip("this kernel has no MADV_POPULATE_WRITE")
    assert (done.returncode, done.stderr) == (0, "")
    return KernelOutput.model_validate_json(done.stdout)


@pytest.mark.parametrize(("mode", "threads"), [("touch", 2), ("populate", 1), ("memset", 2)])
def test_every_page_is_made_ready_in_every_batch(mode, threads):
    for lines in (3, 2000):
        report = made_ready(
            prefault("--mode", mode, "--lines", lines, "--threads", min(threads, len(CPUS)))
        )
        assert (report.mode, report.layout, report.order, report.lines) == (
            mode,
            "spread",
            "sequential",
            lines,
        )
        assert report.arena_bytes == report.working_set_bytes == lines * 4096
        assert 5 <= len(report.batch_ns_per_access) <= 16 and report.accesses == lines * len(
            report.batch_ns_per_access
        )
        assert report.ns_per_access == pytest.approx(
            np.median(report.batch_ns_per_access), rel=1e-4
        )
        assert report.checksum == checksum(words(mode, lines))
        assert report.also.keys() == {
            "one_byte_resident_bytes",
            "first_ns_per_access",
            "free_ns_per_access",
        }
        assert report.also["one_byte_resident_bytes"] == 4096 and min(report.also.values()) > 0
    # one a page; beyond that, the program's own
    assert report.accesses <= report.minor_faults < 1.1 * report.accesses + 100


@pytest.mark.parametrize("mode", MODES)
def test_a_transparent_huge_page_is_one_fault_and_is_resident_for_one_byte(mode):
    needs_thp()
    page = huge_page_bytes()
    done = prefault("--mode", mode, "--pages", "thp", "--lines", 5 * page // 4096 - 1)
    unless_fragmented(done.returncode, done.stdout, done.stderr)
    report = made_ready(done)
    batches = len(report.batch_ns_per_access)
    assert (
        report.arena_bytes == 5 * page and report.accesses == batches * report.arena_bytes // 4096
    )
    assert (
        5 * batches <= report.minor_faults < 5 * batches + 100
        and report.also["one_byte_resident_bytes"] == page
    )
    assert report.checksum == checksum(words(mode, 5 * page // 4096))


# In a small process of its own: a child starts with the peak of the process that it was split from.
PEAK = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=2, check=True); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def test_memory_is_given_back_before_the_next_batch():
    kernel = [*build.kernel("prefault").command, "--lines", str(2**14), "--region-ms", "1"]
    done = subprocess.run([sys.executable, "-c", PEAK, *kernel], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # KiB at the most at once: an arena of 64 MiB, and the program
    assert 64 << 10 <= int(done.stdout) < 96 << 10


def test_there_may_be_more_cpus_than_a_cpu_set_has_bits(tmp_path_factory):
    library, cpus, threads = preloadable("other_cpus", tmp_path_factory), 2000, 257
    there = {"env": os.environ | {"LD_PRELOAD": str(library), "OTHER_CPUS": str(cpus)}}
    report = made_ready(
        prefault("--threads", threads, "--lines", 3 * threads, "--cpu", cpus - 1, **there)
    )
    assert report.options == (("threads", threads),) and report.checksum == checksum(
        words("touch", 3 * threads)
    )
    done = prefault("--threads", cpus + 1, "--lines", 10_000, **there)
    assert (done.returncode, f"may use {cpus}." in done.stderr) == (2, True)
