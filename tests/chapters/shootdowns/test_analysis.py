"""Shootdowns on machines whose prices are known: each comes back, and what is lacking is a reason."""

import pytest
from support.common import refusal
from support.events import Events, analysis, rows
from support.synthetic import GIB, scope

from experiments import shootdowns

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Events(noise=1e-9)


@pytest.mark.parametrize("told_ns", [100.0, 10_000.0])
def test_the_price_of_a_shootdown_comes_back_whatever_the_pages(told_ns):
    a = analysis(shootdowns, rows(Events(noise=1e-9, told_ns=told_ns)))
    assert a.most_others == 3 and set(a.added) == set(shootdowns.grid.MEMORY_CALLS)
    for call, price in a.added.items():
        assert price.xs == list(
            shootdowns.grid.REMOVED
        ) and price.medians.tolist() == pytest.approx([3 * told_ns] * 3, rel=1e-3)
        assert a.beside_processes(call).value == pytest.approx(QUIET.call_ns + QUIET.page_ns)
    assert a.by_cpus.xs == [0, 1, 3] and a.by_cpus.table["median"].diff().tolist()[
        1:
    ] == pytest.approx([told_ns, 2 * told_ns], rel=1e-3)
    bars = shootdowns.figures.shares(a).data.set_index(["call", "beside"])["median"]
    assert bars.xs("threads of the program", level=1).tolist() == pytest.approx(
        [3 * told_ns / 1e3] * 3, rel=1e-3
    )


def test_flushes_are_counted_as_requested_and_seen():
    a = analysis(shootdowns, rows(Events(seen=0.9)))
    assert a.share_seen() == pytest.approx(0.9, abs=1e-3)
    assert set(a.flush_counts["call"]) == set(shootdowns.grid.MEMORY_CALLS)
    assert {tuple(row) for row in a.partial_calls[["call", "large_share"]].to_numpy()} == {
        (call, 0.0) for call in shootdowns.grid.MEMORY_CALLS
    }
    assert refusal(analysis(shootdowns, rows(Events(counted=False))).share_seen) == "no-flush-count"


def test_what_stays_large_is_a_share_of_all_large_pages_that_were_mapped():
    kept = rows(QUIET).assign(arena_bytes=16 << 21, huge_bytes_after=12 << 21)
    assert set(analysis(shootdowns, kept).partial_calls["large_share"]) == {0.75}


def test_flushes_that_a_few_processes_miss_are_missed():
    frame = rows(Events(seen=1.0))
    seen = frame["flushes_seen"].where(frame["repeat"] > 0, frame["flushes_seen"] / 2)
    asked = frame["flushes_asked"].where(frame["repeat"] > 0, 0).sum(), frame["flushes_asked"].sum()
    share = (asked[0] + asked[1]) / 2 / asked[1]
    a = analysis(shootdowns, frame.assign(flushes_seen=seen))
    assert a.share_seen() == pytest.approx(share, abs=1e-3) and share < 0.95


def test_what_the_interrupted_program_pays():
    a = analysis(shootdowns, rows(QUIET))
    assert a.beside_discards().value == pytest.approx(QUIET.taken)
    assert a.slowed_by_discards("packed").value == pytest.approx(QUIET.interrupted)


def test_a_flush_costs_the_chase_its_added_time_over_the_flushes_that_were_counted():
    frame = rows(QUIET).assign(accesses=1000, flushes_seen=100.0)
    a = analysis(shootdowns, frame)
    added_ns = QUIET.near_ns * (QUIET.interrupted - 1)
    assert a.lost_per_flush("packed").value == pytest.approx(added_ns * 1000 / 100)
    assert a.lost_per_flush("spread").value > a.lost_per_flush("packed").value
    uncounted = frame.assign(flushes_seen=0.0)
    assert refusal(analysis(shootdowns, uncounted).lost_per_flush, "packed") == "no-flush-count"


def test_what_takes_two_cpus_is_lacking_on_one_and_says_so():
    a = analysis(shootdowns, rows(cpus=1), cpus=1)
    assert a.added == {} and len(a.calls_alone) == 3 and a.most_others == 0
    assert {refusal(make) for make in (a.share_seen, a.beside_discards)} == {"one-cpu"}
    assert refusal(a.beside_processes, "unmap") == "one-cpu"


@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_the_grid_asks_for_each_point_once_and_for_no_second_cpu_where_there_is_none(cpus):
    asked = shootdowns.grid.points(scope(GIB, cpus=cpus))
    assert len(asked) == len(set(asked))
    others = {
        dict(point.options).get("threads", 0) for point in asked if point.kernel == "shootdown"
    }
    assert others == {0, *(n for n in (1, 3, 7, 15, 31, 63) if n < cpus)}
