"""Switches, starts and neighbours on machines whose prices are known: each comes back."""

import pytest
from support.common import refusal
from support.events import Events, analysis, rows
from support.synthetic import GIB, scope

from experiments import context_switches
from experiments.context_switches import grid
from experiments.context_switches.analysis import NEW_PROCESS

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Events(noise=1e-9)


@pytest.mark.parametrize(("kept", "part"), [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)])
def test_what_a_switch_brings_back_of_a_new_processs_price(kept, part):
    a = analysis(context_switches, rows(Events(noise=1e-9, kept=kept, walks_kept=kept)))
    assert a.brought_back().value == pytest.approx(part, abs=1e-3)
    assert a.first_walks().value == pytest.approx(
        1 + (1 - kept) * QUIET.cold_ns / (QUIET.near_ns + QUIET.cold_ns)
    )
    assert a.price_after("thread").value == pytest.approx(QUIET.held_ns) and a.price_after(
        NEW_PROCESS
    ).value == pytest.approx(QUIET.cold_ns)


def test_the_first_round_costs_more_than_the_last_by_translation_alone():
    a = analysis(context_switches, rows(QUIET))
    assert a.first_over_last_round().value == pytest.approx(QUIET.cold_ns / QUIET.held_ns)
    assert a.rounds.groupby("layout")["number"].apply(list).to_dict() == {
        "packed": [*grid.NEW_PROCESS_ROUNDS],
        "spread": [*grid.NEW_PROCESS_ROUNDS],
    }
    frame = rows()
    faulty = analysis(
        context_switches,
        frame.assign(faults_in_passes=frame["faults_in_passes"].where(frame["repeat"] > 0, 3.0)),
    )
    assert (
        len(faulty._rows("cold_chase"))
        == 0.8 * len(analysis(context_switches)._rows("cold_chase"))
        > 0
    )


def test_what_neighbours_add():
    a = analysis(context_switches, rows(QUIET))
    assert a.loaded.xs == list(grid.STREAMED_MIB)
    assert a.under_load().value == pytest.approx((20 + 128 * QUIET.stream_ns) / 20, rel=1e-3)
    assert a.beside_sibling().value == pytest.approx(QUIET.shared)
    assert refusal(analysis(context_switches, rows(sibling=False)).beside_sibling) == "no-sibling"
    a = analysis(context_switches, rows(QUIET))
    a.about.rows.clear()  # without larger controls there is no price beside a stream
    assert refusal(a.under_load) == "too-few-points"
    a = analysis(context_switches, rows(cpus=1), cpus=1)
    assert refusal(a.under_load) == "one-cpu" and a.brought_back().value < 0.5


@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_the_grid_asks_for_each_point_once_and_for_no_second_cpu_where_there_is_none(cpus):
    asked = grid.points(scope(GIB, cpus=cpus, per_octave=4))
    assert len(asked) == len(set(asked))
    modes = {point.mode for point in asked if point.kernel == "neighbour_chase"}
    assert modes == ({"alone"} if cpus == 1 else {"alone", "other", "sibling"})
