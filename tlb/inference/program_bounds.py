"""What translation can cost a program at most, by the pages that it touches, and what larger pages
could gain.

A program is known by its active set alone: the distinct pages that it touches in a while. How many
of its loads are far ones is unknown, so this gives what a program of far loads alone would pay and
gain: no other has more of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from tlb.inference import curves
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import Interval
from tlb.page_sizes import BASE, LARGE
from tlb.reasons import required
from tlb.system.optional import Lazy

np, pd = Lazy("numpy"), Lazy("pandas")

# Where the data just fill a shared cache, one process finds it free and the next does not: a ratio
# of two such is of neither. One point between two others decides nothing.
_NEIGHBOURS = 3

Tread = Literal["first level", "second level", "beyond"]


def tread(pages: float, entries: Sequence[int]) -> Tread:
    """Return the level that holds so many pages, given the entries of each level, ascending. A
    single known level is the last. Raises Unavailable("no-geometry") if no level is known."""
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
    """Return the estimate at any x: interpolated in log x between its neighbours, with the lower of
    their lower bounds and the higher of their upper ones; outside the curve that of the nearest
    end.

    Raises Unavailable("too-few-points") on an empty curve.
    """
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
    """Return the curve with each value and bound the median of three neighbours."""
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

    price, large_price: of translation, ns a far load. ratio: the time with large pages over the
    time as it is; its value is that of a program of far loads alone, and its bounds hold any
    program. large: which large pages. measured_pages: the most that the machine's rows cover; past
    them their last stands for more.
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
    """Return the most that 2 MiB pages can gain a program, from a machine's own rows.

    rows: of `page_chase` on base pages and on 2 MiB ones, spread and packed (columns of
    Store.load). active_bytes: touched in a while; large_bytes: of it, what is on large pages
    already. kernel_share: of the program's CPU time, what Linux spends on a program that faults:
    larger pages may save that too, so the lower bound is without it.

    A program also touches fewer pages again and again, so the least ratio is that of any size up to
    its own. Raises Unavailable: pool-empty, too-few-points.
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
