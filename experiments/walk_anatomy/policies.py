"""Which entry the last level of the TLB replaces, by how many visits miss."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

import pandas as pd

from experiments.walk_anatomy.grid import ENTRY_BYTES, HOT_ONE_PAGE_IN, TABLES, fewest_tables
from experiments.walk_anatomy.models import (
    POLICY_NAMES,
    Policy,
    Visits,
    fitting_policies,
    rank_policies,
)
from tlb.machine.cpuid import ways_of
from tlb.machine.host import data_tlbs
from tlb.report import analysis
from tlb.stats.curves import select
from tlb.stats.intervals import Interval, interval_of_rows
from tlb.system.reasons import Unavailable, required

# Where nothing states the last level's: of those published the most, and sets of as many are nearly
# one.
UNSTATED_WAYS = 16


class PolicyAnalysis(analysis.Analysis):
    """Visits of `table_chase`, in cycles and drawn at random."""

    @cached_property
    def walked(self) -> pd.DataFrame:
        """Visits of more pages than the TLB holds, at random places."""
        rows = select(self.frame, kernel="table_chase", mode="random", order="cycle")
        return rows[rows["lines"] == rows["lines"].max()] if len(rows) else rows

    @property
    def pages(self) -> int:
        return int(self.walked["lines"].max()) if len(self.walked) else 0

    @property
    def fanout(self) -> int:
        return self.base_page_bytes // ENTRY_BYTES

    def _drawn(self, pages: int, hot: int) -> Interval:
        rows = select(self.frame, kernel="table_chase", order="random", lines=pages, hot=hot)
        return interval_of_rows(required(rows, "no drawn visits were measured"))

    def _cycle(self, pages: int) -> Interval:
        tables = dict(zip(TABLES, fewest_tables(pages, self.fanout), strict=True))
        rows = select(
            self.frame, kernel="table_chase", mode="random", order="cycle", lines=pages, **tables
        )
        return interval_of_rows(required(rows, "this cycle was not measured"))

    def _shares(self, pages: int, entries: int) -> dict[Visits, Interval]:
        """The share of visits that miss so many entries, of a cycle and of draws that prefer a few
        pages: what a visit takes longer than where an eighth of the pages are visited, over what it
        takes where all are drawn alike, of which M - C of M miss. Empty without rows."""
        shares = {}
        for n in (pages, 2 * pages):
            with suppress(Unavailable):
                held = self._cycle(pages // 8)
                price = (self._drawn(n, n) - held) * (1 / (1 - entries / n))
                shares[Visits(n, n // HOT_ONE_PAGE_IN)] = (
                    self._drawn(n, n // HOT_ONE_PAGE_IN) - held
                ) / price
                if n == pages:
                    shares[Visits(n, 0)] = (self._cycle(n) - held) / price
        return shares

    @cached_property
    def misses(self) -> dict[Visits, Interval]:
        """`_shares` of the TLB's last level; empty without its entries, or rows."""
        return self._shares(self.pages, self.entries[-1]) if self.entries else {}

    @property
    def missed(self) -> Interval:
        """The share of a cycle's visits through few tables that miss, by time. Raises
        Unavailable("too-few-points") where it is not known, since then nothing is a miss's price.
        """
        missed = self.misses.get(Visits(self.pages, 0))
        return required(missed, "how many visits miss was not measured")

    @cached_property
    def policies(self) -> list[Policy]:
        """Each policy that the last level can have beside `misses`, the best supported first; empty
        without them."""
        if not self.misses:
            return []
        first = self.entries[0] if len(self.entries) > 1 else 0
        levels = data_tlbs(self.host)
        ways = ways_of(levels[-1]) if levels else None
        ways = UNSTATED_WAYS if ways is None else ways
        return rank_policies(self.misses, (first, self.entries[-1]), ways)

    @staticmethod
    def fitting(policies: list[Policy]) -> list[str]:
        return [POLICY_NAMES[policy.name] for policy in fitting_policies(policies)]
