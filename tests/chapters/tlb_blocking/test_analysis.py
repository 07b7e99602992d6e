"""The chapter's Analysis: curves, gains and remedies of machines that never were."""

from functools import cache
from typing import Any

import pytest
from support.blocking import Machine, analysis, rows
from support.synthetic import MIB

from experiments.tlb_blocking.analysis import (
    PUBLISHED_BLOCK_VERTICES,
    SINGLE_BLOCK_GRAPH_LABEL,
    Analysis,
)
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
    assert SINGLE_BLOCK_GRAPH_LABEL not in set(analysis(frame).remedies["remedy"])
    base = frame.query("mode == 'plain' and pages == '4k' and per_hop == 1")
    small = base.assign(lines=PUBLISHED_BLOCK_VERTICES)
    found = analysis(frame, others={"page_walks": small}).remedy(SINGLE_BLOCK_GRAPH_LABEL, "4k")
    assert found["p95"] == analysis(frame).remedy("none", "4k")["p95"] and found["n"] == len(small)


@pytest.mark.parametrize("entries", [[], [1]])
def test_without_a_block_inside_a_known_reach_there_is_no_blocking_among_the_remedies(entries):
    a = analysis(rows(), entries)
    assert "TLB blocking" not in set(a.remedies["remedy"]) and len(a.remedies) == 5
    assert refused(a, "remedy", "TLB blocking", "4k") == "too-few-points"


def test_a_prefetch_and_a_scatter_are_looked_up_by_their_options():
    a = plain()
    assert a.gain_ahead("4k", 8).value == pytest.approx(2.0, rel=0.05)
    assert a.scattered("4k", bits=12, passes=1).value == pytest.approx(7.0, rel=0.05)
    assert refused(a, "scattered", "4k", 11, 1) == "too-few-points"
