"""The rule of all verdicts: an effect with its interval, and the band inside which it has to
lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tlb.stats.intervals import LEAST_COVERAGE, Interval, median_interval
from tlb.system.reasons import Undecided

NEEDED = 5  # processes: the fewest whose interval covers as much


@dataclass(frozen=True)
class Effect:
    """What a claim compares, and the band in which it bears the claim out. among: from how many it
    was chosen as the best."""

    interval: Interval
    least: float = -inf
    most: float = inf
    among: int = 1

    @property
    def is_outside(self) -> bool:
        """Whether the interval as printed lies outside the band."""
        return self.interval.high < self.least or self.interval.low > self.most

    def decided(self, together: int = 1) -> bool | None:
        """Whether the interval lies inside the band; None where it spans an end, or covers too
        little. together: of how many effects this is one, all of which have to lie in their bands:
        then any one may refute the claim, so only what refutes it is held to more."""
        if not self.interval.coverage >= LEAST_COVERAGE:
            return None
        shown = self.interval.widened(self.among)
        refuting = self.interval.widened(max(self.among, together))
        if self.least <= shown.low and shown.high <= self.most:
            return True
        return False if refuting.high < self.least or refuting.low > self.most else None

    def why_undecided(self, together: int = 1) -> Undecided | None:
        """Return why `decided` is None; None where it is not."""
        if self.decided(together) is not None:
            return None
        if not self.interval.coverage >= LEAST_COVERAGE:
            return too_few_processes(self.interval.coverage)
        within = self.least <= self.interval.low and self.interval.high <= self.most
        if within or self.is_outside:
            among = self.among if within else max(self.among, together)
            return Undecided(
                "widened",
                f"An interval lies {'inside' if within else 'outside'} the band as printed, but "
                f"it is one of {among} compared; widened for that, it crosses an end of the band.",
            )
        return Undecided("bistable" if self.interval.modes > 1 else "crosses")


def too_few_processes(coverage: float) -> Undecided:
    """Return the reason that an interval of less than LEAST_COVERAGE gives, with the number of
    processes where its coverage tells it."""
    n = next(
        (n for n in range(2, NEEDED) if abs(median_interval(range(n)).coverage - coverage) < 1e-9),
        None,
    )
    if n is None and coverage > 0:
        return Undecided(
            "few", f"The interval covers {coverage:.0%}; {LEAST_COVERAGE:.0%} are needed."
        )
    return Undecided(
        "few", f"{f'{n} processes' if n else 'At most one process'}; {NEEDED} are needed."
    )


def why_undecided(effects: Sequence[Effect]) -> Undecided:
    """Return why several effects that have to lie in their bands together are undecided: every
    reason, the code of the gravest.

    What looks decided as printed is explained first: too few processes, then an interval outside
    its band.
    """
    found = [(effect, why) for effect in effects if (why := effect.why_undecided(len(effects)))]

    def rank(one: tuple[Effect, Undecided]) -> int:
        effect, why = one
        is_outside = why.code == "widened" and effect.is_outside
        ranks = ("few", "outside", "bistable", "crosses", "widened")
        return ranks.index("outside" if is_outside else why.code)

    ordered = [why for _, why in sorted(found, key=rank)]
    return Undecided(ordered[0].code, " ".join(dict.fromkeys(why.text for why in ordered)))


def inside(interval: Interval, least: float = -inf, most: float = inf, among: int = 1) -> Effect:
    """The effect that has to lie in a claim's band, from `least` to `most`."""
    return Effect(interval, least, most, among)
