"""What translation can cost a program at most, by the pages that it touches: the tread of the
staircase that it lives on, what a far load pays there, and what larger pages could gain.

A program is known by its active set alone: the distinct pages that it touches in a while. How many
of its loads are far ones, nobody outside it knows, so all that can be said is what a program of far
loads alone would pay and gain: no other has more of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from tlb.inference import curves
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import Interval
from tlb.page_sizes import BASE, LARGE
from tlb.reasons import required

# Where the data just fill a shared cache, one process finds it free and the next does not: a ratio
# of two such is of neither. One point between two others decides nothing.
_NEIGHBOURS = 3

Tread = Literal["first level", "second level", "beyond"]


def tread(pages: float, entries: Sequence[int]) -> Tread:
    """Where so many pages live, given the entries of each level for pages of their size, ascending.
    A level that is the only one known is the last, and what it holds is not told apart. Raises
    Unavailable("no-geometry") where no level is known."""
    first, last = (
        required(entries, "no level is known for such pages", "no-geometry")[0],
        entries[-1],
    )
    return (
        "beyond"
        if pages > last
        else "first level"
        if pages <= first and len(entries) > 1
        else "second level"
    )


def bracket(curve: Curve, x: float) -> Interval:
    """The estimate at an x that need not have been measured: between its neighbours, interpolated
    in log x, with the lower of their lower bounds and the higher of their upper ones. Outside what
    was measured it is that of the nearest end.

    Raises Unavailable("too-few-points") on an empty curve."""
    table = required(curve.table, "nothing was measured")
    xs = table[curve.x].to_numpy(float)
    x = float(np.clip(x, xs[0], xs[-1]))
    last = int(np.searchsorted(xs, x))  # the first that is no smaller
    both = table.iloc[[last if xs[last] == x else last - 1, last]]
    value = float(np.interp(np.log(x), np.log(xs), table["median"]))
    return Interval(
        value,
        float(both["low"].min()),
        float(both["high"].max()),
        float(both["coverage"].min()),
        int(both["modes"].max()),
    )


def smoothed(curve: Curve) -> Curve:
    """The curve with each value and each bound the median of its own and its two neighbours', which
    keeps steps where they are."""
    names = ["median", "low", "high"]
    return Curve(
        curve.table.assign(
            **curve.table[names]
            .rolling(_NEIGHBOURS, center=True)
            .median()
            .fillna(curve.table[names])
        ),
        curve.x,
    )


class Gain(NamedTuple):
    """What large pages could do for a program that touches so many base pages in a while.

    price, large_price: of translation, ns a far load, on base pages and on large ones. ratio: the
    time with large pages over the time as it is, as `tlb try` says it; its value is that of a
    program of far loads alone, and its bounds hold any program: one without far loads has a ratio
    of 1. large: which large pages, a key of words.pages.PAGES. measured_pages: the most that the
    machine's rows speak of; past them their last stands for more.
    """

    pages: int
    price: Interval
    large_price: Interval
    ratio: Interval
    large: str
    measured_pages: int


def expected_gain(
    rows: pd.DataFrame,
    active_bytes: float,
    large_bytes: float,
    base_page_bytes: int,
    *,
    kernel_share: float = 0.0,
) -> Gain:
    """The most that 2 MiB pages can gain a program, from a machine's own rows.

    rows: of `page_chase` on base pages and on 2 MiB ones, spread and packed, a row a process (the
    experiment `hugepages`, as Store.load gives it). active_bytes: touched in a while, by the unit
    of the pages that are mapped; large_bytes: of it, what is on large pages already, which gains
    nothing more. kernel_share: of the program's CPU time, what the kernel takes of a program that
    faults: larger pages may spare that as well, so the lower bound is without it.

    A program also touches fewer pages again and again, so the least ratio is that of any size up to
    its own. Raises Unavailable: pool-empty where large pages were not chased on, too-few-points.
    """
    chase = select(rows, kernel="page_chase", order="cycle", stride_pages=1)
    large = required(
        [pages for pages in reversed(LARGE) if (chase["pages"] == pages).any()],
        "no rows are on 2 MiB pages",
        "pool-empty",
    )[0]
    pages = max(int((active_bytes - large_bytes) / base_page_bytes), 1)
    spread = {kind: curves.spread(chase, pages=kind) for kind in (BASE, large)}
    ratios = smoothed(spread[large] / spread[BASE])
    there = bracket(ratios, pages)
    least = min([there.low, *ratios.table["median"][ratios.table["lines"] <= pages]])
    ratio = there._replace(low=least * (1 - kernel_share), high=max(there.high, 1.0))
    price, large_price = (
        bracket(smoothed(curves.price(chase, pages=kind)), pages) for kind in (BASE, large)
    )
    return Gain(pages, price, large_price, ratio, large, int(ratios.xs[-1]))
