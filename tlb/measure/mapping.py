"""The points of a round by the process that measures them, and their way through it.

A kernel with a session measures many points in one mapping (kernels/plan.h); any other program
forks a process for each point. A point comes out once: as a record whose backing smaps has proved
after it was measured, or as the reason for none. What a process did not prove before it ended is
measured again in the next one.
"""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from tlb.machine import pools
from tlb.measure import build, kernels
from tlb.measure.plan import (
    KernelProcess,
    MeasuringConditions,
    SleepingProcesses,
    reason_to_skip_point,
    uses_shared_arena,
)
from tlb.measure.record import Point, Record
from tlb.system.page_sizes import PAGE_KINDS
from tlb.system.reasons import Unavailable

# Of the points of a mapping, how many may be measured a second time because they were disturbed. A
# median of five bears a disturbed one, and a graph is built again for a walk that is repeated.
MAX_RETRY_SHARE = 0.05
# what a smaller mapping may be spared
_REASONS_OF_SIZE = {"oom-killed", "memory-short", "pool-empty", "backing-partial"}
_PASSING_REASONS = {"backing-partial", "cpu-gone"}  # what may be over when it is tried again

_SLEEPING = ("sleeping",)

PointResult = tuple[Point, Record | Unavailable]


@dataclass
class PointGroup:
    """Points that one process measures; those that sleep have a process each, side by side."""

    points: list[Point]

    @property
    def has_session(self) -> bool:
        """Whether they share the mapping of a session."""
        return build.has_session(self.points[0])

    @property
    def start(self) -> tuple[str, float]:
        """(kind, seconds) until the memory of a session is mapped."""
        return f"memory {self.points[0].pages}", kernels.mapping_s(
            self.points[0].engine, shared_bytes(self.points)
        )

    def cost_s(self, point: Point) -> float:
        """A guess at the seconds of one of the points, of those that sleep a part of all."""
        if self.has_session:
            return kernels.point_s(point)
        sleeps_s = [idle_s for each in self.points if (idle_s := kernels.idle_s(each))]
        return (
            kernels.expected_s(point)
            - kernels.idle_s(point)
            + max(sleeps_s, default=0.0) / max(len(sleeps_s), 1)
        )


def group_points_by_process(
    points: Sequence[Point], shuffle: random.Random, *, sessions_last: bool = True
) -> list[PointGroup]:
    """Return a round's points by the process that measures them.

    The order is random, but for these rules:

    1. Points that use the same graph follow each other, so that it is made once.
    2. Groups that map memory follow each other: a hypervisor takes back what has been free for two
       seconds, and 4 GiB then take 8 s to map and not 1 s.
    3. They come last in one round and first in the next (sessions_last), so that between two rounds
       no memory is free either.
    4. Transparent huge pages come before base pages, which may lie in what huge pages left, but
       seldom the other way round.
    5. Kernels in C come before those in Python, because two threads map what was taken back.
    6. The largest mapping comes first.
    """
    by_program: dict[tuple, list[Point]] = {}
    for point in points:
        by_program.setdefault(shared_process_key(point), []).append(point)
    groups = [PointGroup(group) for group in by_program.values()]
    for group in groups:
        shuffle.shuffle(group.points)
        graphs = dict.fromkeys(map(kernels.made_of, group.points))
        turns = {graph: turn for turn, graph in enumerate(graphs)}
        group.points.sort(key=lambda point: turns[kernels.made_of(point)])
    shuffle.shuffle(groups)
    sessions = [group for group in groups if group.has_session]
    sessions.sort(
        key=lambda group: (
            PAGE_KINDS[group.points[0].pages].source != "thp",
            group.points[0].engine != "c",
            -shared_bytes(group.points),
        )
    )
    others = [group for group in groups if not group.has_session]
    return [*others, *sessions] if sessions_last else [*sessions, *others]


