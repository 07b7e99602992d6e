"""The union of several grids, measured in rounds of mappings; each record is stored as soon as it
is proved.

The order, rule by rule:

1. A round has one mapping of each program and kind of pages, with all points that lack it. A
   record's `repeat` is the number of its round, so points of one mapping are pairs.
2. The first round has all points: after it each has a number, and what follows narrows intervals.
3. The other rounds follow in order if there is time for all of them; otherwise the compared points
   have their rounds first.
4. Then compared points whose interval is still wide get further mappings, the widest point first.
5. What is measured next may depend on the width of an interval, never on the value: choosing by
   value would bias the result.

Within a round, mapping.group_points_by_process has the order.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from math import inf

from tlb.machine import pools
from tlb.measure import build
from tlb.measure.mapping import (
    MAX_RETRY_SHARE,
    PointGroup,
    duration_estimate_key,
    expected_seconds,
    group_points_by_process,
    shared_process_key,
)
from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.outcome import (
    CampaignOutcome,
    CampaignProgress,
    known_unavailable_points,
    store_session_counts,
    store_unmeasured_points,
)
from tlb.measure.record import Point, Record, record_key
from tlb.stats.intervals import median_interval
from tlb.system.files import measuring_lock
from tlb.system.page_sizes import PAGE_KINDS
from tlb.system.reasons import Unavailable, explain_reason

# Half an interval's width over its median. The ratio of two such points is known to 1.4 %, and what
# claims ask of a ratio is 5 % and more but for one.
NARROW = 0.01
# The interval of five to eight mappings is their range, which only grows with their number. That of
# nine leaves the two extremes out and still covers 96 %, so a disturbed mapping no longer widens it;
# halving it again would take four times as many.
MOST = 9
LEAST = 5  # the range of fewer covers less than 90 %, so fewer are asked for where no interval is wanted
# Of the time that all rounds take, what the mappings beyond them may add.
EXTRA_SHARE = 0.1


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


def run(
    rig: MeasuringSetup,
    grids: Mapping[str, Collection[Point]],
    repeats: int | Callable[[Point], int],
    *,
    most: int = 0,
    seconds: float = inf,
    compared: Callable[[Point], bool] = lambda point: True,
    rounds: float = inf,
    progress: CampaignProgress | None = None,
    quiet: bool = False,
    seed: int = 0,
    retry_share: float = MAX_RETRY_SHARE,
    waits: bool = False,
) -> CampaignOutcome:
    """Measure what is not yet stored of the points that each grid asks for, by its name.

    repeats: mappings per point. most: of a point whose interval stays wide, once all rounds are
    measured. seconds: no point is begun that would end later. compared: points that come first
    where time is short. rounds: end after this many. progress: of a whole that this is a part of.
    waits: for another measurement, instead of measuring-already.

    A point that the machine cannot do is in `lacking` and is not tried again; so is one without
    time now that was lacking the last time. Ctrl-C loses only what is not proved. Raises
    Unavailable: measuring-already, state-changed, cpu-gone, and what the store raises.
    """
    outcome, begin = CampaignOutcome(), time.monotonic()
    todo = _missing_of(rig, grids, repeats, most, outcome, compared)
    due, tried = todo.due(), set[tuple[Point, int]]()
    if due and seconds > 0:
        own_bar = nullcontext(progress) if progress else CampaignProgress(" ".join(grids), quiet)
        with measuring_lock(seconds if waits else False), own_bar as bar:
            campaign = _Campaign(rig, todo, bar, outcome, random.Random(seed), retry_share, tried)
            campaign.measure(begin + seconds, rounds)
    store_unmeasured_points(rig, {p for p, _ in due}, {p for p, _ in tried}, outcome)
    left = [p for p, repeat in due if repeat < rounds and (p, repeat) not in tried]
    outcome.left = Counter(p for p in left if p not in outcome.lacking)
    outcome.elapsed_s = time.monotonic() - begin
    return outcome


@dataclass
class _Campaign:
    """A campaign at work. tried: the points and repeats that were measured or found lacking."""

    rig: MeasuringSetup
    missing: _Missing
    bar: CampaignProgress
    outcome: CampaignOutcome
    shuffle: random.Random
    retry_share: float
    tried: set[tuple[Point, int]]

    def measure(self, until: float, rounds: float) -> None:
        """Measure round by round until a monotonic time, or the end of this many rounds."""
        sessions_before = len(self.rig.sessions)
        if why := self.rig.plan.lacks_perf:
            print(f"No perf stat: {explain_reason(why)}", file=sys.stderr)
        every = sorted({repeat for _, repeat in self.missing.due()})
        self.bar.measured, self.bar.to_measure = 0, len(self.missing.due())
        extra_share = EXTRA_SHARE * self.missing.may_add
        self.bar.expect(self._cost(map(self.missing.of_round, every)), until, extra_share)
        try:
            self._measure_rounds([repeat for repeat in every if repeat], rounds)
            if rounds == inf and self.missing.may_add and self.outcome.measured:
                self._narrow()
        finally:
            store_session_counts(self.rig, self.rig.sessions[sessions_before:])

    def _measure_rounds(self, later: list[int], rounds: float) -> None:
        """Measure the first round of all points and the later ones, by their numbers."""
        self._measure_round(0, self.missing.of_round(0))
        self.bar.remain(self._cost(map(self.missing.of_round, later)))
        compared = self.missing.compared
        parts: list[Callable[[Point], bool]] = [lambda point: True]
        if not self.bar.has_time_for_all():
            parts = [compared, lambda point: not compared(point)]
        for is_part in parts:
            for repeat in later:
                if repeat < rounds:
                    self._measure_round(repeat, filter(is_part, self.missing.of_round(repeat)))

    def _narrow(self) -> None:
        """Measure further mappings of the widest points. A run that measured nothing adds none, so
        that a second run ends at once."""
        chosen = self.missing.widest(self.bar)
        further = {
            repeat: [point for point in chosen if repeat in self.missing.repeats[point]]
            for repeat in range(self.missing.most_wanted, self.missing.most)
        }
        self.bar.expect(self._cost(further.values()), self.bar.until)
        for repeat, points in further.items():
            self._measure_round(repeat, points)

    def _measure_round(self, repeat: int, points: Iterable[Point]) -> None:
        for group in group_points_by_process(
            list(points), self.shuffle, sessions_last=repeat % 2 == 0
        ):
            self._measure_group(group, repeat)
            self.bar.end()

    def _measure_group(self, group: PointGroup, repeat: int) -> None:
        """Measure and store the points of one process for which there is time. Raises Unavailable
        where it is no lack of a point."""
        points = [point for point in group.points if point not in self.outcome.lacking]
        round_words = f"mapping {repeat + 1} of {max(self.missing.most_wanted, repeat + 1)}:"

        def begin(point: Point) -> bool:
            words = f"{round_words} {point.kernel} on {point.pages}"
            return self.bar.begin(duration_estimate_key(point), group.cost_s(point), words)

        pages = group.points[0].pages
        if group.has_session and not self.bar.begin(
            *group.start, f"{round_words} memory on {pages}"
        ):
            return
        for point, result in self.rig.measured(
            points, repeat, begin=begin, retry_share=self.retry_share
        ):
            self._keep(point, result)
            self.tried.add((point, repeat))
            self.bar.measured += 1

    def _keep(self, point: Point, result: Record | Unavailable) -> None:
        if isinstance(result, Record):
            self.rig.store.append(self.rig.machine, result)
            self.missing.values[point].append(result.ns_per_access)
            self.outcome.count(result)
        elif result.code == "state-changed" or (
            result.code == "cpu-gone" and self.rig.cpu is not None
        ):
            raise result
        else:
            self.outcome.lacking[point] = self.rig.lacking[point] = result

    def _cost(self, rounds: Iterable[list[Point]]) -> dict[str, float]:
        """Return a guess at the seconds of these rounds, by kind of work; of points on an empty
        pool, none."""
        has_pages = {
            kind: page.source != "pool" or bool(pools.available(kind))
            for kind, page in PAGE_KINDS.items()
        }
        return expected_seconds(
            group
            for points in rounds
            for group in group_points_by_process(
                [p for p in points if has_pages[p.pages]], self.shuffle
            )
        )


@dataclass
class _Missing:
    """What is not stored. wanted: how many mappings each point is to have. most: how many it may
    have. repeats: those of each point that are not stored. values: what its stored ones measured.
    lacking: the points that this computer cannot do, as they are found."""

    wanted: dict[Point, int]
    most: int
    compared: Callable[[Point], bool]
    lacking: Mapping[Point, Unavailable]
    repeats: dict[Point, list[int]]
    values: dict[Point, list[float]]

    def due(self) -> list[tuple[Point, int]]:
        """Return the points and repeats that are to be measured whatever the intervals."""
        return [
            (point, repeat)
            for point, repeats in self.repeats.items()
            for repeat in repeats
            if repeat < self.wanted[point] and point not in self.lacking
        ]

    def of_round(self, repeat: int) -> list[Point]:
        """Return the points whose mapping number `repeat` is due."""
        return [point for point, number in self.due() if number == repeat]

    @property
    def most_wanted(self) -> int:
        return max(self.wanted.values())

    @property
    def may_add(self) -> bool:
        """Whether mappings may follow the rounds."""
        return self.most > self.most_wanted

    def widest(self, bar: CampaignProgress) -> list[Point]:
        """Return the compared points that get all mappings up to `most`, the widest first, as long
        as there is time for them and for mapping their memory. As intervals of five to eight
        mappings only grow, one choice does for all of them."""
        wide = {
            point: width
            for point, values in self.values.items()
            if self.compared(point)
            and point not in self.lacking
            and (width := half_width(tuple(values))) > NARROW
        }
        left_s = min(bar.time_left_s, bar.extra_s)
        chosen: list[Point] = []
        mapping_s = defaultdict[Hashable, float](float)  # by program, of the largest chosen point
        for point in sorted(wide, key=wide.__getitem__, reverse=True):
            (group,) = group_points_by_process([point], random.Random(0))
            kind, start_s = group.start if group.has_session else ("", 0.0)
            start_s = max(bar.pace(kind) * start_s, mapping_s[shared_process_key(point)])
            once_s = bar.pace(duration_estimate_key(point)) * group.cost_s(point)
            once_s += start_s - mapping_s[shared_process_key(point)]
            takes_s = once_s * sum(repeat >= self.wanted[point] for repeat in self.repeats[point])
            if takes_s <= left_s:
                chosen.append(point)
                mapping_s[shared_process_key(point)] = start_s
                left_s -= takes_s
        return chosen


def _missing_of(
    rig: MeasuringSetup,
    grids: Mapping[str, Collection[Point]],
    repeats: int | Callable[[Point], int],
    most: int,
    outcome: CampaignOutcome,
    compared: Callable[[Point], bool],
) -> _Missing:
    """Return what is not stored, whichever grid asked for it. Points without a kernel of their
    engine, and those that this rig found lacking before, are lacking. A row that lacks what can be
    counted now is measured again; of the two the store gives the one that counted."""
    for name, points in grids.items():
        rig.store.ask(rig.machine, name, points)
    asked = dict.fromkeys(chain.from_iterable(grids.values()))
    build.compile_all(asked)
    build_of, have = build.builds(), rig.store.measured(rig.machine, {p.kernel for p in asked})
    missing = _Missing({}, most, compared, outcome.lacking, {}, {})
    known = rig.lacking | known_unavailable_points(rig)
    outcome.lacking |= {point: why for point, why in known.items() if point in asked}
    for point in asked:
        try:
            made_by = build_of(point)
        except Unavailable as why:
            if point.engine == "c":
                raise
            outcome.lacking[point] = why
            continue
        times = repeats(point) if callable(repeats) else repeats
        missing.wanted[point], missing.repeats[point], missing.values[point] = times, [], []
        for repeat in range(max(times, most)):
            row = have.get(record_key(point, repeat, made_by, rig.state))
            counted = {event.quantity for event in rig.plan.group(repeat)}
            if row is None or not row.uncountable.isdisjoint(counted):
                missing.repeats[point].append(repeat)
            else:
                outcome.cached += 1
                missing.values[point].append(row.ns_per_access)
    return missing
