"""What page sizes buy: chases and random reads by page size as curves."""

from __future__ import annotations

from functools import cached_property
from math import nan

import pandas as pd

from experiments.hugepages import jmh
from tlb.report import analysis, quantities
from tlb.report.quantities import HUGE_PAGES, QuantityDeclaration
from tlb.stats import curves, splinter
from tlb.stats.curves import Curve, median_over_points, select_rows
from tlb.stats.intervals import UNKNOWN_INTERVAL, Interval, summarise_with_medians_of
from tlb.system.page_sizes import (
    BASE_PAGES,
    FULLY_SWEPT_PAGES,
    HUGE_PAGE_KINDS,
    page_size_rank,
    page_words,
)
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty
from tlb.system.units import list_in_words


class Quantities(quantities.Quantities):
    """Times are of a dependent load from one line in every base page; costs of translation
    are spread minus packed."""

    last_entries = QuantityDeclaration(
        "pages that the last level (CPUID) or all levels (measured) hold", "pages"
    )
    base_reach_bytes = QuantityDeclaration("memory that these cover with base pages", "bytes")
    huge_reach_bytes = QuantityDeclaration(
        "memory that they would cover with whole 2 MiB pages", "bytes", pages=HUGE_PAGES
    )
    far_bytes = QuantityDeclaration(
        "largest working set measured on base and on huge pages", "bytes", pages=HUGE_PAGES
    )
    far_base_ns = QuantityDeclaration("a load in the largest working set, on base pages", "ns")
    far_huge_ns = QuantityDeclaration(
        "a load in the largest working set, on 2 MiB pages", "ns", pages=HUGE_PAGES
    )
    far_gain = QuantityDeclaration(
        "speedup by 2 MiB pages, largest working set", "times", 2, pages=HUGE_PAGES
    )
    far_thp_gain = QuantityDeclaration(
        "speedup by transparent huge pages, largest working set", "times", 2, pages="thp"
    )
    far_1g_gain = QuantityDeclaration(
        "speedup by 1 GiB pages, largest working set", "times", 2, pages="1g"
    )
    base_64_mib_ns = QuantityDeclaration("a load in 64 MiB, on base pages", "ns", 1)
    huge_64_mib_ns = QuantityDeclaration(
        "a load in 64 MiB, on 2 MiB pages", "ns", 1, pages=HUGE_PAGES
    )
    packed_64_mib_ns = QuantityDeclaration("a packed load in 64 MiB", "ns", 1)
    near_base_ns = QuantityDeclaration(
        "cost of translation between the TLB's levels at sizes measured on both, on base pages",
        "ns",
        1,
    )
    near_huge_ns = QuantityDeclaration(
        "cost of translation between the TLB's levels at these sizes, on 2 MiB pages",
        "ns",
        1,
        pages=HUGE_PAGES,
    )
    walk_base_ns = QuantityDeclaration(
        "cost of translation past the last level, on base pages", "ns"
    )
    walk_huge_ns = QuantityDeclaration(
        "cost of translation past the last level, on 2 MiB pages", "ns", pages=HUGE_PAGES
    )
    walk_huge_share = QuantityDeclaration(
        "share of the cost past the last level that 2 MiB pages leave", "share", pages=HUGE_PAGES
    )
    walk_most_bytes = QuantityDeclaration(
        "largest working set of these costs", "bytes", pages=HUGE_PAGES
    )
    gather_gain_256_mib = QuantityDeclaration(
        "speedup of the published loop by 2 MiB pages, 256 MiB", "times", 2, pages=HUGE_PAGES
    )
    gather_gain_1_gib = QuantityDeclaration(
        "speedup of the published loop by 2 MiB pages, 1 GiB", "times", 2, pages=HUGE_PAGES
    )
    gather_gain_4_gib = QuantityDeclaration(
        "speedup of the published loop by 2 MiB pages, 4 GiB", "times", 2, pages=HUGE_PAGES
    )
    gather_base_ns = QuantityDeclaration(
        "an access of the published loop in 4 GiB, on base pages", "ns"
    )
    gather_huge_ns = QuantityDeclaration(
        "an access of the published loop in 4 GiB, on 2 MiB pages", "ns", pages=HUGE_PAGES
    )
    read_base_ns = QuantityDeclaration("a random read of a 100 MB array, on base pages", "ns", 1)
    read_thp_ns = QuantityDeclaration(
        "a random read of a 100 MB array, on transparent huge pages", "ns", 1, pages="thp"
    )
    read_gain = QuantityDeclaration(
        "speedup of these reads by transparent huge pages", "times", 2, pages="thp"
    )


