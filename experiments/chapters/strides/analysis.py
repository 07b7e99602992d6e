"""What sums over strided elements say: a loop's time at each stride, and its parts by the controls."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from experiments.article import analysis
from experiments.article.chapter import literature
from experiments.chapters.strides.grid import LINE_BYTES, NEAR_BYTES, PAGES, TAKEN_APART
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import Interval, interval_of_rows
from experiments.words.pages import BASE, LARGE
from experiments.words.reasons import required

STRIDE = "step_bytes"
# The parts of a strided loop's time, in the order in which they are laid on one another. Where large pages are no control, what it costs
# that lines stand apart and what translation costs are one.
LINES, LONELY, TRANSLATION, SETS = "as many lines side by side", "lines apart", "translation", "few sets of the caches"
APART = "lines apart and translation"
PARTS = (LINES, LONELY, TRANSLATION, APART, SETS)


class Analysis(analysis.Analysis):
    """The rows of `stride_sum`: ns an access. Curves run over the stride in bytes. What nothing was measured for is empty here; methods
    raise Unavailable("too-few-points")."""

    @cached_property
    def array_bytes(self) -> int:
        """The published array, or the largest that was measured; 0 without any."""
        return int(self.frame["bytes"].max()) if len(self.frame) else 0

    def _sums(self, **where: object) -> pd.DataFrame:
        return select(self.frame, kernel="stride_sum", **where)

    @cached_property
    def times(self) -> dict[str, Curve]:
        """The loop as published, by page size."""
        rows = self._sums(mode="plain", bytes=self.array_bytes)
        return Curve.by(rows[rows[STRIDE].map(_is_power)] if len(rows) else rows, PAGES, x=STRIDE)

    @cached_property
    def staggered(self) -> dict[str, Curve]:
        """The same with a line more than the stride, by page size; x is the stride without it."""
        return Curve.by(_staggered(self._sums(mode="plain", bytes=self.array_bytes)), PAGES, x=STRIDE)

    @cached_property
    def packed(self) -> Curve:
        """As many lines side by side as each stride visits."""
        return Curve.of(self._side_by_side(mode="plain"), STRIDE)

    @cached_property
    def listed(self) -> dict[tuple[str, str], Curve]:
        """By ("apart" or "packed", order): the staggered lines, and those side by side, read by a list."""
        apart, packed = _staggered(self._sums(mode="listed", bytes=self.array_bytes)), self._side_by_side(mode="listed")
        curves = {(where, order): Curve.of(rows, STRIDE, order=order) for where, rows in (("apart", apart), ("packed", packed))
                  for order in ("sequential", "cycle")}
        return {key: curve for key, curve in curves.items() if len(curve)}

    def _side_by_side(self, **where: object) -> pd.DataFrame:
        rows = self._sums(step_bytes=LINE_BYTES, **where)
        smaller = {self.array_bytes // stride * LINE_BYTES: stride for stride in TAKEN_APART}
        return rows[rows["bytes"].isin(list(smaller))].assign(**{STRIDE: lambda kept: kept["bytes"].map(smaller).astype(int)})

    # --- translation

    @property
    def large(self) -> str:
        """The large pages to compare with. Raises Unavailable("pool-empty")."""
        return required([pages for pages in LARGE if pages in self.times], "no sum on large pages was measured", "pool-empty")[0]

    @cached_property
    def price(self) -> Curve:
        """What the loop takes longer on base pages than on large ones; empty without either. Where the host backs large pages with base
        pages they miss too, and this is no more than a part of what translation costs."""
        large = next((self.times[pages] for pages in LARGE if pages in self.times), Curve(pd.DataFrame(columns=_COLUMNS), STRIDE))
        return self.times[BASE] - large if BASE in self.times else large - large

    @cached_property
    def is_splintered(self) -> bool:
        """Whether large pages are known to miss as base pages do."""
        pieces = self.splintering()
        return pieces is not None and pieces.is_splintered

    @cached_property
    def random_price(self) -> Curve:
        """What translation costs a shuffled list's loads, which wait for nothing: lines apart less as many side by side. It needs no large
        pages, and no prefetcher has a part in it."""
        apart, packed = (self.listed.get((where, "cycle")) for where in ("apart", "packed"))
        return apart - packed if apart and packed else Curve(pd.DataFrame(columns=_COLUMNS), STRIDE)

    # --- taken apart

    @cached_property
    def parts(self) -> pd.DataFrame:
        """A row a stride and part of PARTS: step_bytes, part, ns; what all before a part take, begins_ns, and with it, ends_ns. A part that
        a control is faster without is below zero."""
        large = next((pages for pages in LARGE if pages in self.staggered and not self.is_splintered), "")
        between = {LONELY: self.staggered[large], TRANSLATION: self._base(self.staggered)} if large else {APART: self._base(self.staggered)}
        curves, rows = {LINES: self.packed, **between, SETS: self._base(self.times)}, []
        for stride in TAKEN_APART:
            steps = [curve.get(stride).value for curve in curves.values()]
            if not any(map(pd.isna, steps)):
                ends = zip(curves, [0.0, *steps[:-1]], steps, strict=True)
                rows += [(stride, part, after - before, before, after) for part, before, after in ends]
        return pd.DataFrame(rows, columns=[STRIDE, "part", "ns", "begins_ns", "ends_ns"])

    @staticmethod
    def _base(curves: dict[str, Curve]) -> Curve:
        return curves.get(BASE, Curve(pd.DataFrame(columns=_COLUMNS), STRIDE))

    @property
    def near_ns(self) -> Interval:
        """A load of eight bytes in order from the first cache. Raises Unavailable("too-few-points")."""
        rows = required(self._sums(mode="plain", bytes=NEAR_BYTES), "nothing was summed inside the first cache")
        return interval_of_rows(rows)

    def counted(self, quantity: str, pages: str = BASE) -> Curve:
        """A counter of the published loop per access, by stride; empty where no row has a value."""
        column, rows = f"{quantity}_per_access", self._sums(mode="plain", bytes=self.array_bytes, pages=pages)
        return Curve.of(rows if column in rows else rows.iloc[:0].assign(**{column: 0.0}), STRIDE, column)

    # --- the published run

    published = cached_property(lambda a: literature("stride_walk"))

    @cached_property
    def side_by_side(self) -> pd.DataFrame:
        """A row a published stride: stride_bytes, their ns and times the smallest stride's (theirs, their_ratio), and this machine's on
        base pages (ns, ratio), NaN where not measured."""
        theirs = self.published.rename(columns={"ns_per_access": "theirs", "vs_sequential_ratio": "their_ratio"})
        ours = self.times[BASE].medians if BASE in self.times else pd.Series(dtype=float)
        ns = theirs["stride_bytes"].map(ours).astype(float)
        return theirs[["stride_bytes", "theirs", "their_ratio"]].assign(ns=ns, ratio=ns / ns.iloc[0])


_COLUMNS = [STRIDE, "median", "low", "high", "coverage", "modes", "n", "unstable"]


def _is_power(stride: float) -> bool:
    return int(stride).bit_count() == 1


def _staggered(rows: pd.DataFrame) -> pd.DataFrame:
    """Those whose step is a line more than a stride, under the stride."""
    rows = rows[rows[STRIDE].isin([stride + LINE_BYTES for stride in TAKEN_APART])] if len(rows) else rows
    return rows.assign(**{STRIDE: rows[STRIDE] - LINE_BYTES}) if len(rows) else rows
