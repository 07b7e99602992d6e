"""The price of a walk with its page table in L2, L3 and memory, from chases far beyond the TLB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from tlb.stats.curves import select
from tlb.stats.geometry_curves import costs
from tlb.stats.intervals import Interval, median_interval
from tlb.system.reasons import explain

TABLE_ENTRY_BYTES, LINE_BYTES = 8, 64
REPEATS_FOR_BOUNDS = 3
MOST_PAGES = 1 << 26  # that an aliased chase spans: its visits have 32 bits, in units of a line
Place = Literal["L2", "L3", "memory"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Estimate(Model):
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


class Walk(Model):
    """The price of a walk on top of a hit in the last level. table_bytes: lines of page-table
    entries that the walks touch."""

    table_in: Place
    pages: int
    stride_pages: int
    table_bytes: int
    cost: Estimate | None
    reason: str | None = None


def walk_points(
    entries: float, stride: int, cache_bytes: Mapping[int, int]
) -> list[tuple[Place, int, int]]:
    """Return (place, pages, stride) of the chases whose page table fits that place and no nearer
    one.

    At a stride of eight pages each page has a line of entries of its own. At least five times the
    entries, so that nearly every access walks, under random replacement too. A place that no chase
    can have, since its cache is too small, is left out.
    """
    sizes = [size for _, size in sorted(cache_bytes.items())]
    least, points = 5 * entries, []
    if len(sizes) > 1:
        n = 2 ** int(np.ceil(np.log2(least)))
        if sizes[0] < n * TABLE_ENTRY_BYTES <= sizes[1] / 2:
            points.append(("L2", n, stride))
    if len(sizes) > 2:
        n = round(float(np.sqrt(sizes[1] * sizes[2])) / LINE_BYTES)
        if n >= least and sizes[1] < n * LINE_BYTES < sizes[2]:
            points.append(("L3", n, 8 * stride))
    if sizes:
        points.append(("memory", int(max(2 * sizes[-1] // LINE_BYTES, least)), 8 * stride))
    return points


def walks(
    frame: pd.DataFrame,
    plateau: pd.Series,
    entries: float,
    stride: int,
    cache_bytes: Mapping[int, int],
) -> list[Walk]:
    """Return what aliased chases far beyond the last level's entries cost above its plateau.

    plateau: costs of the chases that hit in the last level; may be empty.
    """
    found = []
    for place, lines, apart in walk_points(entries, stride, cache_bytes):
        rows = select(frame, layout="alias", order="cycle", lines=lines, stride_pages=apart)
        cost = reason = None
        if lines * apart > MOST_PAGES:
            reason = explain("out-of-reach")
        elif rows.empty or plateau.empty:
            reason = explain("too-few-points", "this chase was left out")
        else:
            method = f"median of {len(rows)} processes, less the plateau before"
            cost = Estimate.of(_cost(rows) - median_interval(plateau), method)
        walk = Walk(
            table_in=place,
            pages=lines,
            stride_pages=apart,
            cost=cost,
            reason=reason,
            table_bytes=lines * min(TABLE_ENTRY_BYTES * apart // stride, LINE_BYTES),
        )
        found.append(walk)
    return found


def _cost(rows: pd.DataFrame) -> Interval:
    """Return the median over processes; fewer than three have the bounds of all their batches."""
    cost = costs(rows)
    if len(rows) >= REPEATS_FOR_BOUNDS:
        return median_interval(cost)
    scale = cost / rows["ns_per_access"]
    batches = [*cost]
    for ns, factor in zip(rows["batch_ns_per_access"], scale, strict=True):
        batches += [*np.asarray(ns) * factor]
    return Interval(float(cost.median()), float(min(batches)), float(max(batches)), 0.0)
