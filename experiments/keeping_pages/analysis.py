"""What it takes to get pages of a size and what it costs to have them: faulting in, the sizes
between, and what programs got."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from statistics import median

import pandas as pd

from experiments.keeping_pages import runtimes, ways
from tlb.measure.toolchains import TOOLCHAINS
from tlb.report import analysis
from tlb.stats.curves import Curve, select
from tlb.stats.intervals import Interval, median_interval, summarise_beside
from tlb.system.page_sizes import BASE, PAGES, rank, words
from tlb.system.reasons import required

WHOLE, NOTHING = 0.99, 0.01  # shares that count as all and as nothing: a heap's edges are no pages
VARIANT = ["language", "variant", "huge_share", "low_ns", "high_ns"]


class Analysis(analysis.Analysis):
    """The rows of `prefault` and of chases over one working set by page size, and two documents of
    what programs got.

    The page defines: spread, packed, ladder and faults.
    """

    documents = ("ways", "programs")

    # --- the ladder of page sizes

    @cached_property
    def ladder_lines(self) -> int:
        """Over how many lines every chase goes; 0 without one."""
        lines = select(self.frame, kernel="page_chase").get("lines")
        return int(lines.max()) if lines is not None and len(lines) else 0

    def chased(self, curve: Callable[..., Curve]) -> dict[str, Interval]:
        """Return ns per access of the chases that `curves.spread` or `curves.packed` selects, over
        `ladder_lines`, by page size from small to large."""
        by_pages = {pages: curve(self.frame, pages=pages) for pages in PAGES}
        lines = self.ladder_lines
        return {pages: each.at(lines) for pages, each in by_pages.items() if lines in each.xs}

    @property
    def between(self) -> dict[str, Interval]:
        """The prices of `ladder` on the sizes between base pages and huge pages; empty without that
        on base pages."""
        sizes = [pages for pages in self.ladder if PAGES[pages].source == "mthp"]
        return {pages: self.ladder[pages] for pages in sizes if BASE in self.ladder}

    # --- faulting in

    def faulted(self) -> pd.DataFrame:
        """Return a row a page size, mode and number of threads: the estimate (ns per base page made
        ready), free_ns (ns per base page given back), one_byte_bytes (resident for one byte
        touched)."""
        faults = summarise_beside(
            select(self.frame, kernel="prefault"),
            ["pages", "mode", "threads"],
            {"free_ns_per_access": "free_ns", "one_byte_resident_bytes": "one_byte_bytes"},
        )
        return faults.astype({"threads": "int64"}).sort_values(
            ["pages", "mode", "threads"], key=rank, ignore_index=True
        )

    @property
    def fastest(self) -> pd.DataFrame:
        """GB/s: a row a page size with columns one (thread) and many (threads, the best; NaN without).
        Raises Unavailable("engine-lacks")."""
        touched = select(self.faults, mode="touch", threads=1).set_index("pages")
        required(touched, "prefault", "engine-lacks")
        many = self.faults[self.faults["threads"] > 1].groupby("pages")["gb_per_s"].max()
        rates = touched[["gb_per_s"]].rename(columns={"gb_per_s": "one"})
        return rates.assign(many=many.reindex(rates.index))

    def freed_ns(self, pages: str) -> Interval:
        """Return ns per base page that munmap takes after one thread touched the memory. Raises
        Unavailable."""
        rows = select(self.frame, kernel="prefault", mode="touch", threads=1, pages=pages)
        return median_interval(
            required(rows, f"no memory on {words(pages)} was given back")["free_ns_per_access"]
        )

    # --- what programs got

    @cached_property
    def programs(self) -> runtimes.Runtimes:
        """What each language's program got. Raises Unavailable, as `document` does."""
        return self.document("runtimes", runtimes.make, runtimes.Runtimes)

    @cached_property
    def variants(self) -> pd.DataFrame:
        """What the programs got, a row a language and variant with the columns VARIANT: the
        median share over the repeats, and the fastest and the slowest one's ns per read."""
        runs: dict[tuple[str, str], list[runtimes.RuntimeReport]] = {}
        for report in self.programs.reports:
            runs.setdefault((report.language, report.variant), []).append(report)
        rows = [
            {
                "language": TOOLCHAINS[language].title,
                "variant": variant,
                "huge_share": median(report.huge_share for report in reports),
                "low_ns": min(report.ns_per_access for report in reports),
                "high_ns": max(report.ns_per_access for report in reports),
            }
            for (language, variant), reports in runs.items()
        ]
        return pd.DataFrame(rows, columns=VARIANT)

    @cached_property
    def ways(self) -> ways.Ways:
        """What each way of asking got. Raises Unavailable, as `document` does."""
        return self.document("ways", ways.make, ways.Ways)
