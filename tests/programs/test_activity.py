"""The pages that a process touches: programs that touch known pages, sums of mappings, and
processes that cannot be read."""

import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import STRICT, SUPPORT, compiled, needs_c, needs_root, wait_until

from tlb.programs import activity
from tlb.programs.activity import sample, summed
from tlb.system.reasons import Unavailable
from tlb.system.smaps import SmapsMapping

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TWO_MIB, NOBODY = 2 << 20, 65534


@needs_c
def test_the_active_size_is_the_truth_within_two_per_cent(tmp_path):
    """A process has some 300 pages of libraries beside, a hundredth of what it touches."""
    pages, touched = 60_000, 30_000
    program = compiled(SUPPORT / "known_pages.c", tmp_path / "known_pages", *STRICT)
    command = [program, "0", str(pages), str(touched)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:

        def until_it_ran(window_s: float) -> None:
            """It touches all within milliseconds of its own time."""
            process = psutil.Process(child.pid)
            begin_s = process.cpu_times().user
            assert wait_until(lambda: process.cpu_times().user > begin_s + 0.3)

        try:
            assert child.stdout.readline() == b"ready\n"
            seen, read = sample([child.pid], 1.0, until_it_ran)
            resident_bytes = activity.resident_bytes([child.pid, (1 << 22) + 1])
        finally:
            child.kill()
    assert seen.active_bytes == pytest.approx(touched * mmap.PAGESIZE, rel=0.02)
    assert resident_bytes == pytest.approx(seen.resident_bytes, rel=0.02)
    assert seen.mapped["4k"] >= pages * mmap.PAGESIZE and seen.table_bytes >= pages * 8
    assert (seen.huge_least, seen.unread, seen.processes) == (0, {}, 1) and seen.took_s > 0
    assert [(pid, len(found)) for pid, found in read] == [(child.pid, seen.mappings)]


FIELDS = st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2000))


@given(st.lists(FIELDS, max_size=6))
def test_what_is_touched_on_huge_pages_lies_between_bounds(drawn):
    """An unknown part of base and huge pages was touched: the truth is any split that fits."""
    parsed = []
    for base, thp, pool, active_pages in drawn:
        thp_bytes, base_bytes, pool_bytes = thp * TWO_MIB, base * 4096, pool * TWO_MIB
        resident = base_bytes + thp_bytes + pool_bytes
        touched = min(active_pages * 4096, base_bytes + thp_bytes)
        page = TWO_MIB if pool else 4096
        parsed.append(
            SmapsMapping(0, 1 << 40, True, page, resident, thp_bytes, pool_bytes, touched)
        )
    seen = summed([(parsed, 8192)], 1.0, 0.0)
    assert 0 <= seen.huge_least <= seen.huge_most <= min(seen.active_bytes, seen.mapped["thp"])
    assert seen.active_bytes - seen.huge_least <= seen.mapped["4k"]
    assert sum(seen.mapped.values()) == sum(mapping.resident_bytes for mapping in parsed)
    assert seen.mapped.get("2m", 0) == sum(mapping.pool_bytes for mapping in parsed)
    assert seen.table_bytes == 8192


def reason(pid: int, proc: Path = activity.PROC) -> str:
    with pytest.raises(Unavailable) as why:
        activity.check(pid, proc)
    with pytest.raises(Unavailable):
        sample([pid], 0.0, time.sleep, proc)
    return why.value.code


def test_a_process_that_is_not_there_or_has_ended_is_gone():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert reason(child.pid) == "process-gone"
    child.wait()
    assert reason(child.pid) == reason((1 << 22) + 1) == "process-gone"


def in_child(call: Callable[[], str]) -> tuple[int, int]:
    """Fork a child of user NOBODY that writes what a call returns. Return its PID and the pipe."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        found = "wrong"
        try:
            found = call()
        finally:
            os.write(writing, found.encode())
            signal.pause() if found == "ready" else os._exit(0)
    os.close(writing)
    return child, reading


@contextlib.contextmanager
def sleeping(user: int, may_be_read: bool) -> Iterator[int]:
    """Yield a user's process. One that may not be read is as Linux treats a setuid program."""

    def become() -> str:
        os.setresuid(user, user, user)
        set_dumpable = 4  # PR_SET_DUMPABLE, linux/prctl.h; a change of user clears it
        failed = ctypes.CDLL(None).prctl(set_dumpable, int(may_be_read), 0, 0, 0)
        return "wrong" if failed else "ready"

    child, reading = in_child(become)
    try:
        assert os.read(reading, 99) == b"ready"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)


@needs_root
@pytest.mark.parametrize(
    ("user", "may_be_read", "code"),
    [(0, True, "not-permitted"), (NOBODY, False, "not-permitted"), (NOBODY, True, "")],
)
def test_an_ordinary_user_sees_only_own_programs(user, may_be_read, code):
    with sleeping(user, may_be_read) as pid:

        def look() -> str:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            return reason(pid) if code else str(sample([pid], 0.0, time.sleep)[0].processes)

        child, reading = in_child(look)
        os.waitpid(child, 0)
        assert os.read(reading, 99).decode() == (code or "1")
        os.close(reading)


STAT = "7 (a) name)) S 1 7 7 0 -1 0 5 0 1 0 10 20 0 0 20 0 1 0 100 0 0\n"


def test_memory_that_cannot_be_read_is_not_told_as_the_end_of_its_process(tmp_path):
    (tmp_path / "7").mkdir()
    for file, text in (("stat", STAT), ("status", ""), ("clear_refs", ""), ("smaps", "odd\n")):
        (tmp_path / "7" / file).write_text(text)
    assert reason(7, tmp_path) == "linux-lacks"


@pytest.mark.parametrize("name", ["clear_refs", "smaps"])
def test_a_denied_process_is_counted_and_others_are_read(name, tmp_path, monkeypatch):
    folder = tmp_path / "7"
    folder.mkdir()
    for file, text in (("stat", STAT), ("status", ""), ("clear_refs", ""), ("smaps", "")):
        (folder / file).write_text(text)
    opened = Path.open

    def refuse(path: Path, *rest: object, **how: object) -> object:
        if path == folder / name:
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest, **how)

    monkeypatch.setattr(Path, "open", refuse)
    assert reason(7, tmp_path) == "not-permitted"
    (tmp_path / "8").symlink_to(f"/proc/{os.getpid()}")
    both, _ = sample([7, 8], 0.0, time.sleep, tmp_path)
    assert (both.processes, both.unread) == (1, {"not-permitted": 1})
