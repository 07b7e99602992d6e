"""The book about this computer: all chapters' grids measured as one, with a site after the first
round, after half of all rounds and at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import pandas as pd

from experiments import your_program
from experiments.your_program.programs import (
    PROGRAMS_DOCUMENT,
    QUICK_PROFILE_MINUTES,
    QUICK_PROFILE_PROGRAMS,
)
from tlb.measure.grid import Scope
from tlb.measure.outcome import CampaignProgress
from tlb.measure.record import Point
from tlb.measure.store import Store, data_root
from tlb.report import notebooks, publish
from tlb.report.chapter import Chapter
from tlb.system.reasons import none_if_unavailable
from tlb.system.units import MINUTES_PER_DAY

# Seconds on a Zen 4 guest, as those of the kernels' declarations (tlb/measure/catalogue.py): what
# another computer takes is learned from the first round.
SITE_S, SURVEY_S, DOCUMENTS_S, PROGRAMS_S = 45.0, 32.0, 6.0, 60 * QUICK_PROFILE_MINUTES
LATER_SITE_S = 0.75 * SITE_S  # without the re-runs of sources, which are executed once
SITE_PER_ROUND = 0.9  # of the time of a round, as measured on two slow cores
# Documents that build and run other people's programs for minutes: measured with `full`, or by
# `tlb run` of their chapter.
SLOW = ("scores", "programs")


def book(given: Mapping[str, Any]) -> publish.Book:
    """Measure what is missing, for `given["minutes"]` at most with the building of the site, and
    build it.

    A first site follows one mapping of everything and, where no time is set, another one follows
    half of all rounds. Raises Unavailable: bad-parameter before the first second is spent,
    measuring-already.
    """
    begin, contents = time.monotonic(), notebooks.chapter_names_in_order()
    checked = {name: notebooks.check_parameters(name, given) for name in contents}
    if given["machine"] != "this":
        return publish.book(given)
    whole = Chapter(contents[0], checked[contents[0]], Store(data_root()))
    minutes = checked[contents[0]]["minutes"]
    end, between = begin + 60 * minutes, int(minutes >= MINUTES_PER_DAY)
    programs = Chapter("your_program", checked["your_program"], whole.data)
    with CampaignProgress("book") as bar:
        programs_s = PROGRAMS_S * _wants_programs(programs)
        bar.later |= {"survey": SURVEY_S, "documents": DOCUMENTS_S, "programs": programs_s}
        bar.later["site"] = SITE_S + (1 + between) * LATER_SITE_S
        is_measured = _measured(whole, end, bar, rounds=1, waits=False)
        round_s = time.monotonic() - begin
        site_s = max(SITE_S, SITE_PER_ROUND * round_s)  # where rounds are slow, sites are
        if is_measured and begin + round_s < end:
            with bar.doing("site", SITE_S):
                _show(publish.book(given), "one mapping of each point", bar)
            site_s = bar.pace("site") * LATER_SITE_S
        _measure_documents(whole, checked, bar, end - site_s)
        with bar.doing("programs", programs_s):
            _programs(programs, end - site_s - round_s)
        if between:
            _measure_half(whole, given, bar, end - site_s)
        bar.later["site"] = LATER_SITE_S
        _measured(whole, end - site_s, bar)
        if given.get("profile") == "full":
            _documents(whole, checked, end - site_s, slow=True)
        with bar.doing("site", LATER_SITE_S):
            return publish.book(given)


def _measure_half(
    whole: Chapter, given: Mapping[str, Any], bar: CampaignProgress, until: float
) -> None:
    """Measure half of all rounds, and build a site of them if anything was measured."""
    bar.later["site"] = 2 * LATER_SITE_S
    half = (whole.profile.repeats + 1) // 2
    if _measured(whole, until, bar, rounds=half):
        with bar.doing("site", LATER_SITE_S):
            _show(publish.book(given), f"{half} mappings of each point", bar)


def _measure_documents(
    whole: Chapter, checked: Mapping[str, dict[str, Any]], bar: CampaignProgress, until: float
) -> None:
    """Measure the survey and the quick documents."""
    with bar.doing("survey", SURVEY_S):
        none_if_unavailable(whole.survey)
    with bar.doing("documents", DOCUMENTS_S):
        _documents(whole, checked, until, slow=False)


def _show(site: publish.Book, of: str, bar: CampaignProgress) -> None:
    bar.ready = os.path.relpath(site.index)
    print(site.index)
    print(f"This site rests on {of}; measuring goes on.", flush=True)


def _measured(
    whole: Chapter, until: float, bar: CampaignProgress, *, rounds: float = inf, waits: bool = True
) -> bool:
    """Measure all grids until a monotonic time; return whether anything was measured. waits: for
    another measurement, as a book does that has begun."""
    outcome = whole.campaign(
        points_by_chapter(whole.scope),
        seconds=max(until - time.monotonic(), 0.0),
        rounds=rounds,
        progress=bar,
        waits=waits,
    )
    return bool(outcome.measured)


def points_by_chapter(scope: Scope, names: Iterable[str] | None = None) -> dict[str, list[Point]]:
    """Return the points of chapters, by default of all, on a computer of this scope; chapters
    without points are left out."""
    chapters = notebooks.measured_chapters() if names is None else names
    grids = {name: notebooks.load_book_module(name).grid.points(scope) for name in chapters}
    return {name: points for name, points in grids.items() if points}


def _documents(
    whole: Chapter, checked: Mapping[str, dict[str, Any]], until: float, *, slow: bool
) -> None:
    """Measure with other people's programs what is not there yet, the slow documents or all others;
    begin none after `until`."""
    for name in points_by_chapter(whole.scope):
        chapter = Chapter(name, checked[name], whole.data)
        module = notebooks.load_book_module(chapter.name)
        if a := none_if_unavailable(lambda: module.Analysis(chapter.kept(chapter.name), chapter)):  # noqa: B023
            for document in a.documents:
                if time.monotonic() < until and (document in SLOW) == slow:
                    none_if_unavailable(getattr, a, document)


def _wants_programs(chapter: Chapter) -> bool:
    """Return whether a few whole programs are to be tried: with another profile than the shortest,
    and unless more was measured of this machine before."""
    known = (
        none_if_unavailable(place.read_document, chapter.machine, PROGRAMS_DOCUMENT) or {}
        for place in (chapter.store, chapter.data)
    )
    is_known = any(document.get("minutes", 0.0) > QUICK_PROFILE_MINUTES for document in known)
    return chapter.parameters["profile"] != "smoke" and not is_known


def _programs(chapter: Chapter, until: float) -> None:
    """Try a few whole programs, if they take at most half of the time until then."""
    if _wants_programs(chapter) and until - time.monotonic() >= 2 * PROGRAMS_S:
        a = your_program.Analysis(
            pd.DataFrame(), chapter, minutes=QUICK_PROFILE_MINUTES, wanted=QUICK_PROFILE_PROGRAMS
        )
        none_if_unavailable(lambda: a.programs)
