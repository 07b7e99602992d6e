"""What a TLB entry spans in a guest: the lines at which each chase's price steps, and what large pages pay between the steps.

An entry leads from the guest's virtual address to the host's physical one, so it spans no more than the smaller of the two pages.
"""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from experiments import geometry, knees, splinter
from experiments.grids import STEPS_OF
from experiments.reasons import Unavailable
from experiments.stats import Interval
from experiments.virtual import NATIVE, cell, cells, hardware, native, native_pages

_NOTHING = float("nan")


def steps(frame: pd.DataFrame) -> pd.DataFrame:
    """Where the price of translation steps: a row a chase with points enough for `knees.knees`: guest ("" outside), host, first_low,
    first_high, second_low, second_high (lines between which half of a rise is done; NaN for no step), points, most (lines)."""
    chases = [("", pages, native(frame, pages)) for pages in native_pages(frame)]
    chases += [(guest, host, cell(frame, guest, host)) for guest, host in cells(frame)]
    rows = []
    for guest, host, mine in chases:
        points = geometry.priced(mine[mine["lines"] <= splinter.MOST_LINES])
        if len(points) < 4 * knees.SEGMENT:
            continue
        found = [(knee.last_low, knee.first_high) for knee in geometry.steps(points)[:2]] + [(_NOTHING, _NOTHING)] * 2
        rows.append((guest, host, *found[0], *found[1], len(points), int(points["lines"].max())))
    return pd.DataFrame(rows, columns=["guest", "host", "first_low", "first_high", "second_low", "second_high", "points", "most"])


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
