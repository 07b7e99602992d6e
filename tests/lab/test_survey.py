"""The survey: what it asks to be measured, in which order, and that asking twice is asking for the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.geometry import CACHES, SHARP, Made, lru
from support.lab import a_rig

from experiments.article.chapter import literature
from experiments.article.verdicts import LEAST_COVERAGE
from experiments.inference import geometry, splinter
from experiments.inference.intervals import median_interval
from experiments.lab import noise, survey
from experiments.lab.grid import octaves
from experiments.lab.kernels import arena_bytes
from experiments.lab.record import Point
from experiments.lab.rig import Rig
from experiments.lab.store import Store
from experiments.machine import host
from experiments.words.reasons import Unavailable

MEASURING = [pytest.mark.measures, pytest.mark.measuring, pytest.mark.needs("a C compiler")]


def measuring(test: Callable) -> Callable:
    for mark in MEASURING:
        test = mark(test)
    return test


def asked(made: Made, pages: str = "4k") -> list[list[Point]]:
    run, stages = made.run(), []

    def watched(points: list[Point]):
        stages.append(points)
        return run(points)

    survey.survey(watched, pages, CACHES)
    return stages


def test_the_coarse_sweep_holds_every_layout_at_every_size_and_its_control():
    points = survey.coarse("4k")
    sizes = {layout: {p.lines for p in points if p.layout == layout} for layout in ("alias", "spread", "packed")}
    assert sizes["spread"] == sizes["packed"] == sizes["alias"] - {8}
    assert min(sizes["spread"]) == survey.FROM_LINES and max(sizes["spread"]) == survey.TO_LINES


@pytest.mark.slow
def test_every_spread_point_around_a_knee_has_its_control_too():
    for stage in asked(SHARP)[:2]:
        lines = {layout: {p.lines for p in stage if p.layout == layout and p.stride_pages == 1} for layout in ("spread", "packed")}
        assert lines["spread"] == lines["packed"]
        assert lines["spread"]


@pytest.mark.slow
def test_the_second_stage_is_finer_where_the_first_one_bends():
    first, second = asked(SHARP)[:2]
    for knee in (64, 1536):
        def near(stage: list[Point], knee: int = knee) -> set[int]:
            return {p.lines for p in stage if p.layout == "alias" and abs(p.lines / knee - 1) < 0.2}
        assert len(near(second)) > 2 * len(near(first))


@pytest.mark.slow
def test_the_same_rows_ask_for_the_same_points():
    assert asked(SHARP) == asked(SHARP)


@pytest.mark.slow
def test_rows_that_are_there_already_ask_for_the_same_points_again():
    """What makes a second run measure nothing: the rows of all stages are there before the first."""
    run, stages = SHARP.run(), []

    def watched(points: list[Point]):
        stages.append(points)
        return run(points)

    frames = [survey.survey(watched, "4k", CACHES) for _ in range(2)]
    assert stages[:4] == stages[4:]
    assert frames[0].equals(frames[1])


def test_a_machine_without_a_knee_is_swept_to_the_end_and_asked_for_no_more():
    _, farther, *rest = asked(Made(lambda *_: 0.0, lambda *_: 0.0))
    assert {p.lines for p in farther} == {n for n in octaves(survey.TO_LINES, survey.FARTHEST_LINES, 3) if n > survey.TO_LINES}
    assert [len(stage) for stage in rest] == [0, 0, 0]


@pytest.mark.parametrize(("made", "goes_on"), [(Made(lru(64), lru(1536)), False), (Made(lru(224), lru(32768)), True),
                                               (Made(lru(10), lru(512)), True)])
def test_the_sweep_goes_on_where_fewer_than_two_levels_show(made: Made, goes_on: bool):
    points = {p for stage in asked(made) for p in stage if p.layout == "spread" and p.order == "cycle" and p.stride_pages == 1}
    assert (max(p.lines for p in points) > survey.TO_LINES) == goes_on


def test_the_sweep_reaches_past_the_largest_tlb_that_is_published():
    published = literature("microarchitectures")
    entries = published[published["structure"].str.contains("tlb") & (published["quantity"] == "entries")]["value_high"].astype(float)
    assert 16384 < entries.max() <= survey.FARTHEST_LINES / 2


@pytest.mark.slow
def test_a_survey_is_half_a_minute_of_processes():
    """By the runner's own guess of a process; quiet machines are faster, and no test may time one."""
    points = {p for stage in asked(Made(lru(72), lru(3072))) for p in stage}
    assert sum(survey.repeats_of(p) for p in points) < 1000
    assert max(arena_bytes(p) for p in points) < 256 << 20


@pytest.mark.parametrize("entries", [1024, 1536, 2048, 3072, 4096])
def test_walks_have_an_interval_that_decides_wherever_their_table_is(entries: int):
    caches = {1: 32 << 10, 2: 2 << 20, 3: 32 << 20}
    walks = {where: Point(kernel="page_chase", layout="alias", lines=lines, stride_pages=apart)
             for where, lines, apart in geometry.walk_points(entries, 1, caches)}
    assert set(walks) == {"L2", "L3", "memory"}
    for point in walks.values():
        assert median_interval(range(survey.repeats_of(point))).coverage >= LEAST_COVERAGE, point
    assert survey.repeats_of(Point(kernel="page_chase", layout="alias", lines=1024)) == survey.REPEATS


