"""Radix partitioning and hash joins: times per row, and gains."""

from __future__ import annotations

from operator import itemgetter

import pandas as pd

from tlb.inference.curves import select
from tlb.inference.intervals import UNKNOWN, Interval, summarise
from tlb.page_sizes import BASE, rank, words
from tlb.reasons import Unavailable, required
from tlb.report import analysis

GAIN = ["gain", "gain_low", "gain_high"]


class Analysis(analysis.Analysis):
    """The rows of `radix_partition`. The page defines fan_out and joins."""

    def partitioning(self) -> pd.DataFrame:
        """Return a row a page size, number of passes and of bits: tuples, bits, passes, the
        estimate (ns to partition one row)."""
        found = self._summary("radix_partition", "partition", ["tuples", "bits", "passes"])
        return found.sort_values(["pages", "passes", "bits"], key=rank, ignore_index=True)

    def fan_out_rise(self, pages: str, entries: int) -> tuple[Interval, int, int]:
        """How many times as long a row takes past a TLB level's entries as inside: (ratio, few
        partitions, many).

        The few are at most half the entries, where source and cursors leave room; the many at most
        four times the entries, where three in four writes miss if rows come in no order.
        """
        mine = select(self.fan_out, pages=pages, passes=1)
        few = mine[mine["partitions"] <= entries / 2].tail(1)
        many = mine[mine["partitions"].between(2 * entries, 4 * entries)].tail(1)
        if few.empty or many.empty:
            lacking = f"partitioning on {words(pages)} was not timed on both sides of {entries:,}"
            raise Unavailable("too-few-points", lacking)
        ratio = Interval.of(many.iloc[0]) / Interval.of(few.iloc[0])
        return ratio, int(few["partitions"].iloc[0]), int(many["partitions"].iloc[0])

    def ways_to_join(self) -> pd.DataFrame:
        """Return a row a page size and way of joining: mode (naive, partitioned), tuples, bits (0
        for naive), passes, partitions, the estimate (ns per row)."""
        modes, keys = ["naive", "partitioned"], ["mode", "tuples", "bits", "passes"]
        found = self._summary("radix_partition", modes, keys)
        found.loc[found["mode"] == "naive", ["bits", "passes"]] = 0
        found["partitions"] = 2 ** found["bits"]
        return found.sort_values(["pages", "mode", "passes", "bits"], key=rank, ignore_index=True)

    @property
    def join_fan_outs(self) -> int:
        """From how many fan-outs `best_join` chooses, on base pages."""
        return max(int(select(self.joins, pages=BASE, mode="partitioned")["gain"].notna().sum()), 1)

    def best_join(self, pages: str) -> pd.Series:
        """The row of `joins` with the largest gain on a page size."""
        return best_of(select(self.joins, mode="partitioned"), pages)

    def _summary(
        self, kernel: str, mode: str | list[str], keys: list[str], **where: object
    ) -> pd.DataFrame:
        """`summarise` of the rows of a kernel in a mode by page size and `keys`. Empty
        without rows."""
        rows = select(self.frame, kernel=kernel, mode=mode, **where)
        rows = rows.reindex(columns=dict.fromkeys([*rows, *keys]))
        found = summarise(rows.assign(vertices=rows["lines"]), ["pages", *keys])
        found = found.astype({key: int for key in keys if key != "mode"})
        return found.sort_values(["pages", *keys[::-1]], key=rank, ignore_index=True)


def with_gain(found: pd.DataFrame, slow: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Return `found` with gain, gain_low and gain_high: how many times as fast each row is as that
    of `slow` with the same keys; NaN without one."""
    key, rows = itemgetter(*keys), found.to_dict("records")
    known = {key(row): Interval.of(row) for row in slow.to_dict("records")}
    gains = [known[key(row)] / Interval.of(row) if key(row) in known else UNKNOWN for row in rows]
    return found.assign(
        **{name: [float(gain[at]) for gain in gains] for at, name in enumerate(GAIN)}
    )


def best_of(found: pd.DataFrame, pages: str) -> pd.Series:
    mine = select(found, pages=pages).dropna(subset="gain")
    required(mine, f"nothing on {words(pages)} can be compared")
    return mine.loc[mine["gain"].idxmax()]
