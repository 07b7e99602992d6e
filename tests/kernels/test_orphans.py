"""A runner that dies leaves no kernel behind."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest
from support.common import ROOT, alive, needs_c, processes_with, wait_until

from tlb.measure import build

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- a runner that dies

RUNNER = """
import sys
from tlb.measure import perf, plan
from tlb.measure.perf_stat import NO_COUNTERS, PROCESS_EVENTS
from tlb.measure.record import Point
counted = perf.EventPlan("perf", (perf.Event("core_cycles", "cycles"),), of_process=PROCESS_EVENTS)
how = {"counted": counted, "timed": NO_COUNTERS}[sys.argv[1]]
point = Point(kernel="page_chase", engine=sys.argv[2], lines=int(sys.argv[3]), region_ms=60_000)
setting = plan.MeasuringConditions("0" * 12, 1 << 40, how)
with plan.KernelProcess(point, point.lines * 4096, 0, setting) as process:
    process.ask(point)
"""


@pytest.mark.parametrize(
    ("engine", "counted"),
    [
        pytest.param("c", "timed", marks=needs_c),
        pytest.param("c", "counted", marks=[needs_c, pytest.mark.needs("perf that counts faults")]),
        ("numba", "timed"),
    ],
)
def test_a_runner_killed_with_9_leaves_no_kernel_behind(engine, counted):
    # lines, and with them the bytes that the session maps, which only this run has
    lines = 700 + time.time_ns() % 1_000
    seed = str(lines * 4096)
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, counted, engine, str(lines)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )

    # CPU time that a kernel uses up to reach its region, and more
    busy_s = 0.5 if engine == "c" else 3

    def chasing() -> bool:
        return any(sum(p.cpu_times()[:2]) > busy_s for p in processes_with(seed))

    started: list[psutil.Process] = []
    try:
        assert wait_until(lambda: _quietly(chasing)), runner.stderr.read()
        started = processes_with(seed)
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        gone = not alive(seed)  # alone it would chase for a minute
        for process in processes_with(seed):
            process.kill()
        runner.stderr.close()
    assert started and gone


def _quietly(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except psutil.Error:  # it ended while it was looked at
        return False


@needs_c
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
    if (
        "--threads" in given
        and psutil.Process().cpu_affinity() == psutil.Process().cpu_affinity()[:1]
    ):
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
