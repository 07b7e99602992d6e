"""The book about this computer: all chapters' grids measured as one, a site after the first round,
and again when the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments import your_machine
from tlb import discovery
from tlb.lab.grid import Scope
from tlb.lab.progress import Progress
from tlb.lab.record import Point
from tlb.lab.store import Store, data_root
from tlb.reasons import if_available
from tlb.report import parameters, publish
from tlb.report.analysis import Analysis
from tlb.report.chapter import Chapter
from tlb.report.verdicts import REGISTRY

SITE_S, SURVEY_S, DOCUMENTS_S = (
    60.0,
    30.0,
    60.0,
)  # guesses at what a site, the survey of the TLB and other programs take
# Documents that build and run other people's programs for minutes: measured with `full`, or by
# `tlb run` of their chapter.
SLOW = ("scores", "programs")


def book(given: Mapping[str, Any]) -> Path:
    """Measure what is missing for `given["minutes"]`, the building of the site included, and build
    it; the path of its first page.

    After one mapping of everything, where that measured anything, there is a first site. Raises
    Unavailable: bad-parameter before the first second is spent, measuring-already.
    """
    begin = time.monotonic()
    contents = parameters.table_of_contents()
    asked = {name: parameters.check(name, given) for name in contents}
    if given["machine"] != "this":
        return publish.book(given)
    whole = Chapter(contents[0], asked[contents[0]], Store(data_root()))
    grids, end = grids_of(whole.scope), begin + 60 * asked[contents[0]]["minutes"]

    with Progress("book") as bar:

        def measured(later_s: float, kept_s: float, *, first_round: bool = False) -> bool:
            """Whether anything was. later_s: what is to follow takes; kept_s: of the time, what is
            kept for that."""
            bar.later_s = later_s
            return bool(
                whole.campaign(
                    grids,
                    seconds=max(end - kept_s - time.monotonic(), 0.0),
                    compared=compared(whole.scope),
                    first_round=first_round,
                    progress=bar,
                ).measured
            )

        site_s = SITE_S
        if measured(
            2 * SITE_S + SURVEY_S + DOCUMENTS_S, 0.0, first_round=True
        ):  # without it, chapters have nothing to show
            site_begin = time.monotonic()
            print(
                f"{publish.book(given)}\nThis first site rests on one mapping of each point; measuring goes on."
            )
            site_s = time.monotonic() - site_begin
        if_available(
            Chapter("your_machine", asked["your_machine"], whole.data).survey
        )  # where it lacks, its page says why
        later_s = site_s + DOCUMENTS_S
        measured(later_s, later_s)
        is_full = given.get("profile") == "full"
        _documents([Chapter(name, asked[name], whole.data) for name in grids], end - site_s, is_full)
        return publish.book(given)


def compared(scope: Scope) -> Callable[[Point], bool]:
    """Whether any claim compares a point."""
    claims = [claim.points for claim in REGISTRY.values() if claim.points is not None]
    return lambda point: any(points(point, scope) for points in claims)


def gridded() -> list[str]:
    """The chapters whose grids are measured together, in the order of the contents."""
    return [
        name
        for name in parameters.table_of_contents()
        if find_spec(f"{discovery.PACKAGE}.{name}")
        and name != your_machine.__name__.rpartition(".")[2]
    ]


def grids_of(scope: Scope, names: Iterable[str] | None = None) -> dict[str, list[Point]]:
    """The points of chapters, by default of all, on a computer of this scope; of those that ask for
    any."""
    asked = {
        name: discovery.load(name).grid.points(scope)
        for name in (gridded() if names is None else names)
    }
    return {name: points for name, points in asked.items() if points}


def alone(name: str, profile: str, folder: Path) -> tuple[int, float, int]:
    """One chapter's campaign into `folder`, for as many minutes as it declares: how many processes
    it measured, in how many seconds, and the most memory, in MiB, that this process has held by
    then. It is for a process that was started for it."""
    import resource  # which Windows, where nothing is measured, has not

    chapter = Chapter(
        name, parameters.check(name, {"machine": "this", "profile": profile}), Store(folder)
    )
    points = discovery.load(name).grid.points(chapter.scope)
    outcome = chapter.campaign({name: points}, seconds=60 * chapter.parameters["minutes"])
    return (
        outcome.measured,
        outcome.elapsed_s,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    )


def _documents(about: Iterable[Chapter], until: float, is_full: bool) -> None:
    """Measure with other people's programs what is not there yet; begin none after `until`, and
    the slow ones last, or not at all unless `is_full`."""
    found: list[tuple[Analysis, str]] = []
    for chapter in about:
        module = discovery.load(chapter.name)
        if a := if_available(lambda: module.Analysis(chapter.kept(chapter.name), chapter)):  # noqa: B023
            found += [(a, document) for document in a.documents]
    for a, document in sorted(found, key=lambda pair: pair[1] in SLOW):
        if time.monotonic() < until and (is_full or document not in SLOW):
            if_available(getattr, a, document)
