"""What it takes to get pages of a size and what it costs to have them: faulting in, the sizes
between, and what programs got."""

from __future__ import annotations

from functools import cached_property
from statistics import median

import pandas as pd

from experiments.keeping_pages.documents import (
    MEMORY_MAPPING_METHODS,
    MemoryMappingMethodsDocument,
    RuntimeReport,
    RuntimesDocument,
    make_mapping_methods_document,
    make_runtimes_document,
)
from tlb.measure.toolchains import TOOLCHAINS
from tlb.report import analysis, quantities
from tlb.report.chapter import chapter_of_published_machine
from tlb.report.quantities import QuantityDeclaration
from tlb.stats import curves
from tlb.stats.curves import select_rows
from tlb.stats.intervals import Interval, interval_of_rows, summarise_with_medians_of
from tlb.system.page_sizes import BASE_PAGES, PAGE_KINDS, page_size_rank, page_words
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty

_SMAPS = "smaps of one process"


class Quantities(quantities.Quantities):
    """Rates are of memory made ready by a write to each base page. Prices are spread minus packed
    in a working set of eight times the TLB's reach."""

    plain_share = QuantityDeclaration(
        "memory that nothing was asked for, on huge pages", "share", is_counted=True, pages="thp"
    )
    advised_share = QuantityDeclaration(
        "advised memory on huge pages", "share", is_counted=True, pages="thp"
    )
    shared_share = QuantityDeclaration(
        "advised shared memory on huge pages", "share", is_counted=True, pages="thp"
    )
    pool_share = QuantityDeclaration(
        "memory from the hugetlb pool on huge pages", "share", is_counted=True
    )
    freed_bytes = QuantityDeclaration(
        "less resident after 4 KiB of a huge page are given back", "bytes", pages="thp"
    )
    lost_pages = QuantityDeclaration(
        "huge pages lost by giving back 4 KiB", "", source=_SMAPS, pages="thp"
    )
    plain_programs = QuantityDeclaration(
        "arrays on huge pages without a switch, of five languages", "", source=_SMAPS, pages="thp"
    )
    advised_programs = QuantityDeclaration(
        "advised arrays on huge pages, of five languages", "", source=_SMAPS, pages="thp"
    )
    pool_programs = QuantityDeclaration(
        "arrays on pages of the pool, of five languages", "", source=_SMAPS
    )
    least_gain = QuantityDeclaration(
        "least gain by advice, of random reads of 256 MiB", "times", 2, pages="thp"
    )
    most_gain = QuantityDeclaration(
        "most gain by advice, of random reads of 256 MiB", "times", 2, pages="thp"
    )
    base_gb_s = QuantityDeclaration("GB/s that one thread touches on base pages", "", 1)
    thp_gb_s = QuantityDeclaration(
        "GB/s that one thread touches on transparent huge pages", "", 1, pages="thp"
    )
    gigantic_gb_s = QuantityDeclaration(
        "GB/s that one thread touches on 1 GiB pages", "", 1, pages="1g"
    )
    base_all_gb_s = QuantityDeclaration(
        "GB/s that a thread on each CPU touches on base pages", "", 1
    )
    thp_all_gb_s = QuantityDeclaration(
        "GB/s that a thread on each CPU touches on huge pages", "", 1, pages="thp"
    )
    heap_base_s = QuantityDeclaration(
        "seconds to touch 20 GB at one thread's rate, on base pages", "", 1
    )
    heap_thp_s = QuantityDeclaration(
        "seconds to touch 20 GB at one thread's rate, on huge pages", "", 1, pages="thp"
    )
    one_byte_bytes = QuantityDeclaration(
        "resident for one byte written on the largest pages", "bytes"
    )
    price_base_ns = QuantityDeclaration("price of translation on base pages", "ns")
    price_64k_ns = QuantityDeclaration("price of translation on 64 KiB pages (mTHP)", "ns")
    price_thp_ns = QuantityDeclaration(
        "price of translation on transparent huge pages", "ns", pages="thp"
    )


