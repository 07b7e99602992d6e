"""Which points the chapter about getting pages asks for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.page_sizes import keeping_pages

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
