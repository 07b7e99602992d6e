"""Churn on machines whose prices are known: each comes back, and what is lacking is a reason."""

from __future__ import annotations

import pytest
from support import told
from support.churn import Churn, House, analysis, points, rows
from support.common import refusal

from experiments.churn import figures, grid, tables
from experiments.churn.analysis import NEW

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Churn(noise=1e-9)


@pytest.mark.parametrize("told_ns", [100.0, 10_000.0])
def test_the_price_of_a_shootdown_comes_back_whatever_the_pages(told_ns: float):
    a = analysis(rows(Churn(noise=1e-9, told_ns=told_ns)))
    assert a.most_others == 3 and set(a.shootdowns) == set(grid.CALLS)
    for call, price in a.shootdowns.items():
        assert price.xs == list(grid.REMOVED) and price.medians.tolist() == pytest.approx(
            [3 * told_ns] * 3, rel=1e-3
        )
        assert a.beside_processes(call).value == pytest.approx(QUIET.call_ns + QUIET.page_ns)
    assert a.by_cpus.xs == [0, 1, 3] and a.by_cpus.table["median"].diff().tolist()[
        1:
    ] == pytest.approx([told_ns, 2 * told_ns], rel=1e-3)
    bars = figures.shares(a).data.set_index(["call", "beside"])["median"]
    assert bars.xs("threads of the program", level=1).tolist() == pytest.approx(
        [3 * told_ns / 1e3] * 3, rel=1e-3
    )


def test_flushes_are_counted_as_requested_and_seen_and_a_collapse_requests_some():
    a = analysis(rows(Churn(seen=0.9)))
    assert a.share_seen() == a.flushes_per_collapse() == pytest.approx(0.9, abs=1e-3) and set(
        a.flush_counts["call"]
    ) == set(grid.CALLS)
    assert {tuple(row) for row in a.partial_calls[["call", "large_share"]].to_numpy()} == {
        (call, 0.0) for call in grid.CALLS
    }


def test_flushes_that_a_few_processes_miss_are_missed():
    frame = rows(Churn(seen=1.0))
    seen = frame["flushes_seen"].where(frame["repeat"] > 0, frame["flushes_seen"] / 2)
    asked = frame["flushes_asked"].where(frame["repeat"] > 0, 0).sum(), frame["flushes_asked"].sum()
    share = (asked[0] + asked[1]) / 2 / asked[1]
    a = analysis(frame.assign(flushes_seen=seen))
    assert a.share_seen() == pytest.approx(share, abs=1e-3) and share < 0.95
    assert told.read(tables.flushes(a))["seen over requested"].astype(
        float
    ).tolist() == pytest.approx([share] * 3, abs=1e-2)