def shared_process_key(point: Point) -> tuple:
    """What points have in common that one process measures. Those of a session with an arena of
    their own have no shared one beside it, which would be read from smaps as well, before and after
    each."""
    if build.has_session(point):
        name = kernels.session_of(point)
        return name, point.engine, point.pages, uses_shared_arena(point)
    if kernels.idle_s(point):
        return _SLEEPING
    is_played = point.mode in kernels.declaration(point.kernel).played
    return point.kernel, point.engine, point.pages, is_played and point.mode


def shared_bytes(points: Iterable[Point]) -> int:
    """The bytes of the arena that these points share."""
    return max(
        (kernels.mapped_bytes(point) for point in points if uses_shared_arena(point)), default=0
    )


def duration_estimate_key(point: Point) -> str:
    """What its pace is learned with."""
    return f"{point.kernel} {point.engine} {point.pages}"


def expected_seconds(made: Iterable[PointGroup]) -> dict[str, float]:
    """Return a guess at the seconds of these groups, by kind."""
    costs = defaultdict[str, float](float)
    for group in made:
        if group.has_session:
            kind, seconds = group.start
            costs[kind] += seconds
        for point in group.points:
            costs[duration_estimate_key(point)] += group.cost_s(point)
    return costs


def measured(
    points: Sequence[Point],
    repeat: int,
    setting: MeasuringConditions,
    *,
    begin: Callable[[Point], bool] = lambda point: True,
    retry_share: float = MAX_RETRY_SHARE,
) -> Iterator[PointResult]:
    """Each point of one program with its record, or the reason for none, as soon as it is proved;
    the end of an iteration loses the others.

    begin: called before a point is measured; where it says no, the point is left out. A disturbed
    point is measured a second time, after all others: the first quiet record is kept, or the
    second. To choose by the time measured would be to pick cherries.
    """
    short = {point: why for point in points if (why := reason_to_skip_point(point, setting))}
    yield from short.items()
    left = [point for point in points if point not in short]
    if left:
        # again would be seconds of sleep
        tries = 0 if any(map(kernels.idle_s, left)) else ceil(retry_share * len(left))
        yield from _PointQueue(left, repeat, setting, begin, tries).results()


