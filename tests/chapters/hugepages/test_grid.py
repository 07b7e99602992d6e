"""Which points the chapter about page sizes asks for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.hugepages import PAGES
from support.page_sizes import hugepages
from support.synthetic import scope

from experiments.hugepages import grid
from tlb.lab.grid import SMALLEST_LINES

profiles = st.tuples(
    st.integers(64 << 10, 2**33),
    st.integers(1, 4),
    st.integers(1, 64),
    st.sampled_from(["c", "numba"]),
)


@given(profiles)
def test_every_spread_chase_has_its_packed_control_on_the_same_pages_and_nothing_is_too_large(
    profile: tuple,
):
    most, per_octave, cpus, engine = profile
    points = hugepages(most, cpus, per_octave, engine)
    assert len(points) == len(set(points)) and {
        point.engine for point in points if point.kernel != "page_gather"
    } == {engine}
    assert {(point.engine, point.layout) for point in points if point.kernel == "page_gather"} <= {
        ("numpy", "spread")
    }
    for point in points:
        assert (
            dict(point.options)["bytes"] if point.kernel == "random_touch" else point.lines * 4096
        ) <= most, point
    chase = [point for point in points if point.kernel == "page_chase"]
    spread = {point for point in chase if point.layout == "spread"}
    assert {point.model_copy(update={"layout": "packed"}) for point in spread} == set(
        chase
    ) - spread
    assert {point.pages for point in spread} == set(PAGES) and min(
        point.lines for point in spread
    ) == SMALLEST_LINES


def test_a_coarse_grid_can_show_whether_an_entry_spans_a_large_page():
    for entries in ((64, 1536), (48, 1280), (96, 3072), ()):
        points = grid.points(scope(entries=entries, per_octave=2))
        base, large = (
            {p.lines for p in points if p.kernel == "page_chase" and p.pages == pages}
            for pages in ("4k", "thp")
        )
        first, last = entries or (64, 2048)
        assert (
            len([n for n in base if n <= 1 << 15]) >= 12
            and len([n for n in base if n <= first]) >= 3
        )  # inference/knees.py
        assert len([n for n in base & large if 1.3 * first < n < 0.6 * last]) >= 3
