"""A process that runs already: what is refused and why, that joining reaches it, and that a drift
is shown for what it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.common import needs_c, needs_root
from support.programs import built, look, made

from tlb.programs import running
from tlb.programs.levers import LEVERS, Joined
from tlb.programs.running import Change, change, check, document, rows, sentences
from tlb.programs.trial import Aim
from tlb.reasons import Unavailable
from tlb.system import procfs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are looked at in /proc")
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MIB = 64


def refused(pid: int, *proc: Path) -> Unavailable:
    with pytest.raises(Unavailable) as why:
        check(pid, *proc)
    return why.value


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen]:
    with subprocess.Popen(["sleep", "98.75"]) as child:
        try:
            yield child
        finally:
            child.kill()


def test_what_is_no_process_to_join_is_refused_in_a_sentence_each(
    sleeper: subprocess.Popen, tmp_path: Path
):
    kernel = next(
        (
            pid
            for pid, folder in procfs.numbered(Path("/proc"), "([0-9]+)")
            if "VmRSS" not in procfs.text(folder / "status")
            and procfs.fields(procfs.text(folder / "status"))["State"][0] not in "ZX"
        ),
        None,
    )
    thread_is_there, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (thread_is_there.set(), end.wait(60)))
    thread.start()
    thread_is_there.wait(60)
    refusals = [
        refused(pid)
        for pid in (os.getpid(), 1, thread.native_id, os.getppid(), *([kernel] if kernel else []))
    ]
    end.set()
    thread.join()
    assert {why.code for why in refusals} == {"pid-refused"} and len(
        {why.detail for why in refusals}
    ) == len(refusals)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    zombie = refused(sleeper.pid)  # which nobody has waited for
    sleeper.wait()
    assert [zombie.code, refused(sleeper.pid).code, refused(1 << 30).code] == ["pid-gone"] * 3


@pytest.mark.measures
@needs_root
@needs_c
@pytest.mark.skipif(
    procfs.chosen(HUGE) != "madvise", reason="takes large pages on request and not otherwise"
)
def test_a_process_s_memory_is_joined_between_the_windows(tmp_path: Path):
    held = [str(built(tmp_path)), "mmap", str(MIB), "1", "60000"]
    aim = Aim(
        ["sh", "-c", "echo took 2.5 s"],
        LEVERS["collapse"],
        minutes=0.01,
        metric=re.compile("took (.*) s"),
    )
    with subprocess.Popen(held, stdout=subprocess.DEVNULL) as process:
        try:
            limit_s = time.monotonic() + 30
            while (
                running.look(process.pid, 0.0).pages.resident_bytes < MIB << 20
                and time.monotonic() < limit_s
            ):
                time.sleep(0.02)
            heard: list[int] = []
            done = change(
                process.pid,
                aim,
                lambda so_far: heard.append(len(so_far.before) + len(so_far.after)),
            )
        finally:
            process.kill()
    before, after = done.seen
    assert (before.pages.huge_bytes, done.ended, heard) == (0, "", list(range(1, len(heard) + 1)))
    assert after.pages.huge_bytes > 0.8 * (MIB << 20) and done.joined.bytes > 0.8 * (MIB << 20)
    assert (
        done.ratio()[:3] == (1.0, 1.0, 1.0)
        and done.drifts() == [1.0, 1.0]
        and done.apart == ()
        and not done.switched_off
    )


@pytest.mark.measures
@needs_root
def test_a_process_that_ends_meanwhile_leaves_what_was_before(tmp_path: Path):
    aim = Aim(["true"], LEVERS["collapse"], minutes=0.1)
    for side in ("before", "after"):
        with subprocess.Popen(["sleep", "99.75"]) as process:

            def end(so_far: Change, side: str = side, process: subprocess.Popen = process) -> None:
                if len(getattr(so_far, side)) == 2:
                    process.kill()
                    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

            if side == "before":
                with pytest.raises(Unavailable) as why:
                    change(process.pid, aim, end)
                assert why.value.code == "pid-gone"
            else:
                done = change(process.pid, aim, end)
                assert len(done.before) >= 6 and len(done.after) == 2 and "meanwhile" in done.ended
                assert rows(done)[1][2] == "ended" and done.ended in sentences(done)
                json.dumps(document(done))


def of(before: list[float], after: list[float], **how: object) -> Change:
    return Change(
        7,
        Aim(["x"], LEVERS["collapse"]),
        [made(value) for value in before],
        [made(value) for value in after],
        [look(), look(huge_mib=90)],
        Joined(1.0, 3.0, 1 << 30, ("EINVAL",)),
        **how,
    )  # type: ignore[arg-type]


def test_a_change_no_larger_than_the_drift_is_said_to_be_none():
    drifting = of([1.0, 1.01, 1.02, 1.03, 1.04, 1.05], [1.06, 1.07, 1.08, 1.09, 1.1, 1.11])
    gone = of([1.0] * 6, [0.5] * 6)
    assert drifting.drifts()[0] == pytest.approx(1.04 / 1.01) and gone.ratio().value == 0.5
    drifting.after = [made(value) for value in (1.03, 1.04, 1.05, 1.05, 1.06, 1.07)]
    assert [
        any("no more than" in told for told in sentences(each)) for each in (drifting, gone)
    ] == [True, False]
    assert (
        "0.500" in sentences(gone)[0]
        and document(gone)["verdict"] is None
        and "1 GiB" in " ".join(sentences(gone))
    )
    assert rows(gone)[1][1:] == ("0 B, 0%", "90 MiB, 90%")
