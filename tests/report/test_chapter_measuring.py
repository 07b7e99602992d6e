"""What a chapter measures, once, and which rows it shows: of this computer as it is now, and of one
engine."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.campaigns import one_by_one, put
from support.chapter import CHAPTER, DEFAULTS, this
from support.common import fake_kernel, make_record
from support.synthetic import Stated

from tlb.measure import build
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.record import Point, Record
from tlb.measure.store import Store
from tlb.report import claims
from tlb.report.chapter import Chapter, begin
from tlb.system.reasons import Unavailable


@pytest.fixture
def measuring(world, own_lock, kernel, monkeypatch) -> Callable[..., tuple[Chapter, list[Point]]]:
    """A chapter about this computer whose rig has another `measure`: what it is and what was asked
    of it."""
    kernel("exit 1")

    def begun(
        trouble: dict[str, Unavailable] | None = None, noisy: str = "", **changes: object
    ) -> tuple[Chapter, list[Point]]:
        asked: list[Point] = []

        def measure(point: Point, repeat: int, state: str, **_: object) -> Record:
            asked.append(point)
            if why := (trouble or {}).get(point.pages):
                raise Unavailable(why.code, f"{point.lines} lines")
            made_by = build.kernel(point.kernel).build._asdict()
            return make_record(
                **point.model_dump(), repeat=repeat, state=state, noisy=noisy, **made_by
            )

        chapter = this(**changes)
        chapter.rig = replace(
            MeasuringSetup.of(world["host"], chapter.store, chapter.machine),
            measure=one_by_one(measure),
        )
        return chapter, asked

    return begun


POINTS = [Point(kernel="page_chase", lines=lines) for lines in (16, 64)]


def test_points_that_no_claim_compares_get_the_mappings_that_a_shape_takes(measuring, monkeypatch):
    monkeypatch.setattr(claims, "compared_points", lambda scope: lambda point: point.lines == 64)
    chapter, asked = measuring(repeats=0, profile="quick")
    chapter.campaign({CHAPTER: POINTS}, seconds=60)
    profile = chapter.profile
    assert asked.count(POINTS[0]) == profile.shape_repeats < profile.repeats
    assert asked.count(POINTS[1]) >= profile.repeats
    again, more = measuring(repeats=0, profile="quick")
    again.campaign({CHAPTER: POINTS}, seconds=60)
    assert more == []


def test_rows_of_a_shorter_profile_enter_no_median_of_a_longer_one(measuring):
    """smoke, then quick: the grids grow, and share points but for how long they are timed."""
    quick = [*POINTS, Point(kernel="page_chase", lines=32)]
    smoke = [point.model_copy(update={"region_ms": 2}) for point in POINTS]
    assert [
        set(measuring(repeats=2)[0].measure(points)["region_ms"])
        for points in (smoke, quick, smoke)
    ] == [{2}, {60}, {2}]
    chapter, _ = measuring(repeats=2)
    assert len(chapter.measure(quick)) == len(chapter.kept(CHAPTER)) == 6
    longer = [point.model_copy(update={"region_ms": 900}) for point in POINTS]
    assert measuring(repeats=2, minutes=0.0)[0].measure(longer).empty


def rows_of(data: Store) -> dict[str, object]:
    return {machine: data.records(machine) for machine in data.machines()}


def test_rows_of_this_computer_and_published_ones_of_its_own_id_stay_apart(measuring):
    chapter, asked = measuring(repeats=1)
    chapter.data.write_machine(chapter.machine, Stated().host().model_dump(mode="json"))
    put(chapter.data, chapter.machine, CHAPTER, make_record(lines=128))
    (chapter.data.root / "reference").write_text(f"{chapter.machine}\n")
    before = rows_of(chapter.data)
    assert set(chapter.measure(POINTS)["lines"]) == {16, 64} and len(asked) == 2
    for name in ("reference", chapter.machine):
        published = begin(CHAPTER, DEFAULTS | {"machine": name})
        for rows in (published.measure(POINTS), published.kept(CHAPTER)):
            assert rows["lines"].tolist() == [128]
    assert rows_of(chapter.data) == before


@pytest.mark.parametrize("changed", ["the state", "the kernel"])
def test_back_in_an_earlier_state_all_its_rows_are_there_and_none_is_measured(
    world, measuring, monkeypatch, changed
):
    def change(there: bool) -> None:
        if changed == "the state":
            world["host"] = Stated(changes={"kernel_release": "6.2.0"} if there else {}).host()
        else:
            monkeypatch.setattr(build, "kernel", fake_kernel(measures=2 if there else 1))
            monkeypatch.setattr(build, "has_session", lambda point: False)

    change(False)
    whole = measuring(repeats=3)[0].measure(POINTS)
    change(True)
    alone = measuring(repeats=1)[0].measure(POINTS[:1])
    assert alone["lines"].tolist() == [16]
    change(False)
    again, asked = measuring(repeats=3)
    assert again.measure(POINTS).equals(whole) and again.kept(CHAPTER).equals(whole)
    assert asked == [] and len(whole) == 6


def test_what_there_was_no_time_for_is_counted_by_grid(measuring):
    chapter, asked = measuring(repeats=2, minutes=1e-9)
    assert chapter.measure(POINTS).empty and asked == []
    assert chapter.left_out == {CHAPTER: (4, 4)}
    assert [note.code for note in chapter.notes].count("no-time") == 1


def test_a_disturbed_measurement_that_no_page_shows_is_not_counted_as_measured(measuring):
    chapter, _ = measuring(repeats=1)
    chapter.measure(POINTS)
    extra, changed = measuring(repeats=1, minutes=1e-9)[0], POINTS[0].model_copy
    disturbed = [changed(update={"lines": lines}) for lines in (128, 256)]
    measured, _ = measuring(repeats=1, noisy="stolen")
    measured.measure(disturbed[:1])
    assert extra.measure([*POINTS, *disturbed])["lines"].tolist() == [16, 64]
    assert extra.left_out == {CHAPTER: (2, 4)}
