"""Guests: the matrix, prices, ratios, steps, clocks, touches, containers and nodes of machines that
never were."""

from math import nan

import numpy as np
import pandas as pd
import pytest
from support.common import refusal
from support.guests import (
    BARE,
    CELLS,
    ENTRIES,
    GUESTS,
    HOSTS,
    MACHINES,
    NESTED,
    Guests,
    analysis,
    of,
    rows,
    stated,
)
from support.synthetic import GIB

from experiments.virtualization import Quantities

pytestmark = pytest.mark.filterwarnings("error")
FAR = GIB // 4096


# --- the matrix


def test_the_matrix_gives_the_truth_back():
    far = analysis(rows(Guests(far=(), noise=0.0))).far.set_index(["guest", "host"])
    assert set(far["lines"]) == {FAR}
    for guest, host in CELLS:
        assert far.loc[(guest, host), "over_alike"] == pytest.approx(
            (1 + BARE.price_ns(guest, host, FAR)) / (1 + BARE.price_ns("", guest, FAR))
        )


@pytest.mark.parametrize(
    ("there", "guest", "same"),
    [
        (HOSTS, "2m", "2m"),
        (("4k", "thp"), "2m", "thp"),
        (("4k",), "2m", None),
        (HOSTS, "4k", "4k"),
        (("4k", "2m"), "1g", None),
    ],
)
def test_the_same_program_outside_is_on_the_guests_page_size(there, guest, same):
    coarse = analysis(rows(Guests(pages=there)))
    assert coarse.alike(guest) == same
    found = coarse.far.query("guest == @guest")
    assert len(found) == 4 and found["over_alike"].notna().all() == (same is not None)


# --- whose guests


def test_a_machine_without_one_shows_the_reference_machines():
    mine = analysis(
        MACHINES["no guest"](),
        stated("hidden"),
        other=analysis(
            rows(), stated("shadow", "kvm"), rows={"virtualization": rows(NESTED)}
        ).about,
    )
    theirs = mine.guests
    assert (
        theirs is not mine
        and theirs is mine.guests
        and theirs.cells == CELLS
        and theirs.host.kvm.tables == "shadow"
    )
    assert theirs.entries == ENTRIES and mine.cells == [] and mine.over_alike == {}
    pd.testing.assert_frame_equal(theirs.matrix, analysis(rows(NESTED)).matrix)
    assert mine.container_ratio.value == pytest.approx(1, abs=0.01)  # of this machine's own rows


@pytest.mark.parametrize("other", [None, {}, {"virtualization": MACHINES["no guest"]()}])
def test_without_a_guest_anywhere_a_machine_stands_for_itself(other):
    mine = analysis(
        MACHINES["no guest"](), other=None if other is None else analysis(rows(), rows=other).about
    )
    assert mine.guests is mine


# --- what an entry spans


@pytest.mark.parametrize(
    ("machine", "outside", "inside"),
    [
        (Guests(far=(), outer="4k", noise=0.0), 19 / 24, 19 / 24),  # nested paging on both
        (Guests(far=(), outer="4k", shadow=True, noise=0.0), 19 / 24, 1.0),
    ],
)
def test_shorter_walks_tell_nested_paging_from_shadow_paging(machine, outside, inside):
    a = analysis(rows(machine))
    assert a.walks["", "thp"].value == pytest.approx(outside, rel=0.02)
    assert a.walks["2m", "4k"].value == pytest.approx(inside, rel=0.02)


# --- clocks, touches, containers, nodes, levels


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_the_containers_ratio_is_the_median_of_its_pairs(factor):
    frame = rows(Guests(namespaces=factor, far=()))
    ratio = analysis(frame).container_ratio
    assert ratio.value == pytest.approx(factor, rel=0.003)
    assert ratio.low <= factor * 1.001 and ratio.high >= factor * 0.999


def test_far_memory_is_compared_with_both_near():
    a = analysis(rows(Guests(noise=0.0)))
    assert a.remote("remote", "local").value == pytest.approx(1.5)
    assert a.remote("local", "remote").value == pytest.approx(1.2)
    found = a.nodes.set_index(["memory", "tables"])["over"]
    assert found.to_dict() == {
        ("local", "local"): pytest.approx(1.0),
        ("remote", "local"): pytest.approx(1.5),
        ("local", "remote"): pytest.approx(1.2),
        ("remote", "remote"): pytest.approx(1.7),
    }
    assert (
        of().nodes.empty
        and len(of("far alone").nodes) == 3
        and np.isnan(of("far alone").nodes["over"]).all()
    )
    assert {
        refusal(lambda m=m: of(m).remote("remote", "local")) for m in ("bare metal", "far alone")
    } == {"too-few-points"}


def test_a_first_touch_costs_a_fault_for_each_page_of_the_smaller_kind():
    a = of()
    assert a.touch(huge=False)["median"].min() == pytest.approx(BARE.touch_ns, rel=0.05)
    assert a.touch(huge=True)["median"].max() < BARE.touch_ns / 100
    assert refusal(lambda: of("no guest").touch(huge=True)) == "too-few-points"


def test_a_chase_that_misses_nothing_costs_the_same_in_a_guest():
    assert of().in_first_cache.value == pytest.approx(1, abs=0.01)
    slow = rows().assign(
        ns_per_access=lambda f: (
            f["ns_per_access"] * (1 + ((f["kernel"] == "guest_chase") & (f["layout"] == "packed")))
        )
    )
    slow = slow.drop(columns="outside_ns_per_access")  # by one clock alone
    assert analysis(slow).in_first_cache.value == pytest.approx(2, abs=0.02)
    for name in ("no guest", "no controls", "no native"):
        assert refusal(lambda name=name: of(name).in_first_cache) == "too-few-points"


def test_a_page_warns_where_many_runs_have_clocks_that_differ():
    off = rows().assign(outside_ns_per_access=lambda f: 1.5 * f["ns_per_access"])
    assert not of().clocks_warning and not of("no guest").clocks_warning
    assert " 0% " in analysis(off).clocks_warning
    assert len(analysis(off).frame) < len(analysis(off).measured_rows) == len(off)
    assert not analysis(off).cells and of().cells  # whose times are left out
    assert len(analysis(off).measured_rows) == len(off) > len(analysis(off).frame)


def test_the_clocks_are_the_reason_for_no_number_of_a_guest_alone():
    off = rows().assign(outside_ns_per_access=lambda f: 1.5 * f["ns_per_access"])
    for frame, code in ((off, "clocks-differ"), (rows(), "too-few-points")):
        made = Quantities()
        made.record(frame, far_bytes=nan, walk_process=nan, clocks_agree=0.0)
        lacking = made.far_bytes.lacking, made.walk_process.lacking
        assert [one.code for one in lacking] == [code, "too-few-points"]
        assert made.clocks_agree.value == 0


def test_a_guest_of_five_levels_is_never_counted_with_one_of_four():
    five = rows(Guests(five=1.25))
    four = analysis(five[five["levels"] != 5])
    pd.testing.assert_frame_equal(analysis(five).matrix, four.matrix)
    assert len(analysis(five).clocks) == len(four.clocks)
    assert {guest for guest, _ in four.cells} == set(GUESTS)