LEAST_JVMS = 3  # for JMH's own interval, of 99.9 %, to cover more than one mapping


class Analysis(analysis.Analysis):
    """The rows of `page_chase`, `page_gather` and `random_touch` by page size. A curve is of ns per
    access by lines, one to each base page. Curves and frames of what was not measured are empty."""

    documents = ("scores",)

    # --- the chase

    @cached_property
    def spread(self) -> dict[str, Curve]:
        """By page size: a line on each base page."""
        return {pages: curves.spread_curve(self.frame, pages=pages) for pages in FULLY_SWEPT_PAGES}

    @cached_property
    def packed(self) -> dict[str, Curve]:
        """By page size: as many lines side by side."""
        return {pages: curves.packed_curve(self.frame, pages=pages) for pages in FULLY_SWEPT_PAGES}

    @cached_property
    def price(self) -> dict[str, Curve]:
        """By page size: the price of translation."""
        return {
            pages: self.price_on(pages, self.spread[pages], self.packed[pages])
            for pages in FULLY_SWEPT_PAGES
        }

    def has_price(self, pages: str, lines: float) -> bool:
        """Return whether spread minus packed is a price at so many lines on a page size: neither
        this size nor one beside it is a gap of the chapter's curve or, on base pages, of The TLB
        cliff's."""
        if pages == BASE_PAGES and not self.is_comparable(lines):
            return False
        return curves.is_comparable(self.price[pages], lines)

    @property
    def judged_base_price(self) -> Curve:
        """The price on base pages by which claims are judged."""
        return self.judged_price_of(self.spread[BASE_PAGES], self.packed[BASE_PAGES])

    def speedup(self, pages: str, over: str = BASE_PAGES) -> Curve:
        """Return how many times as fast the chase is on a page size, at each size that both have."""
        return self.spread[over] / self.spread[pages]

    @property
    def most_lines(self) -> int:
        """Lines that take 64 pages of 2 MiB: more than a first level holds, fewer than any second
        level."""
        return (128 << 20) // self.base_page_bytes

    def price_on(self, pages: str, spread: Curve, packed: Curve) -> Curve:
        """Return the price of translation on one page size. The table of whole large pages is too
        small to matter beside the data, so theirs is the plain difference."""
        found = self.splintering() if pages in (*HUGE_PAGE_KINDS, "1g") else None
        is_whole = found is not None and found.verdict == "not splintered"
        return spread - packed if is_whole else self.price_of(spread, packed)

    @cached_property
    def gathers(self) -> dict[str, Curve]:
        """By page size: the published loop in numpy, over one byte to each base page."""
        return {
            pages: curves.spread_curve(
                self.frame, kernel="page_gather", engine="numpy", pages=pages
            )
            for pages in FULLY_SWEPT_PAGES
        }

    @property
    def gather_gain(self) -> Curve:
        """How many times as fast the published loop is on 2 MiB pages. Raises
        Unavailable("pool-empty")."""
        return self.gathers[BASE_PAGES] / self.gathers[self.gathered]

    @property
    def gathered(self) -> str:
        """Which 2 MiB pages the published loop ran on. Raises Unavailable("pool-empty")."""
        kinds = [pages for pages in HUGE_PAGE_KINDS if len(self.gathers[pages])]
        return require_nonempty(kinds, "the published loop ran on no large pages", "pool-empty")[0]

    @property
    def kinds(self) -> list[str]:
        """The page sizes that were chased on, from small to large."""
        return [pages for pages, curve in self.spread.items() if len(curve)]

    @property
    def large(self) -> str:
        """Which 2 MiB pages were chased on. Raises Unavailable("pool-empty")."""
        return splinter.huge_page_kind_to_compare(select_rows(self.frame, kernel="page_chase"))

    @property
    def large_label(self) -> str:
        """The kind of these pages as tables call it, "" for none: "2 MiB (THP)"."""
        return self.page_labels.get(none_if_unavailable(lambda: self.large) or "", "")

    def largest(self, *kinds: str) -> tuple[int, dict[str, float]]:
        """Return the most lines that all these page sizes were measured at, and the medians there,
        ns. Raises Unavailable("too-few-points")."""
        shared = set.intersection(*(set(self.spread[pages].xs) for pages in kinds))
        most = max(
            require_nonempty(
                shared, f"no size was measured on {list_in_words(map(page_words, kinds))} alike"
            )
        )
        return most, {pages: self.spread[pages].at(most).value for pages in kinds}

    @cached_property
    def pieces(self) -> splinter.SplinteringVerdict:
        """Whether a TLB entry covers a large page. Raises Unavailable, as `splinter.judge` does."""
        return splinter.judge_splintering(self.frame, self.host.hypervisor)

    @property
    def ns_per_unit(self) -> float:
        """ns of a core cycle where `pieces` are in cycles, else 1."""
        if self.pieces.unit != "cycles":
            return 1.0
        return 1 / self.frame["core_ghz"].replace(0, nan).median()

    @property
    def past_the_reach(self) -> splinter.PriceComparison:
        """The prices past the last level. Raises Unavailable("too-few-points")."""
        if self.pieces.walk is None:
            raise Unavailable("too-few-points", "no chase on both page sizes passes the last level")
        return self.pieces.walk

    def splintering(self) -> splinter.SplinteringVerdict | None:
        return none_if_unavailable(lambda: self.pieces)

    # --- random reads of an array

    def reads(self, spare_draws: int) -> pd.DataFrame:
        """Return pages, array_bytes, the estimate (ns per read), n, generator_ns (of it, drawing
        the index: the median of that alone), if so many draws precede a read."""
        rows = select_rows(self.frame, kernel="random_touch", spare_draws=spare_draws)
        reads = summarise_with_medians_of(
            rows.rename(columns={"bytes": "array_bytes"}),
            ["pages", "array_bytes"],
            {"generator_ns_per_access": "generator_ns"},
        )
        reads = reads.astype({"array_bytes": "int64"})
        return reads.sort_values(["pages", "array_bytes"], key=page_size_rank, ignore_index=True)

    def read_100_mb(self, pages: str) -> Interval:
        """Return ns of a random read of the published array. Raises
        Unavailable("too-few-points")."""
        reads = self.touches
        found = reads[(reads["array_bytes"] == 10**8) & (reads["pages"] == pages)]
        return Interval.of(
            require_nonempty(found, f"no array was read on {page_words(pages)}").iloc[0]
        )

    @cached_property
    def touches(self) -> pd.DataFrame:
        """`reads` without a draw to spare."""
        return self.reads(spare_draws=0)

    # --- the JVM

    @cached_property
    def scores(self) -> jmh.JmhDocument:
        """What JMH measured in the JVM. Raises Unavailable, as `document` does."""
        return self.document("jmh", jmh.make_jmh_document, jmh.JmhDocument)

    def java(self, array_bytes: int, pages: str) -> Interval:
        """Return ns of a random read by JMH with its own interval, of coverage 0 for fewer than
        three JVMs, since each has one mapping. UNKNOWN_INTERVAL if not measured."""
        for score in none_if_unavailable(lambda: self.scores.scores) or []:
            point = score.quantity, score.pages, score.array_bytes
            if point == ("touch", pages, array_bytes) and score.error_ns is not None:
                mean, error = score.ns_per_access, score.error_ns
                coverage = 0.999 if score.forks >= LEAST_JVMS else 0.0
                return Interval(mean, max(mean - error, 0.0), mean + error, coverage)
        return UNKNOWN_INTERVAL


def typical_speedup(speedups: Curve) -> Interval:
    """Return one speedup for a range of sizes: `median_over_points`, and where no mapping held all
    sizes the medians of their bounds."""
    return median_over_points(speedups.intervals) or speedups.typical()
