"""A kernel or a runner that dies, hangs, loses its CPU, or meets another; a clock that steps;
another user."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest
from support.campaigns import MACHINE, assert_whole, says
from support.common import ROOT, descendants_with, living, needs_c, wait_until
from support.stand_ins import in_a_child

from tlb.measure import campaign, plan
from tlb.measure.record import Point
from tlb.measure.store import UNMEASURED_POINTS_DOCUMENT
from tlb.system.reasons import Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- a CPU that goes away


@needs_c
def test_a_cpu_that_is_taken_away_in_the_middle_ends_the_campaign_and_is_no_lack_of_a_point(
    run, store
):
    """The rows are whole, no point is remembered as one that this computer cannot do, and the next
    run goes on on another CPU."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("this one CPU is all there is here")
    points = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 84)]
    taken: list[int] = []

    def take_away(*asked: Any, **how: Any) -> Any:
        taken.append(how["cpu"])
        if len(taken) == 6:
            os.sched_setaffinity(0, set(allowed) - {how["cpu"]})
        return plan.measure(*asked, **how)

    def work() -> tuple[Unavailable, int, campaign.CampaignOutcome]:
        with pytest.raises(Unavailable) as why:
            run(points, cpu=allowed[-1], measure=take_away)
        return why.value, len(taken), run(points, cpu=allowed[0])

    why, tries, rest = in_a_child(work)
    says(why, "cpu-gone")
    assert (
        tries >= 6 and rest.cached >= 1 and (rest.cached + rest.measured, rest.lacking) == (20, {})
    )  # a noisy one is tried again
    assert_whole(store, 20)
    with pytest.raises(Unavailable):
        store.read_document(MACHINE, UNMEASURED_POINTS_DOCUMENT)


# --- Ctrl-C, SIGTERM and kill -9 of the runner (test_experiment.py, test_cli.py, test_kernels.py)

# A command of `tlb` that measures thirty points of 1 ms and then one of a minute.
RUNNER = """
import sys
from pathlib import Path
from tlb import cli
from tlb.measure import campaign
from tlb.system import files
from tlb.measure.record import Point
from tlb.measure.store import Store
sys.path.insert(0, "tests")
from support import campaigns
root = sys.argv.pop()
campaign.measuring_lock = lambda wait: files.measuring_lock(wait, Path(root) / "lock")
points = [Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 94)]
long = Point(kernel="page_chase", lines=64, region_ms=60_000)
def go():
    for part in (points, [long]):
        campaigns.run(Store(root), part)
cli.app.command("go")(go)
cli.main()
"""


@needs_c
@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        *(
            pytest.param(*end, marks=pytest.mark.endurance)
            for end in ((signal.SIGTERM, 143), (signal.SIGKILL, -9))
        ),
    ],
)
def test_a_runner_that_is_ended_leaves_no_kernel_and_the_same_run_goes_on(
    store, run, number, status
):
    store.root.mkdir()
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, "go", str(store.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # a shell's & ignores it
    kernels: list[psutil.Process] = []
    while not kernels and runner.poll() is None:
        time.sleep(0.02)
        kernels = descendants_with(
            str(64 * 4096), runner.pid
        )  # the bytes that the long point's process maps
    runner.send_signal(number)
    out, err = runner.communicate()
    assert kernels, err
    assert wait_until(lambda: not any(map(living, kernels)))
    assert (runner.returncode, out) == (status, "")
    assert err.startswith("Interrupted") if status > 0 else err == ""
    assert_whole(store, 30)
    again = run([Point(kernel="page_chase", lines=lines, region_ms=1) for lines in range(64, 95)])
    assert (again.cached, again.measured) == (30, 1)
