"""page_fault, touch_again and map_churn touch what a second loop names, fault as often as the
kernel has to, and leave nothing behind."""

import mmap
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.common import wait_until
from support.kernels import (
    changed,
    checksum,
    draws,
    huge_page_bytes,
    needs_c,
    needs_thp,
    reason_of,
    run_c,
    run_program,
    shuffled,
    unless_fragmented,
)

from tlb.measure import build
from tlb.measure.record import KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.measuring]

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
CHUNKS, CHUNK = 7, 2 * mmap.PAGESIZE
TRIES = 100  # beside processes that wake up all the time, one run in ten was unstable


def given(lines: int, *more: object) -> list[str]:
    return ["--lines", str(lines), "--seed", "7", "--region-ms", "1", *map(str, more)]


def order(lines: int, kind: str) -> list[int]:
    return shuffled(lines, 7, itself=True) if kind == "cycle" else [*range(lines)]


def measured(kernel: str, arguments: list[str], **how: object) -> KernelOutput:
    """The report; skips where Linux lacks what the mode needs.

    Mapping 16 pages of a file takes two thirds as long as touching them, which is one fault. On a
    CPU that others interrupt often, most batches that only map may take longer than one that also
    touches: the kernel then says "unstable", and is run again.
    """
    for _ in range(TRIES):
        done = run_c(kernel, arguments, **how)
        if done.returncode != 3 or reason_of(done)[0] != "unstable":
            break
    if done.returncode == 3 and reason_of(done)[0] in ("linux-lacks", "not-permitted"):
        pytest.skip(reason_of(done)[1])
    assert (done.returncode, done.stderr) == (0, "")
    return KernelOutput.model_validate_json(done.stdout)


# --- page_fault


@needs_c
@pytest.mark.parametrize(
    ("mode", "kind", "populate"),
    [("file", "cycle", 0), ("file", "sequential", 1), ("anonymous", "cycle", 1)],
)
def test_every_page_is_touched_in_every_round(mode, kind, populate):
    for lines in (16, 1000):
        report = measured(
            "page_fault", given(lines, "--mode", mode, "--order", kind, "--populate", populate)
        )
        assert (
            report.checksum == checksum(order(lines, kind)) and report.accesses % (5 * lines) == 0
        )
        assert len(report.batch_ns_per_access) == 5 and report.ns_per_access > 0
        timed = sum(bin.hops for bin in report.histogram)
        assert timed >= 1 << 15 and timed % lines == 0  # whole passes


@needs_c
def test_a_fault_enters_one_page_of_fresh_memory_and_one_or_more_of_a_file():
    fresh = measured("page_fault", given(512, "--mode", "anonymous"))
    assert fresh.also["faults_per_access"] == pytest.approx(1.0, abs=0.02)
    assert measured("page_fault", given(512, "--mode", "file")).also["faults_per_access"] <= 1.02
    assert fresh.also["untouched_table_bytes"] == 0 < fresh.also["filled_table_bytes"]


@needs_c
def test_a_large_page_faults_once():
    needs_thp()
    lines = 2 * huge_page_bytes() // mmap.PAGESIZE
    done = run_c("page_fault", given(lines, "--mode", "anonymous", "--pages", "thp"))
    report = unless_fragmented(done.returncode, done.stdout, done.stderr)
    assert report.also["faults_per_access"] == pytest.approx(2 / lines, rel=0.5)


def groups() -> list[Path]:
    return [
        *Path("/sys/fs/cgroup").glob("tlb-page-fault"),
        *Path("/sys/fs/cgroup").glob("*/tlb-page-fault"),
    ]


@needs_c
def test_pages_are_charged_by_turns_in_a_group_that_a_killed_process_left_and_the_group_is_removed():
    arguments = given(512, "--mode", "grouped")
    measured("page_fault", arguments)  # or there are no groups here
    with subprocess.Popen(
        [*build.kernel("page_fault").command, *arguments, "--region-ms", "5000"],
        stdout=subprocess.PIPE,
    ) as child:
        wait_until(lambda: groups() or child.poll() is not None)
        child.send_signal(signal.SIGKILL)
    assert groups()
    report = measured("page_fault", arguments)
    assert report.also["outside_ns_per_access"] > 0 and report.also[
        "faults_per_access"
    ] == pytest.approx(1.0, abs=0.05)
    assert not groups()


@needs_c
def test_a_full_disk_is_a_reason_and_leaves_no_file(tmp_path):
    program = changed(
        "page_fault",
        {"struct group group;": "struct group group;\n    signal(SIGXFSZ, SIG_IGN);"},
        tmp_path,
    )
    limited = ["bash", "-c", 'ulimit -f 64; exec "$@"', "limited", str(program), *given(4096)]
    room = tmp_path / "room"
    room.mkdir()
    done = subprocess.run(
        limited, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(room)}
    )
    code, _ = reason_of(done)
    assert code == "disk-refused" and not [*room.iterdir()]


@needs_c
def test_a_file_that_would_fill_the_disk_is_not_begun(tmp_path):
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    lines = free // mmap.PAGESIZE
    done = run_c("page_fault", given(lines), env=os.environ | {"TMPDIR": str(tmp_path)})
    code, detail = reason_of(done)
    assert code == "disk-refused" and str(tmp_path) in detail
    assert not [*tmp_path.iterdir()]


@needs_c
def test_a_file_that_memory_cannot_hold_has_a_reason(tmp_path):
    room = "disk_mib = (uint64_t)disk.f_bavail * disk.f_frsize >> 20;"
    program = changed("page_fault", {room: "disk_mib = UINT64_MAX;"}, tmp_path)
    memory = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
    assert reason_of(run_program(program, given(memory // mmap.PAGESIZE)))[0] == "memory-short"


# --- touch_again


@needs_c
@pytest.mark.parametrize("kind", ["sequential", "cycle"])
def test_memory_is_touched_again_after_the_wait(kind):
    begin = time.monotonic()
    report = measured("touch_again", given(1000, "--order", kind, "--idle_ms", 300))
    # none of the wait is in the region
    assert 0 < report.elapsed_ns <= (time.monotonic() - begin - 0.3) * 1e9
    assert report.checksum == checksum(order(1000, kind)) and report.accesses == 1000
    assert (
        sum(bin.hops for bin in report.histogram) == 1000 and report.also["first_ns_per_access"] > 0
    )


# --- map_churn


@needs_c
@pytest.mark.parametrize("mode", ["unmap", "keep"])
def test_each_record_faults_its_chunk_in_or_nothing(mode):
    for threads in {1, min(2, CPUS), CPUS + 1}:
        report = measured(
            "map_churn",
            given(CHUNKS * CHUNK // 64, "--mode", mode, "--threads", threads, "--pages", "4k"),
        )
        pages = CHUNK // mmap.PAGESIZE
        assert report.also["faults_per_access"] == pytest.approx(
            pages if mode == "unmap" else 0, abs=0.3
        )
        assert report.also["cpus"] == min(threads, CPUS) and report.accesses % (5 * threads) == 0
        flat = draws(7, [CHUNKS, CHUNK // 8] * 64)
        assert report.checksum == checksum(flat)
