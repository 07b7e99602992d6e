"""The points of the chapter about the cliff: those of its page, and where the published program
runs."""

from types import SimpleNamespace

from support.stlb_cliff import after_cells

from experiments.stlb_cliff import grid
from tlb.measure.grid import MeasuringProfile, Scope
from tlb.measure.record import Point
from tlb.report.chapter import literature


def stlb_cliff(
    profile: MeasuringProfile, engine: str, entries: list[int] | tuple[int, ...]
) -> list[Point]:
    return grid.points(Scope(profile, engine, tuple(entries), base_page_bytes=4096))


def test_the_published_program_runs_at_its_sizes_and_around_this_computers_reach():
    def published(most: int, entries: list[int]) -> set[int]:
        profile = MeasuringProfile(
            max_working_set=most, repeats=1, shape_repeats=1, region_ms=1, points_per_octave=2
        )
        points = [point for point in stlb_cliff(profile, "c", entries) if point.engine == "numpy"]
        lines = {point.lines for point in points if point.layout == "spread"}
        assert {point.lines for point in points if point.layout == "packed"} == {max(lines)}
        return lines

    sizes = {size // 4096 for size in literature("tlb_pressure")["working_set_bytes"]}
    assert published(2**32, []) == sizes | {64} and published(2**32, [64, 1536]) == sizes | {
        64,
        768,
        3072,
    }
    assert published(2**20, [64, 1536]) == {64, 256}


def test_the_page_measures_the_points_of_the_grid():
    profile = MeasuringProfile(
        max_working_set=2**30, repeats=1, shape_repeats=1, region_ms=1, points_per_octave=4
    )
    for engine in ("c", "numba"):
        scope = Scope(profile, engine, (64, 1536), base_page_bytes=4096)
        page = after_cells("cliff-04", "cliff-other", chapter=SimpleNamespace(scope=scope))
        assert page["points"] == grid.points(scope)
