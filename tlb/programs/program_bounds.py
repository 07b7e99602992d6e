"""What translation can cost a program at most, by the pages that it touches, and what larger pages
could gain.

A program is known by its active set alone: the distinct pages that it touches in a while. How many
of its loads are far ones is unknown, so this gives what a program of far loads alone would pay and
gain: no other has more of either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from math import log
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple

from tlb.stats import curves
from tlb.stats.curves import Curve, select_rows
from tlb.stats.intervals import UNKNOWN_REPEATS, Interval
from tlb.system.page_sizes import BASE, HUGE_PAGE_KINDS
from tlb.system.reasons import Unavailable, required

if TYPE_CHECKING:
    import pandas as pd

# Where the data just fill a shared cache, one process finds it free and the next does not: a ratio
# of two such is of neither. One point between two others decides nothing.
_NEIGHBOURS = 3

TlbLevelName = Literal["first level", "second level", "beyond"]


def tlb_level_holding(pages: float, entries: Sequence[int]) -> TlbLevelName:
    """Return the level that holds so many pages, given the entries of each level, ascending. A
    single known level is the last. Raises Unavailable("no-geometry") if no level is known."""
    first = required(entries, "no level is known for such pages", "no-geometry")[0]
    if pages > entries[-1]:
        return "beyond"
    return "first level" if pages <= first and len(entries) > 1 else "second level"


CurvePoints = list[tuple[float, Interval]]  # a curve without pandas: x, ascending, and the estimate


def bracket(points: CurvePoints, x: float) -> Interval:
    """Return the estimate at any x: interpolated in log x between its neighbours, with the lower of
    their lower bounds and the higher of their upper ones; outside the curve that of the nearest
    end.

    Raises Unavailable("too-few-points") on an empty curve.
    """
    xs = [at for at, _ in required(points, "nothing was measured")]
    x = min(max(x, xs[0]), xs[-1])
    last = bisect_left(xs, x)  # the first that is no smaller
    (low_x, low), (high_x, high) = points[last if xs[last] == x else last - 1], points[last]
    part = log(x / low_x) / log(high_x / low_x) if high_x > low_x else 0.0
    return Interval(
        low.value + part * (high.value - low.value),
        min(low.low, high.low),
        max(low.high, high.high),
        min(low.coverage, high.coverage),
        max(low.modes, high.modes),
    )


def smoothed(curve: Curve) -> CurvePoints:
    """Return the curve with each value and bound the median of three neighbours."""
    points = [*curve]

    def at(n: int) -> Interval:
        near = [interval for _, interval in points[n - 1 : n + 2]]
        if n == 0 or len(near) < _NEIGHBOURS:
            return points[n][1]
        return replace(
            points[n][1],
            value=median(interval.value for interval in near),
            low=median(interval.low for interval in near),
            high=median(interval.high for interval in near),
            repeats=UNKNOWN_REPEATS,
        )

    return [(x, at(n)) for n, (x, _) in enumerate(points)]


class Gain(NamedTuple):
    """What large pages could do for a program that touches so many base pages in a while.

    price, large_price: of translation, ns a far load; the latter None if it was not measured.
    ratio: the CPU time with large pages over that as it is; its value is that of a program whose
    own instructions are far loads alone, and its bounds hold any program. large: which large pages.
    measured_pages: the most that the machine's rows cover; past them their last stands for more.
    """

    pages: int
    price: Interval
    large_price: Interval | None
    ratio: Interval
    large: str
    measured_pages: int


class TranslationPrices(NamedTuple):
    """What a machine's rows say of translation. loads: the price of a far load in ns over pages, by
    page size. ratios: the time with large pages over that with base pages. large: which large pages;
    "" for none."""

    loads: dict[str, CurvePoints]
    ratios: CurvePoints
    large: str

    @classmethod
    def of(cls, rows: pd.DataFrame) -> TranslationPrices:
        """rows: of `page_chase`, spread and packed (columns of Store.load)."""
        chase = select_rows(rows, kernel="page_chase", order="cycle", stride_pages=1)
        measured = set(chase["pages"])
        loads = {pages: smoothed(curves.price(chase, pages=pages)) for pages in measured}
        large = next((pages for pages in reversed(HUGE_PAGE_KINDS) if pages in measured), "")
        if not large or BASE not in measured:
            return cls(loads, [], large)
        ratios = curves.spread(chase, pages=large) / curves.spread(chase, pages=BASE)
        return cls(loads, smoothed(ratios), large)

    def price(self, page: str, pages: int) -> Interval:
        """Return what a far load pays on pages of a size, over so many base pages. Raises
        Unavailable("too-few-points")."""
        return bracket(self.loads.get(page, []), pages)

    def gain(
        self,
        active_bytes: float,
        large_bytes: float,
        base_page_bytes: int,
        user_share: float = 1.0,
        fault_share: float = 0.0,
    ) -> Gain:
        """Return the most that large pages can gain a program.

        active_bytes: touched in a while; large_bytes: of it, what is on large pages already.
        user_share: of the program's CPU time, what its own instructions take; in the rest Linux
        works for it, in memory that it has on large pages. fault_share: of the CPU time, page
        faults at most: larger pages may save that too, so the lower bound is without it.

        A program also touches fewer pages again and again, so the least ratio is that of any size up
        to its own. Raises Unavailable: pool-empty, too-few-points.
        """
        if not self.large:
            raise Unavailable("pool-empty", "no rows are on 2 MiB pages")
        pages = max(int((active_bytes - large_bytes) / base_page_bytes), 1)
        there = bracket(self.ratios, pages)
        least = min([there.low, *(ratio.value for x, ratio in self.ratios if x <= pages)])
        most, low, value = max(there.high, 1.0), min(least, 1.0), there.value
        value, low, most = (1 - user_share * (1 - ratio) for ratio in (value, low, most))
        ratio = replace(
            there, value=value, low=low - fault_share, high=most, repeats=UNKNOWN_REPEATS
        )
        price = self.price(BASE, pages)
        large_price = self.price(self.large, pages) if self.large in self.loads else None
        return Gain(pages, price, large_price, ratio, self.large, int(self.ratios[-1][0]))
