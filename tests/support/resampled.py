"""Times of more mappings, drawn from those of measured rows."""

import numpy as np
import pandas as pd

from experiments.overview.method import Processes

LEAST = 4  # mappings of a point: the median of fewer has too large an error


def drawn_again(frame: pd.DataFrame, by: list[str]) -> Processes:
    """Return a sampler, with replacement, of measured times over their own point's median.

    A median of few has an error itself, so the spread is corrected by n/(n-1).
    """
    points = [
        np.log(times / np.median(times)) * np.sqrt(len(times) / (len(times) - 1))
        for _, group in frame.groupby(by)
        if len(times := group["ns_per_access"].to_numpy()) >= LEAST
    ]
    rest = np.concatenate(points)
    rest -= np.median(rest)
    return lambda random, n: np.exp(random.choice(rest, n))
