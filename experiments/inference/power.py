"""How often a rule that decides by intervals is wrong, and how often it decides: on made-up processes, and on measured ones drawn again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from experiments.inference.intervals import Interval, median_interval

Processes = Callable[[np.random.Generator, int], np.ndarray]  # so many processes of a point whose median is 1


class Rates(NamedTuple):
    """Shares of all trials. wrong: decided against the truth; decided: either way."""

    wrong: float
    decided: float


def made_up(noise: float) -> Processes:
    """Lognormal times with this relative spread: what slows a process down multiplies."""
    return lambda random, n: np.exp(noise * random.standard_normal(n))


def drawn_again(frame: pd.DataFrame, by: list[str], value: str = "ns_per_access", least: int = 4) -> Processes:
    """Processes as they were measured: each over its own point's median, of points with `least` of them, which are drawn from with
    return. A median over few has itself an error, so the spread is put right by n/(n-1)."""
    points = [np.log(times / np.median(times)) * np.sqrt(len(times) / (len(times) - 1))
              for _, group in frame.groupby(by) if len(times := group[value].to_numpy()) >= least]
    rest = np.concatenate(points)
    rest -= np.median(rest)
    return lambda random, n: np.exp(random.choice(rest, n))


def ratio(processes: Processes, true: float) -> Callable[[np.random.Generator, int], Interval]:
    """Measures the ratio of two points, n processes each, which truly is `true`."""
    return lambda random, n: median_interval(true * processes(random, n)) / median_interval(processes(random, n))


def rates(measure: Callable[[np.random.Generator, int], ArrayLike], decide: Callable[..., bool | None], truth: bool | None, n: int,
          trials: int = 2000, seed: int = 1) -> Rates:
    """The rule's rates over so many trials. truth: what would be right; None where either would be wrong, on the line itself."""
    random = np.random.default_rng(seed)
    answers = [decide(measure(random, n)) for _ in range(trials)]
    decided = [answer for answer in answers if answer is not None]
    return Rates(sum(answer is not truth for answer in decided) / trials, len(decided) / trials)
