"""How often a rule that decides by intervals is wrong, and how often it decides: on synthetic
processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tlb.stats.intervals import Interval, median_interval

# so many processes of a point whose median is 1
Processes = Callable[[np.random.Generator, int], np.ndarray]


class Rates(NamedTuple):
    """Shares of all trials. wrong: decided against the truth; decided: either way."""

    wrong: float
    decided: float


def made_up(noise: float) -> Processes:
    """Lognormal times with this relative spread: what slows a process down multiplies."""
    return lambda random, n: np.exp(noise * random.standard_normal(n))


def ratio(processes: Processes, true: float) -> Callable[[np.random.Generator, int], Interval]:
    """Measures the ratio of two points, n processes each, which truly is `true`."""
    return lambda random, n: (
        median_interval(true * processes(random, n)) / median_interval(processes(random, n))
    )


def rates(
    measure: Callable[[np.random.Generator, int], ArrayLike],
    decide: Callable[..., bool | None],
    truth: bool | None,
    n: int,
    trials: int = 2000,
    seed: int = 1,
) -> Rates:
    """The rule's rates over so many trials. truth: what would be right; None where either would be
    wrong, on the line itself."""
    random = np.random.default_rng(seed)
    answers = [decide(measure(random, n)) for _ in range(trials)]
    decided = [answer for answer in answers if answer is not None]
    return Rates(sum(answer is not truth for answer in decided) / trials, len(decided) / trials)
