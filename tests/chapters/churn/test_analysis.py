"""Churn on machines whose prices are known: each comes back, and what lacks is a reason."""

from __future__ import annotations

import pytest
from support import told
from support.churn import MACHINES, NOTHING, Churn, analysis, points, rows

from experiments.chapters.churn import figures, grid, tables
from experiments.chapters.churn.analysis import NEW
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Churn(noise=1e-9)


def reason(make, *given: object) -> str:
    with pytest.raises(Unavailable) as why:
        make(*given)
    return why.value.code


@pytest.mark.parametrize("told_ns", [100.0, 10_000.0])
def test_the_price_of_asking_comes_back_whatever_the_pages(told_ns: float):
    a = analysis(rows(Churn(noise=1e-9, told_ns=told_ns)))
    assert a.most_others == 3 and set(a.shootdowns) == set(grid.CALLS)
    for call, price in a.shootdowns.items():
        assert price.xs == list(grid.TAKEN) and price.medians.tolist() == pytest.approx([3 * told_ns] * 3, rel=1e-3)
        assert a.apart(call).value == pytest.approx(QUIET.call_ns + QUIET.page_ns)
    assert a.by_cpus.xs == [0, 1, 3] and a.by_cpus.table["median"].diff().tolist()[1:] == pytest.approx([told_ns, 2 * told_ns], rel=1e-3)


def test_flushes_are_seen_of_those_asked_and_a_move_asks_too():
    a = analysis(rows(Churn(seen=0.9)))
    assert a.seen_share() == a.moved_flushes() == pytest.approx(0.9, abs=1e-3) and set(a.seen["call"]) == set(grid.CALLS)
    assert {tuple(row) for row in a.parts[["call", "large_share"]].to_numpy()} == {(call, 0.0) for call in grid.CALLS}


def test_flushes_that_a_few_processes_miss_are_missed():
    frame = rows(Churn(seen=1.0))
    seen = frame["flushes_seen"].where(frame["repeat"] > 0, frame["flushes_seen"] / 2)
    asked = frame["flushes_asked"].where(frame["repeat"] > 0, 0).sum(), frame["flushes_asked"].sum()
    share = (asked[0] + asked[1]) / 2 / asked[1]
    a = analysis(frame.assign(flushes_seen=seen))
    assert a.seen_share() == pytest.approx(share, abs=1e-3) and share < 0.95
    assert told.read(tables.flushes(a))["seen of asked"].astype(float).tolist() == pytest.approx([share] * 3, abs=1e-2)


def test_the_bars_of_what_others_add_are_those_of_the_definition():
    a = analysis(rows(QUIET))
    before = figures.shares(a).data.set_index(["call", "beside"])["median"]
    a.shootdowns = {call: price - (a.calls_alone[call] - a.calls_beside[call]) for call, price in a.shootdowns.items()}
    after = figures.shares(a).data.set_index(["call", "beside"])["median"]
    assert after.xs("threads of the program", level=1).tolist() == pytest.approx([2 * 3 * QUIET.told_ns / 1e3] * 3, rel=1e-3)
    assert after.xs("other processes", level=1).tolist() == before.xs("other processes", level=1).tolist()


