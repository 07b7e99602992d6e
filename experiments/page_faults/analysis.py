"""What first touches cost, how many of them fault, and what threads cost each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

import pandas as pd
from scipy.special import stdtrit

from experiments.page_faults import kernel_side
from experiments.page_faults.grid import (
    ARTICLE_CHUNK_BYTES,
    ARTICLE_CHUNK_COUNT,
    HUGE_PAGE_KIND,
    IDLE_MS,
    PAGES_WRITTEN_AT_ONCE,
)
from experiments.page_faults.kernel_side import KernelFaultDocument
from tlb.report import analysis, quantities
from tlb.report.chapter import literature
from tlb.report.quantities import QuantityDeclaration
from tlb.stats.curves import Curve, select_rows
from tlb.stats.hops import with_median_clock_cost
from tlb.stats.intervals import (
    Interval,
    interval_of_rows,
    median_interval,
    summarise_with_medians_of,
)
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES
from tlb.system.reasons import Unavailable, require_nonempty


class Quantities(quantities.Quantities):
    """A page is a base page. A buffer is mapped, touched and unmapped; a heap is filled once."""

    file_page_ns = QuantityDeclaration("a page of a cached file, touched and unmapped", "ns")
    file_pages_per_fault = QuantityDeclaration(
        "pages of a cached file that a fault maps", "pages", is_counted=True
    )
    file_16_pages_us = QuantityDeclaration(
        "16 pages of a cached file, touched and unmapped", "us", 1
    )
    file_fault_us = QuantityDeclaration(
        "a touch that faults, cached file, without unmapping", "us", 1, part_of="file_16_pages_us"
    )
    folio_page_ns = QuantityDeclaration(
        "a page of a file in large folios, touched and unmapped", "ns"
    )
    folio_pages_per_fault = QuantityDeclaration(
        "pages of it that a fault maps", "pages", is_counted=True
    )
    buffer_page_ns = QuantityDeclaration(
        "a page of a buffer on base pages, touched and unmapped", "ns"
    )
    first_touch_ns = QuantityDeclaration(
        "a first touch of a page of such a buffer", "ns", part_of="buffer_page_ns"
    )
    populated_page_ns = QuantityDeclaration("a page of such a buffer, populated and unmapped", "ns")
    buffer_huge_page_ns = QuantityDeclaration(
        "a base page of a buffer on huge pages", "ns", pages="thp"
    )
    charge_share = QuantityDeclaration(
        "what a memory cgroup's charge adds to a page of a buffer", "share", 1
    )
    heap_bytes = QuantityDeclaration("heap that is filled", "bytes")
    heap_page_ns = QuantityDeclaration("a page of the heap, on base pages", "ns")
    heap_free_ns = QuantityDeclaration("giving back a page of the heap, on base pages", "ns")
    heap_huge_page_ns = QuantityDeclaration(
        "a base page of the heap, on huge pages", "ns", pages="thp"
    )
    heap_huge_fault_us = QuantityDeclaration(
        "a fault of the heap, on huge pages", "us", pages="thp"
    )
    heap_gain = QuantityDeclaration(
        "how many times as fast 2 MiB pages fill it", "times", 1, pages="thp"
    )
    heap_two_threads_gain = QuantityDeclaration(
        "how many times as fast two threads fill it", "times", 2
    )
    fill_20_gb_s = QuantityDeclaration("seconds to fill 20 GB at that rate, on base pages", "", 1)
    fill_20_gb_huge_s = QuantityDeclaration(
        "seconds to fill 20 GB at that rate, on huge pages", "", 1, pages="thp"
    )
    zeroing_share = QuantityDeclaration("samples that zero pages, on base pages", "share")
    zeroing_huge_share = QuantityDeclaration(
        "samples that zero pages, on huge pages", "share", pages="thp"
    )
    record_kept_us = QuantityDeclaration("a record in a buffer that is kept", "us")
    record_mapped_us = QuantityDeclaration("a record in a buffer mapped for it", "us")
    kept_scaling = QuantityDeclaration("gain by a thread on each CPU, buffers kept", "times", 1)
    mapped_scaling = QuantityDeclaration("gain by a thread on each CPU, buffers mapped", "times", 1)
    idle_fault_ms = QuantityDeclaration(
        "slowest fault on memory left alone, a 2 MiB page", "ms", 1, pages="thp"
    )


CHUNK_LINES = (
    ARTICLE_CHUNK_COUNT * ARTICLE_CHUNK_BYTES // CACHE_LINE_BYTES
)  # of the published chunks
BESIDE = ["faults_per_access", "unmap_ns_per_access", "mean_ns", "p50_ns", "p95_ns"]
BESIDE += ["untouched_table_bytes", "filled_table_bytes"]


class Touch(NamedTuple):
    """How pages are touched for the first time: page_fault's options."""

    mode: str
    order: str = "cycle"
    populate: int = 0
    pages: str = BASE_PAGES
    written: int = 1


