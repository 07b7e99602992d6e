"""The grids of all chapters: each point once, no more of it than there may be, and beside each
chase over spread pages as many lines side by side."""

from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rendered import CHAPTER_NAMES
from support.synthetic import scope

# The independent loads of a coarse grid have no control, for no price of them is told.
CONTROLLED = ("page_chase", "guest_chase", "numa_chase", "page_store", "cold_chase")
ENTRIES = [(), (16,), (64,), (48, 1280), (64, 1536), (72, 3072), (32, 64, 1536)]
scopes = st.builds(
    scope,
    st.integers(64 << 10, 2**33),
    st.sampled_from(ENTRIES),
    st.integers(1, 64),
    st.integers(1, 4),
    st.sampled_from(["c", "numba"]),
)


@pytest.mark.parametrize("chapter", CHAPTER_NAMES)
@given(scopes)
@settings(max_examples=30)
def test_a_grid_has_each_point_once_within_the_profile_and_each_chase_its_control(chapter, scope):
    points = import_module(f"experiments.{chapter}.grid").points(scope)
    assert len(points) == len(set(points))
    chases = {p for p in points if p.kernel in CONTROLLED and p.layout != "alias"}
    spread = {point for point in chases if point.layout == "spread"}
    assert {point.model_copy(update={"layout": "packed"}) for point in spread} == chases - spread
    assert all(point.lines <= scope.most_lines for point in chases)
    assert {point.engine for point in points} <= {scope.engine, "numpy"}
