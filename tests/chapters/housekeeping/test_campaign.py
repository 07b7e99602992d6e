"""Housekeeping as it is measured: its programs against what smaps says, its parts on made-up
computers, and reasons for what is lacking."""

import os
import sys
from pathlib import Path

import pytest
from support.common import needs_c

from experiments.housekeeping import campaign
from experiments.housekeeping.campaign import HUGE, NO_HUGE, rooms
from tlb.machine import changed_settings, settings
from tlb.machine.changed_settings import DEFRAG
from tlb.system.reasons import if_available
from tlb.system.smaps import mappings

pytestmark = [
    pytest.mark.measuring,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has smaps and THP"),
]
MIB = 1 << 20
THP = settings.thp(Path("/"))
ROOM = THP.page_bytes or 2 * MIB
needs_thp = pytest.mark.skipif(
    THP.enabled not in ("always", "madvise") or THP.defrag == "never", reason="THP is off"
)


# --- rooms


@needs_thp
def test_rooms_lie_where_a_large_page_may_and_smaps_has_them():
    with rooms(3, ROOM) as some:
        assert some.address % ROOM == 0
        some.advise(HUGE)
        some.fill(b"\5" * os.sysconf("SC_PAGESIZE"))
        end = some.address + some.bytes
        of = [
            one
            for one in mappings(Path("/proc/self/smaps").read_text())
            if one.start < end and some.address < one.end
        ]
        assert some.kept("AnonHugePages") == sum(one.thp_bytes for one in of) > 0
        assert some.kept("Rss") == sum(one.resident_bytes for one in of) >= some.bytes
        assert some.read_ns(0) > 0 and some.write_ns(some.bytes - 1) > 0
    with rooms(2, ROOM) as other:
        other.advise(NO_HUGE)
        other.fill(b"\5" * os.sysconf("SC_PAGESIZE"))
        assert other.kept("AnonHugePages") == 0 and other.kept("Rss") >= other.bytes


# --- the parts


@needs_c
@needs_thp
@pytest.mark.endurance
@pytest.mark.skipif(not os.access(Path("/", DEFRAG), os.W_OK), reason="settings are root's")
@pytest.mark.parametrize("part", ["merged", "swapped", "pool_pageout", "pool_plain"])
def test_each_part_leaves_this_computer_s_settings_as_they_were(part):
    def now() -> dict[str, str]:
        return {name: changed_settings.value(name) for name in changed_settings.names()}

    first = now()
    with changed_settings.borrowing():
        if_available(getattr(campaign, part), ROOM)
    assert now() == first and changed_settings.changes() == {}
