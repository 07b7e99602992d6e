"""How far a run is: a line that a terminal shows in place, or a line a minute where nobody looks."""

from __future__ import annotations

import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf

BELIEVED_FROM_S = 1.0  # of what was expected of a kind of work: then its pace is known
SCREEN_S, LOG_S = 1.0, 60.0  # between two texts
_BAR_CELLS = 20


class Progress:
    """Seconds as they pass, and as many as are to come. What was expected of a piece of work is a
    guess, whose pace is learned for each kind of work as it is done. later: of what follows beside
    that, by kind."""

    def __init__(self, name: str, quiet: bool = False):
        self._begin, self.until, self._extra = time.monotonic(), inf, 0.0
        self.later = defaultdict[str, float](float)
        # by kind of work
        self._all, self._left = defaultdict[str, float](float), defaultdict[str, float](float)
        self._expected, self._took = defaultdict[str, float](float), defaultdict[str, float](float)
        self._now: tuple[str, float, float] | None = None  # kind, seconds expected, since when
        self._name, self._said, self._quiet = name[:60], "", quiet
        self._on_screen, self._shown_s = sys.stderr.isatty(), 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._show(is_last=True)

    def _show(self, *, is_last: bool = False) -> None:
        """Write to stderr how far it is, unless that was just done; a log gets no escapes."""
        gone_s, left_s = self.gone_s, self.left_s
        pause_s = SCREEN_S if self._on_screen else LOG_S
        if self._quiet or not (is_last or gone_s - self._shown_s >= pause_s):
            return
        self._shown_s = gone_s
        share = gone_s / (gone_s + left_s) if gone_s + left_s else 1.0
        bar = "#" * round(share * _BAR_CELLS)
        text = f"{self._name} {share:4.0%} |{bar:{_BAR_CELLS}}| {_clock(gone_s)} gone"
        if left_s < inf:
            text += f", {_clock(left_s)} left"
        text += f", {self._said}" if self._said else ""
        if self._on_screen:
            text = f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K"
        end = "" if self._on_screen and not is_last else "\n"
        print(text, end=end, file=sys.stderr, flush=True)

    def expect(self, costs: Mapping[str, float], until: float, extra: float = 0.0) -> None:
        """From now on these seconds are to come, by kind, and an extra share of them; nothing is
        begun that would end after `until`."""
        self._all, self._left = defaultdict(float, costs), defaultdict(float, costs)
        self.until, self._extra = until, extra

    def remain(self, costs: Mapping[str, float]) -> None:
        """Of what was expected no more than this is to come: what is lacking once is lacking in
        every round."""
        for kind in self._left.keys() | costs.keys():
            self._all[kind] += costs.get(kind, 0.0) - self._left[kind]
        self._left = defaultdict(float, costs)

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
            (sum(self._expected.values()), sum(self._took.values())),
        ):
            if expected_s >= BELIEVED_FROM_S:
                return took_s / expected_s
        return 1.0

    def _at_pace(self, costs: Mapping[str, float]) -> float:
        return sum(self.pace(kind) * max(seconds, 0.0) for kind, seconds in costs.items())

    @property
    def left_s(self) -> float:
        """Until all is done, or the time is over."""
        left_s = min(self._at_pace(self._left) + self.extra_s, self.time_left_s)
        return max(left_s, 0.0) + self._at_pace(self.later)

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
        self._said = said
        self._show()
        return True

    @contextmanager
    def doing(self, kind: str, expected_s: float) -> Iterator[None]:
        """Do a piece of what comes later, whatever time is left."""
        self.end()
        self._now, self._said = (kind, expected_s, time.monotonic()), kind
        self._show()
        yield
        self.end()
        self.later[kind] = max(self.later[kind] - expected_s, 0.0)

    def end(self) -> None:
        """What was begun is done."""
        if self._now:
            kind, expected_s, since = self._now
            self._expected[kind] += expected_s
            self._took[kind] += time.monotonic() - since
            self._left[kind] -= expected_s
            self._now = None
        self._show()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    )
