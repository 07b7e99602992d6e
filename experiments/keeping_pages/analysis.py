"""What it takes to get pages of a size and what it costs to have them: faulting in, the sizes
between, and what programs got."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import nan

import pandas as pd

from experiments.keeping_pages import ways
from experiments.keeping_pages.languages import runtimes
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import Interval, median_interval, summarise_beside
from tlb.lab.toolchains import TOOLS
from tlb.page_sizes import BASE, PAGES, rank, words
from tlb.reasons import explain, required
from tlb.report import analysis

WHOLE, NOTHING = (
    0.99,
    0.01,
)  # shares that count as all and as nothing: the edges of a heap are no whole pages
LEAST_REPEATS = 3  # fewer cannot show that two times differ
NAMED = (
    "file",
    "file-advised",
    "tmpfs",
    "tmpfs-huge",
    "hugetlbfs",
    "memfd",
    "memfd-pool",
    "shared",
)


class Analysis(analysis.Analysis):
    """The rows of `prefault` and of chases over one working set by page size, and two documents of
    what programs got.

    The page defines: spread, packed, ladder and faults.
    """

    documents = ("ways", "programs")

    # --- the ladder of page sizes

    @cached_property
    def ladder_lines(self) -> int:
        """Over how many lines every chase here goes; 0 where none was measured."""
        return int(
            select(self.frame, kernel="page_chase")["lines"].max()
            if len(select(self.frame, kernel="page_chase"))
            else 0
        )

    def chased(self, curve: Callable[..., Curve]) -> dict[str, Interval]:
        """Return ns per access of the chases that `curves.spread` or `curves.packed` selects, over
        `ladder_lines`, by page size from small to large."""
        by_pages = {pages: curve(self.frame, pages=pages) for pages in PAGES}
        return {
            pages: each.at(self.ladder_lines)
            for pages, each in by_pages.items()
            if self.ladder_lines in each.xs
        }

    @cached_property
    def walks(self) -> dict[str, float]:
        """By page size: walks per access of `spread`, as counted; of those that were."""
        chases = select(self.frame, kernel="page_chase", layout="spread", lines=self.ladder_lines)
        counted = (
            chases.groupby("pages")["walk_per_access"].median()
            if "walk_per_access" in chases
            else pd.Series(dtype=float)
        )
        return counted.dropna().to_dict()

    @property
    def between(self) -> dict[str, Interval]:
        """The prices of `ladder` on the sizes between base pages and huge pages; empty without that
        on base pages."""
        return {
            pages: price
            for pages, price in self.ladder.items()
            if PAGES[pages].source == "mthp" and BASE in self.ladder
        }

    @property
    def cheapest_between(self) -> str:
        return min(self.between, key=lambda pages: self.between[pages].value)

    @property
    def processes_of_ladder(self) -> int:
        """The fewest processes that a page size of the ladder has."""
        chases = select(self.frame, kernel="page_chase", layout="spread", lines=self.ladder_lines)
        return int(chases.groupby("pages").size().min())

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
        """GB/s and what freeing takes: a row a page size with columns one (thread), free_ns (of it)
        and many (threads, the best; NaN without). Raises Unavailable."""
        touched = select(self.faults, mode="touch", threads=1).set_index("pages")
        many = self.faults[self.faults["threads"] > 1].groupby("pages")["gb_per_s"].max()
        required(touched, "prefault", "engine-lacks")
        return pd.DataFrame(
            {
                "one": touched["gb_per_s"],
                "free_ns": touched["free_ns"],
                "many": many.reindex(touched.index),
            }
        )

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
        """What the programs got, a row a language and variant, medians over the repeats: language,
        toolchain, variant, huge_share, elsewhere_huge_bytes, ns_per_access, plain_over_this (how
        many times as long a read takes in the `plain` one; NaN on plain rows and without them) and
        differs (whether no repeat of one is as fast as any of the other; of fewer than three
        never)."""
        reports = pd.DataFrame(
            [
                report.model_dump() | {"huge_share": report.huge_share}
                for report in self.programs.reports
            ]
        )
        runs = (
            dict(list(reports.groupby(["language", "variant"], sort=False))) if len(reports) else {}
        )
        rows = []
        for (language, variant), part in runs.items():
            ns, plain = (
                part["ns_per_access"],
                runs.get((language, "plain"), reports[:0])["ns_per_access"],
            )
            is_recipe = variant != "plain"
            differs = min(len(plain), len(ns)) >= LEAST_REPEATS and bool(
                plain.max() < ns.min() or ns.max() < plain.min()
            )
            rows.append(
                (
                    TOOLS[language].title,
                    part["toolchain"].iloc[0],
                    variant,
                    part["huge_share"].median(),
                    int(part["rest_huge_bytes"].median()),
                    ns.median(),
                    plain.median() / ns.median() if is_recipe else nan,
                    is_recipe and differs,
                )
            )
        return pd.DataFrame(
            rows,
            columns=[
                "language",
                "toolchain",
                "variant",
                "huge_share",
                "elsewhere_huge_bytes",
                "ns_per_access",
                "plain_over_this",
                "differs",
            ],
        )

    @property
    def lacking_programs(self) -> list[tuple[str, str, str]]:
        """The languages of which something was not measured: title, variant ("" for all) and the
        reason."""
        lacking = [
            (*name.partition(" ")[::2], code) for name, code in self.programs.lacking.items()
        ]
        return [
            (
                TOOLS[language].title,
                variant,
                explain(
                    code,
                    TOOLS[language].lacking(TOOLS[language].title)
                    if code == "no-toolchain"
                    else "",
                ),
            )
            for language, variant, code in lacking
        ]

    def named_ways(self, huge: bool) -> list[str]:
        """Return the ways of asking for memory that is shared or has a name, in words, of which all
        lies on large pages, or nothing."""
        found = [
            got
            for got in self.ways.got
            if got.way in NAMED and (got.huge_share >= WHOLE if huge else got.huge_share <= NOTHING)
        ]
        return [self.ways.asked(got.way, in_words=True) for got in found]

    @cached_property
    def ways(self) -> ways.Ways:
        """What each way of asking got. Raises Unavailable, as `document` does."""
        return self.document("ways", ways.make, ways.Ways)
