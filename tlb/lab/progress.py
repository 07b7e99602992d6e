"""How far a run is: a bar, or a line a minute where nobody looks."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any

from tqdm import tqdm

BELIEVED_FROM_S = 1.0  # of what was expected of a kind of work: then its pace is known
_BAR = "{desc} {percentage:3.0f}% |{bar}| {elapsed} gone, {remaining} left{postfix}"


class _Bar(tqdm):
    """A bar whose clock nobody sets: tqdm's is the wall's, after a step back of which it would not
    draw for as long."""

    monitor_interval = 0  # the thread that watches over bars compares with the wall's
    # One process draws. tqdm's own lock is shared with whatever is forked, and stays taken where
    # that is killed as it draws.
    _lock = threading.RLock()

    def __init__(self, **how: Any):
        super().__init__(**how)
        self._time = time.monotonic
        self.start_t = self.last_print_t = time.monotonic()


class Progress:
    """Seconds as they pass, and as many as are to come. What was expected of a piece of work is a
    guess, whose pace is learned for each kind of work as it is done. `later_s`: of what follows
    beside that."""

    def __init__(self, name: str, quiet: bool = False):
        self._begin, self.until, self.later_s, self._extra = time.monotonic(), inf, 0.0, 0.0
        self._all, self._left, self._expected, self._took = (
            Counter[str](),
            Counter[str](),
            Counter[str](),
            Counter[str](),
        )
        self._now: tuple[str, float, float] | None = None  # kind, seconds expected, since when
        on_screen = sys.stderr.isatty()
        self._bar = _Bar(
            total=None,
            desc=name[:60],
            file=sys.stderr,
            disable=quiet,
            smoothing=0,
            mininterval=1 if on_screen else 60,
            bar_format=_BAR if on_screen else _BAR + "\n",
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def expect(self, costs: Mapping[str, float], until: float, extra: float = 0.0) -> None:
        """From now on these seconds are to come, by kind, and an extra share of them; nothing is
        begun that would end after `until`."""
        self._all, self._left, self.until, self._extra = (
            Counter(costs),
            Counter(costs),
            until,
            extra,
        )

    def remain(self, costs: Mapping[str, float]) -> None:
        """Of what was expected no more than this is to come: what is lacking once is lacking in
        every round."""
        self._all.subtract(self._left)
        self._all.update(costs)
        self._left = Counter(costs)

    @property
    def gone_s(self) -> float:
        return time.monotonic() - self._begin

    @property
    def time_left_s(self) -> float:
        return self.until - time.monotonic()

    def pace(self, kind: str) -> float:
        """Seconds for one that was expected: of this kind, or where little of it is done, of all."""
        for expected_s, took_s in (
            (self._expected[kind], self._took[kind]),
            (self._expected.total(), self._took.total()),
        ):
            if expected_s >= BELIEVED_FROM_S:
                return took_s / expected_s
        return 1.0

    def _at_pace(self, costs: Mapping[str, float]) -> float:
        return sum(self.pace(kind) * max(seconds, 0.0) for kind, seconds in costs.items())

    @property
    def left_s(self) -> float:
        """Until all is done, or the time is over."""
        return (
            max(min(self._at_pace(self._left) + self.extra_s, self.time_left_s), 0.0) + self.later_s
        )

    def has_time_for_all(self) -> bool:
        return self._at_pace(self._left) <= self.time_left_s

    @property
    def extra_s(self) -> float:
        """The extra share of what was expected."""
        return self._extra and self._extra * self._at_pace(self._all)

    def begin(self, kind: str, expected_s: float, said: str) -> bool:
        """The next piece of work begins, and the one before it has ended; False where there is no
        time for it."""
        self.end()
        if not self.pace(kind) * expected_s <= self.time_left_s:
            self._left[kind] -= expected_s
            return False
        self._now = kind, expected_s, time.monotonic()
        self._bar.set_postfix_str(said, refresh=False)  # the bar draws itself
        return True

    def end(self) -> None:
        """What was begun is done."""
        if self._now:
            kind, expected_s, since = self._now
            self._expected[kind] += expected_s
            self._took[kind] += time.monotonic() - since
            self._left[kind] -= expected_s
            self._now = None
        gone_s = self.gone_s
        # tqdm warns of a bar that a rounding error takes past its end
        total_s = gone_s + self.left_s + 1e-3
        self._bar.total = total_s if total_s < inf else None
        self._bar.update(gone_s - self._bar.n)
