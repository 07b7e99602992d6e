"""The book about this computer: what it compares comes first, and what it cannot begin is said
before a second is spent."""

import time
from math import inf
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.common import make_record
from support.synthetic import scope
from support.your_program import document

from experiments import your_program
from experiments.overview import campaign, chapter_name
from experiments.your_program.programs import PROGRAMS_DOCUMENT, QUICK_PROFILE_PROGRAMS
from tlb.machine import host
from tlb.measure.campaign import CampaignOutcome
from tlb.measure.outcome import CampaignProgress
from tlb.measure.store import Store, data_root
from tlb.report import claims, notebooks, publish
from tlb.report.chapter import Chapter
from tlb.system.files import ROOT
from tlb.system.units import MINUTES_PER_DAY

WITHOUT = {"your_program"}  # which no campaign measures
CHAPTERS = {
    chapter_name(chapter): chapter
    for chapter in notebooks.chapter_modules()
    if chapter_name(chapter) not in WITHOUT
}
ASKED = {"machine": "this", "profile": "quick", "minutes": 10.0}


@pytest.fixture
def told(tmp_path, monkeypatch) -> list[Any]:
    """What the book asks for: a campaign (its grids, its rounds), a survey, documents, a site."""
    told: list[Any] = []
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(
        publish, "book", lambda given: told.append("site") or publish.Book(tmp_path)
    )
    monkeypatch.setattr(Chapter, "survey", lambda chapter: told.append("survey"))
    monkeypatch.setattr(campaign, "_documents", lambda *given, slow: told.append("documents"))
    monkeypatch.setattr(campaign, "_programs", lambda *given: told.append("programs"))
    return told


def measures(monkeypatch, told: list[Any], *measured: int) -> None:
    """Each campaign measures so many points."""
    counts = iter(measured)

    def run(chapter: Chapter, grids: dict, *, rounds: float = inf, **_: object) -> CampaignOutcome:
        told.append((set(grids), rounds))
        return CampaignOutcome(measured=next(counts))

    monkeypatch.setattr(Chapter, "campaign", run)


def test_there_is_a_site_after_the_first_round_and_one_at_the_end(told, monkeypatch):
    measures(monkeypatch, told, 300, 900)
    campaign.book(ASKED)
    assert told == [
        (set(CHAPTERS), 1),
        "site",
        "survey",
        "documents",
        "programs",
        (set(CHAPTERS), inf),
        "site",
    ]


def test_without_a_limit_there_is_a_site_of_half_of_the_rounds_too(told, monkeypatch):
    measures(monkeypatch, told, 300, 600, 600)
    campaign.book(ASKED | {"minutes": float(MINUTES_PER_DAY)})
    assert [each for each in told if each not in ("survey", "documents", "programs")] == [
        (set(CHAPTERS), 1),
        "site",
        (set(CHAPTERS), 3),
        "site",
        (set(CHAPTERS), inf),
        "site",
    ]


@pytest.mark.parametrize("minutes", [1.0, 40.0])
def test_the_last_site_is_built_within_the_time(told, monkeypatch, minutes):
    """One bar shows all of it, the site to come included. The first round has all the time: without
    it no chapter has anything to show."""
    given: list[tuple[float, float]] = []

    def run(
        chapter: Chapter, grids: dict, *, seconds: float, progress: CampaignProgress, **_: object
    ) -> CampaignOutcome:
        given.append((seconds, sum(progress.later.values())))
        return CampaignOutcome()

    monkeypatch.setattr(Chapter, "campaign", run)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)  # which a busy machine would use up
    campaign.book(ASKED | {"minutes": minutes})
    at_end = campaign.LATER_SITE_S
    between_s = campaign.SITE_S + campaign.SURVEY_S + campaign.DOCUMENTS_S + campaign.PROGRAMS_S
    assert [later_s for _, later_s in given] == [at_end + between_s, at_end]
    for (seconds, _), kept_s in zip(given, (0, campaign.SITE_S), strict=True):
        assert seconds == max(60 * minutes - kept_s, 0)


def sources(folder: Path, monkeypatch) -> None:
    """Build from a folder with a file or an empty folder of each name that is copied."""
    monkeypatch.setattr(publish, "ROOT", folder)
    for name in publish._STAGED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name) if "." in name else (folder / name).mkdir()


