"""The union of several grids, measured in rounds of mappings; each record is stored as soon as it
is proved.

A round has one mapping of each program and kind of pages, of all points that lack it: the repeat of
a record is the number of its round, and points of one mapping are pairs. So after the first round
each point has a number, and what follows narrows intervals. Where there is no time for all rounds,
the compared points have theirs first. No choice sees where a value lies: it would take sides.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import inf

from tlb.measure import build, kernels
from tlb.measure.mapping import RETRY_SHARE, Group, expected, groups, kind_of
from tlb.measure.measuring_setup import Rig
from tlb.measure.outcome import Outcome, remember_lacks, remember_sessions
from tlb.measure.progress import Progress
from tlb.measure.record import Build, Point, Record, record_key
from tlb.stats.intervals import median_interval
from tlb.system.files import measuring_lock
from tlb.system.reasons import Unavailable, explain

# Half an interval's width over its median. The ratio of two such points is known to 1.4 %, and what
# claims ask of a ratio is 5 % and more but for one.
NARROW = 0.01
# From five mappings to eight the interval is their range, which only grows. Nine are the first that
# it leaves the extremes of out, and it still covers 96 %: a disturbed mapping no longer widens it,
# and to halve it again would take four times as many.
MOST = 9
LEAST = 5  # of fewer the range covers less than 90 %: who asks for fewer wants no interval
# Of the time that all rounds take, what the mappings beyond them may add. So an estimate of the
# whole is right within this share.
EXTRA_SHARE = 0.2


def most_mappings(repeats: int) -> int:
    """How many mappings a point may have whose interval stays wide, where each is to have
    `repeats`."""
    return max(repeats, MOST) if repeats >= LEAST else repeats


@lru_cache(maxsize=1 << 14)
def half_width(values: tuple[float, ...]) -> float:
    """Half the width of the median's exact interval over the median; infinite of fewer than two
    values."""
    if len(values) < 2:
        return inf
    interval = median_interval(values)
    return (interval.high - interval.low) / 2 / interval.value


def _buildable(points: Collection[Point], outcome: Outcome) -> dict[Point, Build]:
    """The points that their engine has a kernel for, each with its build; the others are
    lacking. Raises Unavailable."""
    build.compile_all(points)
    build_of, buildable = build.builds(), {}
    for point in points:
        try:
            buildable[point] = build_of(point)
        except Unavailable as why:
            if point.engine == "c":
                raise
            outcome.lacking[point] = why
    return buildable


def run(
    rig: Rig,
    grids: Mapping[str, Collection[Point]],
    repeats: int | Callable[[Point], int],
    *,
    most: int = 0,
    seconds: float = inf,
    compared: Callable[[Point], bool] = lambda point: True,
    rounds: float = inf,
    progress: Progress | None = None,
    quiet: bool = False,
    seed: int = 0,
    retry_share: float = RETRY_SHARE,
) -> Outcome:
    """Measure what is not yet stored of the points that each grid asks for, by its name.

    repeats: mappings per point. most: of a point whose interval stays wide, once all rounds are
    measured. seconds: no point is begun that would end later. compared: points that come first
    where time is short. rounds: end after so many. progress: of a whole that this is a part of.

    A point that the machine cannot do is in `lacking` and is not tried again; so is one without
    time now that was lacking the last time. Ctrl-C loses only what is not proved. Raises
    Unavailable: measuring-already, state-changed, cpu-gone, and what the store raises.
    """
    outcome, begin = Outcome(), time.monotonic()
    schedule = _schedule(rig, grids, repeats, most, outcome, compared, random.Random(seed))
    due, done = schedule.due(), set[tuple[Point, int]]()
    if due and seconds > 0:
        own_bar = nullcontext(progress) if progress else Progress(" ".join(grids), quiet)
        with measuring_lock(), own_bar as bar:
            bar.expect(schedule.expected(), begin + seconds, EXTRA_SHARE * schedule.may_add)
            groups = schedule.groups(bar, outcome.lacking, rounds)
            done = _measure(rig, schedule, groups, bar, retry_share, outcome)
    remember_lacks(rig, {p for p, _ in due}, {p for p, _ in done}, outcome)
    outcome.left = Counter(
        p for p, repeat in due if (p, repeat) not in done and p not in outcome.lacking
    )
    outcome.elapsed_s = time.monotonic() - begin
    return outcome


def _measure(
    rig: Rig,
    schedule: _Schedule,
    groups: Iterable[tuple[int, Group]],
    bar: Progress,
    retry_share: float,
    outcome: Outcome,
) -> set[tuple[Point, int]]:
    """Measure and store groups; return the points and repeats that were tried."""
    done, begun = set[tuple[Point, int]](), len(rig.sessions)
    if why := rig.plan.lacks_perf:
        print(f"No perf stat: {explain(why)}", file=sys.stderr)
    try:
        for point, repeat in _stored(rig, schedule, groups, bar, retry_share, outcome):
            done.add((point, repeat))
    finally:
        remember_sessions(rig, rig.sessions[begun:])
    return done


def _stored(
    rig: Rig,
    schedule: _Schedule,
    groups: Iterable[tuple[int, Group]],
    bar: Progress,
    retry_share: float,
    outcome: Outcome,
) -> Iterator[tuple[Point, int]]:
    """Measure and store groups; yield each point and repeat that was tried."""
    rounds = max(schedule.wanted.values())
    for repeat, group in groups:
        for point, result in _results(
            rig, group, repeat, bar, retry_share, outcome.lacking, rounds
        ):
            if isinstance(result, Unavailable):
                outcome.lacking[point] = result
            else:
                rig.store.append(rig.machine, result)
                schedule.values[point].append(result.ns_per_access)
                outcome.count(result)
            yield point, repeat
        bar.end()


def _results(
    rig: Rig,
    group: Group,
    repeat: int,
    bar: Progress,
    retry_share: float,
    lacking: Collection[Point],
    rounds: int,
) -> Iterator[tuple[Point, Record | Unavailable]]:
    """What a mapping measures that there is time for. Raises Unavailable where it is no lack of a
    point."""
    points = [point for point in group.points if point not in lacking]
    where = f"mapping {repeat + 1} of {max(rounds, repeat + 1)}:"

    def begin(point: Point) -> bool:
        return bar.begin(
            kind_of(point), group.cost_s(point), f"{where} {point.kernel} on {point.pages}"
        )

    if group.shares and not bar.begin(
        *group.start, f"{where} memory on {points[0].pages if points else ''}"
    ):
        return
    for point, result in rig.measured(points, repeat, begin=begin, retry_share=retry_share):
        if isinstance(result, Unavailable) and (
            result.code == "state-changed" or (result.code == "cpu-gone" and rig.cpu is not None)
        ):
            raise result
        yield point, result


@dataclass
class _Schedule:
    """Which mappings are next. missing: the repeats of each point that are not stored. values: what
    its stored ones measured."""

    wanted: dict[Point, int]
    most: int
    missing: dict[Point, list[int]]
    values: dict[Point, list[float]]
    compared: Callable[[Point], bool]
    shuffle: random.Random

    def due(self) -> list[tuple[Point, int]]:
        """What is to be measured whatever the intervals."""
        return [
            (point, repeat)
            for point, missing in self.missing.items()
            for repeat in missing
            if repeat < self.wanted[point]
        ]

    def expected(self) -> dict[str, float]:
        """Return a guess at the seconds of all that is to come, by kind."""
        return self._cost(self._of(repeat) for repeat in {repeat for _, repeat in self.due()})

    def _cost(self, rounds: Iterable[list[Point]]) -> dict[str, float]:
        return expected(group for points in rounds for group in groups(points, self.shuffle))

    def groups(
        self, bar: Progress, lacking: Collection[Point], rounds: float
    ) -> Iterator[tuple[int, Group]]:
        """(repeat, what one process may measure), as what was measured before is stored. Rounds
        that measure nothing have no mappings beyond them: a second run adds nothing."""
        stored = self._stored
        yield from self._round(0, self._of(0))
        rest = sorted({repeat for _, repeat in self.due()} - {0})
        bar.remain(self._cost(self._of(repeat, lacking) for repeat in rest))
        rest = [repeat for repeat in rest if repeat < rounds]
        parts = (
            [lambda point: True]
            if bar.has_time_for_all()
            else [self.compared, lambda point: not self.compared(point)]
        )
        for part in parts:
            for repeat in rest:
                yield from self._round(repeat, [p for p in self._of(repeat, lacking) if part(p)])
        if rounds < inf:
            return
        chosen = self._widest(bar, lacking) if self.may_add and self._stored > stored else []
        added = {
            repeat: [p for p in chosen if repeat in self.missing[p]]
            for repeat in range(max(self.wanted.values()), self.most)
        }
        bar.expect(self._cost(added.values()), bar.until)
        for repeat, points in added.items():
            yield from self._round(repeat, points)

    def _of(self, repeat: int, lacking: Collection[Point] = ()) -> list[Point]:
        return [
            point
            for point, missing in self.missing.items()
            if repeat in missing and repeat < self.wanted[point] and point not in lacking
        ]

    def _round(self, repeat: int, points: list[Point]) -> Iterator[tuple[int, Group]]:
        made = groups(points, self.shuffle, alone_first=repeat % 2 == 0)
        return ((repeat, group) for group in made)

    @property
    def _stored(self) -> int:
        return sum(map(len, self.values.values()))

    @property
    def may_add(self) -> bool:
        """Whether mappings may follow the rounds."""
        return self.most > max(self.wanted.values())

    def _widest(self, bar: Progress, lacking: Collection[Point]) -> list[Point]:
        """The compared points that get all mappings up to `most`, the widest first. As intervals of
        five to eight mappings only grow, one choice does for all of them."""
        wide = {
            p: width
            for p, values in self.values.items()
            if self.compared(p)
            and p not in lacking
            and (width := half_width(tuple(values))) > NARROW
        }
        left_s = min(bar.time_left_s, bar.extra_s)
        chosen: list[Point] = []
        for point in sorted(wide, key=wide.__getitem__, reverse=True):
            times = sum(repeat >= self.wanted[point] for repeat in self.missing[point])
            takes_s = bar.pace(kind_of(point)) * times * kernels.point_s(point)
            if takes_s <= left_s:
                chosen.append(point)
                left_s -= takes_s
        return chosen


def _schedule(
    rig: Rig,
    grids: Mapping[str, Collection[Point]],
    repeats: int | Callable[[Point], int],
    most: int,
    outcome: Outcome,
    compared: Callable[[Point], bool],
    shuffle: random.Random,
) -> _Schedule:
    """Return what is not stored, whichever grid asked for it. A row that lacks what can be counted
    now is measured again; of the two the store gives the one that counted."""
    for name, points in grids.items():
        rig.store.ask(rig.machine, name, points)
    builds = _buildable(dict.fromkeys(chain.from_iterable(grids.values())), outcome)
    wanted = {p: repeats(p) if callable(repeats) else repeats for p in builds}
    have = rig.store.records(rig.machine, {point.kernel for point in wanted})
    missing: dict[Point, list[int]] = {point: [] for point in wanted}
    values: dict[Point, list[float]] = {point: [] for point in wanted}
    for point, times in wanted.items():
        for repeat in range(max(times, most)):
            row = have.get(record_key(point, repeat, builds[point], rig.state))
            counted = {event.quantity for event in rig.plan.group(repeat)}
            if row is None or not row.uncountable.isdisjoint(counted):
                missing[point].append(repeat)
            else:
                outcome.cached += 1
                values[point].append(row.ns_per_access)
    return _Schedule(wanted, most, missing, values, compared, shuffle)