FIRST_TOUCH_OF_CACHED_FILE = Touch("file")
POPULATED_FILE_TOUCH = Touch("file", populate=1)
FIRST_TOUCH_OF_LARGE_FOLIO_FILE = Touch("file", written=PAGES_WRITTEN_AT_ONCE)
FIRST_TOUCH_OF_BASE_PAGES = Touch("anonymous")
FIRST_TOUCH_OF_POPULATED_BUFFER = Touch("anonymous", populate=1)
FIRST_TOUCH_OF_HUGE_PAGES = Touch("anonymous", pages=HUGE_PAGE_KIND)
# In words: a buffer is mapped, touched and unmapped, a heap (of prefault) filled once and kept.
TOUCH_NAMES = {
    FIRST_TOUCH_OF_CACHED_FILE: "cached file",
    FIRST_TOUCH_OF_LARGE_FOLIO_FILE: "cached file in large folios",
    FIRST_TOUCH_OF_BASE_PAGES: "buffer on base pages",
    FIRST_TOUCH_OF_HUGE_PAGES: "buffer on huge pages",
    FIRST_TOUCH_OF_POPULATED_BUFFER: "buffer on base pages, populated",
    POPULATED_FILE_TOUCH: "cached file, populated",
}
HEAP_NAMES = {BASE_PAGES: "heap on base pages", HUGE_PAGE_KIND: "heap on huge pages"}
# Those whose pages are touched, in the order of the chapter's figure.
TOUCHED_MEMORY_KINDS = [
    *HEAP_NAMES.values(),
    *(TOUCH_NAMES[way] for way in (FIRST_TOUCH_OF_BASE_PAGES, FIRST_TOUCH_OF_HUGE_PAGES)),
    *(TOUCH_NAMES[way] for way in (FIRST_TOUCH_OF_CACHED_FILE, FIRST_TOUCH_OF_LARGE_FOLIO_FILE)),
]


