"""Which points the chapter asks for, by profile and machine."""

from __future__ import annotations

import pytest
from support.blocking import ENTRIES
from support.synthetic import GIB, MIB, scope

from experiments.tlb_blocking import grid
from experiments.tlb_blocking.analysis import PUBLISHED_BLOCK
from tlb.lab.record import Point


def asked(most: int = 4 * GIB, per_octave: int = 4, entries: list[int] = ENTRIES) -> list[Point]:
    return grid.points(scope(most, entries, cpus=2, per_octave=per_octave))


@pytest.mark.parametrize(
    ("most", "per_octave", "entries"),
    [
        (64 << 10, 1, ENTRIES),
        (4 * MIB, 2, [72, 3072]),
        (64 * MIB, 4, [16]),
        (GIB, 2, []),
        (4 * GIB, 4, ENTRIES),
    ],
)
def test_each_point_is_asked_once_and_stays_within_the_profile(
    most: int, per_octave: int, entries: list[int]
):
    points = asked(most, per_octave, entries)
    assert len(points) == len(set(points))
    for point in points:
        own = dict(point.options)
        if point.kernel == "graph_walk":
            assert point.lines * 64 <= most and own.get("block_vertices", 0) < point.lines
        else:
            assert point.lines * 64 <= max(most, 64 << 10) * 3


def test_a_block_among_the_remedies_lies_inside_the_reach_and_there_is_none_without_entries():
    for entries in (ENTRIES, [72, 3072]):
        blocks = [
            dict(point.options)["block_vertices"]
            for point in asked(entries=entries)
            if point.mode == "blocked"
            and ("per_hop", 1) in point.options
            and dict(point.options)["block_vertices"] != PUBLISHED_BLOCK
        ]
        assert len(blocks) == 2 and max(blocks) * 64 <= entries[-1] * 4096 < 2 * max(blocks) * 64
    (alone,) = [
        dict(point.options)
        for point in asked(entries=[])
        if point.mode == "blocked" and ("per_hop", 1) in point.options
    ]
    assert (
        alone["block_vertices"] * 64 == 256 << 20 and alone["block_steps"] >= 200_000
    )  # as published: it stays there