@pytest.mark.parametrize(("kept", "part"), [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_what_a_switch_brings_back_of_a_new_processs_price(kept: float, part: float):
    a = analysis(rows(Churn(noise=1e-9, kept=kept, walks_kept=kept)))
    assert a.brought_back().value == pytest.approx(part, abs=1e-3)
    assert a.first_walks().value == pytest.approx(
        1 + (1 - kept) * QUIET.cold_ns / (QUIET.near_ns + QUIET.cold_ns)
    )
    assert a.price_after("thread").value == pytest.approx(QUIET.held_ns) and a.price_after(
        NEW
    ).value == pytest.approx(QUIET.cold_ns)


def test_the_first_round_costs_more_than_the_last_by_translation_alone():
    a = analysis(rows(QUIET))
    assert a.cold_tax().value == pytest.approx(QUIET.cold_ns / QUIET.held_ns)
    assert a.rounds.groupby("layout")["number"].apply(list).to_dict() == {
        "packed": [*grid.PASSES],
        "spread": [*grid.PASSES],
    }
    frame = rows()
    faulty = analysis(
        frame.assign(faults_in_passes=frame["faults_in_passes"].where(frame["repeat"] > 0, 3.0))
    )
    assert len(faulty._rows("cold_chase")) == 0.8 * len(analysis()._rows("cold_chase")) > 0


@pytest.mark.parametrize(("whole", "copied"), [(False, 4096), (True, 2 << 20)])
def test_forks_writes_and_arenas_by_page_size(whole: bool, copied: int):
    a = analysis(rows(Churn(copies_whole=whole)))
    assert a.single_write(grid.LARGE)[0].value == copied and a.single_write("4k")[0].value == 4096
    sizes = [mib << 8 for mib in grid.FORKED_MIB]
    assert a.fork_ns["4k"].xs == a.fork_ns[grid.LARGE].xs == sizes
    assert a.most(a.fork_ns, "4k").value == pytest.approx(1e5 + 100 * sizes[-1])
    assert a.waste().value == pytest.approx((2 << 20) / (100 << 10))


def test_what_neighbours_add():
    a = analysis(rows(QUIET))
    assert a.loaded.xs == list(grid.STREAMED_MIB)
    assert a.under_load().value == pytest.approx((20 + 128 * QUIET.stream_ns) / 20, rel=1e-3)
    assert a.slower_beside_stream("p99").value == pytest.approx(a.slower_beside_stream("p50").value)
    assert (a.beside_discards().value, a.beside_sibling().value) == pytest.approx(
        (QUIET.taken, QUIET.shared)
    )
    assert a.slowed_by_discards("packed").value == pytest.approx(QUIET.interrupted)


def test_a_collapse_pays_after_so_many_hops():
    a = analysis(rows(QUIET))
    assert (
        a.break_even_hops("random").value == pytest.approx(2e7 / QUIET.gain_ns)
        and len(a.collapses) == len(grid.COLLAPSES) * 3 * 2
    )
    assert a.collapse_at("during", "p999").value == pytest.approx(200 * QUIET.walk_ns)
    assert refusal(analysis(rows(Churn(gain_ns=-1.0))).break_even_hops, "address") == "unstable"


def test_housekeeping_comes_back_or_has_its_reason():
    a = analysis(house=House(splits=True))
    assert (
        a.longest_touch_ns("fragments", "always") == 3_000_000
        and a.touch_ns("free", "always", "p50").value == 100_000
    )
    assert (
        a.merging("large_after") == 0.0
        and a.merging("saved_bytes") == 7 / 8
        and a.merged_write_ns("own") == 80
    )
    assert a.swapped_in("thp")[0].value == 4096 and a.life_ratio("free", 64).value == pytest.approx(
        0.2
    )
    assert refusal(lambda: analysis(house=None).housekeeping) == "housekeeping-not-asked"
    left = analysis(house=House(lacking=("merged", "swapped", "idle", "pieces")))
    for make in (
        left.merged,
        lambda: left.swapped_in("4k"),
        left.idle,
        lambda: left.runs("fragments", "always"),
    ):
        assert refusal(make) == "memory-whole"


def test_what_takes_two_cpus_is_lacking_on_one_and_says_so():
    a = analysis(rows(cpus=1), cpus=1)
    assert a.shootdowns == {} and len(a.calls_alone) == 3 and a.most_others == 0
    assert {
        refusal(make)
        for make in (a.share_seen, a.flushes_per_collapse, a.under_load, a.beside_discards)
    } == {"one-cpu"}
    assert (
        refusal(a.beside_processes, "unmap") == refusal(a.break_even_hops, "address") == "one-cpu"
        and a.brought_back().value < 0.5
    )
    assert refusal(analysis(rows(sibling=False)).beside_sibling) == "no-sibling"
    a = analysis(rows(Churn(counted=False)))
    assert {refusal(a.share_seen), refusal(a.flushes_per_collapse)} == {"no-flush-count"}


def test_the_grid_asks_for_each_point_once_and_for_no_second_cpu_where_there_is_none():
    for cpus in (1, 2, 64):
        asked = points(cpus=cpus)
        assert len(asked) == len(set(asked))
        others = {
            dict(point.options).get("threads", 0) for point in asked if point.kernel == "shootdown"
        }
        assert others == {0, *(n for n in (1, 3, 7, 15, 31, 63) if n < cpus)}
        assert {point.mode for point in asked if point.kernel == "neighbour_chase"} == (
            {"alone"} if cpus == 1 else {"alone", "other", "sibling"}
        )
