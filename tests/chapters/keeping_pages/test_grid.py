"""Which points the chapter about getting pages asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.page_sizes import keeping_pages
from support.synthetic import GIB, scope

from experiments.keeping_pages import grid
from tlb.page_sizes import PAGES

profiles = st.tuples(
    st.integers(64 << 10, 2**33),
    st.integers(1, 4),
    st.integers(1, 64),
    st.sampled_from(["c", "numba"]),
)


@given(profiles)
def test_each_rung_is_chased_over_one_working_set_with_its_control(profile: tuple):
    most, per_octave, cpus, engine = profile
    points = keeping_pages(most, cpus, per_octave, engine)
    assert len(points) == len(set(points)) and {point.engine for point in points} == {engine}
    chase = [point for point in points if point.kernel == "page_chase"]
    spread = {point for point in chase if point.layout == "spread"}
    assert {point.model_copy(update={"layout": "packed"}) for point in spread} == set(
        chase
    ) - spread
    rungs = [point.pages for point in chase if point.layout == "spread"]
    skipped = () if per_octave > 2 else ("32k", "256k", "1m")
    assert rungs == [pages for pages in PAGES if pages not in ("2m", "1g", *skipped)]
    assert len({point.lines for point in chase}) == 1 and chase[0].lines * 4096 <= most


@pytest.mark.parametrize(
    ("entries", "lines"),
    [((64, 1536), 8192), ((64, 2048), 16384), ((72, 3072), 16384), ((), 16384), ((10, 512), 4096)],
)
def test_the_ladder_is_a_power_of_two_of_lines_several_times_the_reach(
    entries: tuple[int, ...], lines: int
):
    assert {point.lines for point in grid.ladder(scope(GIB, entries))} == {lines}
