"""Housekeeping as it is measured: its programs against what smaps says, its parts on made-up computers, and reasons for what is lacking."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.common import needs_c

from experiments.lab import fragments, housework
from experiments.lab.housekeeping import Housekeeping, Idle, Lives, Touched
from experiments.lab.rooms import HUGE, NO_HUGE, rooms
from experiments.machine import borrowed, settings
from experiments.machine.borrowed import DEFRAG
from experiments.system.smaps import mappings
from experiments.words.reasons import Unavailable, if_available

pytestmark = [pytest.mark.measuring, pytest.mark.skipif(sys.platform != "linux", reason="only Linux has smaps and THP")]
MIB = 1 << 20
THP = settings.thp(Path("/"))
ROOM = THP.page_bytes or 2 * MIB
FREE_BYTES = housework.memory.usable_memory().usable_bytes if sys.platform == "linux" else 0
needs_thp = pytest.mark.skipif(THP.enabled not in ("always", "madvise") or THP.defrag == "never", reason="THP is off")


def code(act: Callable[[], object]) -> str:
    with pytest.raises(Unavailable) as caught:
        act()
    return caught.value.code


# --- the programs


@needs_c
@needs_thp
def test_each_touch_is_timed_and_large_pages_are_counted():
    with fragments.memory(ROOM, 0, 0) as free:
        begin = time.monotonic_ns()
        large, base = free.touch("thp", 4), free.touch("4k", 4)
        elapsed = time.monotonic_ns() - begin
    for run in (large, base):
        assert len(run.first_ns) == 4 and 0 < run.p50_ns <= run.p99_ns <= run.p999_ns <= run.longest_ns
        assert max(run.first_ns) <= run.longest_ns and sum(run.first_ns) <= 4 * run.room_ns
    assert base.large == 0 and large.large_share > 0
    assert 4 * (large.room_ns + base.room_ns) < elapsed  # nothing is counted twice


@needs_c
@pytest.mark.skipif(FREE_BYTES < 512 * MIB, reason="takes 256 MiB")
def test_filling_ends_where_the_memory_of_others_begins():
    with pytest.raises(Unavailable) as caught, fragments.memory(ROOM, 256 * MIB, FREE_BYTES - 200 * MIB):
        pytest.fail("memory of this computer cannot end so soon")
    assert caught.value.code == "memory-whole"


@needs_c
def test_others_memory_is_left_alone_before_anything_is_taken():
    begin = time.monotonic()
    with pytest.raises(Unavailable) as caught, fragments.memory(ROOM, 1 << 40, 1 << 50):
        pytest.fail("there is no such memory")
    assert caught.value.code == "memory-whole" and time.monotonic() - begin < 20


@needs_c
def test_a_program_that_is_ended_is_a_reason():
    with fragments.memory(ROOM, 0, 0) as free:
        free.process.kill()
        free.process.wait()
        assert code(free.plug) == "memory-short"


@needs_c
@needs_thp
def test_programs_that_live_briefly_are_timed_in_turns():
    begin = time.monotonic_ns()
    times = fragments.lives(ROOM, 4 * MIB, 3)
    assert {pages: len(ns) for pages, ns in times.items()} == {"4k": 3, "thp": 3}
    assert 0 < sum(map(sum, times.values())) < time.monotonic_ns() - begin


@pytest.mark.parametrize(("line", "why"), [("", "memory-short"), ("{", "kernel-garbage"), ("7", "kernel-garbage"), (
    '{"reason": "memory-whole", "detail": "x"}', "memory-whole"), ('{"reason": "nobody-knows"}', "kernel-garbage")])
def test_what_a_program_does_not_print_is_a_reason(line: str, why: str):
    assert code(lambda: fragments._parsed(line)) == why


# --- rooms


@needs_thp
def test_rooms_lie_where_a_large_page_may_and_smaps_has_them():
    with rooms(3, ROOM) as some:
        assert some.address % ROOM == 0
        some.advise(HUGE)
        some.fill(b"\5" * os.sysconf("SC_PAGESIZE"))
        end = some.address + some.bytes
        of = [one for one in mappings(Path("/proc/self/smaps").read_text()) if one.start < end and some.address < one.end]
        assert some.kept("AnonHugePages") == sum(one.thp_bytes for one in of) > 0
        assert some.kept("Rss") == sum(one.resident_bytes for one in of) >= some.bytes
        assert some.read_ns(0) > 0 and some.write_ns(some.bytes - 1) > 0
    with rooms(2, ROOM) as other:
        other.advise(NO_HUGE)
        other.fill(b"\5" * os.sysconf("SC_PAGESIZE"))
        assert other.kept("AnonHugePages") == 0 and other.kept("Rss") >= other.bytes


# --- the parts


def test_what_the_cpus_hold_of_free_pages_counts_as_available(tmp_path: Path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 1000 kB\n")
    (tmp_path / "proc/zoneinfo").write_text("  pagesets\n    cpu: 0\n              count: 3\n              high: 9\n    cpu: 1\n"
                                            "              count:    4\n")
    assert housework.available_bytes(tmp_path) == 1000 * 1024 + 7 * os.sysconf("SC_PAGESIZE")


def test_a_plan_leaves_a_part_of_memory_or_a_gib(tmp_path: Path):
    (tmp_path / "proc").mkdir()
    for total_gib, leave_gib in ((2, 1.0), (100, 15.0)):
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: {total_gib << 20} kB\nMemAvailable: {total_gib << 20} kB\n")
        leave, pieces = housework.plan(root=tmp_path)
        assert leave / 2**30 == leave_gib and pieces == 2 * (leave + housework.SLACK_BYTES)
    assert housework.plan(5, tmp_path)[0] == 5


def test_the_modes_are_those_that_the_kernel_lists(tmp_path: Path):
    assert code(lambda: housework.modes(tmp_path)) == "setting-absent"
    path = tmp_path / DEFRAG
    path.parent.mkdir(parents=True)
    path.write_text("always defer [madvise] never\n")
    assert housework.modes(tmp_path) == ("always", "defer", "madvise", "never")


def test_more_memory_than_may_be_taken_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(housework, "borrow", lambda *what: pytest.fail("a setting was changed"))
    assert code(lambda: [*housework.in_pieces(ROOM, 1 << 50, 1 << 50)]) == "memory-whole"


def test_a_device_in_use_is_let_be(monkeypatch):
    monkeypatch.setattr(housework, "borrow", lambda *what: pytest.fail("a setting was changed"))
    monkeypatch.setattr(borrowed, "value", lambda name: "4096")
    assert code(lambda: housework.swapped(ROOM)) == "zram-busy"


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No setting is changed and nothing is measured: what was put back, and each part in the order in which it came."""
    told: list[str] = []

    @contextmanager
    def borrowing():
        yield
        told.append("back")

    monkeypatch.setattr(borrowed, "borrowing", borrowing)
    monkeypatch.setattr(borrowed, "restore", lambda: told.append("restore"))
    run = {"first_ns": [5], "large": 1, "room_ns": 9, "p50_ns": 1, "p99_ns": 2, "p999_ns": 3, "longest_ns": 5}
    made = {"touched": [Touched(memory="free", mode="always", runs=[run])], "lives": [Lives(memory="free", mib=1, ns={"4k": [1]})],
            "in_pieces": [Touched(memory="fragments", mode="always", runs=[run]), Lives(memory="fragments", mib=1, ns={"4k": [1]})],
            "swapped": [], "pool_taken": [1.0], "pool_pageout": False, "pool_plain": 0.0, "leave_idle": 0.0,
            "idle": Idle(seconds=1.0, bytes=2, large_bytes=1, scan_sleep_ms=None, pages_to_scan=None)}
    for name, value in made.items():
        monkeypatch.setattr(housework, name, lambda *given, value=value: value)
    monkeypatch.setattr(housework, "merged", lambda room: (_ for _ in ()).throw(Unavailable("no-merging")))
    return told


