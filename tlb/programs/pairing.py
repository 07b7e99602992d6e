"""The rule of `tlb try`: the order of runs, when their pairs are enough, and what their ratio means."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from math import inf, log, log1p
from typing import Literal

from tlb.stats.effects import Effect
from tlb.stats.intervals import Interval
from tlb.stats.pairs import LEAST_PAIRS, is_look, paired_ratio

Verdict = Literal["helps", "hurts", "differs, by less than asked", "no difference", "cannot tell"]
MOST_WITHIN = 50  # %: a ratio that is known less well says nothing


def verdict(ratio: Interval, pairs: int, within: float, higher: bool = False) -> Verdict:
    """Return what a ratio of with to without means.

    An interval inside 1 ± within is "no difference" if it contains 1, and "differs, by less than
    asked" if not. Less is better, or more where `higher`."""
    if pairs < LEAST_PAIRS:
        return "cannot tell"
    is_small = Effect(ratio, 1 / (1 + within), 1 + within).decided() is True
    contains_one = Effect(ratio, 1, 1).decided() is not False
    if contains_one:
        return "no difference" if is_small else "cannot tell"
    if is_small:
        return "differs, by less than asked"
    return "helps" if (ratio.value > 1) is higher else "hurts"


def is_narrow(ratio: Interval, within: float) -> bool:
    """Return whether more pairs would add nothing: the interval is within 1 ± `within`, or it
    excludes 1 and is within `within` of its own value, or within a tenth of a large effect."""
    middle, low, high = (log(bound) for bound in ratio.value_and_bounds)
    wanted = max(log1p(within), abs(middle) / 10)
    is_decided = (low > 0 or high < 0) and max(high - middle, middle - low) <= wanted
    return is_decided or max(high, -low) <= log1p(within)


def orders(seed: int) -> Iterator[bool]:
    """Yield for each pair whether the lever runs first: in one of every two pairs, which one is
    random. So the cost of running second is added to both sides alike."""
    drawn = random.Random(seed)
    while True:
        first = drawn.random() < 0.5
        yield from (first, not first)


def paired(
    take: Callable[[bool], object],
    values: Callable[[list], list[float]],
    within: float,
    limit_s: float,
    seed: int,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple]:
    """Yield pairs of what `take` returns without and with a lever, until six or more have a ratio
    that is narrow enough, or the next pair would end after limit_s. seed: of `orders`."""
    start, pairs = clock(), []
    for first in orders(seed):
        begin = clock()
        taken = {lever: take(lever) for lever in (first, not first)}
        pairs.append((taken[False], taken[True]))
        yield pairs[-1]
        if is_look(len(pairs)):
            compared = values([run for pair in pairs for run in pair])
            if is_narrow(paired_ratio(compared[1::2], compared[::2]), within):
                return
        if 2 * clock() - begin - start > limit_s:
            return


def would_have_shown(ratio: Interval) -> float:
    """Return the smallest relative difference that the interval rules out; inf if it is unknown."""
    return max(ratio.high - 1, 1 / ratio.low - 1) if ratio.low > 0 else inf
