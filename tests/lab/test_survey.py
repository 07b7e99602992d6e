"""The survey: what it asks to be measured, in which order, and that asking twice is asking for the
same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.geometry import CACHES, SHARP

from tlb.inference import geometry
from tlb.inference.intervals import median_interval
from tlb.lab import survey
from tlb.lab.record import Point
from tlb.lab.rig import Rig
from tlb.lab.store import Store
from tlb.machine import host
from tlb.report.verdicts import LEAST_COVERAGE

MEASURING = [pytest.mark.measures, pytest.mark.measuring, pytest.mark.needs("a C compiler")]


def measuring(test: Callable) -> Callable:
    for mark in MEASURING:
        test = mark(test)
    return test


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
def test_walks_have_an_interval_that_decides_wherever_their_table_is(entries: int):
    caches = {1: 32 << 10, 2: 2 << 20, 3: 32 << 20}
    walks = {
        where: Point(kernel="page_chase", layout="alias", lines=lines, stride_pages=apart)
        for where, lines, apart in geometry.walk_points(entries, 1, caches)
    }
    assert set(walks) == {"L2", "L3", "memory"}
    for point in walks.values():
        assert median_interval(range(survey.repeats_of(point))).coverage >= LEAST_COVERAGE, point
    assert (
        survey.repeats_of(Point(kernel="page_chase", layout="alias", lines=1024)) == survey.REPEATS
    )


@pytest.fixture
def here(store: Store, own_lock: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """This computer, and a survey that takes moments."""
    monkeypatch.setattr(survey, "REGION_MS", 1)
    return Rig.of(host.inspect(), store, "x", counters=False)


@measuring
@pytest.mark.endurance
def test_a_survey_of_this_computer_is_stored_and_not_measured_again(
    here: Rig, monkeypatch: pytest.MonkeyPatch
):
    """In small: one process a point, no more than 64 pages. What it finds there is this computer's
    own."""
    monkeypatch.setattr(survey, "TO_LINES", 64)
    frame, lacking = survey.measured(here, "4k", repeats=1, quiet=True)
    assert lacking == [] and set(frame["layout"]) == {"alias", "spread", "packed"}
    before = here.store.keys("x", survey.NAME)
    again, _ = survey.measured(here, "4k", repeats=1, quiet=True)
    assert here.store.keys("x", survey.NAME) == before and len(again) == len(frame)