@pytest.mark.parametrize(("measured", "pages"), [(survey.measured, "4k"), (survey.pieces, "2m")])
def test_without_a_c_compiler_there_is_no_survey(store: Store, monkeypatch: pytest.MonkeyPatch, measured, pages: str):
    monkeypatch.setattr(survey, "compiler", lambda: None)
    with pytest.raises(Unavailable) as why:
        measured(a_rig(store), pages)
    assert why.value.code == "engine-lacks"


@pytest.fixture
def here(store: Store, own_lock: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """This computer, and a survey that takes moments."""
    monkeypatch.setattr(survey, "REGION_MS", 1)
    return Rig.of(host.inspect(), store, "x", counters=False)


@measuring
@pytest.mark.endurance
def test_a_survey_of_this_computer_is_stored_and_not_measured_again(here: Rig, monkeypatch: pytest.MonkeyPatch):
    """In small: one process a point, no more than 64 pages. What it finds there is this computer's own."""
    monkeypatch.setattr(survey, "TO_LINES", 64)
    frame, lacking = survey.measured(here, "4k", repeats=1, quiet=True)
    assert lacking == [] and set(frame["layout"]) == {"alias", "spread", "packed"}
    before = here.store.keys("x", survey.NAME)
    again, _ = survey.measured(here, "4k", repeats=1, quiet=True)
    assert here.store.keys("x", survey.NAME) == before and len(again) == len(frame)


@measuring
def test_a_survey_tries_nothing_twice(here: Rig, monkeypatch: pytest.MonkeyPatch):
    """It takes the least of several processes, and half a minute has no room for more; what was noisy keeps its mark."""
    monkeypatch.setattr(survey, "farther", lambda pages: [])
    monkeypatch.setattr(noise, "disturbance", lambda record: "stolen")
    monkeypatch.setattr(survey, "coarse", lambda pages: [Point(kernel="page_chase", lines=n, region_ms=1) for n in (16, 20)])
    frame, _ = survey.measured(here, "4k", quiet=True)
    assert set(frame["tries"]) == {1} and set(frame["noisy"]) == {"stolen"} and len(frame) == 2 * survey.REPEATS


@measuring
def test_points_that_are_too_large_for_the_profile_are_left_out(here: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(survey, "coarse", lambda pages: [Point(kernel="page_chase", lines=n, region_ms=1) for n in (16, 4096)])
    monkeypatch.setattr(survey, "farther", lambda pages: [])
    frame, lacking = survey.measured(here, "4k", repeats=1, most_bytes=1 << 20, quiet=True)
    assert list(frame["lines"]) == [16] and lacking == []


def test_no_more_than_a_gibibyte_of_2_mib_pages_is_spread():
    assert {p.lines for p in survey.coarse("2m") if p.layout == "spread"} == {p.lines for p in survey.coarse("4k") if p.layout == "spread"
                                                                              and p.lines <= 512}
    assert max(p.lines for p in survey.coarse("2m") if p.layout == "alias") == survey.TO_LINES


# --- pieces of large pages


@pytest.mark.parametrize("pages", ["2m", "thp"])
def test_pieces_are_one_line_to_4_kib_on_both_page_sizes_with_their_control(store: Store, monkeypatch: pytest.MonkeyPatch, pages: str):
    asked: list[Point] = []
    monkeypatch.setattr(survey, "compiler", lambda: "a compiler")
    monkeypatch.setattr(survey, "_run", lambda rig, points, *_: asked.extend(points) or ("the rows", {}))
    assert survey.pieces(a_rig(store), pages) == "the rows"
    by_kind = {(p.pages, p.layout): {q.lines for q in asked if (q.pages, q.layout) == (p.pages, p.layout)} for p in asked}
    assert by_kind.keys() == {(kind, layout) for kind in ("4k", pages) for layout in ("spread", "packed")}
    assert len({frozenset(lines) for lines in by_kind.values()}) == 1 and len(asked) == len(set(asked))
    assert {(p.kernel, p.order, p.stride_pages) for p in asked} == {("page_chase", "cycle", 1)}
    assert (min(p.lines for p in asked), max(p.lines for p in asked)) == (survey.FROM_LINES, survey.TO_LINES)
    assert sum(survey.repeats_of(p) for p in asked) < 300 and max(map(arena_bytes, asked)) < 128 << 20  # a few seconds


@measuring
def test_pieces_of_this_computer_are_rows_that_can_be_judged_or_not(here: Rig, monkeypatch: pytest.MonkeyPatch):
    """Without THP or a pool the rows are of base pages alone, and the verdict says so."""
    monkeypatch.setattr(survey, "TO_LINES", 1024)
    frame = survey.pieces(here, "thp", quiet=True)
    assert {"4k"} <= set(frame["pages"]) <= {"4k", "thp"} and (frame["backing"] == frame["pages"]).all()
    found = splinter.backing(frame, "kvm")
    assert "thp" in set(frame["pages"]) or (found.verdict == "cannot tell" and "2 MiB pages" in found.evidence)


@pytest.mark.slow
@pytest.mark.parametrize("pages", ["4k", "2m"])
def test_no_point_spans_more_than_its_visits_can_name(pages: str):
    for stage in asked(SHARP, pages):
        assert all(p.lines * p.stride_pages <= geometry.MOST_PAGES for p in stage)
