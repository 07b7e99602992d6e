"""Kernels that measure beside other threads, processes and forks: they visit page_chase's lines or
write every page, and the others run where and when they should."""

import os
import subprocess
import time

import pytest
from support.common import processes_with, software_plan, wait_until
from support.events import NEW_PROCESS_ROUNDS
from support.kernels import (
    changed,
    checksum,
    huge_page_bytes,
    measured,
    needs_c,
    needs_thp,
    reason_of,
    run_c,
    run_program,
    unless_fragmented,
    visits,
)

from tlb.measure import build
from tlb.measure.record import KernelOutput, Point

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
PAGE = os.sysconf("SC_PAGESIZE")
CALLS, FEWER, MANY = 64, 16, 64  # of a batch of shootdown, by the pages of a call
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")
pytestmark = [pytest.mark.measures, pytest.mark.measuring, needs_c]


def report_of(done: subprocess.CompletedProcess[str]) -> KernelOutput:
    if done.returncode == 3 and reason_of(done)[0] == "linux-lacks":
        pytest.skip(f"this kernel: {reason_of(done)[0]}")
    assert (done.returncode, done.stderr) == (0, "")
    return KernelOutput.model_validate_json(done.stdout)


def run(kernel: str, *given: object) -> KernelOutput:
    return report_of(run_c(kernel, ["--region-ms", "1", "--seed", "7", *map(str, given)]))


# --- the lines of page_chase


@pytest.mark.parametrize(
    ("kernel", "mode"),
    [
        ("switch_chase", "alone"),
        ("switch_chase", "thread"),
        ("switch_chase", "process"),
        ("cold_chase", ""),
        ("neighbour_chase", "alone"),
    ],
)
def test_a_chase_visits_what_a_second_loop_names(kernel, mode):
    for lines, layout in ((1, "spread"), (100, "packed"), (300, "spread")):
        report = run(
            kernel, *(["--mode", mode] if mode else []), "--layout", layout, "--lines", lines
        )
        assert (
            report.checksum == checksum(visits("page_chase", "cycle", lines, 7))
            and report.lines == lines
        )
        assert (
            report.accesses % (256 if kernel == "neighbour_chase" else lines)
            == 0
            < report.ns_per_access
        )


@pytest.mark.parametrize(("mode", "own"), [("thread", 2), ("process", 1), ("alone", 0)])
def test_a_partner_is_switched_to_once_a_round(mode, own):
    """Both switches of a thread are the program's own, and one of a process: one waits, or is
    preempted by the one that was woken."""
    report = run("switch_chase", "--mode", mode, "--lines", 64)
    rounds, switches = (
        report.accesses // 64,
        report.voluntary_switches + report.involuntary_switches,
    )
    assert own * rounds <= switches <= own * rounds + rounds // 2 + 20 and report.also.keys() == {
        "switch_ns"
    }


def test_a_new_process_has_no_faults_in_its_rounds_unless_its_pages_are_not_there(tmp_path):
    also = run("cold_chase", "--lines", 200).also
    assert also.keys() == {
        "spawn_ns",
        "exec_ns",
        "faults_in_passes",
        *(f"pass_{n}_ns" for n in NEW_PROCESS_ROUNDS),
    }
    assert (
        also["faults_in_passes"] == 0
        and min(value for name, value in also.items() if name != "faults_in_passes") > 0
    )
    program = changed(
        "cold_chase", {"if (madvise(n->base, n->bytes, MADV_POPULATE_READ) ||": "if ("}, tmp_path
    )
    assert (
        report_of(run_program(program, ["--lines", "200", "--region-ms", "1"])).also[
            "faults_in_passes"
        ]
        > 0
    )


@two_cpus
@pytest.mark.parametrize(
    "load", [[], ["--stream_kib", 64], ["--walk_lines", 100], ["--discard_pages", 40]]
)
def test_a_thread_on_another_cpu_has_turns_while_the_chase_runs(load):
    for region_ms in (50, 500, 5000):  # a busy computer may keep the thread off its CPU for long
        words = ["--mode", "other", "--lines", 512, "--region-ms", region_ms, *load]
        if (also := run("neighbour_chase", *words).also)["turns"] > 0:
            break
    assert also["turns"] > 0 and 0 < also["p50_ns"] <= also["p99_ns"] <= also["p999_ns"]


@two_cpus
def test_the_thread_runs_on_the_kind_of_cpu_that_was_asked_for(tmp_path):
    """By sysfs: here two made-up cores of two hardware threads each, of which this process has
    some."""
    pairs, begins = f"of == {CPUS[-1]} ? cpu == {CPUS[0]} : 0", "    char path[128], list[256]"

    def chase(siblings: str, mode: str) -> subprocess.CompletedProcess[str]:
        program = changed(
            "neighbour_chase", {begins: f"    return {siblings};\n{begins}"}, tmp_path
        )
        return run_program(
            "taskset",
            [
                "-c",
                f"{CPUS[0]},{CPUS[-1]}",
                str(program),
                "--mode",
                mode,
                "--lines",
                "64",
                "--region-ms",
                "1",
            ],
        )

    none = f"none beside CPU {CPUS[-1]}, of 2"
    assert reason_of(chase(pairs, "other")) == ("one-cpu", none)
    no_thread = none.replace("none", "no second thread of its core")
    assert reason_of(chase("0", "sibling")) == ("one-cpu", no_thread)
    assert report_of(chase(pairs, "sibling")).cpu == CPUS[-1]


