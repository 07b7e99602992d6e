"""The points of the chapter about the cliff: each with its control, none past the limit, finer
where the TLBs end."""

import pytest

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


def cycle_lines(
    engine: str = "c", per_octave: int = 2, entries: tuple[int, ...] = (72, 3072)
) -> list[int]:
    profile = MeasuringProfile(
        max_working_set=2**30, repeats=1, shape_repeats=1, region_ms=1, points_per_octave=per_octave
    )
    return sorted(
        {
            p.lines
            for p in stlb_cliff(profile, engine, entries)
            if (p.kernel, p.order) == ("page_chase", "cycle")
        }
    )


@pytest.mark.parametrize(
    ("per_octave", "entries", "step"),
    [(2, 72, 1.23), (2, 3072, 1.12), (4, 72, 1.12), (4, 3072, 1.12)],
)
def test_the_grid_is_finer_around_what_cpuid_states_and_holds_it_and_its_double(
    per_octave, entries, step
):
    lines = cycle_lines(per_octave=per_octave)
    near = [n for n in lines if entries / 2**0.75 <= n <= entries * 2]
    assert {entries, 2 * entries} <= set(near)
    assert all(
        b / a < step for a, b in zip(near, near[1:], strict=False) if a > 60
    )  # 9 or 19 %, and what rounding adds
    away = [n for n in lines if n > 4 * 3072]
    assert all(
        b / a > (1.18 if per_octave > 2 and b <= 2**14 else 1.4)
        for a, b in zip(away, away[1:], strict=False)
    )
