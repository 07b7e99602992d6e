"""The book about this computer: what it compares comes first, and what it cannot begin is said before a second is spent."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import scope

from experiments.article import parameters, publish
from experiments.article.chapter import Chapter
from experiments.chapters import (
    churn,
    code,
    graph_walk,
    hugepages,
    keeping_pages,
    page_faults,
    stlb_cliff,
    strides,
    tlb_blocking,
    virtualization,
    walk_anatomy,
)
from experiments.front import campaign
from experiments.lab import kernels
from experiments.lab.campaign import Outcome
from experiments.system.files import ROOT
from experiments.words.reasons import Unavailable

CHAPTERS = {"stlb_cliff": stlb_cliff, "strides": strides, "walk_anatomy": walk_anatomy, "graph_walk": graph_walk, "hugepages": hugepages,
            "keeping_pages": keeping_pages, "tlb_blocking": tlb_blocking, "churn": churn, "virtualization": virtualization,
            "code": code, "page_faults": page_faults}
ASKED = {"machine": "this", "profile": "quick", "minutes": 10.0}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the book asks for: a campaign (its grids, its processes a point), a survey, documents, a site."""
    told: list[Any] = []
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(publish, "book", lambda given: told.append("site") or tmp_path)
    monkeypatch.setattr(Chapter, "survey", lambda chapter: told.append("survey"))
    monkeypatch.setattr(campaign, "_documents", lambda chapter: told.append("documents"))
    monkeypatch.setattr(campaign.campaign, "run", lambda *_, **__: Outcome())
    return told


def measures(monkeypatch: pytest.MonkeyPatch, told: list[Any], *measured: int) -> None:
    """Each campaign measures so many processes."""
    counts = iter(measured)

    def run(chapter: Chapter, grids: dict, *, repeats: int = 100, seconds: float, **_: object) -> Outcome:
        told.append((set(grids), repeats))
        return Outcome(measured=next(counts))

    monkeypatch.setattr(Chapter, "campaign", run)


def test_there_is_a_site_after_the_first_round_and_one_at_the_end(told: list[Any], monkeypatch: pytest.MonkeyPatch):
    measures(monkeypatch, told, 300, 900)
    campaign.book(ASKED)
    assert told == [(set(CHAPTERS), 1), "survey", "site", *["documents"] * len(CHAPTERS), (set(CHAPTERS), 100), "site"]


@pytest.mark.parametrize("minutes", [1.0, 10.0, 40.0])
def test_no_first_site_waits_until_all_large_points_are_measured(told: list[Any], monkeypatch: pytest.MonkeyPatch, minutes: float):
    given: list[tuple[float, bool]] = []

    def run(chapter: Chapter, grids: dict, *, seconds: float, goes_on: bool = False, **_: object) -> Outcome:
        given.append((seconds, goes_on))
        return Outcome()

    monkeypatch.setattr(Chapter, "campaign", run)
    campaign.book(ASKED | {"minutes": minutes})
    (first_s, first_goes_on), (rest_s, rest_goes_on) = given
    assert first_s <= min(campaign.FIRST_ROUND_S, 60 * minutes) and (first_goes_on, rest_goes_on) == (True, False)
    assert 60 * minutes - 61 < rest_s <= 60 * minutes - 60


def test_claims_get_the_time_that_the_rest_of_the_first_round_leaves(told: list[Any], monkeypatch: pytest.MonkeyPatch):
    every = Counter(dict.fromkeys((p for chapter in CHAPTERS.values() for p in chapter.grid.points(scope(2**30))), 1))
    cost_s = sum(map(kernels.expected_s, every)) * Outcome().pace
    asked: list[set] = []

    def book(left: Counter) -> None:
        def run(chapter: Chapter, grids: dict, *, compared: Any = None, **_: object) -> Outcome:
            asked.append({point for point in every if compared and compared(point)})
            return Outcome(left=left)

        monkeypatch.setattr(Chapter, "campaign", run)
        campaign.book(ASKED | {"minutes": (cost_s + 65) / 60})  # a minute of it is the site's

    monkeypatch.setattr(campaign.campaign, "run", lambda *_, **__: Outcome(left=every + every))
    book(Counter())
    book(every)
    assert asked[3] < asked[1] and asked[0] == asked[2] == set()


