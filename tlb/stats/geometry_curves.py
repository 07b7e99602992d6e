"""The curves of a survey: what an access costs by the number of pages, in each layout, and as
spread minus packed.

Costs are in core cycles, ns per access times the core clock that each process measured beside its
region: so a change of frequency between two processes is no step. Where an engine has no clock they
are in ns.
"""

from __future__ import annotations

import pandas as pd

from tlb.stats.curves import Curve, select
from tlb.stats.knees import Knee, knees
from tlb.system.page_sizes import page_bytes

COLUMNS = ["lines", "cost", "low", "high", "coverage", "n", "least"]
ALIAS_FROM = 16  # pages, two to a line


def has_clock(frame: pd.DataFrame) -> bool:
    return bool((frame["core_ghz"] > 0).all())


def costs(frame: pd.DataFrame) -> pd.Series:
    """Core cycles per access of each row, or ns where no row has a core clock."""
    return frame["ns_per_access"] * (frame["core_ghz"] if has_clock(frame) else 1.0)


def base_stride(pages: str, base_page_bytes: int) -> int:
    """Base pages from one page of the size to the next: lines stand one to a page of that size."""
    return page_bytes(pages, base_page_bytes) // base_page_bytes


def stride_of(frame: pd.DataFrame) -> int:
    """The `base_stride` of a survey's rows, by the base page of the machine that they are from."""
    row = frame.iloc[0]
    return base_stride(row["pages"], int(row["stride_bytes"] // row["stride_pages"]))


def curve(
    frame: pd.DataFrame, layout: str, order: str = "cycle", stride_pages: int = 1
) -> pd.DataFrame:
    """One row a number of pages, ascending: lines, cost (median over processes), low, high,
    coverage, n, least.

    least: the least disturbed process. What disturbs a chase (an interrupt, a neighbour) only ever
    adds to it, so where a level ends is read off the least, and what it costs off the median, which
    has an interval.
    """
    rows = _rows(frame, layout, order, stride_pages)
    return _points(Curve.of(rows, value="cost").table.set_index("lines"), _least(rows))


def aliased(frame: pd.DataFrame, stride_pages: int = 1) -> pd.DataFrame:
    """The aliased cycle from as many pages on as pay the way predictor's price alike."""
    points = curve(frame, "alias", stride_pages=stride_pages)
    return points[points["lines"] >= ALIAS_FROM].reset_index(drop=True)


def priced(frame: pd.DataFrame, stride_pages: int = 1) -> pd.DataFrame:
    """Spread minus packed, plus the packed chase in the smallest set: what a load costs where the
    caches always hit."""
    spread, packed = _rows(frame, "spread", "cycle", stride_pages), _rows(frame, "packed", "cycle")
    control = Curve.of(packed, value="cost")
    price = (Curve.of(spread, value="cost") - control).table.set_index("lines")
    if price.empty:
        return pd.DataFrame(columns=COLUMNS)
    points, floor = (
        _points(price.assign(n=price["n_left"]), _least(spread) - _least(packed)),
        control.get(price.index[0]).value,
    )
    sums = ["cost", "low", "high", "least"]
    # A control dearer than its chase is noise; a logarithm still has to be taken of what is left.
    points[sums] = points[sums].clip(lower=-0.9 * floor) + floor
    return points


def steps(points: pd.DataFrame) -> list[Knee]:
    """The knees of a curve of `curve` or `priced`."""
    return knees(points["lines"], points["least"]) if len(points) else []


def _rows(
    frame: pd.DataFrame, layout: str, order: str, stride_pages: int | None = None
) -> pd.DataFrame:
    """The rows of a layout with their cost; packed lines have no stride."""
    rows = select(
        frame,
        layout=layout,
        order=order,
        **{} if layout == "packed" else {"stride_pages": stride_pages},
    )
    return rows.assign(cost=costs(rows))


def _least(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby("lines")["cost"].min()


def _points(table: pd.DataFrame, least: pd.Series) -> pd.DataFrame:
    return table.rename(columns={"median": "cost"}).assign(least=least).reset_index()[COLUMNS]
