"""Which points the chapter asks for, by profile and machine."""

from functools import partial
from types import SimpleNamespace

import nbformat
import pytest
from support.blocking import ENTRIES
from support.synthetic import GIB, scope

from experiments import tlb_blocking
from experiments.tlb_blocking import grid
from experiments.tlb_blocking.analysis import PUBLISHED_BLOCK_VERTICES
from tlb.measure.record import Point
from tlb.system.files import ROOT


def asked(most: int = 4 * GIB, per_octave: int = 4, entries: list[int] = ENTRIES) -> list[Point]:
    return grid.points(scope(most, entries, cpus=2, per_octave=per_octave))


def test_a_block_among_the_remedies_lies_inside_the_reach_and_there_is_none_without_entries():
    for entries in (ENTRIES, [72, 3072]):
        blocks = [
            dict(point.options)["block_vertices"]
            for point in asked(entries=entries)
            if point.mode == "blocked"
            and ("per_hop", 1) in point.options
            and dict(point.options)["block_vertices"] != PUBLISHED_BLOCK_VERTICES
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


@pytest.mark.parametrize("per_octave", [1, 4])
def test_the_cells_on_the_page_measure_what_the_campaign_does(per_octave):
    cells = nbformat.read(ROOT / "book/tlb_blocking.ipynb", as_version=4).cells
    sources = [cell.source for cell in cells]
    measured: list[Point] = []
    asked_of = scope(4 * GIB, ENTRIES, cpus=2, per_octave=per_octave)
    chapter = SimpleNamespace(scope=asked_of, measure=measured.extend)
    shared = {"chapter": chapter, "tlb_blocking": tlb_blocking, "partial": partial}
    for source in sources:
        if "grid." in source:
            exec(source, shared)
    assert measured == grid.points(asked_of)