@pytest.mark.parametrize(("kept", "part"), [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_what_a_switch_brings_back_of_a_new_processs_price(kept: float, part: float):
    a = analysis(rows(Churn(noise=1e-9, kept=kept, walks_kept=kept)))
    assert a.brought_back().value == pytest.approx(part, abs=1e-3)
    assert a.first_walks().value == pytest.approx(1 + (1 - kept) * QUIET.cold_ns / (QUIET.near_ns + QUIET.cold_ns))
    assert a.price_after("thread").value == pytest.approx(QUIET.held_ns) and a.price_after(NEW).value == pytest.approx(QUIET.cold_ns)


def test_the_first_round_is_dearer_than_the_last_by_translation_alone():
    a = analysis(rows(QUIET))
    assert a.cold_tax().value == pytest.approx(QUIET.cold_ns / QUIET.held_ns)
    assert a.passes.groupby("layout")["number"].apply(list).to_dict() == {"packed": [*grid.PASSES], "spread": [*grid.PASSES]}


@pytest.mark.parametrize(("whole", "copied"), [(False, 4096), (True, 2 << 20)])
def test_what_a_write_copies_and_a_fork_takes_by_page_size(whole: bool, copied: int):
    a = analysis(rows(Churn(copies_whole=whole)))
    assert a.single_write(grid.LARGE)[0].value == copied and a.single_write("4k")[0].value == 4096
    sizes = [mib << 8 for mib in grid.FORKED_MIB]
    assert a.fork_ns["4k"].xs == a.fork_ns[grid.LARGE].xs == sizes
    assert a.fork_ns["4k"].last.value == pytest.approx(1e5 + 100 * sizes[-1])


def test_arenas_apart_take_whole_large_pages():
    a = analysis()
    assert a.waste().value == pytest.approx((2 << 20) / (100 << 10))
    assert a.sparse["apart"].tolist() == [True, False, True, False] and a.sparse["per_used"].iloc[0].value == 1.0


def test_what_a_stream_adds_to_the_price_of_translation():
    a = analysis(rows(QUIET))
    assert a.loaded.xs == list(grid.STREAMED_MIB)
    assert a.under_load().value == pytest.approx((20 + 128 * QUIET.stream_ns) / 20, rel=1e-3)
    assert a.quantile(128, "p99").value / a.quantile(128, "p50").value == pytest.approx(1.5)
    assert (a.beside_discards().value, a.beside_sibling().value) == pytest.approx((QUIET.taken, QUIET.shared))
    assert a.slowed_by_discards("packed").value == pytest.approx(QUIET.interrupted)


def test_joining_pages_pays_after_so_many_hops():
    a = analysis(rows(QUIET))
    assert a.break_even_hops("random").value == pytest.approx(2e7 / QUIET.gain_ns)
    assert len(a.joining) == len(grid.JOINS) * 3 * 2
    assert reason(analysis(rows(Churn(gain_ns=-1.0))).break_even_hops, "address") == "unstable"


def test_what_two_cpus_take_is_lacking_on_one_and_says_so():
    a = analysis(rows(cpus=1), cpus=1)
    assert a.shootdowns == {} and len(a.calls_alone) == 3 and a.most_others == 0
    assert {reason(make) for make in (a.seen_share, a.moved_flushes, a.under_load, a.beside_discards)} == {"one-cpu"}
    assert reason(a.apart, "unmap") == reason(a.break_even_hops, "address") == "one-cpu" and a.brought_back().value < 0.5
    assert reason(analysis(rows(sibling=False)).beside_sibling) == "no-sibling"
    a = analysis(rows(Churn(counted=False)))
    assert {reason(a.seen_share), reason(a.moved_flushes)} == {"no-flush-count"}


def test_the_grid_asks_for_each_point_once_and_for_no_second_cpu_where_there_is_none():
    for cpus in (1, 2, 64):
        asked = points(cpus=cpus)
        assert len(asked) == len(set(asked))
        others = {dict(point.options).get("threads", 0) for point in asked if point.kernel == "shootdown"}
        assert others == {0, *(n for n in (1, 3, 7, 15, 31, 63) if n < cpus)}
        assert {point.mode for point in asked if point.kernel == "neighbour_chase"} == (
            {"alone"} if cpus == 1 else {"alone", "other", "sibling"})


def test_what_was_not_measured_is_empty_or_a_reason():
    a = analysis(NOTHING)
    assert a.calls_alone == a.calls_beside == a.shootdowns == a.after == a.fork_ns == a.write_ns == {} and not len(a.loaded)
    assert a.seen.empty and a.parts.empty and a.passes.empty and a.sparse.empty and not len(a.by_cpus) and a.far_lines == 0
    for make in (a.seen_share, a.brought_back, a.first_walks, a.cold_tax, a.waste, a.under_load, a.beside_discards, a.moved_flushes):
        assert reason(make) in ("too-few-points", "no-sibling")


@pytest.mark.parametrize("machine", MACHINES)
def test_no_machine_breaks_a_property(machine: str):
    a = analysis(MACHINES[machine]())
    assert set(a.shootdowns) <= set(grid.CALLS) and set(a.after) <= {*grid.SWITCHES, NEW} and len(a.sparse) <= 4


def test_a_new_process_that_faults_is_no_row():
    frame = rows()
    faulty = analysis(frame.assign(faults_in_passes=frame["faults_in_passes"].where(frame["repeat"] > 0, 3.0)))
    assert len(faulty._rows("cold_chase")) == 0.8 * len(analysis()._rows("cold_chase")) > 0
