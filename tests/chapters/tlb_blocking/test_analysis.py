"""The chapter's Analysis: curves, gains and remedies of machines that never were."""

from functools import cache
from typing import Any

import pandas as pd
import pytest
from support.blocking import NOTHING, Machine, analysis, rows
from support.synthetic import MIB

from experiments.tlb_blocking.analysis import PUBLISHED_BLOCK, SMALL_GRAPH, Analysis
from tlb.system.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")


@cache
def plain() -> Analysis:
    """Several tests read it, so none assigns to it."""
    return analysis(rows())


def refused(a: Any, what: str, *given: Any) -> str:
    """The code of the reason why an Analysis has no such thing."""
    with pytest.raises(Unavailable) as why:
        getattr(a, what)(*given) if given else getattr(a, what)
    return why.value.code


def test_dropped_prefetches_can_only_gain_what_hits():
    assert plain().most_from_hits == pytest.approx(1 / (1 - 1536 / 262144))
    assert refused(analysis(rows(most=4 * MIB)), "most_from_hits") == "too-few-points"
    assert refused(analysis(rows(), []), "most_from_hits") == "no-geometry"


# --- frames


def test_blocks_at_the_ends_of_the_reach_are_the_largest_inside_and_the_smallest_past_it():
    a = plain()
    assert (
        set(a.largest_inside["block_pages"]) == {1 << 9}
        and a.largest_inside["block_steps"].is_monotonic_increasing
    )
    assert a.smallest_past["block_pages"] == 1 << 13 and a.smallest_past["block_steps"] == 1 << 18


def test_the_block_among_the_remedies_is_the_fastest_inside_the_reach():
    frame = rows(Machine(noise=0.0))
    small = analysis(frame).remedy("TLB blocking", "4k")
    assert small["block_vertices"] == 1 << 14  # of 2^14 steps, fewest are first visits there
    slow = frame["block_vertices"] != 1 << 16
    quick = frame.assign(ns_per_access=frame["ns_per_access"].where(slow, 1.0))
    assert analysis(quick).remedy("TLB blocking", "4k")["block_vertices"] == 1 << 16
    past = [64, 512]  # whose reach is 2 MiB, and the faster block has 4
    assert analysis(quick, past).remedy("TLB blocking", "4k")["block_vertices"] == 1 << 14


def test_a_process_that_misread_the_clock_changes_no_quantile():
    frame = rows(Machine(noise=0.0))
    late = frame["repeat"] == 0
    found, plain = (
        analysis(one).remedies
        for one in (frame.assign(clock_ns=frame["clock_ns"] + 200 * late), frame)
    )
    assert late.any() and found.equals(plain)


def test_the_control_of_the_published_block_is_a_graph_of_its_size_from_another_chapter():
    frame = rows(Machine(noise=0.0))
    assert SMALL_GRAPH not in set(analysis(frame).remedies["remedy"])
    base = frame.query("mode == 'plain' and pages == '4k' and per_hop == 1")
    small = base.assign(lines=PUBLISHED_BLOCK)
    found = analysis(frame, others={"page_walks": small}).remedy(SMALL_GRAPH, "4k")
    assert found["p95"] == analysis(frame).remedy("none", "4k")["p95"] and found["n"] == len(small)


def test_a_control_of_prefetches_is_the_fastest_of_several_walks_over_the_same_graph():
    frame = rows(Machine(noise=0.0))
    alone = frame.query("mode == 'plain' and pages == '4k' and per_hop == 0")
    alone = alone[alone["lines"] == plain().best_ahead("4k")["vertices"]]
    several = [
        alone.assign(walkers=n, ns_per_access=ns) for n, ns in ((1, 1.0), (8, 30.0), (16, 20.0))
    ]
    walks = pd.concat([*several, several[0].assign(walkers=32, lines=4096)])
    found = analysis(frame, others={"page_walks": walks}).independent_walks
    assert (found["walkers"], found["median"]) == (16, 20.0)
    assert refused(analysis(frame, others={"page_walks": alone}), "independent_walks") == (
        "too-few-points"
    )


@pytest.mark.parametrize("entries", [[], [1]])
def test_without_a_block_inside_a_known_reach_there_is_no_blocking_among_the_remedies(entries):
    a = analysis(rows(), entries)
    assert "TLB blocking" not in set(a.remedies["remedy"]) and len(a.remedies) == 5
    assert refused(a, "remedy", "TLB blocking", "4k") == "too-few-points"


def test_the_rise_of_the_fan_out_is_from_half_the_entries_to_past_twice_them():
    ratio, few, many = analysis(rows(Machine(noise=0.0))).fan_out_rise("4k", 64)
    assert (few, many) == (32, 256) and ratio.value == pytest.approx(7 / 4)
    assert plain().fan_out_rise("4k", 72)[1:] == (32, 256)
    for entries in (4, 10**5):
        assert refused(plain(), "fan_out_rise", "4k", entries) == "too-few-points"


def test_what_was_not_measured_is_empty_for_a_cell_to_go_on_with():
    a = analysis(NOTHING)
    assert all(
        getattr(a, what).empty for what in ("blocks", "ahead", "fan_out", "joins", "remedies")
    ) and not len(a.block_price)
