"""Housekeeping as it is measured: its programs against what smaps says, its parts on made-up computers, and reasons for what is lacking."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.common import needs_c

from experiments.lab import housework
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
needs_thp = pytest.mark.skipif(THP.enabled not in ("always", "madvise") or THP.defrag == "never", reason="THP is off")


def code(act: Callable[[], object]) -> str:
    with pytest.raises(Unavailable) as caught:
        act()
    return caught.value.code


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
