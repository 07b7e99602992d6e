"""Which points the chapter about getting pages asks for."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import GIB, keeping_pages, scope

from experiments.keeping_pages import grid
from tlb.page_sizes import PAGES, SWEPT

profiles = st.tuples(
    st.integers(64 << 10, 2**33),
    st.integers(1, 4),
    st.integers(1, 64),
    st.sampled_from(["c", "numba"]),
)


@pytest.mark.parametrize(("cpus", "threads"), [(1, {1}), (2, {1, 2}), (16, {1, 16})])
def test_memory_is_faulted_in_by_one_thread_and_by_all_of_them(cpus: int, threads: set[int]):
    faulted = [
        point for point in keeping_pages(cpus=cpus, per_octave=4) if point.kernel == "prefault"
    ]
    assert {dict(point.options)["threads"] for point in faulted} == threads
    assert {dict(point.options)["threads"] for point in faulted if point.pages == "1g"} == {
        1
    }  # 256 MiB of it are one page
    ways = ("touch", "populate", "memset")
    assert {(point.pages, point.mode) for point in faulted} == {
        (pages, way) for pages in SWEPT for way in ways
    } | {(pages, "touch") for pages in PAGES}
    assert all(dict(point.options)["threads"] == 1 for point in faulted if point.mode == "memset")


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


def test_no_page_is_asked_for_that_is_no_larger_than_a_base_page():
    of = dataclasses.replace(scope(per_octave=4), base_page_bytes=64 << 10)
    assert {point.pages for point in grid.points(of)} == {
        "4k",
        "128k",
        "256k",
        "512k",
        "1m",
        "thp",
        "2m",
        "1g",
    }
