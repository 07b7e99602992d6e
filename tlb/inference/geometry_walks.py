"""The price of a walk with its page table in L2, L3 and memory: which chases show it, and what
their rows say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from tlb.inference.curves import select
from tlb.inference.geometry_curves import costs
from tlb.inference.intervals import Interval, median_interval
from tlb.reasons import explain

TABLE_ENTRY_BYTES, LINE_BYTES = 8, 64
REPEATS_FOR_BOUNDS = 3
MOST_PAGES = (
    1 << 26
)  # base pages that an aliased chase spans: its visits have 32 bits, in units of a line


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Estimate(Model):
    """A number with its bounds; `method` says where it comes from."""

    value: float
    low: float
    high: float
    method: str
    coverage: float = (
        1.0  # of the bounds, as intervals have it; 1 where they are two points of a sweep
    )

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
    """The price of a walk, on top of a hit in the last level, with the page table in one place."""

    table_in: Literal["L2", "L3", "memory"]
    pages: int
    stride_pages: int
    table_bytes: int  # lines of page-table entries that the walks touch
    cost: Estimate | None
    reason: str | None = None


def walk_points(
    entries: float, stride: int, cache_bytes: Mapping[int, int]
) -> list[tuple[Literal["L2", "L3", "memory"], int, int]]:
    """(where, pages, stride) of the chases whose page-table lines fit the named cache and not the
    one before.

    At a stride of eight pages each page has a line of entries of its own. At least five times the
    entries, so that nearly every access walks, under random replacement too. A place that no such
    chase has (a cache too small) is left out.
    """
    sizes = [size for _, size in sorted(cache_bytes.items())]
    least = 5 * entries
    points = []
    if (
        len(sizes) > 1
        and sizes[0] < (n := 2 ** int(np.ceil(np.log2(least)))) * TABLE_ENTRY_BYTES <= sizes[1] / 2
    ):
        points.append(("L2", n, stride))
    if len(sizes) > 2:
        n = round(float(np.sqrt(sizes[1] * sizes[2])) / LINE_BYTES)
        if n >= least and sizes[1] < n * LINE_BYTES < sizes[2]:
            points.append(("L3", n, 8 * stride))
    if sizes:
        n = 2 * sizes[-1] // LINE_BYTES
        points.append(("memory", int(max(n, least)), 8 * stride))
    return points


def walks(
    frame: pd.DataFrame,
    tread: pd.Series,
    entries: float,
    stride: int,
    cache_bytes: Mapping[int, int],
) -> list[Walk]:
    """What aliased chases far beyond the last level's entries cost over its tread.

    tread: the costs of the chases that hit in the last level, maybe none.
    """
    places = []
    for where, lines, apart in walk_points(entries, stride, cache_bytes):
        rows = select(frame, layout="alias", order="cycle", lines=lines, stride_pages=apart)
        cost = reason = None
        if lines * apart > MOST_PAGES:
            reason = explain("out-of-reach")
        elif rows.empty or tread.empty:
            reason = explain("too-few-points", "this chase was left out")
        else:
            cost = Estimate.of(
                _between_processes_or_batches(rows) - median_interval(tread),
                f"median of {len(rows)} processes, less the plateau before",
            )
        places.append(
            Walk(
                table_in=where,
                pages=lines,
                stride_pages=apart,
                cost=cost,
                reason=reason,
                table_bytes=lines * min(TABLE_ENTRY_BYTES * apart // stride, LINE_BYTES),
            )
        )
    return places


def _between_processes_or_batches(rows: pd.DataFrame) -> Interval:
    """Fewer than three processes have no interval worth the name: then the bounds are those of all
    their batches."""
    cost = costs(rows)
    if len(rows) >= REPEATS_FOR_BOUNDS:
        return median_interval(cost)
    scale = cost / rows["ns_per_access"]
    batches = np.concatenate(
        [np.asarray(ns) * k for ns, k in zip(rows["batch_ns_per_access"], scale, strict=True)]
    )
    return Interval(
        float(cost.median()),
        float(min(batches.min(), cost.min())),
        float(max(batches.max(), cost.max())),
        0.0,
    )
