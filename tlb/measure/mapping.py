"""Many points in as few processes as they take, each of which maps memory once where its kernel has
a session (measure.session).

A point comes out once: as a record whose backing smaps has proved after it was measured, or as the
reason for none. What a process did not prove before it ended is measured again in the next one.
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
    ProcessPerPoint,
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
_OF_SIZE = {"oom-killed", "memory-short", "pool-empty", "backing-partial"}
_PASSING = {"backing-partial", "cpu-gone"}  # what may be over when it is tried again

_ALONE, _SLEEPING = ("",), ("sleeping",)

PointResult = tuple[Point, Record | Unavailable]


@dataclass
class PointGroup:
    """Points that one process may measure, where their kernels have a session; or that take a
    process each, one after the other or, if they sleep, side by side."""

    points: list[Point]
    shares: bool

    @property
    def start(self) -> tuple[str, float]:
        """(kind, seconds) until their memory is mapped."""
        return f"memory {self.points[0].pages}", kernels.mapping_s(
            self.points[0].engine, shared_bytes(self.points)
        )

    def cost_s(self, point: Point) -> float:
        """A guess at the seconds of one of the points, of those that sleep a part of all."""
        if self.shares:
            return kernels.point_s(point)
        sleeps_s = [idle_s for each in self.points if (idle_s := kernels.idle_s(each))]
        return (
            kernels.expected_s(point)
            - kernels.idle_s(point)
            + max(sleeps_s, default=0.0) / max(len(sleeps_s), 1)
        )


def point_groups(
    points: Sequence[Point], shuffle: random.Random, *, alone_first: bool = True
) -> list[PointGroup]:
    """Return a round's points by the process that may measure them.

    The order is random, but for these rules:

    1. Points that use the same graph follow each other, so that it is made once.
    2. Groups that map memory follow each other: a hypervisor takes back what has been free for two
       seconds, and 4 GiB then take 8 s to map and not 1 s.
    3. They come last in one round and first in the next (alone_first), so that between two rounds
       no memory is free either.
    4. Transparent huge pages come before base pages, which may lie in what huge pages left, but
       seldom the other way round.
    5. Kernels in C come before those in Python, because two threads map what was taken back.
    6. The largest mapping comes first.
    """
    alike: dict[tuple, list[Point]] = {}
    for point in points:
        alike.setdefault(shared_process_key(point), []).append(point)
    made = [PointGroup(group, len(program) > 1) for program, group in alike.items()]
    for group in made:
        shuffle.shuffle(group.points)
        used = dict.fromkeys(map(kernels.made_of, group.points))
        turns = {one: turn for turn, one in enumerate(used)}
        group.points.sort(key=lambda point: turns[kernels.made_of(point)])
    shuffle.shuffle(made)
    return sorted(
        made,
        key=lambda group: (
            group.shares == alone_first,
            PAGE_KINDS[group.points[0].pages].source != "thp",
            group.points[0].engine != "c",
            -shared_bytes(group.points),
        ),
    )


def shared_process_key(point: Point) -> tuple:
    """What points have in common that one process may measure. Those with an arena of their own
    have no shared one beside it, which would be read from smaps as well, before and after each."""
    if not build.has_session(point):
        return _SLEEPING if kernels.idle_s(point) else _ALONE
    return kernels.session_of(point), point.engine, point.pages, uses_shared_arena(point)


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
        if group.shares:
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
        yield from _Measuring(
            left, repeat, setting, begin, tries, build.has_session(left[0])
        ).results()


@dataclass
class _Measuring:
    """Points on their way through one process after another. `first` holds proved records of points
    that are measured again."""

    left: list[Point]
    repeat: int
    setting: MeasuringConditions
    begin: Callable[[Point], bool]
    retries: int
    shares: bool
    tried: set[Point] = field(default_factory=set)
    first: dict[Point, Record] = field(default_factory=dict)
    most_bytes: float = inf  # of an arena
    too_large: Unavailable | None = None
    is_warned: bool = False

    def __post_init__(self) -> None:
        self.pages = self.left[0].pages  # which all have

    def results(self) -> Iterator[PointResult]:
        while self.left:
            for point in [p for p in self.left if kernels.mapped_bytes(p) > self.most_bytes]:
                yield self._left_out(point, self.too_large or Unavailable("memory-short"))
            if self.left:
                yield from self._one_process()

    def _one_process(self) -> Iterator[PointResult]:
        answered: list[PointResult] = []
        proved, current = 0, None
        mapped = shared_bytes(self.left) if self.shares else 0
        try:
            with contextlib.ExitStack() as stack:
                process = self._start(mapped)
                stack.enter_context(process)
                while self.left:
                    point = self.left.pop(0)
                    if not self.begin(point):
                        yield from self._refused(point)
                        continue
                    current = point
                    result, now = process.ask(current)
                    answered.append((current, self._judged(current, result)))
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
            yield from self._failed(why, current, mapped)

    def _start(self, mapped: int) -> KernelProcess | ProcessPerPoint:
        if self.shares:
            return KernelProcess(self.left[0], mapped, self.repeat, self.setting)
        if sleeping := [point for point in self.left if kernels.idle_s(point)]:
            return SleepingProcesses(sleeping, self.repeat, self.setting)
        return ProcessPerPoint(self.repeat, self.setting)

    def _judged(self, point: Point, result: Record | Unavailable) -> Record | Unavailable:
        """The result, its point put at the end once more where it was disturbed, or may succeed."""
        is_over = (
            isinstance(result, Unavailable)
            and result.code in _PASSING
            and (result.code != "cpu-gone" or self.setting.cpu is None)  # the kernel takes another
        )
        is_noisy = isinstance(result, Record) and bool(result.noisy) and self.retries > 0
        if point in self.tried:
            return result.model_copy(update={"tries": 2}) if isinstance(result, Record) else result
        if is_over or is_noisy:
            self.retries -= is_noisy
            self.tried.add(point)
            self.left.append(point)
        return result

    def _proved(self, answered: list[PointResult], before: int, now: int) -> Iterator[PointResult]:
        if not before <= now <= len(answered):
            raise Unavailable("kernel-failed", f"it proved {now} of {len(answered)} answers")
        for number in range(before, now):
            point, result = answered[number]
            if point not in [*self.left, *(later for later, _ in answered[number + 1 :])]:
                yield point, self._kept(point, result)
            elif isinstance(result, Record):
                self.first[point] = result

    def _kept(self, point: Point, result: Record | Unavailable) -> Record | Unavailable:
        """A disturbed number is better than none."""
        first = self.first.pop(point, None)
        return first if first and isinstance(result, Unavailable) else result

    def _left_out(self, point: Point, why: Unavailable) -> PointResult:
        self.left.remove(point)
        return point, self._kept(point, why)

    def _refused(self, point: Point) -> Iterator[PointResult]:
        if point in self.first:
            yield point, self.first.pop(point)

    def _failed(
        self, why: Unavailable, current: Point | None, mapped: int
    ) -> Iterator[PointResult]:
        """What follows from the end of a process: another one, a smaller one, or none for these
        points."""
        if current:
            self.left.insert(0, current)
        mapped = max(mapped, kernels.mapped_bytes(current) if current else 0)
        if why.code in _PASSING and not self.is_warned:
            self.is_warned = True
        elif why.code in _OF_SIZE and mapped:
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
