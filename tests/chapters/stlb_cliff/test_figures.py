"""The cliff's chart of counted walks: whose they are, and the models beside them."""

from __future__ import annotations

import pytest
from support.stlb_cliff import analysis, counted

from experiments.stlb_cliff import figures
from experiments.stlb_cliff.analysis import COUNTING
from tlb.inference import misses

pytestmark = pytest.mark.filterwarnings("error")


def test_counted_walks_are_this_machines_where_it_has_them_and_else_named_as_anothers():
    own, other = figures.misses(counted()), figures.misses(analysis())
    assert "counted on made-up" in own.alt and f"counted on {COUNTING}" in other.alt
    for drawn in (own, other):
        assert {"counted", misses.TEXTBOOK} <= set(drawn.data["series"])
