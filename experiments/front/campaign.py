"""The book about this computer: all chapters' grids measured as one, a site after the first round, and again when the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments import chapters
from experiments.article import parameters, publish
from experiments.article.chapter import Chapter
from experiments.article.verdicts import REGISTRY
from experiments.chapters import your_machine
from experiments.lab.grid import Scope
from experiments.lab.progress import Progress
from experiments.lab.record import Point
from experiments.lab.store import Store, data_root
from experiments.words.reasons import if_available

SITE_S = 60.0  # a guess at the seconds that a site takes to build


def book(given: Mapping[str, Any]) -> Path:
    """Measure what is missing for `given["minutes"]`, the building of the site included, and build it; the path of its first page.

    After one mapping of everything, where that measured anything, there is a first site. Raises Unavailable: bad-parameter before the first
    second is spent, measuring-already.
    """
    begin = time.monotonic()
    contents = parameters.table_of_contents()
    asked = {name: parameters.check(name, given) for name in contents}
    if given["machine"] != "this":
        return publish.book(given)
    whole = Chapter(contents[0], asked[contents[0]], Store(data_root()))
    grids = grids_of(whole.scope)

    with Progress("book") as bar:
        def measured(*, first_round: bool) -> bool:
            seconds = 60 * asked[contents[0]]["minutes"] - (time.monotonic() - begin) - bar.later_s
            return bool(whole.campaign(grids, seconds=max(seconds, 0.0), compared=compared(whole.scope), first_round=first_round,
                                       progress=bar).measured)

        page, is_new = Path(), measured(first_round=True)  # in all the time there is: without it, chapters have nothing to show
        bar.later_s = SITE_S
        if is_new:
            site_begin = time.monotonic()
            page = publish.book(given)
            print(f"{page}\nThis first site rests on one mapping of each point; measuring goes on.")
            bar.later_s = time.monotonic() - site_begin
        if_available(Chapter("your_machine", asked["your_machine"], whole.data).survey)  # where it lacks, its page says why
        for name in grids:
            _documents(Chapter(name, asked[name], whole.data))
        return publish.book(given) if measured(first_round=False) or not is_new else page


def compared(scope: Scope) -> Callable[[Point], bool]:
    """Whether any claim compares a point."""
    claims = [claim.points for claim in REGISTRY.values() if claim.points is not None]
    return lambda point: any(points(point, scope) for points in claims)


def gridded() -> list[str]:
    """The chapters whose grids are measured together, in the order of the contents."""
    return [name for name in parameters.table_of_contents()
            if find_spec(f"{chapters.__name__}.{name}") and name != your_machine.__name__.rpartition(".")[2]]


def grids_of(scope: Scope, names: Iterable[str] | None = None) -> dict[str, list[Point]]:
    """The points of chapters, by default of all, on a computer of this scope; of those that ask for any."""
    asked = {name: import_module(f"{chapters.__name__}.{name}").grid.points(scope) for name in (gridded() if names is None else names)}
    return {name: points for name, points in asked.items() if points}


def alone(name: str, profile: str, folder: Path) -> tuple[int, float, int]:
    """One chapter's campaign into `folder`, for as many minutes as it declares: how many processes it measured, in how many seconds, and
    the most memory, in MiB, that this process has held by then. It is for a process that was started for it."""
    import resource  # which Windows, where nothing is measured, has not

    chapter = Chapter(name, parameters.check(name, {"machine": "this", "profile": profile}), Store(folder))
    points = import_module(f"{chapters.__name__}.{name}").grid.points(chapter.scope)
    outcome = chapter.campaign({name: points}, seconds=60 * chapter.parameters["minutes"])
    return outcome.measured, outcome.elapsed_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _documents(chapter: Chapter) -> None:
    """What other people's programs got, where there is none yet."""
    module = import_module(f"{chapters.__name__}.{chapter.name}")
    a = if_available(lambda: module.Analysis(chapter.kept(chapter.name), chapter))
    for document in a.documents if a else ():
        if_available(getattr, a, document)
