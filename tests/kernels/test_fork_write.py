"""fork_write touches, forks and writes each page that is used, and says what that made resident and copied."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.kernels import (
    checksum,
    huge_page_bytes,
    needs_c,
    needs_thp,
    run_c,
    unless_fragmented,
)

from experiments.lab.record import KernelReport

PAGE = os.sysconf("SC_PAGESIZE")

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


def written(*given: object, **how: object) -> KernelReport:
    done: subprocess.CompletedProcess[str] = run_c("fork_write", ["--region-ms", "1", *map(str, given)], **how)
    unless_fragmented(done.returncode, done.stdout, done.stderr)
    assert (done.returncode, done.stderr) == (0, "")
    return KernelReport.model_validate_json(done.stdout)


@needs_c
@pytest.mark.parametrize("used", [0, 1, 25])
@pytest.mark.parametrize(("mode", "first"), [("touch", 1), ("write", 2)])
@pytest.mark.parametrize("lines", [1, 60])
def test_each_used_page_holds_what_was_written_last(mode: str, first: int, lines: int, used: int):
    report = written("--mode", mode, "--lines", lines, *(["--used", used] if used else []))
    assert report.checksum == checksum([first + page for page in range(lines)])
    assert report.accesses == lines * len(report.batch_ns_per_access) and report.working_set_bytes == lines * PAGE
    assert report.also["resident_bytes"] == lines * PAGE
    assert ("fork_ns" in report.also) == ("copied_bytes" in report.also) == (mode == "write")


@needs_c
@pytest.mark.parametrize("used", [0, 1])
def test_every_page_that_is_written_after_a_fork_is_copied(used: int):
    report = written("--mode", "write", "--lines", 30, *(["--used", used] if used else []))
    assert report.also["copied_bytes"] == 30 * PAGE and report.minor_faults >= 2 * report.accesses


@needs_c
def test_a_page_used_of_a_large_one_makes_it_all_resident():
    needs_thp()
    large = huge_page_bytes()
    report = written("--pages", "thp", "--mode", "touch", "--lines", 50, "--used", 25)
    assert report.also["resident_bytes"] == 2 * large
    copied = written("--pages", "thp", "--mode", "write", "--lines", 3, "--used", 1).also["copied_bytes"]
    assert copied in (3 * PAGE, 3 * large)  # by whether the kernel splits a large page that is written to
