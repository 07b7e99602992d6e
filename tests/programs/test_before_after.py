"""A process that runs already: what is refused, that collapsing reaches it, and that a drift is
shown as one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.common import needs_c, needs_root, refusal, wait_until
from support.programs import built, look, made

from tlb.programs import before_after
from tlb.programs.before_after import BeforeAfterComparison, check, compare, document, remarks, rows
from tlb.programs.collapse import CollapseResult
from tlb.programs.levers import LEVERS
from tlb.programs.runs import RunConditions
from tlb.programs.trial import TrialAim
from tlb.system import procfs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MIB = 64


def test_this_command_and_what_started_it_are_refused():
    for pid in (os.getpid(), os.getppid()):
        assert refusal(check, pid) == "process-gone"


@pytest.mark.measures
@needs_root
@needs_c
@pytest.mark.skipif(procfs.chosen(HUGE) != "madvise", reason="takes huge pages on request only")
def test_a_process_s_memory_is_collapsed_between_the_windows(tmp_path):
    held = [str(built(tmp_path)), "mmap", str(MIB), "1", "60000"]
    driver, metric = ["sh", "-c", "echo took 2.5 s"], re.compile("took (.*) s")
    aim = TrialAim(driver, LEVERS["collapse"], minutes=0.2, conditions=RunConditions(metric=metric))
    heard: list[int] = []
    with subprocess.Popen(held, stdout=subprocess.DEVNULL) as process:
        try:
            assert wait_until(
                lambda: before_after.snapshot(process.pid, 0.0).pages.resident_bytes >= MIB << 20
            )
            done = compare(
                process.pid,
                aim,
                tell=lambda so_far: heard.append(len(so_far.runs_before + so_far.runs_after)),
            )
        finally:
            process.kill()
    before, after = done.memory
    assert (before.pages.huge_bytes, done.ended, heard) == (0, "", list(range(1, len(heard) + 1)))
    least = 0.8 * (MIB << 20)
    assert after.pages.huge_bytes > least and done.collapsed.bytes > least
    assert done.measured.ratio.value_and_bounds == (1.0, 1.0, 1.0)
    assert done.measured.drifts == [1.0, 1.0] and sum(done.cpu_time.before) < 1
    assert not done.thp_disabled


@pytest.mark.measures
@needs_root
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_process_that_ends_meanwhile_leaves_the_windows_before(side):
    aim = TrialAim(["true"], LEVERS["collapse"], minutes=20)
    with subprocess.Popen(["sleep", "99.75"]) as process:

        def end(so_far: BeforeAfterComparison) -> None:
            if len(getattr(so_far.measured, side)) == 2:
                process.kill()
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        if side == "before":
            assert refusal(compare, process.pid, aim, None, end) == "process-gone"
            return
        done = compare(process.pid, aim, None, end)
    assert done.runs_before and len(done.runs_after) == 2 and "meanwhile" in done.ended
    assert rows(done)[2][2] == "ended" and done.ended in remarks(done)
    json.dumps(document(done))


def test_a_change_no_larger_than_the_drift_is_reported_as_drift():
    def comparison(before: list[float], after: list[float]) -> BeforeAfterComparison:
        memory, collapsed = (
            [look(), look(huge_mib=90)],
            CollapseResult(1.0, 3.0, 1 << 30, ("EINVAL",)),
        )
        runs = [[made(elapsed_s) for elapsed_s in side] for side in (before, after)]
        return BeforeAfterComparison(
            7, TrialAim(["x"], LEVERS["collapse"]), *runs, memory, collapsed
        )

    drifting = comparison([1.0, 1.01, 1.02, 1.03, 1.04, 1.05], [1.03, 1.04, 1.05, 1.05, 1.06, 1.07])
    faster = comparison([1.0] * 6, [0.5] * 6)
    assert drifting.measured.drifts[0] == pytest.approx(1.04 / 1.01)
    assert faster.measured.ratio.value == 0.5
    found = [" ".join(remarks(each)) for each in (drifting, faster)]
    assert ["no more than the drift" in text for text in found] == [True, False]
    assert "0.500" in found[1] and "1 GiB" in found[1] and "EINVAL" in found[1]
    assert "verdict" not in document(faster) and rows(faster)[2][1:] == ("0 B, 0%", "90 MiB, 90%")
