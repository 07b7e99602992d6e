"""Which points the chapter asks for, by profile and machine."""

from __future__ import annotations

import pytest
from support.blocking import ENTRIES
from support.synthetic import GIB, MIB, scope

from experiments.chapters.tlb_blocking import grid
from experiments.chapters.tlb_blocking.analysis import PUBLISHED_BLOCK
from experiments.lab.record import Point


def asked(most: int = 4 * GIB, per_octave: int = 4, entries: list[int] = ENTRIES) -> list[Point]:
    return grid.points(scope(most, entries, cpus=2, per_octave=per_octave))


@pytest.mark.parametrize("most", [64 << 10, 4 * MIB, 64 * MIB, GIB, 4 * GIB])
@pytest.mark.parametrize("per_octave", [1, 2, 4])
@pytest.mark.parametrize("entries", [ENTRIES, [72, 3072], [16], []])
def test_each_point_is_asked_once_and_stays_within_the_profile(most: int, per_octave: int, entries: list[int]):
    points = asked(most, per_octave, entries)
    assert len(points) == len(set(points))
    for point in points:
        own = dict(point.options)
        if point.kernel == "graph_walk":
            assert point.lines * 64 <= most and own.get("block_vertices", 0) < point.lines
        else:
            assert point.lines * 64 <= max(most, 64 << 10) * 3


def test_a_coarser_profile_asks_for_a_part_of_a_finer_one_at_most_and_still_compares():
    sizes = [len(asked(per_octave=n)) for n in (1, 2, 4)]
    assert sizes[0] < sizes[1] < sizes[2]
    for per_octave in (1, 2):
        points = asked(per_octave=per_octave)
        assert {point.mode for point in points} == {"plain", "blocked", "prefetch", "partition", "naive", "partitioned"}
        assert {point.pages for point in points if ("per_hop", 1) in point.options} == {"4k", "thp", "2m", "1g"}
        assert {dict(point.options)["distance"] for point in points if point.mode == "prefetch"} == {0, 1, 4, 16}


@pytest.mark.parametrize("engine", ["c", "numba"])
def test_walks_and_joins_are_of_one_engine(engine: str):
    assert {point.engine for point in grid.points(scope(engine=engine))} == {engine}


def test_a_block_among_the_remedies_lies_inside_the_reach_and_there_is_none_without_entries():
    for entries in (ENTRIES, [72, 3072]):
        blocks = [dict(point.options)["block_vertices"] for point in asked(entries=entries) if point.mode == "blocked"
                  and ("per_hop", 1) in point.options and dict(point.options)["block_vertices"] != PUBLISHED_BLOCK]
        assert len(blocks) == 2 and max(blocks) * 64 <= entries[-1] * 4096 < 2 * max(blocks) * 64
    (alone,) = [dict(point.options) for point in asked(entries=[]) if point.mode == "blocked" and ("per_hop", 1) in point.options]
    assert alone["block_vertices"] * 64 == 256 << 20 and alone["block_steps"] >= 200_000  # as published: it stays there


def test_blocks_reach_from_inside_the_first_level_to_past_the_second():
    found = {dict(point.options)["block_vertices"] * 64 for point in asked()
             if point.mode == "blocked" and ("per_hop", 1) not in point.options}
    first, last = ENTRIES
    assert min(found) < first * 4096 and max(found) > 4 * last * 4096
