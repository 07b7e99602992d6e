"""What a TLB entry spans in a guest, and how many dimensions a walk has: both inferred from the price of
translation on larger pages over that on 4 KiB pages throughout."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

import pandas as pd

from experiments.virtualization.grid import STEPPED_PAGE_PAIRS
from tlb.report import analysis
from tlb.stats import splinter
from tlb.stats.curves import select
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import BASE, hardware
from tlb.system.reasons import Unavailable, if_available, required

PagePair = tuple[str, str]  # the guest's page, "" of a plain process; and the host's
GUEST_KERNEL, PROCESS_KERNEL = "guest_chase", "page_chase"
# Times the last level's entries: a chase over as many pages misses it nearly always, and its page
# tables are still in a cache of the core.
PAST_STLB = (1.5, 6.0)


class StepsAnalysis(analysis.Analysis):
    """The chases over few lines."""

    def rows(self, guest: str, host: str, levels: int = 4) -> pd.DataFrame:
        """The rows of a chase, `levels` being of a guest's tables."""
        if not guest:
            return select(self.frame, kernel=PROCESS_KERNEL, mode="", pages=host)
        return select(self.frame, kernel=GUEST_KERNEL, mode=guest, levels=levels, pages=host)

    def _over_base(self) -> list[tuple[PagePair, PagePair]]:
        """Return the chases on larger pages, each with the one on 4 KiB pages throughout."""
        outside = dict.fromkeys(host for _, host in STEPPED_PAGE_PAIRS if hardware(host) != BASE)
        pairs = [(("", host), ("", BASE)) for host in outside]
        return pairs + [(chase, STEPPED_PAGE_PAIRS[0]) for chase in STEPPED_PAGE_PAIRS[1:]]

    @cached_property
    def reached(self) -> dict[PagePair, Interval]:
        """What translation costs between the two levels' entries, over that on 4 KiB pages: 0 if an
        entry spans a large page (stats/splinter.py). What cannot be compared is left out."""
        shares = {}
        for chase, base_chase in self._over_base():
            base, large = self.rows(*base_chase), self.rows(*chase)
            if base.empty or large.empty or large["lines"].min() > base["lines"].min():
                continue  # what a load costs that misses nothing goes off both
            both = pd.concat([base.assign(pages=BASE), large.assign(pages="2m")]).assign(
                kernel=PROCESS_KERNEL, stride_pages=1
            )
            with suppress(Unavailable):
                shares[chase] = splinter.judge(both, "none").first.share
        return shares

    @cached_property
    def walks(self) -> dict[PagePair, Interval]:
        """What translation costs past the last level's entries, over that on 4 KiB pages: the sum
        over all sizes within PAST of one mapping over that of another, the median over mappings."""
        prices = {pair: if_available(self._past, *pair) for pair in self._over_base()}
        return {pair[0]: ratio for pair, ratio in prices.items() if ratio is not None}

    def _past(self, chase: PagePair, base: PagePair) -> Interval:
        large, small = (self._prices(one) for one in (chase, base))
        shared = required(large.columns.intersection(small.columns), "no size was measured on both")
        ratios = (large[shared].sum(axis=1) / small[shared].sum(axis=1)).dropna()
        return median_interval(required(ratios, "no mapping was measured on both"))

    def _prices(self, chase: PagePair) -> pd.DataFrame:
        """Return spread minus packed within PAST, a row a mapping, a column a number of lines."""
        low, high = (times * self.two_levels()[1] for times in PAST_STLB)
        rows = self.rows(*chase)
        rows = rows[rows["lines"].between(low, min(high, splinter.MOST_LINES))]
        times = rows.pivot_table(
            index=["repeat", "lines"], columns="layout", values="ns_per_access"
        )
        if not {"spread", "packed"} <= {*times}:
            raise Unavailable("too-few-points", "no chase past the reach has its control")
        return (times["spread"] - times["packed"]).dropna().unstack("lines").dropna()
