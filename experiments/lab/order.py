"""Which process is next: one of each point, then those of the compared points, two of each other, then the widest intervals.

That last choice sees how wide an interval is and never where it lies: of values ten times as large it makes the same, and it knows no
claim, so it takes no side. What it costs is coverage: a point is closed where its values happen to lie close together, and of such
intervals more miss the median, three in ten of those closed at five where processes differ by 1.5 %. Of all intervals together no more do
than of five processes each, as many above it as below (tests/lab/test_order.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from math import inf
from random import Random

from experiments.inference.intervals import median_interval
from experiments.lab import kernels
from experiments.lab.record import Point

Process = tuple[Point, int]  # a point and which of its repeats

# Half an interval's width over its median. The ratio of two such points is known to 1.4 %, and what claims ask of a ratio is 5 % and
# more but for one.
NARROW = 0.01
# From five processes to eight the interval is their range, which only grows. Nine are the first that it leaves the extremes of out, and
# it still covers 96 %: a disturbed process no longer widens it, and to halve it again would take four times as many.
MOST = 9
LEAST = 5  # of fewer the range covers less than 90 %: who asks for fewer wants no interval
# So many points have a process before any has the next: one after the other would get the memory that the one before gave back.
AT_ONCE = 16
# Memory that stays free is taken back by hypervisors and given again page by page: faulting 4 GiB in takes 2.3 s right after a process
# that had as much, and 5 s half a minute later. So what is large is measured in one stretch, which two rounds share an end of.
LARGE_BYTES = 1 << 29


def most(repeats: int) -> int:
    """How many processes a point may have whose interval stays wide, where each is to have `repeats`."""
    return max(repeats, MOST) if repeats >= LEAST else repeats


@lru_cache(maxsize=1 << 14)
def half_width(values: tuple[float, ...]) -> float:
    """Half the width of the median's exact interval over the median; infinite of fewer than two values."""
    if len(values) < 2:
        return inf
    interval = median_interval(values)
    return (interval.high - interval.low) / 2 / interval.value


@dataclass
class _Place:
    """How far a point is."""

    point: Point
    wanted: int
    values: list[float]
    missing: list[int] = field(default_factory=list)  # its repeats that are not stored, ascending

    @property
    def half_width(self) -> float:
        return half_width(tuple(self.values))

    @property
    def is_open(self) -> bool:
        return bool(self.missing) and (self.missing[0] < self.wanted or self.half_width > NARROW)


class Order:
    """The processes of a campaign, each once.

    missing: all that are not stored, a point's in ascending order. values: what each point's stored processes measured; whoever measures
    adds to it. wanted: how many processes each point has at least, whatever its interval. compared: the points that come first.
    """

    def __init__(self, missing: Iterable[Process], values: Mapping[Point, list[float]], wanted: Mapping[Point, int],
                 compared: Callable[[Point], bool], shuffle: Random):
        self._compared, self._shuffle = compared, shuffle
        self._places = {point: _Place(point, wanted[point], values[point]) for point in wanted}
        for point, repeat in missing:
            self._places[point].missing.append(repeat)
        self.due = [(point, repeat) for point, place in self._places.items() for repeat in place.missing if repeat < place.wanted]

    @property
    def open(self) -> list[Point]:
        """The points that lack a process that they are to have, or whose interval is wide and may have another. A function of the rows
        alone: what is closed is so for the next campaign too."""
        return [place.point for place in self._places.values() if place.is_open]

    def is_due(self, process: Process) -> bool:
        """Whether it is to be measured whatever the point's interval."""
        return process[1] < self._places[process[0]].wanted

    def processes(self, fits: Callable[[Point], bool]) -> Iterator[Process]:
        """In rounds, each shuffled, the large points at its end or, every other time, at its beginning. fits: whether there is time for
        a process of a point."""
        for number, turn in enumerate(chain(self._rounds(), self._widest(fits))):
            self._shuffle.shuffle(turn)
            for point, repeat in sorted(turn, key=lambda process: kernels.arena_bytes(process[0]) >= LARGE_BYTES, reverse=number % 2 == 1):
                self._places[point].missing.remove(repeat)
                yield point, repeat

    def _rounds(self) -> Iterator[list[Process]]:
        """What is due whatever was measured: of points that are not compared, two."""
        rounds: dict[tuple[bool, int], list[Process]] = {}  # by whether it waits for all that are compared, and by repeat
        for point, repeat in self.due:
            waits = bool(repeat and not self._compared(point))
            if not (waits and repeat > 1):
                rounds.setdefault((waits, repeat), []).append((point, repeat))
        return (rounds[key] for key in sorted(rounds))

    def _widest(self, fits: Callable[[Point], bool]) -> Iterator[list[Process]]:
        while places := [place for place in self._places.values() if place.is_open and fits(place.point)]:
            yield [(place.point, place.missing[0]) for place in heapq.nlargest(AT_ONCE, places, key=lambda place: place.half_width)]
