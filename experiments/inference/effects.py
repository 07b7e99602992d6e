"""The rule of all verdicts: an effect with its interval, and the band inside which it has to lie."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from experiments.inference.intervals import Interval

LEAST_COVERAGE = 0.90  # five processes cover 93.75 %, four 87.5 %


class Effect(NamedTuple):
    """What a claim compares, and the band in which it bears the claim out. among: from how many it was chosen as the best."""

    interval: Interval
    least: float = -inf
    most: float = inf
    among: int = 1

    def decided(self, together: int = 1) -> bool | None:
        """Whether the interval lies inside the band; None where it spans an end, or covers too little. together: of how many effects
        this is one, all of which have to lie in their bands: then any one may refute the claim, so only what refutes it is held to
        more."""
        if not self.interval.coverage >= LEAST_COVERAGE:
            return None
        shown, refuting = self.interval.widened(self.among), self.interval.widened(max(self.among, together))
        if self.least <= shown.low and shown.high <= self.most:
            return True
        return False if refuting.high < self.least or refuting.low > self.most else None


def inside(interval: Interval, least: float = -inf, most: float = inf, among: int = 1) -> Effect:
    """The effect that has to lie in a claim's band, from `least` to `most`."""
    return Effect(interval, least, most, among)
