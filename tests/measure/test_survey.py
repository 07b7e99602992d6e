"""The survey: what it asks to be measured, in which order, and that asking twice is asking for the
same."""

import pytest
from support.geometry import CACHES, SHARP

from tlb.measure import survey
from tlb.measure.record import Point
from tlb.stats import geometry_curves
from tlb.stats.intervals import LEAST_COVERAGE, median_interval


@pytest.mark.slow
def test_rows_that_are_there_already_ask_for_the_same_points_again():
    """A second run measures nothing: the rows of all stages are there before the first."""
    run, stages = SHARP.run(), []

    def watched(points: list[Point]):
        stages.append(points)
        return run(points)

    frames = [survey.survey(watched, "4k", CACHES) for _ in range(2)]
    assert stages[:4] == stages[4:]
    assert frames[0].equals(frames[1])


@pytest.mark.parametrize("entries", [1024, 3072])
def test_walks_have_an_interval_that_decides_wherever_their_table_is(entries):
    caches = {1: 32 << 10, 2: 2 << 20, 3: 32 << 20}
    walks = {
        where: Point(kernel="page_chase", layout="alias", lines=lines, stride_pages=apart)
        for where, lines, apart in geometry_curves.walk_points(entries, 1, caches)
    }
    assert set(walks) == {"L2", "L3", "memory"}
    for point in walks.values():
        assert median_interval(range(survey.repeats_of(point))).coverage >= LEAST_COVERAGE, point
    assert (
        survey.repeats_of(Point(kernel="page_chase", layout="alias", lines=1024)) == survey.REPEATS
    )
