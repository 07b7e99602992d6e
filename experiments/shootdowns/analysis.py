"""TLB shootdowns: what the caller of munmap() and its like pays, and what the interrupted program
pays."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from experiments.shootdowns.grid import (
    DISCARDED_PAGES,
    LARGE,
    MEMORY_CALLS,
    ONE_PAGE,
    PAGES_THE_TLB_HOLDS,
)
from tlb.report.analysis import EventAnalysis
from tlb.stats.curves import Curve, select
from tlb.stats.intervals import UNKNOWN, Interval, median_interval
from tlb.system.page_sizes import BASE
from tlb.system.reasons import required


class Analysis(EventAnalysis):
    """The rows of `shootdown`, and of `neighbour_chase` beside a thread that gives pages back.
    Tables and curves of what was not measured are empty. Methods raise Unavailable:
    too-few-points, one-cpu without a second CPU, and what they name.

    The page defines: calls_alone, calls_beside and added.
    """

    documents = ("flushes",)

    @cached_property
    def most_others(self) -> int:
        """On how many other CPUs the program ran at the most; 0 without any."""
        rows = self._rows("shootdown", "threads")
        return int(rows["threads"].max()) if len(rows) else 0

    def calls(self, others: int) -> dict[str, Curve]:
        """Return ns of each call over the pages that it removes, while the program runs on so many
        other CPUs too."""
        rows = self._rows("shootdown", "threads", pages=BASE, threads=others, apart=0)
        return Curve.by(rows, MEMORY_CALLS, "mode")

    @cached_property
    def by_cpus(self) -> Curve:
        """ns a munmap() of one page over the number of other CPUs that run the program."""
        where = {"mode": MEMORY_CALLS[0], "pages": BASE, "lines": ONE_PAGE, "apart": 0}
        return Curve.of(self._rows("shootdown", "threads", **where), "threads")

    def beside_processes(self, call: str) -> Interval:
        """Return ns a call on one page beside as many processes that share nothing."""
        rows = self._rows("shootdown", mode=call, pages=BASE, lines=ONE_PAGE, apart=1)
        self.require_others(rows, "no calls beside other processes were measured")
        return median_interval(rows["ns_per_access"])

    @cached_property
    def flush_counts(self) -> pd.DataFrame:
        """A row a process beside other threads: call, taken (pages), flushes_asked of other CPUs
        and flushes_seen by them."""
        columns = {"mode": "call", "lines": "taken"}
        counts = ["flushes_asked", "flushes_seen"]
        rows = self._rows("shootdown", *counts, apart=0, pages=BASE, mode=list(MEMORY_CALLS))
        rows = rows[rows["flushes_asked"] > 0].dropna(subset=["flushes_seen"])
        return rows.reindex(columns=[*columns, *counts]).rename(columns=columns)

    def share_seen(self) -> float:
        """Return all flushes seen over all asked: a few processes miss many, which a median of
        shares hides. Raises Unavailable("no-flush-count") too."""
        if len(self.calls_beside):
            required(self.flush_counts, "", "no-flush-count")
        self.require_others(self.flush_counts, "no calls beside other threads were measured")
        sums = self.flush_counts[["flushes_asked", "flushes_seen"]].sum()
        return float(sums["flushes_seen"] / sums["flushes_asked"])

    @cached_property
    def partial_calls(self) -> pd.DataFrame:
        """call, ns on one base page of each large page, base_ns on a base page, large_share that
        stays large."""
        rows = []
        for call in MEMORY_CALLS:
            part = self._rows(
                "shootdown", "huge_bytes_after", mode=call, pages=LARGE, lines=ONE_PAGE
            )
            if len(part):
                alone = self.calls_alone.get(call)
                ns, base_ns = median_interval(part["ns_per_access"]), alone and alone.get(ONE_PAGE)
                large = (part["huge_bytes_after"] / part["arena_bytes"]).median()
                rows.append((call, ns, base_ns or UNKNOWN, float(large)))
        return pd.DataFrame(rows, columns=["call", "ns", "base_ns", "large_share"])

    def beside_discards(self) -> Interval:
        """Return `slowed_by_discards` of spread over packed: interrupts take as much from both."""
        return self.slowed_by_discards("spread") / self.slowed_by_discards("packed")

    def lost_per_flush(self, layout: str) -> Interval:
        """Return ns that the chase over HELD lines loses for each flush that its CPU counts. Raises
        Unavailable("no-flush-count") too."""
        where = {"mode": "other", "layout": layout, "lines": PAGES_THE_TLB_HOLDS}
        rows = self._rows("neighbour_chase", "discard_pages", "flushes_seen", **where)
        busy, idle = (select(rows, discard_pages=pages) for pages in (DISCARDED_PAGES, 0))
        added_ns = busy["ns_per_access"] - self._median(idle, "no chase was measured").value
        counted = required(busy[busy["flushes_seen"] > 0], "no flush was counted", "no-flush-count")
        return median_interval((added_ns * counted["accesses"] / counted["flushes_seen"]).dropna())

    def slowed_by_discards(self, layout: str) -> Interval:
        """Return a hop's time over HELD lines beside a thread that gives pages back over beside one
        that only runs."""
        where = {"mode": "other", "layout": layout, "lines": PAGES_THE_TLB_HOLDS}
        rows = self._rows("neighbour_chase", "discard_pages", **where)
        busy, idle = (select(rows, discard_pages=pages) for pages in (DISCARDED_PAGES, 0))
        self.require_others(busy, "no chase beside a thread that gives pages back was measured")
        return self._median(busy, "") / self._median(idle, "no chase was measured")