class Analysis(analysis.Analysis):
    """The rows of `page_fault`, `touch_again`, `map_churn` and `prefault`. Tables of what was not
    measured are empty; methods raise Unavailable, too-few-points if they name no other reason."""

    documents = ("side",)

    def __init__(self, frame: pd.DataFrame, *more: Any):
        super().__init__(with_median_clock_cost(frame), *more)

    # --- first touches

    def rows(self, way: Touch) -> pd.DataFrame:
        return select_rows(self.frame, kernel="page_fault", **way._asdict())

    @cached_property
    def touches(self) -> dict[Touch, pd.Series]:
        """By way, if measured: median, low, high ... of ns a page, as published: touched and
        unmapped, less a mapping that was not touched; and the medians of BESIDE."""
        found = {}
        for way in TOUCH_NAMES:
            rows = self.rows(way)
            if len(rows):
                beside = {name: name for name in BESIDE if name in rows}
                found[way] = summarise_with_medians_of(rows.assign(all=0), ["all"], beside).iloc[0]
        return found

    def touch(self, way: Touch) -> pd.Series:
        if way not in self.touches:
            raise Unavailable("too-few-points", f"{TOUCH_NAMES[way]} was not measured")
        return self.touches[way]

    def page_ns(self, way: Touch) -> Interval:
        return Interval.of(self.touch(way))

    def touch_ns(self, way: Touch, column: str) -> Interval:
        """Return a column of its rows, such as mean_ns, of touches that were timed one by one."""
        rows = require_nonempty(self.rows(way), f"{TOUCH_NAMES[way]} was not measured")
        return interval_of_rows(rows, column)

    def pages_per_fault(self, way: Touch) -> float:
        """Return how many base pages a fault maps."""
        faults = float(self.touch(way)["faults_per_access"])
        if not faults > 0:
            raise Unavailable("too-few-points", f"{TOUCH_NAMES[way]} did not fault")
        return 1 / faults

    @property
    def charge(self) -> Interval:
        """What a page of a buffer takes more in a memory cgroup of its own than in the root, as a
        share. Raises Unavailable("too-few-points")."""
        rows = select_rows(self.frame, kernel="page_fault", mode="grouped")
        rows = require_nonempty(rows, "no memory cgroup was measured")
        return median_interval(rows["ns_per_access"] / rows["outside_ns_per_access"] - 1)

    # --- the published statistics

    @cached_property
    def published(self) -> dict[int, SampleMean]:
        """By levels: the sample behind the published mean of minor faults and its interval."""
        rows = select_rows(literature("page_fault_levels"), benchmark="lat_pagefault")
        columns = ["ns_per_fault", "ci95_low_ns_per_fault", "ci95_high_ns_per_fault"]
        samples = {}
        for _, row in rows.iterrows():
            mean, low, high = row[columns]
            runs = int(row["run_count"])
            samples[int(row["page_table_levels"])] = sample_mean_from_interval(
                mean, low, high, runs
            )
        return samples

    @cached_property
    def published_test(self) -> StudentTest:
        """Five levels less four, from the printed means, intervals and counts alone."""
        return student_t_test(self.published[4], self.published[5])

    @cached_property
    def published_buckets(self) -> pd.DataFrame:
        """A row a level and bucket of the published histograms: page_table_levels, from_ns, to_ns,
        fault_count and share, of the count that is printed below it."""
        levels = literature("page_fault_levels").dropna(subset=["fault_count"])
        counts = levels.set_index("page_table_levels")["fault_count"]
        columns = ["page_table_levels", "from_ns", "to_ns", "fault_count"]
        rows = literature("page_fault_histogram")[columns]
        return rows.assign(share=rows["fault_count"] / rows["page_table_levels"].map(counts))

    # --- threads

    @cached_property
    def records(self) -> pd.DataFrame:
        """The rows of `map_churn` with the published chunk."""
        return select_rows(self.frame, kernel="map_churn", pages=BASE_PAGES, lines=CHUNK_LINES)

    def churn(self, mode: str) -> Curve:
        """Return ns a record of all threads together, over the number of threads."""
        return Curve.of(self.records, "threads", mode=mode)

    @property
    def most_real_threads(self) -> int:
        """The most threads that had a CPU each."""
        real = self.records[self.records["cpus"] >= self.records["threads"]]
        return int(require_nonempty(real, "no threads mapped memory")["threads"].max())

    def _filled(self, threads: int, pages: str) -> pd.DataFrame:
        """Return the rows of memory that so many threads touch in parts. Raises Unavailable:
        too-few-points, one-cpu."""
        rows = select_rows(
            self.frame, kernel="prefault", mode="touch", pages=pages, threads=threads
        )
        has_cpus = threads == 1 or len(self.host.usable_cpus) >= threads
        reason = "too-few-points" if has_cpus else "one-cpu"
        return require_nonempty(rows, f"{threads} threads", reason)

    def prefaulted(self, threads: int, pages: str = BASE_PAGES) -> Interval:
        """Return ns a base page of memory that so many threads touch in parts. Raises
        Unavailable: too-few-points, one-cpu."""
        return interval_of_rows(self._filled(threads, pages))

    def given_back(self, threads: int) -> Interval:
        """Return ns a page that giving back such memory on base pages takes. Raises Unavailable."""
        return interval_of_rows(self._filled(threads, BASE_PAGES), "free_ns_per_access")

    # --- memory that was left alone

    def left_alone(self) -> pd.Series:
        """Return ns a base page, a process each, of memory on large pages that was given back, left
        alone for the longest time of the grid, and touched again."""
        longest = max(IDLE_MS[HUGE_PAGE_KIND])
        rows = select_rows(self.frame, kernel="touch_again", pages=HUGE_PAGE_KIND, idle_ms=longest)
        return require_nonempty(rows, "no memory was left alone")["mean_ns"]

    # --- what the Linux kernel reports

    @cached_property
    def side(self) -> KernelFaultDocument:
        """What Linux reports here."""
        return self.document(
            "kernel_side", kernel_side.make_kernel_fault_document, KernelFaultDocument
        )

    def zeroing_share(self, pages: str) -> float:
        """Return the share of a profile's samples that zero pages. Raises Unavailable: no-data, and
        why no profile was taken."""
        profiles = self.side.profiles
        if pages not in profiles:
            raise Unavailable(self.side.lacking.get("profiles", "no-data"))
        return sum(share for name, share in profiles[pages].items() if "clear_page" in name)