@pytest.fixture
def made(tmp_path, monkeypatch) -> list[str]:
    """The pages that are executed, of which `flushes` may be told to fail, and the sites built."""
    made: list[str] = []

    def execute(chapter: str, output: Path, given: dict, within: object) -> None:
        made.append(chapter)
        output.parent.mkdir(parents=True, exist_ok=True)
        if (tmp_path / "book" / f"{chapter}-fails").exists():
            raise SystemExit(f"cell 7 of {chapter}.ipynb: KeyError: 'lines'")
        output.write_text((ROOT / "book" / f"{chapter}.ipynb").read_text())

    def build_site(source: Path, output: Path, *, is_whole: bool) -> Path:
        made.append("whole site" if is_whole else "site")
        (html := output / "_build" / "html").mkdir(parents=True, exist_ok=True)
        (html / "index.html").touch()
        return html / "index.html"

    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(publish, "execute", execute)
    monkeypatch.setattr(publish, "build_site", build_site)
    monkeypatch.setattr(
        publish,
        "each",
        lambda run, *groups: [run(name, None) for group in groups for name in group],
    )
    sources(tmp_path, monkeypatch)
    return made


def test_only_what_changed_is_made_again(made, tmp_path):
    pages = set(notebooks.chapter_names_in_order())
    reruns = set(filter(notebooks.is_rerun, pages))
    summaries = {name for name in pages if not publish.is_chapter(name)}
    assert reruns and summaries and "flushes" not in reruns | summaries

    def executed(given: dict[str, Any] = ASKED) -> set[str]:
        made.clear()
        publish.book(given)
        return set(made)

    assert executed() == pages | {"whole site"}
    assert executed() == executed(ASKED | {"minutes": 3.0}) == set()
    Store(data_root()).own.append("zen-9-00000000", make_record())
    assert executed() == pages - reruns | {"whole site"}
    (tmp_path / "book" / "flushes.ipynb").write_text("{}")
    assert executed() == summaries | {"flushes", "whole site"}
    (tmp_path / "tlb" / "module.py").write_text("")
    assert executed() == executed(ASKED | {"profile": "smoke"}) == pages | {"whole site"}


def test_each_chapter_has_points_that_its_claims_compare():
    compared = claims.compared_points(scope(2**30))
    for name, chapter in CHAPTERS.items():
        assert any(map(compared, chapter.grid.points(scope(2**30)))), name
    assert {*notebooks.measured_chapters()} - WITHOUT == set(CHAPTERS)


@pytest.fixture
def tried(tmp_path, monkeypatch) -> list[Any]:
    """The minutes and names with which programs are measured; none runs."""
    tried: list[Any] = []
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))

    def make(minutes: float, names: tuple[str, ...]) -> dict[str, Any]:
        tried.append((minutes, names))
        made = document() | {"state": host.state_digest(host.inspect_machine()), "minutes": minutes}
        return made | {"told": [row for row in made["told"] if row["case"] in names]}

    monkeypatch.setattr(your_program.analysis, "make_programs_document", make)
    return tried


def try_programs(seconds: float = 1000.0, **changes: object) -> Chapter:
    given = notebooks.check_parameters(PROGRAMS_DOCUMENT, ASKED | changes)
    chapter = Chapter(PROGRAMS_DOCUMENT, given, Store(data_root()))
    campaign._programs(chapter, time.monotonic() + seconds)
    return chapter


def test_a_few_programs_are_tried_once_and_shown_without_measuring(tried):
    chapter = try_programs()
    try_programs()
    assert tried == [(1.0, QUICK_PROFILE_PROGRAMS)]
    shown = your_program.Analysis(pd.DataFrame(), chapter)
    assert set(shown.measured()["case"]) == set(QUICK_PROFILE_PROGRAMS)


@pytest.mark.parametrize("place", ["own", "published"])
def test_a_few_programs_do_not_replace_many(place, tried):
    data = Store(data_root())
    store = data.own if place == "own" else data
    store.write_document(host.machine_id(host.inspect_machine()), PROGRAMS_DOCUMENT, document())
    try_programs()
    assert tried == []


@pytest.mark.parametrize(("seconds", "profile"), [(60.0, "quick"), (1000.0, "smoke")])
def test_no_program_is_tried_where_time_is_short(seconds, profile, tried):
    try_programs(seconds, profile=profile)
    assert tried == []


def test_a_page_that_fails_is_named_and_the_others_are_built(made, tmp_path, capsys):
    """Links to what it would have held are no errors; it is tried again the next time."""
    (tmp_path / "book" / "flushes-fails").touch()
    book = publish.book(ASKED)
    assert book.failed == ("flushes: cell 7 of flushes.ipynb: KeyError: 'lines'",)
    assert book.failed[0] in capsys.readouterr().err and made[-1] == "site"
    (source,) = (tmp_path / "_build").glob("*/source/book")
    assert len([*source.glob("*.ipynb")]) == len(notebooks.chapter_names_in_order())
    assert "KeyError" in (source / "flushes.ipynb").read_text()
    made.clear()
    assert publish.book(ASKED).failed == book.failed and made == ["flushes", "site"]
