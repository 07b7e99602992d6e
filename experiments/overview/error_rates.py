"""How often a rule that decides by intervals is wrong, and how often it decides: on synthetic
processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from tlb.stats.intervals import Interval, median_interval

# times of a number of processes of a point whose median is 1
Measured = TypeVar("Measured")
Processes = Callable[[np.random.Generator, int], np.ndarray]


class Rates(NamedTuple):
    """Shares of all trials. wrong: decided against the truth; decided: either way."""

    wrong: float
    decided: float


def lognormal_times(noise: float) -> Processes:
    """Lognormal times with this relative spread: what slows a process down multiplies."""
    return lambda random, n: np.exp(noise * random.standard_normal(n))


def measured_ratio(
    processes: Processes, true: float
) -> Callable[[np.random.Generator, int], Interval]:
    """Return a measurement of the ratio of two points, n processes each, which truly is `true`."""
    return lambda random, n: (
        median_interval(true * processes(random, n)) / median_interval(processes(random, n))
    )


def error_rates(
    measure: Callable[[np.random.Generator, int], Measured],
    decide: Callable[[Measured], bool | None],
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