@dataclass
class _PointQueue:
    """Points that wait for one process after another.

    left: those still to be asked for. Each goes to a process, whose answer waits for a proof. A
    disturbed one is put at the end of `left` once more (asked_again), and what was proved of it is
    kept (first_records) in case the second try gives nothing. retries: how many may still be.
    most_bytes: of an arena, once a larger one was refused for the reason too_large.
    """

    left: list[Point]
    repeat: int
    setting: MeasuringConditions
    begin: Callable[[Point], bool]
    retries: int
    asked_again: set[Point] = field(default_factory=set)
    first_records: dict[Point, Record] = field(default_factory=dict)
    most_bytes: float = inf
    too_large: Unavailable | None = None
    has_restarted: bool = False  # because of a reason that may pass

    def __post_init__(self) -> None:
        self.pages = self.left[0].pages  # which all have
        self.has_session = build.has_session(self.left[0])

    def results(self) -> Iterator[PointResult]:
        while self.left:
            for point in [p for p in self.left if kernels.mapped_bytes(p) > self.most_bytes]:
                yield self._left_out(point, self.too_large or Unavailable("memory-short"))
            if self.left:
                yield from self._one_process()

    def _one_process(self) -> Iterator[PointResult]:
        """Ask a process for all points that are left; if it ends before, decide what follows."""
        answered: list[PointResult] = []
        proved, current = 0, None
        mapped = shared_bytes(self.left) if self.has_session else 0
        try:
            with contextlib.ExitStack() as stack:
                process = self._start(mapped)
                stack.enter_context(process)
                while self.left:
                    point = self.left.pop(0)
                    if not self.begin(point):
                        yield from self._first_record(point)
                        continue
                    current = point
                    result, now = process.ask(current)
                    answered.append((current, self._retried(current, result)))
                    current = None
                    yield from self._proved(answered, proved, now)
                    proved = now
                now = process.end()
                yield from self._proved(answered, proved, now)
                if (proved := now) < len(answered):
                    raise Unavailable("kernel-failed", "it never proved what backs its memory")
        except Unavailable as why:
            unproved = [p for p, result in answered[proved:] if isinstance(result, Record)]
            self.left = list(dict.fromkeys([*unproved, *self.left]))
            yield from self._after_failure(why, current, mapped)

    def _start(self, mapped: int) -> KernelProcess | SleepingProcesses:
        if sleeping := [point for point in self.left if kernels.idle_s(point)]:
            return SleepingProcesses(sleeping, self.repeat, self.setting)
        return KernelProcess(self.left[0], mapped, self.repeat, self.setting)

    def _may_pass(self, why: Unavailable) -> bool:
        is_ours = why.code == "cpu-gone" and self.setting.cpu is not None  # no other CPU will do
        return why.code in _PASSING_REASONS and not is_ours

    def _retried(self, point: Point, result: Record | Unavailable) -> Record | Unavailable:
        """Return a result; put its point at the end once more where it was disturbed, or may
        succeed."""
        if point in self.asked_again:
            return result.model_copy(update={"tries": 2}) if isinstance(result, Record) else result
        is_noisy = isinstance(result, Record) and bool(result.noisy) and self.retries > 0
        if is_noisy or (isinstance(result, Unavailable) and self._may_pass(result)):
            self.retries -= is_noisy
            self.asked_again.add(point)
            self.left.append(point)
        return result

    def _proved(self, answered: list[PointResult], before: int, now: int) -> Iterator[PointResult]:
        """Give the results that are proved now, except for points that will be asked for again."""
        if not before <= now <= len(answered):
            raise Unavailable("kernel-failed", f"it proved {now} of {len(answered)} answers")
        for number in range(before, now):
            point, result = answered[number]
            if point not in [*self.left, *(later for later, _ in answered[number + 1 :])]:
                yield point, self._kept(point, result)
            elif isinstance(result, Record):
                self.first_records[point] = result

    def _kept(self, point: Point, result: Record | Unavailable) -> Record | Unavailable:
        """Return the result; a disturbed record is better than none."""
        first = self.first_records.pop(point, None)
        return first if first and isinstance(result, Unavailable) else result

    def _left_out(self, point: Point, why: Unavailable) -> PointResult:
        self.left.remove(point)
        return point, self._kept(point, why)

    def _first_record(self, point: Point) -> Iterator[PointResult]:
        """Give what is proved of a point for whose second try there is no time."""
        if point in self.first_records:
            yield point, self.first_records.pop(point)

    def _after_failure(
        self, why: Unavailable, current: Point | None, mapped: int
    ) -> Iterator[PointResult]:
        """Decide what follows from the end of a process: another one, one with a smaller mapping,
        or none for the point that was measured, or for any if none was."""
        if current:
            self.left.insert(0, current)
        mapped = max(mapped, kernels.mapped_bytes(current) if current else 0)
        if self._may_pass(why) and not self.has_restarted:
            self.has_restarted = True
        elif why.code in _REASONS_OF_SIZE and mapped and self.has_session:
            # an empty pool has no page for a smaller mapping either
            is_pool = PAGE_KINDS[self.pages].source == "pool"
            is_empty = is_pool and why.code == "pool-empty" and not pools.available(self.pages)
            self.most_bytes = 0 if is_empty else mapped // 2
            code = "memory-short" if why.code == "oom-killed" else why.code
            self.too_large = Unavailable(
                code,
                why.detail or f"a mapping of {mapped >> 20} MiB was ended by the OS kernel",
                why.remedy,
            )
        else:
            for point in [current] if current else list(self.left):
                yield self._left_out(point, why)
