"""How far a campaign is: a bar, or a line a minute where nobody looks."""

from __future__ import annotations

import sys
import threading
import time
from math import inf
from typing import Any

from tqdm import tqdm

BELIEVED_FROM_S = 5.0  # of what was expected: then the pace of this computer is known
_BAR = "{desc} {percentage:3.0f}% |{bar}| {elapsed} gone, {remaining} left{postfix}"


class _Bar(tqdm):
    """A bar whose clock nobody sets: tqdm's is the wall's, after a step back of which it would not draw for as long."""

    monitor_interval = 0  # the thread that watches over bars compares with the wall's
    # One process draws. tqdm's own lock is shared with whatever is forked, and stays taken where that is killed as it draws.
    _lock = threading.RLock()

    def __init__(self, **how: Any):
        super().__init__(**how)
        self._time = time.monotonic
        self.start_t = self.last_print_t = time.monotonic()


class Progress:
    """Seconds as they pass, and as many as are to come at the pace so far: what was expected of a process is a guess."""

    def __init__(self, name: str, expected_s: float, most_s: float, quiet: bool = False):
        """expected_s: of all that is to be done. most_s: the time that there is for it."""
        self._begin, self._most_s, self._left_s, self._done_s = time.monotonic(), most_s, expected_s, 0.0
        on_screen = sys.stderr.isatty()
        self._bar = _Bar(total=expected_s, desc=name[:60], file=sys.stderr, disable=quiet, smoothing=0, mininterval=1 if on_screen else 60,
                         bar_format=_BAR if on_screen else _BAR + "\n")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    @property
    def gone_s(self) -> float:
        return time.monotonic() - self._begin

    @property
    def pace(self) -> float:
        """Seconds for one that was expected."""
        return self.gone_s / self._done_s if self._done_s > BELIEVED_FROM_S else 1.0

    @property
    def left_s(self) -> float:
        """Until all is done, or the time is over."""
        return max(min(self.pace * self._left_s, self._most_s - self.gone_s), 0.0)

    def has_time_for(self, expected_s: float) -> bool:
        return self.gone_s + self.pace * expected_s <= self._most_s

    def expect_all_the_time(self) -> None:
        """Of what follows each process decides whether there is another, so it may take all the time that there is."""
        self._left_s = inf

    def leave_out(self, expected_s: float) -> None:
        self._left_s -= expected_s

    def advance(self, expected_s: float, said: str) -> None:
        """One more is done, of which so many seconds were expected."""
        self._done_s, self._left_s = self._done_s + expected_s, self._left_s - expected_s
        gone_s = self.gone_s
        total_s = gone_s + self.left_s + 1e-3  # tqdm warns of a bar that a rounding error takes past its end
        self._bar.total = total_s if total_s < inf else None
        self._bar.set_postfix_str(said, refresh=False)  # the bar draws itself
        self._bar.update(gone_s - self._bar.n)
