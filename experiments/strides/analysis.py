"""Sums over strided elements: a loop's time at each stride, and the parts of that time by the
controls that lack them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from math import isnan

import pandas as pd

from experiments.strides.grid import (
    BYTES_IN_FIRST_CACHE,
    CONTROLLED_STRIDES,
    LINE_BYTES,
    PAGE_SIZES,
)
from tlb.report import analysis
from tlb.report.chapter import literature, published
from tlb.stats.curves import Curve, select
from tlb.stats.intervals import Interval, interval_of_rows
from tlb.system.page_sizes import BASE, LARGE
from tlb.system.reasons import Unavailable, required

STRIDE_COLUMN = "step_bytes"
# The parts of a strided loop's time, in the order in which they are stacked. On large pages that the
# host splinters the loop misses the TLB too: what they save is then a part of translation, and the
# rest cannot be told from gaps.
PACKED, CONFLICTS = "same lines packed", "power of two (set conflicts?)"
GAPS, TRANSLATION = "gaps between lines", "translation"
GAPS_AND_TRANSLATION, AT_LEAST = "gaps and translation", "translation, at least"
LOAD_TIME_PARTS = (PACKED, GAPS, GAPS_AND_TRANSLATION, TRANSLATION, AT_LEAST, CONFLICTS)
ORDERS = ("sequential", "cycle")
COUNTING = "zen-3-a9ae1af8"  # a published machine whose walks were counted

_COLUMNS = [STRIDE_COLUMN, "median", "low", "high", "coverage", "modes", "n", "unstable"]


class Analysis(analysis.Analysis):
    """The rows of `stride_sum`: ns per access. Curves run over the stride in bytes; of what was not
    measured they are empty, and what is derived further raises Unavailable.

    The page defines: times, staggered, base, base_staggered, large_staggered, packed, conflicts,
    at_least, at_most, price, lists, saved and random_price.
    """

    @cached_property
    def array_bytes(self) -> int:
        """The published array, or the largest that was measured; 0 without any."""
        return int(self.frame["bytes"].max()) if len(self.frame) else 0

    def sums(self, **where: object) -> pd.DataFrame:
        """Return the rows of the loop, one a mapping, that have these values."""
        return select(self.frame, kernel="stride_sum", **where)

    def packed_sums(self, **where: object) -> pd.DataFrame:
        """Return the rows over the same number of lines as a controlled stride visits, side by
        side, under that stride."""
        rows = self.sums(step_bytes=LINE_BYTES, **where)
        strides = {self.array_bytes // stride * LINE_BYTES: stride for stride in CONTROLLED_STRIDES}
        return rows[rows["bytes"].isin(list(strides))].assign(
            **{STRIDE_COLUMN: lambda kept: kept["bytes"].map(strides).astype(int)}
        )

    # --- translation

    @property
    def large(self) -> str:
        """The large pages to compare with. Raises Unavailable("pool-empty")."""
        return required(
            [pages for pages in LARGE if pages in self.times],
            "no sum on large pages was measured",
            "pool-empty",
        )[0]

    # --- parts

    @cached_property
    def parts(self) -> pd.DataFrame:
        """A row a stride and part of PARTS: step_bytes, part, ns; time without it, begins_ns, and
        with it, ends_ns. A part without which a control is slower is below zero."""
        between = {GAPS_AND_TRANSLATION: self.base_staggered}
        if len(self.large_staggered):
            gaps, walks = GAPS, TRANSLATION
            if self.is_splintered:
                gaps, walks = GAPS_AND_TRANSLATION, AT_LEAST
            between = {gaps: self.large_staggered, walks: self.base_staggered}
        curves, rows = {PACKED: self.packed, **between, CONFLICTS: self.base}, []
        for stride in CONTROLLED_STRIDES:
            steps = [curve.get(stride).value for curve in curves.values()]
            if not any(map(pd.isna, steps)):
                ends = zip(curves, [0.0, *steps[:-1]], steps, strict=True)
                rows += [
                    (stride, part, after - before, before, after) for part, before, after in ends
                ]
        return pd.DataFrame(rows, columns=[STRIDE_COLUMN, "part", "ns", "begins_ns", "ends_ns"])

    @property
    def near_ns(self) -> Interval:
        """A load of eight bytes in order from the first cache."""
        rows = self.sums(mode="plain", bytes=BYTES_IN_FIRST_CACHE)
        return interval_of_rows(required(rows, "nothing was summed inside the first cache"))

    def counted(self, quantity: str) -> Curve:
        """A counter of the published loop per access on base pages, by stride."""
        rows = self.sums(mode="plain", bytes=self.array_bytes, pages=BASE)
        return Curve.of(rows, STRIDE_COLUMN, f"{quantity}_per_access")

    @cached_property
    def counting(self) -> Analysis:
        """This machine if walks of the loop were counted on it, otherwise COUNTING. Raises
        Unavailable("no-data")."""
        if len(self.counted("walk")):
            return self
        chapter = published(self.chapter, COUNTING)
        return Analysis(chapter.kept(self.chapter), chapter)

    published = cached_property(lambda a: literature("stride_walk"))


def at_strides(
    rows: pd.DataFrame, strides: Collection[int], more_bytes: int = 0
) -> dict[str, Curve]:
    """Return the time by stride for each page size measured. more_bytes: by which the loop's step
    is longer than the stride."""
    return Curve.by(_under_stride(rows, strides, more_bytes), PAGE_SIZES, x=STRIDE_COLUMN)


def by_order(rows: pd.DataFrame, strides: Collection[int], more_bytes: int = 0) -> dict[str, Curve]:
    """Return the time by stride of a list read in order and shuffled, as in `at_strides`."""
    rows = _under_stride(rows, strides, more_bytes)
    return {order: Curve.of(rows, STRIDE_COLUMN, order=order) for order in ORDERS}


def _under_stride(rows: pd.DataFrame, strides: Collection[int], more_bytes: int) -> pd.DataFrame:
    rows = rows[rows[STRIDE_COLUMN].isin([stride + more_bytes for stride in strides])]
    return rows.assign(**{STRIDE_COLUMN: rows[STRIDE_COLUMN] - more_bytes})


def first_of(curves: Mapping[str, Curve], *kinds: str) -> Curve:
    """Return the curve of the first of these kinds that was measured, or an empty one."""
    return next(
        (curves[kind] for kind in kinds if kind in curves),
        Curve(pd.DataFrame(columns=_COLUMNS), STRIDE_COLUMN),
    )


def less_time(load: Interval, other: Interval) -> str:
    """Return how much less time a load takes than another, as "36% (28% to 41%) less time", or, if
    it may take more, how many times as long.

    Raises Unavailable: too-few-points.
    """
    ratio = load / other
    if isnan(ratio.value):
        raise Unavailable("too-few-points", "too few processes for a ratio of two strides")
    if ratio.high >= 1:
        return f"{ratio:.2f} times as long"
    return f"{(other - load) / other:.0%} less time"