WHOLE, NOTHING = 0.99, 0.01  # shares that count as all and as nothing: a heap's edges are no pages
MOST = 0.9  # of an array that counts as on huge pages: NumPy's own begins within one
WASTES = ("arena", "dropped")  # ways that ask for what another asks for, and use a part of it
FREED_COLD = 2  # the first `prefault` that did not read the page tables just before freeing them
VARIANT = ["language", "variant", "huge_share", "ns"]


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)


class Analysis(analysis.Analysis):
    """The rows of `prefault` and of chases over one working set by page size, and two documents of
    what programs got."""

    documents = ("ways", "programs")

    @staticmethod
    def published(machine: str) -> Analysis:
        """Return the chapter's Analysis of a published machine. Raises Unavailable("no-data")."""
        chapter = chapter_of_published_machine("keeping_pages", machine)
        return Analysis(chapter.kept("keeping_pages"), chapter)

    # --- the ladder of page sizes

    @cached_property
    def ladder_lines(self) -> int:
        """Over how many lines every chase goes; 0 without one."""
        lines = select_rows(self.frame, kernel="page_chase").get("lines")
        return int(lines.max()) if lines is not None and len(lines) else 0

    @cached_property
    def ladder(self) -> dict[str, Interval]:
        """The price of translation (ns per access) over `ladder_lines`, by page size from small to
        large."""
        prices, lines = {}, self.ladder_lines
        for pages in PAGE_KINDS:
            spread, packed = (
                curve(self.frame, pages=pages)
                for curve in (curves.spread_curve, curves.packed_curve)
            )
            if lines in spread.xs and lines in packed.xs:
                prices[pages] = spread.at(lines) - packed.at(lines)
        return prices

    def price_on(self, pages: str) -> Interval:
        """Return the price of a page size, on base pages as The TLB cliff states it. Raises
        Unavailable: too-few-points, control-elsewhere."""
        if pages not in self.ladder:
            raise Unavailable("too-few-points", f"no chase on {page_words(pages)} has its control")
        if pages == BASE_PAGES and not self.is_comparable(self.ladder_lines):
            raise Unavailable("control-elsewhere", f"at {self.ladder_lines:,} lines")
        known = self.cliff_price_at(self.ladder_lines) if pages == BASE_PAGES else None
        return known or self.ladder[pages]

    # --- faulting in

    @cached_property
    def faults(self) -> pd.DataFrame:
        """A row a page size, mode and number of threads: the estimate (ns per base page made
        ready), gb_per_s, free_ns (ns per base page given back), one_byte_bytes (resident for one
        byte touched)."""
        faults = summarise_with_medians_of(
            select_rows(self.frame, kernel="prefault"),
            ["pages", "mode", "threads"],
            {"free_ns_per_access": "free_ns", "one_byte_resident_bytes": "one_byte_bytes"},
        )
        faults = faults.astype({"threads": "int64"}).sort_values(
            ["pages", "mode", "threads"], key=page_size_rank, ignore_index=True
        )
        return faults.assign(gb_per_s=self.base_page_bytes / faults["median"])

    def touched(self, pages: str, by_all: bool = False) -> Interval:
        """Return the rate, in GB/s, at which one thread or a thread on each CPU touches memory.
        Raises Unavailable: engine-lacks, too-few-points, one-cpu."""
        lacking = f"memory on {page_words(pages)} was not touched"
        rows = require_nonempty(select_rows(self.faults, mode="touch", pages=pages), lacking)
        by_threads = rows[(rows["threads"] > 1) == by_all]
        has_one_cpu = by_all and len(self.host.usable_cpus) < 2
        by = "a thread on each CPU" if by_all else "one thread"
        found = require_nonempty(
            by_threads, f"{lacking} by {by}", "one-cpu" if has_one_cpu else "too-few-points"
        )
        ns = Interval.of(found.iloc[-1])
        return _exactly(self.base_page_bytes) / ns

    def heap_s(self, pages: str, heap_bytes: float) -> Interval:
        """Return the seconds in which one thread touches a heap at that rate. Raises as
        `touched`."""
        return _exactly(heap_bytes / 1e9) / self.touched(pages)

    @property
    def one_byte_bytes(self) -> float:
        """What is resident for one byte written on the largest pages. Raises Unavailable:
        engine-lacks, no-large-pages."""
        faults = require_nonempty(self.faults, "prefault", "engine-lacks")
        large = faults[faults["pages"] != BASE_PAGES]
        require_nonempty(large, "only base pages were touched", "no-large-pages")
        return float(large["one_byte_bytes"].max())

    @property
    def largest_label(self) -> str:
        """The page size of `one_byte_bytes`, in words; "" if no large pages were touched."""
        known = self.faults[self.faults["pages"] != BASE_PAGES].dropna(subset="one_byte_bytes")
        by_pages = known.groupby("pages")["one_byte_bytes"].max()
        return self.page_labels[str(by_pages.idxmax())] if len(by_pages) else ""

    def freed_ns(self, pages: str) -> Interval:
        """Return ns per base page that munmap takes after one thread touched the memory. Raises
        Unavailable."""
        rows = select_rows(self.frame, kernel="prefault", mode="touch", threads=1, pages=pages)
        require_nonempty(rows, f"no memory on {page_words(pages)} was given back")
        cold = rows[rows["measures"] >= FREED_COLD]
        earlier = f"`prefault` in its version {FREED_COLD}"
        return interval_of_rows(require_nonempty(cold, earlier, "no-data"), "free_ns_per_access")

    # --- what programs got

    @cached_property
    def programs(self) -> RuntimesDocument:
        """What each language's program got. Raises Unavailable, as `document` does."""
        return self.document("runtimes", make_runtimes_document, RuntimesDocument)

    @cached_property
    def variants(self) -> pd.DataFrame:
        """What the programs got, a row a language and variant with the columns VARIANT: medians
        over the repeats of the share on huge pages and of ns per read."""
        runs: dict[tuple[str, str], list[RuntimeReport]] = {}
        for report in self.programs.reports:
            runs.setdefault((report.language, report.variant), []).append(report)
        rows = [
            {
                "language": TOOLCHAINS[language].title,
                "variant": variant,
                "huge_share": median(report.huge_share for report in reports),
                "ns": median(report.ns_per_access for report in reports),
            }
            for (language, variant), reports in runs.items()
        ]
        return pd.DataFrame(rows, columns=VARIANT)

    def programs_on_huge_pages(self, variant: str) -> int:
        """Return how many languages' arrays are on huge pages in a variant. Raises Unavailable: as
        `programs`, or why no program has that variant."""
        rows = self.variants[self.variants["variant"] == variant]
        if rows.empty:
            lacking = (why for name, why in self.programs.lacking.items() if variant in name)
            raise Unavailable(next(lacking, "no-data"), f"the programs' {variant} arrays")
        return int((rows["huge_share"] >= MOST).sum())

    def read_gains(self, variant: str) -> pd.Series:
        """Return how many times as fast a median read is in a variant, "huge" or "pool", by
        language, where that changed the pages. Raises Unavailable as `programs_on_huge_pages`
        does, and too-few-points where it changed none."""
        self.programs_on_huge_pages(variant)
        reads = self.variants.pivot(
            index="language", columns="variant", values=["ns", "huge_share"]
        )
        changed = reads[reads[("huge_share", "plain")] < MOST]["ns"]
        gains = (changed["plain"] / changed[variant]).dropna()
        return require_nonempty(gains, f"no program's pages changed, {variant}")

    @cached_property
    def ways(self) -> MemoryMappingMethodsDocument:
        """What each way of asking got. Raises Unavailable, as `document` does."""
        return self.document("ways", make_mapping_methods_document, MemoryMappingMethodsDocument)

    @property
    def got_by_way(self) -> pd.DataFrame:
        """What smaps showed, a row a way of asking that gave memory: way, asked, resident_bytes and
        huge_bytes; empty without `ways`."""
        document = none_if_unavailable(lambda: self.ways)
        rows = [
            (one.way, MEMORY_MAPPING_METHODS[one.way].asked, one.resident_bytes, one.huge_bytes)
            for one in (document.got if document else ())
            if one.way not in WASTES
        ]
        return pd.DataFrame(rows, columns=["way", "asked", "resident_bytes", "huge_bytes"])

    @property
    def refused_ways(self) -> list[str]:
        """The ways of asking that Linux refused, as an empty pool does; none without `ways`."""
        document = none_if_unavailable(lambda: self.ways)
        return [*document.lacking] if document else []