@pytest.mark.parametrize(("measured", "sites"), [((0, 0), 1), ((0, 5), 1), ((5, 0), 1), ((5, 5), 2)])
def test_no_site_is_built_twice_of_the_same_rows(told: list[Any], monkeypatch: pytest.MonkeyPatch, measured: tuple, sites: int):
    measures(monkeypatch, told, *measured)
    campaign.book(ASKED)
    assert told.count("site") == sites


def test_of_a_published_machine_nothing_is_measured(told: list[Any], monkeypatch: pytest.MonkeyPatch):
    measures(monkeypatch, told)
    campaign.book(ASKED | {"machine": "reference"})
    assert told == ["site"]


@pytest.mark.parametrize("wrong", [{"minutes": -1.0}, {"minutes": "ten"}, {"minutes": float("nan")}, {"minutes": float("inf")},
                                   {"profile": "x"}, {"mnutes": 1.0}])
def test_a_bad_parameter_is_refused_before_anything_begins(told: list[Any], monkeypatch: pytest.MonkeyPatch, wrong: dict):
    measures(monkeypatch, told)
    with pytest.raises(Unavailable) as why:
        campaign.book(ASKED | wrong)
    assert why.value.code == "bad-parameter" and told == []


def test_the_memory_that_a_campaign_holds_is_said_beside_what_it_measured(
        told: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    measures(monkeypatch, told, 300)
    measured, _, held_mib = campaign.alone("tlb_blocking", "smoke", tmp_path)
    assert measured == 300 and held_mib > 10 and told == [({"tlb_blocking"}, 100)]


def test_whoever_measures_does_not_hold_numba_s_60_mb():
    loaded = [sys.executable, "-c", "import sys; import experiments.front.campaign; print('numba' in sys.modules)"]
    assert subprocess.run(loaded, capture_output=True, text=True, cwd=ROOT, check=True).stdout == "False\n"


def test_each_chapter_has_points_that_its_claims_compare(monkeypatch: pytest.MonkeyPatch):
    for name, chapter in CHAPTERS.items():
        assert campaign.affordable(dict.fromkeys(chapter.grid.points(scope(2**30)), 1), scope(2**30), inf), name
    chapters = {name for name in parameters.table_of_contents() if (ROOT / "experiments/chapters" / name).is_dir()}
    assert chapters - {"your_machine", "your_program"} == set(CHAPTERS)


def test_the_cheapest_claims_come_first_and_as_many_as_the_time_is_for():
    left = dict.fromkeys((point for chapter in CHAPTERS.values() for point in chapter.grid.points(scope(2**30))), 4)
    claims = [{p for p in left if claim.points(p, scope(2**30))} for claim in campaign.REGISTRY.values() if claim.points]
    few, every = campaign.affordable(left, scope(2**30), 60.0), campaign.affordable(left, scope(2**30), inf)
    assert every == set().union(*claims) and few < every and campaign.affordable(left, scope(2**30), 0.0) == set()
    assert sum(4 * kernels.expected_s(point) for point in few) <= 60.0
    done = [len(mine) for mine in claims if mine and mine <= few]
    assert done and min(len(mine) for mine in claims if not mine <= few) >= min(done)


def test_what_is_measured_already_costs_nothing_more():
    left = dict.fromkeys((point for chapter in CHAPTERS.values() for point in chapter.grid.points(scope(2**30))), 4)
    nearly = dict.fromkeys(left, 1)
    assert campaign.affordable(left, scope(2**30), 60.0) < campaign.affordable(nearly, scope(2**30), 60.0)
