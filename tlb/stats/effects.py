"""When an effect is decided: the rule of all verdicts, an interval and the band inside which it has
to lie; and the ratio of two quantities measured in pairs, with an exact interval.

The two of a pair see the same neighbours and the same clock, so their ratio is free of drift.
Without a difference, the log of their ratio is symmetric about 0 whatever the distribution of
times; that is all Wilcoxon's interval needs, and why it needs a third fewer pairs than the sign
test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil, exp, inf, log

from tlb.stats.intervals import LEAST_COVERAGE, UNKNOWN_INTERVAL, Interval, median_interval
from tlb.stats.scatter import count_modes, median_of_sorted
from tlb.system.reasons import Undecided

FEWEST_DECIDING_PROCESSES = 5  # processes: the fewest whose interval covers as much
NEGLIGIBLE_RELATIVE_DIFFERENCE = 0.05  # what this book calls no difference, as a share


@dataclass(frozen=True)
class Effect:
    """What a claim compares, and the band in which it bears the claim out. among: from how many it
    was chosen as the best. what: which of a claim's conditions, or where, as "in 4 GiB". unit: its
    own, where it is not the claim's."""

    interval: Interval
    least: float = -inf
    most: float = inf
    among: int = 1
    what: str = ""
    unit: str = ""

    @property
    def is_of_few(self) -> bool:
        """Whether fewer processes are behind it than decide."""
        return not self.interval.coverage >= LEAST_COVERAGE

    @property
    def is_outside(self) -> bool:
        """Whether the interval as printed lies outside the band."""
        return self.interval.high < self.least or self.interval.low > self.most

    def decided(self, together: int = 1) -> bool | None:
        """Whether the interval lies inside the band; None where it spans an end, or covers too
        little. together: of how many effects this is one, all of which have to lie in their bands:
        then any one may refute the claim, so only what refutes it is held to more."""
        if self.is_of_few:
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
        if self.is_of_few:
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
        (
            n
            for n in range(2, FEWEST_DECIDING_PROCESSES)
            if abs(median_interval(range(n)).coverage - coverage) < 1e-9
        ),
        None,
    )
    if n is None and coverage > 0:
        return Undecided(
            "few", f"The interval covers {coverage:.0%}; {LEAST_COVERAGE:.0%} are needed."
        )
    return Undecided(
        "few",
        f"{f'{n} processes' if n else 'At most one process'}; {FEWEST_DECIDING_PROCESSES} are needed.",
    )


def why_effects_are_undecided(effects: Sequence[Effect]) -> Undecided:
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


def effect_inside_band(
    interval: Interval,
    least: float = -inf,
    most: float = inf,
    among: int = 1,
    what: str = "",
    unit: str = "",
) -> Effect:
    """The effect that has to lie in a claim's band, from `least` to `most`."""
    return Effect(interval, least, most, among, what, unit)


# --- ratios of pairs

# Of five pairs all go one way by chance once in sixteen times, of six once in thirty-two.
FEWEST_RATIO_PAIRS = 6
# Looking again and again until an interval is narrow finds the narrow ones that are wrong: by looks
# half as many pairs apart again, at this confidence, one in twenty says a difference where there is
# none (tests/stats/test_pairs.py).
PAIRED_CONFIDENCE = 0.99
_GROWTH = 1.5


def is_interim_analysis(pairs: int, least: int = FEWEST_RATIO_PAIRS) -> bool:
    """Return whether the interval is looked at after `pairs` pairs: from 6 on, after 6, 9, 14, 21, ..."""
    look = least
    while look < pairs:
        look = ceil(look * _GROWTH)
    return look == pairs


def paired_ratio(
    numerators: Iterable[float],
    denominators: Iterable[float],
    confidence: float = PAIRED_CONFIDENCE,
) -> Interval:
    """Return the typical ratio of pairs of numbers above zero with its exact interval; UNKNOWN_INTERVAL
    without a pair.

    The estimate is the median of the means of all pairs of logs (Hodges & Lehmann, Ann. Math. Stat.
    34, 1963), the bounds are those of Wilcoxon's signed ranks (Hollander & Wolfe, Nonparametric
    Statistical Methods, 1999, section 3.4). Coverage: as requested, or the largest for so few
    pairs, 1 - 2^(1-n). If one side has a second mode that the other lacks, the median of the ratios
    is outside more often. Raises ValueError for a number that is not above zero.
    """
    above, below = [*map(float, numerators)], [*map(float, denominators)]
    if len(above) != len(below) or not all(0 < value < inf for value in above + below):
        raise ValueError("a ratio is of pairs of numbers above zero")
    if not above:
        return UNKNOWN_INTERVAL
    logs = [log(a) - log(b) for a, b in zip(above, below, strict=True)]
    means = sorted((one + other) / 2 for n, one in enumerate(logs) for other in logs[n:])
    rank, coverage = _rank(len(logs), confidence)
    value, low, high = exp(median_of_sorted(means)), exp(means[rank - 1]), exp(means[-rank])
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return Interval(value, low, high, coverage, count_modes(ratios))


@lru_cache(maxsize=1024)
def _rank(n: int, confidence: float) -> tuple[int, float]:
    """Return the largest r for which the r-th smallest and largest of the means enclose the truth
    as often as requested, or 1; and how often: 1 - 2 P(T < r), T the sum of the ranks 1 to n that a
    coin picks."""
    ways = [1.0]
    for rank in range(1, n + 1):  # the distribution of T, a rank at a time
        longer = zip(ways + [0.0] * rank, [0.0] * rank + ways, strict=True)
        ways = [(without + with_it) / 2 for without, with_it in longer]
    below = [*accumulate(ways)]
    r = 1
    while r < len(below) // 2 and 1 - 2 * below[r] >= confidence:
        r += 1
    return r, 1 - 2 * below[r - 1]