def test_a_document_has_every_part_or_its_reason_and_all_is_put_back_after_each(made_up: list[str]):
    document = housework.measure(1 << 30, made_up.append)
    assert document == Housekeeping.model_validate(document.model_dump(mode="json")) and document.lacking == {"merged": "no-merging"}
    assert [(one.memory, len(one.runs)) for one in document.touched] == [("free", 1), ("fragments", 1)]
    assert [one.memory for one in document.lives] == ["free", "fragments"] and document.idle and document.pool_taken == (1.0,)
    parts = ["touched", "lives", "merged", "swapped", "pool_taken", "pool_pageout", "pool_plain", "idle", "pieces"]
    assert made_up[0] == "restore" and [one for one in made_up[1:] if one != "back"] == parts
    assert made_up.count("back") == len(parts) - 1  # a part that raises is put back by the context's own end


def test_who_may_change_nothing_is_told_at_once(made_up: list[str], monkeypatch):
    monkeypatch.setattr(housework, "touched", lambda *given: (_ for _ in ()).throw(Unavailable("setting-denied")))
    assert code(lambda: housework.measure()) == "setting-denied"


@needs_c
@needs_thp
@pytest.mark.endurance
@pytest.mark.skipif(not os.access(Path("/", DEFRAG), os.W_OK), reason="settings are root's")
@pytest.mark.parametrize("part", ["merged", "swapped", "pool_pageout", "pool_plain"])
def test_each_part_leaves_this_computer_s_settings_as_they_were(part: str):
    def now() -> dict[str, str]:
        return {name: borrowed.value(name) for name in borrowed.names()}

    first = now()
    with borrowed.borrowing():
        if_available(getattr(housework, part), ROOM)
    assert now() == first and borrowed.changes() == {}