def add_touched_memory_names(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of first touches by one thread with `memory`, what is touched in words, and
    `faults_per_access`, of prefault by the faults of its whole process."""
    faults = rows["minor_faults"] / rows["accesses"]
    if "faults_per_access" in rows:
        faults = rows["faults_per_access"].fillna(faults)
    named = rows.assign(memory="", faults_per_access=faults)
    for way, name in TOUCH_NAMES.items():
        named.loc[select_rows(rows, kernel="page_fault", **way._asdict()).index, "memory"] = name
    for pages, name in HEAP_NAMES.items():
        heap = select_rows(rows, kernel="prefault", mode="touch", pages=pages, threads=1)
        named.loc[heap.index, "memory"] = name
    return named[named["memory"] != ""]


# --- whether two published means differ, by Student's test: the book itself compares medians with
# exact intervals, which assume no shape

CONFIDENCE = 0.95


@dataclass(frozen=True)
class SampleMean:
    """The mean of n values and its standard error."""

    mean: float
    error: float
    n: int

    @property
    def deviation(self) -> float:
        """The standard deviation of one value."""
        return self.error * sqrt(self.n)


@dataclass(frozen=True)
class StudentTest:
    """Student's test of two means, b less a, with pooled variance.

    p: two-sided. effect: Cohen's d, the difference in standard deviations of one value. relative:
    the difference over the mean of a.
    """

    difference: Interval
    t: float
    freedom: int
    p: float
    effect: float
    relative: float


def _quantile(freedom: int) -> float:
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def sample_mean_from_interval(mean: float, low: float, high: float, n: int) -> SampleMean:
    """Return the sample behind a mean and its 95 % interval as an article prints them."""
    if n < 2 or not low < high:
        wrong = f"an interval from {low:g} to {high:g} of {n} values has no standard error"
        raise Unavailable("too-few-points", wrong)
    return SampleMean(mean, (high - low) / 2 / _quantile(n - 1), n)


def student_t_test(a: SampleMean, b: SampleMean) -> StudentTest:
    """Test whether the means differ. Raises Unavailable("unstable") if neither sample varies."""
    from scipy.stats import ttest_ind_from_stats  # a second to import

    if not max(a.error, b.error) > 0:
        raise Unavailable("unstable", "values that do not vary at all are no sample")
    found = ttest_ind_from_stats(b.mean, b.deviation, b.n, a.mean, a.deviation, a.n)
    freedom, difference = a.n + b.n - 2, b.mean - a.mean
    squares = (a.n - 1) * a.deviation**2 + (b.n - 1) * b.deviation**2
    pooled = sqrt(squares / freedom)
    half = pooled * sqrt(1 / a.n + 1 / b.n) * _quantile(freedom)
    interval = Interval(difference, difference - half, difference + half, CONFIDENCE)
    t, p = float(found.statistic), float(found.pvalue)
    return StudentTest(interval, t, freedom, p, difference / pooled, difference / a.mean)
