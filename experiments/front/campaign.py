"""The book about this computer: all chapters' grids measured as one, a site after the first round, and again when the time is over."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from experiments import chapters
from experiments.article import parameters, publish
from experiments.article.chapter import Chapter
from experiments.article.verdicts import REGISTRY
from experiments.chapters import your_machine
from experiments.lab import campaign, kernels
from experiments.lab.grid import Scope
from experiments.lab.order import LEAST
from experiments.lab.record import Point
from experiments.lab.store import Store, data_root
from experiments.words.reasons import if_available

# Nobody waits longer than five minutes for a first site, of which the survey and the notebooks take two. Large points end the first
# round (lab.order), so they are what there is no time for where memory is slow, and are the first thing that is measured after it.
FIRST_ROUND_S = 160.0


def book(given: Mapping[str, Any]) -> Path:
    """Measure what is missing for `given["minutes"]`, the building of the site included, and build it; the path of its first page.

    After the first round, where it measured anything, there is a site already, whose chapters rest on one process a point at most.
    Raises Unavailable: bad-parameter before the first second is spent, measuring-already.
    """
    begin = time.monotonic()
    contents = parameters.table_of_contents()
    asked = {name: parameters.check(name, given) for name in contents}
    if given["machine"] != "this":
        return publish.book(given)
    whole = Chapter(contents[0], asked[contents[0]], Store(data_root()))
    grids = grids_of(whole.scope)

    def seconds_left() -> float:
        return max(60 * asked[contents[0]]["minutes"] - (time.monotonic() - begin), 0.0)

    first = whole.campaign(grids, repeats=1, seconds=min(seconds_left(), FIRST_ROUND_S), goes_on=True)
    if_available(Chapter("your_machine", asked["your_machine"], whole.data).survey)  # where it lacks, its page says why
    page, site_s = Path(), 60.0
    if first.measured:
        site_begin = time.monotonic()
        page = publish.book(given)
        print(f"{page}\nThis first site rests on one process a point at most; measuring goes on.")
        site_s = 1.2 * (time.monotonic() - site_begin)  # the last one has twice the rows
    for name in grids:
        _documents(Chapter(name, asked[name], whole.data))
    seconds = max(seconds_left() - site_s, 0.0)
    left = campaign.run(whole.rig, grids, LEAST, seconds=0).left - first.left
    spare_s = seconds / first.pace - sum(map(kernels.expected_s, first.left))
    rest = whole.campaign(grids, compared=affordable(left, whole.scope, spare_s).__contains__, seconds=seconds)
    return publish.book(given) if rest.measured or not first.measured else page


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


def affordable(left: Mapping[Point, int], scope: Scope, seconds: float) -> set[Point]:
    """The points of as many claims as five processes each are to be had for in the time, the cheapest claims first.

    left: how many processes each point lacks of these. seconds: as `kernels.expected_s` guesses them. Three processes of every point
    decide nothing, five of some decide what they are compared for. What a claim costs is known beforehand, and no number that was
    measured changes it: so the choice takes no side.
    """
    def expected_s(points: set[Point]) -> float:
        return sum(left[point] * kernels.expected_s(point) for point in points)

    chosen: set[Point] = set()
    claims = [{point for point in left if claim.points(point, scope)} for claim in REGISTRY.values() if claim.points is not None]
    for mine in sorted(claims, key=expected_s):
        if expected_s(chosen | mine) <= seconds:
            chosen |= mine
    return chosen


def _documents(chapter: Chapter) -> None:
    """What other people's programs got, where there is none yet."""
    module = import_module(f"{chapters.__name__}.{chapter.name}")
    a = if_available(lambda: module.Analysis(chapter.kept(chapter.name), chapter))
    for document in a.documents if a else ():
        if_available(getattr, a, document)
