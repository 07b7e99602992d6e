"""The ratio of quantities measured in pairs, with an exact interval, and when to check it.

The two of a pair see the same neighbours and the same clock, so their ratio is free of drift.
Without a difference, the log of their ratio is symmetric about 0 whatever the distribution of
times; that is all Wilcoxon's interval needs, and why it needs a third fewer pairs than the sign
test.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate
from math import ceil, exp, inf, log

from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval, modes
from tlb.stats.scatter import median

# Of five pairs all go one way by chance once in sixteen times, of six once in thirty-two.
LEAST_PAIRS = 6
# Looking again and again until an interval is narrow finds the narrow ones that are wrong: by looks
# half as many pairs apart again, at this confidence, one in twenty says a difference where there is
# none (tests/stats/test_pairs.py).
CONFIDENCE = 0.99
_GROWTH = 1.5


def is_interim_look(pairs: int, least: int = LEAST_PAIRS) -> bool:
    """Return whether the interval is looked at after so many pairs: of least 6 after 6, 9, 14, 21, ..."""
    look = least
    while look < pairs:
        look = ceil(look * _GROWTH)
    return look == pairs


def paired_ratio(
    numerators: Iterable[float], denominators: Iterable[float], confidence: float = CONFIDENCE
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
    value, low, high = exp(median(means)), exp(means[rank - 1]), exp(means[-rank])
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return Interval(value, low, high, coverage, modes(ratios))


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
