"""Sets by strides: closed forms beside a simulated TLB; strides of a known TLB come back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.common import refusal

from tlb.inference import sets
from tlb.inference.curves import Curve
from tlb.inference.simulator import SimulatedMachine, SimulatedTlb, simulate

PAGES, STRIDES = 256, [1 << k for k in range(19)]
TLBS = [(1536, 12), (4096, 16)]


def walks(placement: str, entries: int, ways: int, stride: int) -> float:
    """Of a visit, by the simulator under LRU, when all is warm."""
    order = np.random.default_rng(1).permutation(PAGES) * stride
    tlb = SimulatedTlb(level=2, entries=entries, ways=ways, placement=placement)
    return (
        simulate(SimulatedMachine((tlb,)), np.tile(order, 3), unit_bytes=4096, warm=2 * PAGES).walks
        / PAGES
    )


def curve(placement: str, entries: int, ways: int, miss_ns: float = 10.0) -> Curve:
    visits = [5.0 + miss_ns * walks(placement, entries, ways, stride) for stride in STRIDES]
    return Curve.of(
        pd.DataFrame({"stride_pages": STRIDES, "ns_per_access": visits}), "stride_pages"
    )


@pytest.mark.parametrize(("entries", "ways"), TLBS)
@pytest.mark.parametrize("placement", sets.PLACEMENTS)
def test_pages_miss_from_where_a_set_has_more_than_its_ways(
    placement: str, entries: int, ways: int
):
    for stride in STRIDES:
        assert (walks(placement, entries, ways, stride) > 0) == (
            sets.fullest(placement, entries // ways, PAGES, stride) > ways
        ), stride


@pytest.mark.parametrize(("entries", "ways"), TLBS)
@pytest.mark.parametrize("placement", sets.PLACEMENTS)
def test_the_placement_that_made_a_curve_is_the_one_that_fits_it(
    placement: str, entries: int, ways: int
):
    fit = sets.find(curve(placement, entries, ways), PAGES, 10.0)
    assert sets.fitting(fit, entries, ways, STRIDES) == [placement]
    if placement == "modulo":  # rounded down to a power of two
        assert fit.entries == 1 << entries.bit_length() - 1
    else:
        assert fit.entries > 2 * entries


def test_what_does_not_fill_or_was_not_measured_is_a_reason():
    for times, code in (
        (
            Curve.of(pd.DataFrame({"stride_pages": [], "ns_per_access": []}), "stride_pages"),
            "too-few-points",
        ),
        (
            Curve.of(pd.DataFrame({"stride_pages": STRIDES, "ns_per_access": 5.0}), "stride_pages"),
            "no-step",
        ),
    ):
        assert refusal(sets.find, times, PAGES, 10.0) == code
    assert sets.fitting(sets.Fit(PAGES, 8), 1000, 12, STRIDES) == []
