"""The curves of a survey and the price of a walk: what geometry.py reads.

A curve is what an access costs by the number of pages, in each layout, and as spread minus packed.
Costs are in core cycles, ns per access times the core clock that each process measured beside its
region: so a change of frequency between two processes is no step. Where an engine has no clock they
are in ns. The price of a walk with its page table in L2, L3 and memory is from chases far beyond the
TLB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from tlb.stats.curves import Curve, select_rows
from tlb.stats.fits import CurveKnee, find_knees
from tlb.stats.intervals import FIRST_PAIRED_ROW_VERSION, Interval, median_interval
from tlb.system.page_sizes import CACHE_LINE_BYTES, TABLE_ENTRY_BYTES, page_bytes
from tlb.system.reasons import explain_reason

COLUMNS = ["lines", "cost", "low", "high", "coverage", "n", "least"]
ALIAS_FROM = 16  # pages, two to a line


def has_core_clock(frame: pd.DataFrame) -> bool:
    return bool((frame["core_ghz"] > 0).all())


def cost_per_access(frame: pd.DataFrame) -> pd.Series:
    """Core cycles per access of each row, or ns where no row has a core clock."""
    return frame["ns_per_access"] * (frame["core_ghz"] if has_core_clock(frame) else 1.0)


def base_stride(pages: str, base_page_bytes: int) -> int:
    """Base pages from one page of the size to the next: lines stand one to a page of that size."""
    return page_bytes(pages, base_page_bytes) // base_page_bytes


def base_pages_per_page(frame: pd.DataFrame) -> int:
    """The `base_stride` of a survey's rows, by the base page of the machine that they are from."""
    row = frame.iloc[0]
    return base_stride(row["pages"], int(row["stride_bytes"] // row["stride_pages"]))


def cost_by_page_count(
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


def aliased_chase_curve(frame: pd.DataFrame, stride_pages: int = 1) -> pd.DataFrame:
    """The aliased cycle from as many pages on as pay the way predictor's price alike."""
    points = cost_by_page_count(frame, "alias", stride_pages=stride_pages)
    return points[points["lines"] >= ALIAS_FROM].reset_index(drop=True)


def price_curve(frame: pd.DataFrame, stride_pages: int = 1) -> pd.DataFrame:
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


def costs_by_mapping(
    frame: pd.DataFrame, layout: Literal["price", "alias"], stride_pages: int = 1
) -> pd.DataFrame:
    """Return the cost of a cycle with a row for each mapping and a column for each number of pages:
    of the alias layout, or of spread minus packed. Empty for rows of processes that held one point
    each."""
    if "measures" not in frame or not (frame["measures"] >= FIRST_PAIRED_ROW_VERSION).all():
        return pd.DataFrame()
    if layout == "alias":
        return _by_mapping(_rows(frame, "alias", "cycle", stride_pages))
    spread, packed = _rows(frame, "spread", "cycle", stride_pages), _rows(frame, "packed", "cycle")
    return _by_mapping(spread) - _by_mapping(packed)


def _by_mapping(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby(["repeat", "lines"])["cost"].median().unstack("lines")


def curve_knees(points: pd.DataFrame) -> list[CurveKnee]:
    """Return the knees of a `cost_by_page_count` or a `price_curve`."""
    return find_knees(points["lines"], points["least"]) if len(points) else []


def _rows(
    frame: pd.DataFrame, layout: str, order: str, stride_pages: int | None = None
) -> pd.DataFrame:
    """The rows of a layout with their cost; packed lines have no stride."""
    rows = select_rows(
        frame,
        layout=layout,
        order=order,
        **{} if layout == "packed" else {"stride_pages": stride_pages},
    )
    return rows.assign(cost=cost_per_access(rows))


def _least(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby("lines")["cost"].min()


def _points(table: pd.DataFrame, least: pd.Series) -> pd.DataFrame:
    return table.rename(columns={"median": "cost"}).assign(least=least).reset_index()[COLUMNS]


# --- the price of a walk

REPEATS_FOR_BOUNDS = 3
MOST_PAGES = 1 << 26  # that an aliased chase spans: its visits have 32 bits, in units of a line
PageTableLocation = Literal["L2", "L3", "memory"]


class GeometryModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BoundedEstimate(GeometryModel):
    """A number with its bounds. method: where it comes from. coverage: of the bounds, as intervals
    have it; 1 if they are two points of a sweep."""

    value: float
    low: float
    high: float
    method: str
    coverage: float = 1.0

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high, self.coverage)

    @classmethod
    def of(cls, interval: Interval, method: str) -> Self:
        return cls(
            value=interval.value,
            low=interval.low,
            high=interval.high,
            method=method,
            coverage=interval.coverage,
        )


class WalkPrice(GeometryModel):
    """The price of a walk on top of a hit in the last level. table_bytes: lines of page-table
    entries that the walks touch."""

    table_in: PageTableLocation
    pages: int
    stride_pages: int
    table_bytes: int
    cost: BoundedEstimate | None
    reason: str | None = None


def walk_points(
    entries: float, stride: int, cache_bytes: Mapping[int, int]
) -> list[tuple[PageTableLocation, int, int]]:
    """Return (place, pages, stride) of the chases whose page table fits that place and no nearer
    one.

    At a stride of eight pages each page has a line of entries of its own. At least five times the
    entries, so that nearly every access walks, under random replacement too. A place that no chase
    can have, since its cache is too small, is left out.
    """
    sizes = [size for _, size in sorted(cache_bytes.items())]
    least: float = 5 * entries
    points: list[tuple[PageTableLocation, int, int]] = []
    if len(sizes) > 1:
        n = 2 ** int(np.ceil(np.log2(least)))
        if sizes[0] < n * TABLE_ENTRY_BYTES <= sizes[1] / 2:
            points.append(("L2", n, stride))
    if len(sizes) > 2:
        n = round(float(np.sqrt(sizes[1] * sizes[2])) / CACHE_LINE_BYTES)
        if n >= least and sizes[1] < n * CACHE_LINE_BYTES < sizes[2]:
            points.append(("L3", n, 8 * stride))
    if sizes:
        points.append(("memory", int(max(2 * sizes[-1] // CACHE_LINE_BYTES, least)), 8 * stride))
    return points


def walk_prices(
    frame: pd.DataFrame,
    plateau: pd.Series,
    entries: float,
    stride: int,
    cache_bytes: Mapping[int, int],
) -> list[WalkPrice]:
    """Return what aliased chases far beyond the last level's entries cost above its plateau.

    plateau: costs of the chases that hit in the last level; may be empty.
    """
    found = []
    for place, lines, apart in walk_points(entries, stride, cache_bytes):
        rows = select_rows(frame, layout="alias", order="cycle", lines=lines, stride_pages=apart)
        cost = reason = None
        if lines * apart > MOST_PAGES:
            reason = explain_reason(
                "memory-short",
                "it would span more address space than its visits can name",
                "Measure it with smaller pages (--pages 4k): as many of them leave a page table.",
            )
        elif rows.empty or plateau.empty:
            reason = explain_reason("too-few-points", "this chase was left out")
        else:
            method = f"median of {len(rows)} processes, less the plateau before"
            cost = BoundedEstimate.of(_cost(rows) - median_interval(plateau), method)
        walk = WalkPrice(
            table_in=place,
            pages=lines,
            stride_pages=apart,
            cost=cost,
            reason=reason,
            table_bytes=lines * min(TABLE_ENTRY_BYTES * apart // stride, CACHE_LINE_BYTES),
        )
        found.append(walk)
    return found


def _cost(rows: pd.DataFrame) -> Interval:
    """Return the median over processes; fewer than three have the bounds of all their batches."""
    cost = cost_per_access(rows)
    if len(rows) >= REPEATS_FOR_BOUNDS:
        return median_interval(cost)
    scale = cost / rows["ns_per_access"]
    batches = [*cost]
    for ns, factor in zip(rows["batch_ns_per_access"], scale, strict=True):
        batches += [*np.asarray(ns) * factor]
    return Interval(float(cost.median()), float(min(batches)), float(max(batches)), 0.0)
