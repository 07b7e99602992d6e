"""What it takes to get pages of a size and what it costs to have them: faulting in, the sizes between, and what programs got."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import pandas as pd

from experiments.article import analysis
from experiments.chapters.keeping_pages import ways
from experiments.chapters.keeping_pages.languages import runtimes
from experiments.inference import curves
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import Interval, median_interval, summarise_beside
from experiments.words.pages import PAGES, rank, words
from experiments.words.reasons import required


class Analysis(analysis.Analysis):
    """The rows of `prefault` and of chases over one working set by page size, and two documents of what programs got."""

    documents = ("ways", "programs")

    # --- the ladder of page sizes

    @cached_property
    def spread(self) -> dict[str, Interval]:
        """By page size, from small to large: ns per access of the chase over `ladder_lines`, one to a base page."""
        return self._chased(curves.spread)

    @cached_property
    def packed(self) -> dict[str, Interval]:
        """By page size: its control, as many lines side by side."""
        return self._chased(curves.packed)

    @cached_property
    def ladder(self) -> dict[str, Interval]:
        """By page size: the price of translation, ns. A size without its control has none."""
        return {pages: ns - self.packed[pages] for pages, ns in self.spread.items() if pages in self.packed}

    @cached_property
    def ladder_lines(self) -> int:
        """Over how many lines every chase here goes; 0 where none was measured."""
        return int(select(self.frame, kernel="page_chase")["lines"].max() if len(select(self.frame, kernel="page_chase")) else 0)

    def _chased(self, curve: Callable[..., Curve]) -> dict[str, Interval]:
        by_pages = {pages: curve(self.frame, pages=pages) for pages in PAGES}
        return {pages: each.at(self.ladder_lines) for pages, each in by_pages.items() if self.ladder_lines in each.xs}

    @cached_property
    def walks(self) -> dict[str, float]:
        """By page size: walks per access of `spread`, as counted; of those that were."""
        chases = select(self.frame, kernel="page_chase", layout="spread", lines=self.ladder_lines)
        counted = chases.groupby("pages")["walk_per_access"].median() if "walk_per_access" in chases else pd.Series(dtype=float)
        return counted.dropna().to_dict()

    # --- faulting in

    @cached_property
    def faults(self) -> pd.DataFrame:
        """A row a page size, mode and number of threads: the estimate (ns per base page made ready), gb_per_s (10^9 bytes), free_ns
        (ns per base page given back), one_byte_bytes (resident for one byte touched)."""
        faults = summarise_beside(select(self.frame, kernel="prefault"), ["pages", "mode", "threads"],
                                  {"free_ns_per_access": "free_ns", "one_byte_resident_bytes": "one_byte_bytes"})
        faults = faults.astype({"threads": "int64"}).sort_values(["pages", "mode", "threads"], key=rank, ignore_index=True)
        return faults.assign(gb_per_s=self.base_page_bytes / faults["median"])

    def freed_ns(self, pages: str) -> Interval:
        """Return ns per base page that munmap takes after one thread touched the memory. Raises Unavailable."""
        rows = select(self.frame, kernel="prefault", mode="touch", threads=1, pages=pages)
        return median_interval(required(rows, f"no memory on {words(pages)} was given back")["free_ns_per_access"])

    # --- what programs got

    @cached_property
    def programs(self) -> runtimes.Runtimes:
        """What each language's program got. Raises Unavailable, as `document` does."""
        return self.document("runtimes", runtimes.make, runtimes.Runtimes)

    @cached_property
    def ways(self) -> ways.Ways:
        """What each way of asking got. Raises Unavailable, as `document` does."""
        return self.document("ways", ways.make, ways.Ways)
