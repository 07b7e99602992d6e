"""What a TLB entry spans in a guest: the lines at which each chase's price steps, and what large pages pay between the steps.

An entry leads from the guest's virtual address to the host's physical one, so it spans no more than the smaller of the two pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.ndimage import median_filter

from experiments.chapters.virtualization import analysis as virtual
from experiments.chapters.virtualization.analysis import NATIVE, cell, hardware, native
from experiments.inference import splinter
from experiments.inference.intervals import Interval
from experiments.lab.grid import STEPS_OF
from experiments.words.reasons import Unavailable

_NOTHING = float("nan")
CLEAR = 1.25  # so far from a level's end that sets which fill unevenly no longer show
LEAST_BETWEEN = 4  # prices that a level's own price is the median of: two octaves


def steps(frame: pd.DataFrame, entries: Sequence[int]) -> pd.DataFrame:
    """Where the price of translation leaves each TLB level: a row a chase with a line to a page: guest ("" outside), host, first_low,
    first_high, second_low, second_high (neighbouring numbers of lines), most (lines). NaN where it never leaves it.

    entries: of each level for base pages, as stated. Between them a process on base pages pays for a hit in the second level, and
    by that price the others are told: half of it is past the first level, twice of it past the second, from there on in all larger
    sizes. (A grid of two points an octave is too coarse for change points.) Raises Unavailable: no-geometry, too-few-points, no-step.
    """
    if len(entries) < 2:
        raise Unavailable("no-geometry", "CPUID does not state two levels")
    plain = virtual.outside(frame)
    chases = {("", pages): side for pages, side in plain.groupby("pages", sort=False)}
    with suppress(Unavailable):
        chases |= {(guest, host): side for (guest, host), side in virtual.matrix(frame).groupby(["guest", "host"], sort=False)}
    between = plain[(plain["pages"] == "4k") & plain["lines"].between(entries[0] * CLEAR, entries[1] / CLEAR)]["price"].dropna()
    if len(between) < LEAST_BETWEEN:
        raise Unavailable("too-few-points", "a process on base pages was not measured between the two levels")
    if (hit := float(between.median())) <= 0:
        raise Unavailable("no-step", f"between the two levels a process on base pages pays {hit:z.2f} ns")
    rows = []
    for (guest, host), side in chases.items():
        side = side[(side["lines"] <= splinter.MOST_LINES) & side["price"].notna()].sort_values("lines")
        if len(side) >= 2 * LEAST_BETWEEN:  # those measured at the matrix's sizes alone have no steps to show
            lines, price = side["lines"].to_numpy(), median_filter(side["price"].to_numpy(), size=3, mode="nearest")
            rows.append((guest, host, *_left(lines, price, hit / 2), *_left(lines, price, 2 * hit), int(lines[-1])))
    return pd.DataFrame(rows, columns=["guest", "host", "first_low", "first_high", "second_low", "second_high", "most"])


def _left(lines: np.ndarray, price: np.ndarray, least: float) -> tuple[float, float]:
    """The numbers of lines between which a price comes to `least` for good; NaN where it is below at the end, or never was."""
    under = np.flatnonzero(price < least)
    if not len(under) or under[-1] == len(lines) - 1:
        return _NOTHING, _NOTHING
    return float(lines[under[-1]]), float(lines[under[-1] + 1])


class Share(NamedTuple):
    """What a chase pays between the first level's entries and the second's, over what the chase on base pages throughout pays there."""

    guest: str  # "" outside
    host: str
    share: Interval
    lines: tuple[int, int]

    @property
    def kind(self) -> str:
        """pieces: an entry spans a base page; whole: it spans more; open."""
        half = splinter.HALF
        return "pieces" if self.share.low > half else "whole" if self.share.high < half else "open"


def shares(frame: pd.DataFrame) -> list[Share]:
    """A share for each chase of `grids.STEPS_OF` but the first, and of large pages outside. An entry that spans a large page needs
    few entries for all lines and pays nothing there (experiments/splinter.py). Those that cannot be compared are left out."""
    found = []
    wanted = [("", host) for host in dict.fromkeys(host for _, host in STEPS_OF[1:]) if hardware(host) != "4k"] + list(STEPS_OF[1:])
    for guest, host in wanted:
        base, large = (cell(frame, *STEPS_OF[0]), cell(frame, guest, host)) if guest else (native(frame, "4k"), native(frame, host))
        if base.empty or large.empty or large["lines"].min() > base["lines"].min():  # what a load costs that misses nothing goes off both
            continue
        both = pd.concat([base.assign(pages="4k"), large.assign(pages="2m")]).assign(kernel=NATIVE)
        try:
            first = splinter.judge(both, "none").first
        except Unavailable:
            continue
        found.append(Share(guest, host, first.share, first.lines))
    return found
