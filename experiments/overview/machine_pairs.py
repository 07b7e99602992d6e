"""The same points measured twice, on two machines or in two states of one: medians and their ratio.

The interval of a ratio knows its processes, but nothing of what all processes of a day have in
common (the pages that a boot had left, a host's other guests). If rows of a point are of several
runs, these show how much that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, hypot, inf, isfinite, log, nan
from typing import NamedTuple

import numpy as np
import pandas as pd

from tlb.measure.last_campaign import KERNEL, last_campaign
from tlb.stats.intervals import NO_REPEATS, Interval, summarise

# Without a process for so long, what is measured next is another run. A campaign of an hour pauses
# for seconds, a resumed one for long.
PAUSE_S = 3600.0
LARGEST = 700.0  # a logarithm: exp() of more overflows
# what has to be the same for two rows to be of one program
SAME = [*KERNEL, "measures"]


class Pair(NamedTuple):
    """One quantity of one point, on both sides. ratio: B over A, or None if a median is not above
    zero.

    spread: by what factor two runs differ, on the side where they do more; NaN if both sides have
    one run. slack: the log by which a ratio has to be beyond 1 to be beyond both sides' runs.
    """

    a: Interval
    b: Interval
    ratio: Interval | None
    processes: tuple[int, int]
    runs: tuple[int, int]
    spread: float
    slack: float

    @property
    def logs(self) -> Interval:
        """The log of the ratio, so that B over A is decided as A over B is. Infinite bounds without
        one."""
        if self.ratio is None:
            return Interval(nan, -inf, inf, 0.0)
        value, low, high = (
            log(number) if number > 0 else -inf for number in self.ratio.value_and_bounds
        )
        return Interval(value, low, high, self.ratio.coverage, self.ratio.modes)

    def widened(self, among: int) -> Interval | None:
        """Return the ratio with the bounds that it needs as one of `among`."""
        if self.ratio is None:
            return None
        wide = self.logs.widened(among)
        high = exp(wide.high) if wide.high < LARGEST else inf
        return replace(self.ratio, low=exp(wide.low), high=high, repeats=NO_REPEATS)

    def would_show(self, among: int) -> float:
        """Return the least factor above 1 that this ratio, one of `among`, would tell from none;
        infinite if none would."""
        wide = self.logs.widened(among)
        half = max(wide.high - wide.value, wide.value - wide.low) + self.slack
        return exp(half) if isfinite(half) and half < LARGEST else inf


def run_numbers(started_at: pd.Series) -> pd.Series:
    """Return the run of each row, from 0 on: another begins after PAUSE_S without a start."""
    begins = pd.to_datetime(started_at).sort_values(kind="stable")
    return (begins.diff().dt.total_seconds() > PAUSE_S).cumsum().reindex(started_at.index)


def rows_of_shared_kernels(
    a: pd.DataFrame, b: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, set[str]]:
    """Return of both sides the rows of the kernels that both have in the same version, each of its
    last campaign; and the kernels that they have in other versions only.

    Of several equal versions the newest is compared.
    """
    both = a[SAME].merge(b[SAME].drop_duplicates(), on=SAME)
    last = both.groupby(KERNEL)["measures"].max().reset_index()
    differently = (_in(a, KERNEL) & _in(b, KERNEL)) - _in(last, KERNEL)
    kept = [last_campaign(side.merge(last, on=SAME)) for side in (a, b)]
    return kept[0], kept[1], {kernel for kernel, _ in differently}


def _in(frame: pd.DataFrame, columns: list[str]) -> set[tuple]:
    return {*frame[columns].itertuples(index=False, name=None)}


def point_pairs(
    a: pd.DataFrame, b: pd.DataFrame, by: Sequence[str], value: str
) -> list[tuple[tuple, Pair]]:
    """Return each point that both sides have, by `by`, with its pair. Frames have a column
    `run`."""
    a, b = (side[np.isfinite(side[value])] for side in (a, b))
    if a.empty or b.empty:
        return []
    both = _side(a, list(by), value).merge(
        _side(b, list(by), value), on=list(by), suffixes=("_a", "_b")
    )
    return [(tuple(row[name] for name in by), _pair(row)) for row in both.to_dict("records")]


def _side(frame: pd.DataFrame, by: list[str], value: str) -> pd.DataFrame:
    """Return `summarise` with the number of runs of each point, and the log by which these lie
    apart: its own, or the median over its kernel's points if that is more; NaN if no point has
    several runs."""
    found = summarise(frame, by, value)
    medians = frame.groupby([*by, "run"], dropna=False)[value].median().reset_index()
    apart = (
        medians.groupby(by, sort=True, dropna=False)[value]
        .agg(["size", "min", "max"])
        .reset_index()
    )
    apart["apart"] = (
        (apart["max"] / apart["min"].where(apart["min"] > 0)).apply(np.log).where(apart["size"] > 1)
    )
    apart["apart"] = np.fmax(apart["apart"], apart.groupby("kernel")["apart"].transform("median"))
    return found.merge(apart[[*by, "size", "apart"]].rename(columns={"size": "runs"}), on=by)


def _pair(row: dict) -> Pair:
    a, b = (
        Interval.of(
            {name: row[f"{name}_{side}"] for name in ("median", "low", "high", "coverage", "modes")}
        )
        for side in "ab"
    )
    apart = [row[f"apart_{side}"] for side in "ab"]
    known = [log_factor for log_factor in apart if isfinite(log_factor)]
    ratio = b / a if a.value > 0 and b.value > 0 else None
    processes, runs = (row["n_a"], row["n_b"]), (row["runs_a"], row["runs_b"])
    return Pair(a, b, ratio, processes, runs, exp(max(known)) if known else nan, hypot(*known))
