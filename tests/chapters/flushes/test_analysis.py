"""Shootdowns, switches, neighbours, copies and Linux's own work on machines whose prices are known:
each comes back, and what is lacking is a reason."""

import pytest
from support.common import refusal
from support.events import Events, analysis, housekeeping, rows
from support.synthetic import GIB, scope

from experiments.flushes import grid
from experiments.flushes.analysis import SWITCH_TO_NEW_PROCESS

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Events(noise=1e-9)


# --- shootdowns


@pytest.mark.parametrize("told_ns", [100.0, 10_000.0])
def test_the_price_of_a_shootdown_comes_back_whatever_the_pages(told_ns):
    a = analysis(rows(Events(noise=1e-9, told_ns=told_ns)))
    assert a.most_others == a.interrupting == 3
    assert set(a.calls(3)) == set(a.calls(0)) == set(grid.MAPPING_SYSTEM_CALLS)
    for pages in grid.REMOVED:
        assert a.added(pages).value == pytest.approx(3 * told_ns, rel=1e-3)
        calls = GIB / (pages * 4096)
        assert a.returned_ns(GIB, pages).value == pytest.approx(calls * a.unmapped(3, pages).value)
    for call in grid.MAPPING_SYSTEM_CALLS:
        assert a.beside_processes(call).value == pytest.approx(QUIET.call_ns + QUIET.page_ns)


def test_flushes_are_counted_as_requested_and_seen():
    a = analysis(rows(Events(seen=0.9)))
    assert a.share_seen() == a.flushes_per_collapse() == pytest.approx(0.9, abs=1e-3)
    assert set(a.flush_counts["call"]) == set(grid.MAPPING_SYSTEM_CALLS)
    uncounted = analysis(rows(Events(counted=False)))
    for count in (uncounted.share_seen, uncounted.flushes_per_collapse):
        assert refusal(count) == "linux-lacks"


def test_flushes_that_a_few_processes_miss_are_missed():
    frame = rows(Events(seen=1.0))
    seen = frame["flushes_seen"].where(frame["repeat"] > 0, frame["flushes_seen"] / 2)
    asked = frame["flushes_asked"].where(frame["repeat"] > 0, 0).sum(), frame["flushes_asked"].sum()
    share = (asked[0] + asked[1]) / 2 / asked[1]
    a = analysis(frame.assign(flushes_seen=seen))
    assert a.share_seen() == pytest.approx(share, abs=1e-3) and share < 0.95


def test_what_the_interrupted_program_pays():
    a = analysis(rows(QUIET))
    call_ns = QUIET.call_ns + QUIET.page_ns
    assert a.part_unmapped().value == pytest.approx(call_ns + 15_000)
    assert a.collapse_ns().value == pytest.approx(QUIET.call_ns + 512 * QUIET.page_ns)
    assert a.beside_discards().value == pytest.approx(QUIET.taken)
    assert a.slowed_by_discards("packed").value == pytest.approx(QUIET.interrupted)


def test_a_flush_costs_the_chase_its_added_time_over_the_flushes_that_were_counted():
    frame = rows(QUIET).assign(accesses=1000, flushes_seen=100.0)
    a = analysis(frame)
    added_ns = QUIET.near_ns * (QUIET.interrupted - 1)
    assert a.lost_per_flush("packed").value == pytest.approx(added_ns * 1000 / 100)
    assert a.lost_per_flush("spread").value > a.lost_per_flush("packed").value
    uncounted = frame.assign(flushes_seen=0.0)
    assert refusal(analysis(uncounted).lost_per_flush, "packed") == "linux-lacks"


def test_what_takes_two_cpus_is_lacking_on_one_and_says_so():
    a = analysis(rows(cpus=1), cpus=1)
    assert len(a.calls(0)) == 3 and a.most_others == 0
    lacking = (
        a.share_seen,
        a.beside_discards,
        a.flushes_per_collapse,
        lambda: a.added(1),
        lambda: a.returned_ns(GIB, 1),
        lambda: a.beside_processes("unmap"),
    )
    assert {refusal(make) for make in lacking} == {"one-cpu"}


# --- switches, starts, neighbours


@pytest.mark.parametrize("kept", [1.0, 0.5, 0.0])
def test_what_a_switch_leaves_comes_back(kept):
    a = analysis(rows(Events(noise=1e-9, kept=kept, walks_kept=kept)))
    lost_ns = (1 - kept) * (QUIET.cold_ns - QUIET.held_ns)
    assert a.price_after("process").value == pytest.approx(QUIET.held_ns + lost_ns)
    assert a.price_after("thread").value == pytest.approx(QUIET.held_ns)
    assert a.price_after(SWITCH_TO_NEW_PROCESS).value == pytest.approx(QUIET.cold_ns)
    assert a.first_walks().value == pytest.approx(
        1 + (1 - kept) * QUIET.cold_ns / (QUIET.near_ns + QUIET.cold_ns)
    )


def test_a_round_with_a_page_fault_is_left_out():
    frame = rows()
    faults = frame["faults_in_passes"].where(frame["repeat"] > 0, 3.0)
    faulty = analysis(frame.assign(faults_in_passes=faults))
    assert len(faulty._rows("cold_chase")) == 0.8 * len(analysis()._rows("cold_chase")) > 0


# --- copies, and Linux's own work


@pytest.mark.parametrize(("whole", "copied"), [(False, 4096), (True, 2 << 20)])
def test_writes_after_a_fork_and_arenas_by_page_size(whole, copied):
    a = analysis(rows(Events(copies_whole=whole)))
    assert (
        a.single_write(grid.HUGE_PAGE_KIND)[0].value == copied
        and a.single_write("4k")[0].value == 4096
    )
    mib_64 = 1e5 + 100 * (64 << 20) / 4096
    assert a.fork_ns("4k").value == pytest.approx(mib_64) and a.fork_ns("thp").value < mib_64
    assert a.waste().value == pytest.approx((2 << 20) / (100 << 10))


def test_linux_s_own_work_comes_back_or_has_its_reason():
    a = analysis(house=housekeeping())
    assert a.first_touch_ns("free", "always").value == 100_000
    assert a.merged_write_ns("own").value == 80
    assert a.idle_share() == 0.5
    assert refusal(lambda: analysis().housekeeping) == "housekeeping-not-asked"
    left = analysis(house=housekeeping("merged", "idle", "pieces"))
    for make in (left.merged, left.idle, lambda: left.runs("fragments", "always")):
        assert refusal(make) == "memory-short"


@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_the_grid_asks_for_no_second_cpu_where_there_is_none(cpus):
    asked = grid.points(scope(GIB, cpus=cpus, per_octave=4))
    others = {
        dict(point.options).get("threads", 0) for point in asked if point.kernel == "shootdown"
    }
    assert others == {0, *(n for n in (1, 3, 7, 15, 31, 63) if n < cpus)}
    modes = {point.mode for point in asked if point.kernel == "neighbour_chase"}
    assert modes == ({"alone"} if cpus == 1 else {"alone", "other", "sibling"})
