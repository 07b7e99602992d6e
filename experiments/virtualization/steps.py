"""What an entry of the TLB spans in a guest: from the guest's virtual address to the host's
physical one, so no more than the smaller of the two pages."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.ndimage import median_filter

from experiments.virtualization.grid import STEPS_OF
from tlb.inference import splinter
from tlb.inference.curves import select
from tlb.inference.intervals import Interval
from tlb.page_sizes import BASE, hardware
from tlb.reasons import Unavailable
from tlb.report import analysis

Chase = tuple[str, str]  # the guest's page, "" of a plain process; and the host's
GUEST, PROCESS = "guest_chase", "page_chase"
CLEAR = 1.25  # so far from a level's end that sets which fill unevenly no longer show
LEAST_BETWEEN = 4  # prices that a level's own price is the median of: two octaves


class StepsAnalysis(analysis.Analysis):
    """The chases over few lines. The page defines price."""

    def rows(self, guest: str, host: str, levels: int = 4) -> pd.DataFrame:
        """The rows of a chase, `levels` being of a guest's tables."""
        own = (
            {"kernel": GUEST, "mode": guest, "levels": levels}
            if guest
            else {"kernel": PROCESS, "mode": ""}
        )
        return select(self.frame, pages=host, **own)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Where the price of translation leaves each TLB level: a row a chase: guest, host,
        first_low, first_high, second_low, second_high (neighbouring numbers of lines), most
        (lines). NaN where it never leaves it.

        Between the two levels' entries a process on base pages pays for a hit in the second, and by
        that price the others are told: half of it is past the first level, twice of it past the
        second, from there on in all larger sizes. (A grid of two points an octave is too coarse for
        change points.) Raises Unavailable: no-geometry, too-few-points, no-step.
        """
        first, second = self.two_levels()
        between = (
            self.price["", BASE].between(first * CLEAR, second / CLEAR)
            if ("", BASE) in self.price
            else ()
        )
        if len(between) < LEAST_BETWEEN:
            raise Unavailable(
                "too-few-points", "a process on base pages was not measured between the two levels"
            )
        if (hit := float(between.medians.median())) <= 0:
            raise Unavailable(
                "no-step", f"between the two levels a process on base pages pays {hit:z.2f} ns"
            )
        rows = []
        for chase, curve in self.price.items():
            part = curve.between(0, splinter.MOST_LINES).medians
            if (
                len(part) >= 2 * LEAST_BETWEEN
            ):  # those measured at the matrix's sizes alone have no steps to show
                rows.append(
                    (*chase, *_left(part, hit / 2), *_left(part, 2 * hit), int(part.index[-1]))
                )
        columns = ["guest", "host", "first_low", "first_high", "second_low", "second_high", "most"]
        return pd.DataFrame(rows, columns=columns)

    @cached_property
    def shares(self) -> dict[Chase, Interval]:
        """What a chase pays between the first level's entries and the second's over what one on
        base pages throughout pays there, for STEPS_OF but the first, and large pages outside.
        Entries that span large pages are few for all lines and cost nothing there
        (inference/splinter.py). What cannot be compared is left out."""
        outside = [
            ("", host)
            for host in dict.fromkeys(host for _, host in STEPS_OF)
            if hardware(host) != BASE
        ]
        shares = {}
        for guest, host in [*outside, *STEPS_OF[1:]]:
            base, large = self.rows(BASE if guest else "", BASE), self.rows(guest, host)
            if base.empty or large.empty or large["lines"].min() > base["lines"].min():
                continue  # what a load costs that misses nothing goes off both
            both = pd.concat([base.assign(pages=BASE), large.assign(pages="2m")]).assign(
                kernel=PROCESS, stride_pages=1
            )
            with suppress(Unavailable):
                shares[guest, host] = splinter.judge(both, "none").first.share
        return shares


def _left(price: pd.Series, least: float) -> tuple[float, float]:
    """The numbers of lines between which a price, smoothed by a median of three, comes to `least`
    for good; NaN where it does not."""
    under = np.flatnonzero(median_filter(price.to_numpy(), size=3, mode="nearest") < least)
    if not len(under) or under[-1] == len(price) - 1:
        return np.nan, np.nan
    return float(price.index[under[-1]]), float(price.index[under[-1] + 1])