@two_cpus
@pytest.mark.parametrize(
    "point",
    [
        Point(kernel="neighbour_chase", mode="other", lines=64, region_ms=1),
        Point(kernel="switch_chase", mode="thread", lines=64, region_ms=1),
        Point(
            kernel="shootdown",
            order="sequential",
            mode="unmap",
            lines=1,
            region_ms=1,
            options={"threads": 1},
        ),
        Point(kernel="cold_chase", lines=64, region_ms=1),
    ],
    ids=lambda point: point.kernel,
)
def test_perf_counts_nothing_where_it_would_count_the_others_too(point):
    counted = measured(point, plan=software_plan()).counters
    assert counted and {quantity.value for quantity in counted.values()} == {None}


@two_cpus
@pytest.mark.parametrize(
    ("mode", "own", "joined"), [("none", 0, 0), ("other", 0, 1), ("random", 1, 1)]
)
def test_collapsed_pages_are_large_afterwards_and_no_others(mode, own, joined):
    needs_thp()
    size = 3 * huge_page_bytes()
    done = run_c(
        "collapse_chase",
        ["--region-ms", "1", "--seed", "7", "--mode", mode, "--lines", str(size // PAGE)],
    )
    if done.returncode == 3 and reason_of(done)[0] in ("memory-short", "backing-partial"):
        pytest.skip("this kernel joins no pages now")
    report = report_of(done)
    assert (report.also["huge_bytes_after"], report.also["joined_bytes"]) == (
        own * size,
        joined * size,
    )
    assert report.checksum == checksum(visits("page_chase", "cycle", report.lines, 7))
    assert (
        report.accesses % 64 == 0
        and len(report.batch_ns_per_access) == 16
        and report.also["joined_ns"] > 0
    )
    for phase in ("before", "during", "after"):
        assert 0 < report.also[f"{phase}_p50_ns"] <= report.also[f"{phase}_p999_ns"]


# --- shootdown


@pytest.mark.parametrize(("mode", "lines"), [("unmap", 1), ("protect", 3), ("discard", 65)])
def test_each_call_takes_its_own_pages(mode, lines):
    report = run("shootdown", "--mode", mode, "--lines", lines)
    calls, batches = CALLS if lines <= MANY else FEWER, len(report.batch_ns_per_access)
    assert report.accesses == calls * batches and 5 <= batches <= 16
    assert report.arena_bytes == calls * lines * PAGE and report.also == {"flushes_asked": 0}
    assert report.checksum == checksum([calls * lines] * batches)


@two_cpus
def test_other_threads_are_interrupted_and_other_processes_are_not():
    seen = {"threads": 0.0, "processes": 0.0}
    for _ in range(100):  # a busy computer may keep the other thread off its CPU all the while
        beside = run("shootdown", "--mode", "unmap", "--lines", 1, "--threads", 1)
        apart = run("shootdown", "--mode", "unmap", "--lines", 1, "--threads", 1, "--apart", 1)
        assert (beside.also["flushes_asked"], apart.also["flushes_asked"]) == (beside.accesses, 0)
        if "flushes_seen" not in beside.also:
            return
        seen["threads"] += beside.also["flushes_seen"] / beside.accesses
        seen["processes"] += apart.also["flushes_seen"] / apart.accesses
        if seen["threads"] > 2 * seen["processes"]:  # other programs flush too
            return
    pytest.fail(f"as many flushes from processes as from threads: {seen}")


def test_a_part_of_a_large_page_leaves_base_pages_and_a_collapse_makes_large_ones():
    needs_thp()
    done = run_c(
        "shootdown", ["--region-ms", "1", "--mode", "discard", "--pages", "thp", "--lines", "1"]
    )
    assert unless_fragmented(done.returncode, done.stdout, done.stderr).also == {
        "huge_bytes_after": 0.0
    }
    lines = str(huge_page_bytes() // PAGE)
    done = run_c("shootdown", ["--region-ms", "1", "--mode", "collapse", "--lines", lines])
    if done.returncode == 3 and reason_of(done)[0] == "backing-partial":
        pytest.skip("others hold a page now")
    assert report_of(done).arena_bytes == FEWER * huge_page_bytes()


# --- fork_write


@pytest.mark.parametrize(
    ("mode", "lines", "used"),
    [("touch", 1, 0), ("touch", 60, 25), ("write", 60, 0), ("write", 30, 1)],
)
def test_each_used_page_holds_what_was_written_last_and_is_copied_after_a_fork(mode, lines, used):
    report = run(
        "fork_write", "--mode", mode, "--lines", lines, *(["--used", used] if used else [])
    )
    first = 2 if mode == "write" else 1
    assert report.checksum == checksum([first + page for page in range(lines)])
    assert (
        report.accesses == lines * len(report.batch_ns_per_access)
        and report.working_set_bytes == lines * PAGE
    )
    assert report.also["resident_bytes"] == lines * PAGE and ("fork_ns" in report.also) == (
        mode == "write"
    )
    if mode == "write":
        assert (
            report.also["copied_bytes"] == lines * PAGE
            and report.minor_faults >= 2 * report.accesses
        )


# --- what a killed kernel leaves


@pytest.mark.parametrize(
    "given",
    [
        ["shootdown", "--apart", "1", "--threads", "1"],
        ["switch_chase", "--mode", "process"],
        ["fork_write", "--lines", "100000"],
    ],
    ids=lambda given: given[0],
)
def test_a_kernel_killed_with_9_leaves_no_process_of_its_own_behind(given):
    if "--threads" in given and len(CPUS) < 2:
        pytest.skip("one CPU")
    seed = str(time.time_ns())
    kernel = subprocess.Popen(
        [*build.kernel(given[0]).command, *given[1:], "--seed", seed, "--region-ms", "60000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    began = wait_until(lambda: len(processes_with(seed)) > 1)
    kernel.kill()
    kernel.wait()
    assert began and wait_until(lambda: processes_with(seed) == [])
