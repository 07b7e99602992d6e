"""A command is ended with all that it started, and its pipes with it."""

import ctypes
import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.common import LONG_S, ROOT, alive, settable_signals

from tlb.system import procfs
from tlb.system.processes import adopting, end, process_descendants, run_in_own_session, without_thp


def test_a_command_gives_its_output_its_words_and_its_status():
    done = run_in_own_session(["sh", "-c", "echo out; printf '\\377' >&2; exit 7"], timeout=LONG_S)
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "\ufffd", 7)


def test_a_command_past_its_time_is_ended_with_its_children_and_leaves_no_pipe_open():
    gc.collect()  # what other tests left is none of this one's
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(subprocess.TimeoutExpired):
            run_in_own_session(["sh", "-c", "sleep 6097.25 & sleep 6097.25; :"], timeout=0.3)
        gc.collect()
    assert alive("sleep 6097.25") == []
    assert [str(warning.message) for warning in seen if warning.category is ResourceWarning] == []


def test_workers_end_with_who_started_them_though_it_was_killed():
    waits = (
        "import time; from tlb.system.processes import workers; pool = workers(2)\n"
        "[pool.submit(time.sleep, 97.75) for _ in range(2)]\n"
        "while len(pool._processes) < 2: time.sleep(0.01)\n"
        "print(*pool._processes, flush=True); time.sleep(97.75)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        assert len(parent.stdout.readline().split()) == 2
        parent.kill()
        assert (
            parent.communicate()[0] == ""
        )  # which ends as soon as none of the three holds the pipe any more


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are seen in /proc")


def put(proc: Path, pid: int, parent: int, state: str = "S", name: str = "program") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} ({name}) {state} {parent} 1 1 0 -1\n")


def test_descendants_are_all_below_with_any_name_parents_first(tmp_path):
    for pid, parent, state, name in [
        (7, 1, "S", "a"),
        (20, 7, "R", ") S 1 ("),
        (9, 20, "Z", "b c"),
        (8, 7, "S", ""),
        (30, 9, "D", "d"),
        (50, 1, "S", "other"),
        (51, 50, "S", "its child"),
    ]:
        put(tmp_path, pid, parent, state, name)
    (tmp_path / "40").mkdir()  # it ended meanwhile
    (tmp_path / "self").mkdir()
    assert process_descendants(7, tmp_path) == {8: True, 20: True, 9: False, 30: True}
    assert process_descendants(99, tmp_path) == {}


@linux
def test_what_a_child_leaves_is_adopted_and_ended_even_if_it_would_not():
    before = set(process_descendants(os.getpid()))

    def mine() -> dict[int, bool]:
        return {
            pid: runs for pid, runs in process_descendants(os.getpid()).items() if pid not in before
        }

    with adopting():
        subprocess.run(
            [
                "sh",
                "-c",
                "setsid sleep 93.5 & (trap '' TERM; while :; do sleep 93.5; done) & exit 0",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert end(mine, 0.3) >= 2
    assert (alive("sleep 93.5"), mine()) == ([], {})


@linux
def test_who_adopts_and_who_has_large_pages_is_put_back():
    def adopts() -> int:
        flag = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(flag), 0, 0, 0)
        return flag.value

    def has_thp() -> str | None:
        return procfs.fields(procfs.text(Path("/proc/self/status"))).get("THP_enabled")

    before = (adopts(), has_thp())
    with adopting(), without_thp():
        with adopting(), without_thp():
            pass  # puts back what the outer ones have set
        inherited = subprocess.run(
            ["cat", "/proc/self/status"], capture_output=True, text=True, check=True
        ).stdout
        assert (adopts(), procfs.fields(inherited).get("THP_enabled")) == (1, "0")
    assert (adopts(), has_thp()) == before


@linux
def test_what_is_started_under_nohup_or_in_the_background_ignores_no_signal():
    inside = (
        "import os, signal, subprocess; from tlb.system import processes; "
        "processes.restore_signals_for_children(); "
        "os.kill(os.getpid(), signal.SIGHUP); subprocess.run(['cat', '/proc/self/status'])"
    )
    done = subprocess.run(
        ["sh", "-c", "trap '' HUP INT QUIT TERM; exec \"$@\"", "sh", sys.executable, "-c", inside],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0  # this process itself goes on ignoring
    assert int(procfs.fields(done.stdout)["SigIgn"], 16) & settable_signals() == 0
