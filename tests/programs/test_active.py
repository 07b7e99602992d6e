"""What a process touches in a window: the truth of programs that touch known pages, sums of
mappings, and processes that cannot be read."""

from __future__ import annotations

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

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import SUPPORT, needs_c, needs_root

from tlb.machine.compiler import compiler
from tlb.programs import active
from tlb.programs.active import sight, summed
from tlb.reasons import Unavailable
from tlb.system.smaps import Mapping

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TWO_MIB, NOBODY = 2 << 20, 65534


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cc = compiler()
    assert cc is not None
    path = tmp_path_factory.mktemp("known") / "known_pages"
    subprocess.run(
        [
            *cc.command,
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            path,
            SUPPORT / "known_pages.c",
        ],
        check=True,
    )
    return path


@contextlib.contextmanager
def touching(*command: object) -> Iterator[int]:
    """A program that has said that it is ready."""
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        try:
            assert child.stdout.readline() == b"ready\n"
            yield child.pid
        finally:
            child.kill()


@needs_c
@pytest.mark.parametrize(("pages", "touched"), [(60_000, 30_000)])
def test_the_active_set_is_the_truth_within_two_per_cent(program: Path, pages: int, touched: int):
    """A process has some 300 pages of libraries beside, which are a hundredth of the least."""
    with touching(program, 0, pages, touched) as pid:
        seen = sight([pid], 1.0, time.sleep)
    assert seen.active_bytes == pytest.approx(touched * mmap.PAGESIZE, rel=0.02)
    assert seen.mapped["4k"] >= pages * mmap.PAGESIZE and (
        seen.large_least,
        seen.denied,
        seen.processes,
    ) == (0, 0, 1)
    assert seen.table_bytes >= pages * 8 and seen.look_s > 0


FIELDS = st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2000))


@given(st.lists(FIELDS, max_size=6))
def test_what_is_touched_on_large_pages_lies_between_bounds(drawn: list[tuple[int, int, int, int]]):
    """Base pages and large ones, of which an unknown part of each was touched: the truth is any
    split that fits."""
    parsed = []
    for base, thp, pool, active_pages in drawn:
        thp_bytes, base_bytes, pool_bytes = thp * TWO_MIB, base * 4096, pool * TWO_MIB
        parsed.append(
            Mapping(
                0,
                1 << 40,
                True,
                TWO_MIB if pool else 4096,
                base_bytes + thp_bytes + pool_bytes,
                thp_bytes,
                pool_bytes,
                min(active_pages * 4096, base_bytes + thp_bytes),
            )
        )
    seen = summed([(parsed, 8192)], 1.0, 0.0)
    assert 0 <= seen.large_least <= seen.large_most <= min(seen.active_bytes, seen.mapped["thp"])
    assert seen.active_bytes - seen.large_least <= seen.mapped["4k"]
    assert sum(seen.mapped.values()) == sum(mapping.resident_bytes for mapping in parsed)
    assert (
        seen.mapped.get("2m", 0) == sum(mapping.pool_bytes for mapping in parsed)
        and seen.table_bytes == 8192
    )


def reason(pid: int, proc: Path = active.PROC) -> str:
    with pytest.raises(Unavailable) as why:
        active.check(pid, proc)
    with pytest.raises(Unavailable):
        sight([pid], 0.0, time.sleep, proc)
    return why.value.code


def test_a_process_that_is_not_there_or_has_ended_is_gone():
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie
    assert reason(child.pid) == "process-gone"
    child.wait()
    assert reason(child.pid) == reason((1 << 22) + 1) == "process-gone"


def fake(proc: Path, flags: int = 0) -> Path:
    """A process of /proc as files."""
    folder = proc / "7"
    folder.mkdir()
    (folder / "stat").write_text(
        f"7 (a) name)) S 1 7 7 0 -1 {flags} 5 0 1 0 10 20 0 0 20 0 1 0 100 0 0\n"
    )
    (folder / "status").write_text("VmPTE:\t      40 kB\n")
    return folder


def as_nobody(call: Callable[[], str]) -> str:
    """What a call gives a user without rights, in a process of its own."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        told = "wrong"
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            told = call()
        finally:
            os.write(writing, told.encode() + b".")
            os._exit(0)
    os.waitpid(child, 0)
    told = os.read(reading, 99).decode().removesuffix(".")
    os.close(reading), os.close(writing)
    return told


@contextlib.contextmanager
def sleeping(user: int, may_be_read: bool) -> Iterator[int]:
    """A process of a user's. One that may not be read is what the kernel makes of a setuid program
    and of one with capabilities."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.setresuid(user, user, user)
            set_dumpable = 4  # PR_SET_DUMPABLE, linux/prctl.h; a change of user takes it away
            os.write(
                writing,
                b"ready"
                if ctypes.CDLL(None).prctl(set_dumpable, int(may_be_read), 0, 0, 0) == 0
                else b"wrong",
            )
            time.sleep(20)
        finally:
            os._exit(0)
    try:
        assert os.read(reading, 99) == b"ready"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading), os.close(writing)


@needs_root
@pytest.mark.parametrize(
    ("user", "may_be_read", "code"),
    [(0, True, "process-denied"), (NOBODY, False, "process-denied"), (NOBODY, True, "")],
)
def test_an_ordinary_user_sees_his_own_programs_and_none_with_other_rights(
    user: int, may_be_read: bool, code: str
):
    with sleeping(user, may_be_read) as pid:
        assert as_nobody(
            lambda: reason(pid) if code else str(sight([pid], 0.0, time.sleep).processes)
        ) == (code or "1")


@pytest.mark.parametrize("name", ["clear_refs", "smaps"])
def test_what_may_not_be_read_is_denied_and_others_are_read_all_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = fake(tmp_path)
    for file in ("clear_refs", "smaps"):
        (folder / file).write_text("")
    real_open, real_path_open = os.open, Path.open

    def refuse(path: Path, *rest: object, real=real_open) -> object:
        if Path(path).name == name and Path(path).parent == folder:
            raise PermissionError(13, "Permission denied")
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "open", lambda path, *rest: refuse(path, *rest, real=real_path_open))
    assert reason(7, tmp_path) == "process-denied"
    (tmp_path / "8").symlink_to(f"/proc/{os.getpid()}")
    both = sight([7, 8], 0.0, time.sleep, tmp_path)
    assert (both.processes, both.denied) == (1, 1)
