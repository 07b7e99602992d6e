"""The chapter's Analysis: the model of walks in blocks; curves, gains and remedies of machines that
never were."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.blocking import NOTHING, Machine, analysis, rows
from support.synthetic import MIB

from experiments.tlb_blocking.analysis import Analysis, walks_per_hop
from tlb.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")


@cache
def plain() -> Analysis:
    """Several tests read it, so none assigns to it."""
    return analysis(rows())


def median(frame: pd.DataFrame, query: str, column: str = "ns_per_access") -> float:
    """By pandas' own query, where `x == x` is no NaN."""
    return float(frame.query(query)[column].median())


def refused(a: Any, what: str, *given: Any) -> str:
    """The code of the reason why an Analysis has no such thing."""
    with pytest.raises(Unavailable) as why:
        getattr(a, what)(*given) if given else getattr(a, what)
    return why.value.code


# --- the model


def simulated(
    block_pages: int, steps: int, entries: int, blocks: int = 40, stays: int = 30
) -> float:
    """Walks per hop of an LRU cache of translations, counted: stays of so many random hops in one
    block after another."""
    draws, held, walks = np.random.default_rng(1), OrderedDict(), 0
    for stay in range(stays):
        for page in draws.integers(0, block_pages, steps).tolist():
            key = (stay % blocks, page)
            walks += key not in held
            held[key] = None
            held.move_to_end(key)
            if len(held) > entries:
                held.popitem(last=False)
    return walks / (steps * stays)


@pytest.mark.parametrize("pages", [4, 64, 300])
@pytest.mark.parametrize("steps", [1, 20, 400, 3000])
def test_walks_per_hop_are_those_of_a_simulated_tlb(pages: int, steps: int):
    assert (
        float(walks_per_hop(pages, steps, 64))
        == pytest.approx(simulated(pages, steps, 64), rel=0.05, abs=0.01)
        or steps < 20
    )
    assert float(walks_per_hop(pages, steps, 64)) == pytest.approx(
        simulated(pages, steps, 64), rel=0.13
    )


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


def test_the_predicted_optimum_is_the_smallest_block_and_the_measured_the_fastest():
    for machine in (Machine(), Machine(noise=0.0)):
        a = analysis(rows(machine))
        assert len(a.optima) == 3
        for best in a.optima:
            part = a.blocks[a.blocks["block_steps"] == best.block_steps].set_index("block_bytes")
            assert (
                best.predicted_bytes == 128 << 10 and best.measured_bytes == part["median"].idxmin()
            )
            assert (
                best.predicted_walks <= best.measured_walks
                and best.measured_bytes not in best.unresolved
            )
            assert all(
                part.loc[size, "low"] <= part.loc[best.measured_bytes, "high"]
                for size in best.unresolved
            )
        assert a.mispredicted == []


def test_the_block_among_the_remedies_is_the_fastest_inside_the_reach():
    frame = rows(Machine(noise=0.0))
    small = analysis(frame).remedy("TLB blocking", "4k")
    assert small["block_vertices"] == 1 << 14  # of 2^14 steps, fewest are first visits there
    quick = frame.assign(mean_ns=frame["mean_ns"].where(~(frame["block_vertices"] == 1 << 16), 1.0))
    assert analysis(quick).remedy("TLB blocking", "4k")["block_vertices"] == 1 << 16
    past = [64, 512]  # whose reach is 2 MiB, and the faster block has 4
    assert analysis(quick, past).remedy("TLB blocking", "4k")["block_vertices"] == 1 << 14


@pytest.mark.parametrize("entries", [[], [1]])
def test_without_a_block_inside_a_known_reach_there_is_no_blocking_among_the_remedies(
    entries: list[int],
):
    a = analysis(rows(), entries)
    assert "TLB blocking" not in set(a.remedies["remedy"]) and len(a.remedies) == 5
    assert refused(a, "remedy", "TLB blocking", "4k") == "too-few-points"


def test_the_steepest_step_of_the_fan_out_is_at_the_first_levels_entries():
    before, after, factor = analysis(rows(Machine(noise=0.001))).steepest_fan_out
    assert (before, after) == (64, 128) and factor == pytest.approx(7 / 4, rel=0.01)


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
