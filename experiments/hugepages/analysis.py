"""What page sizes buy: the rows of chases and of random reads as curves by page size, and speedups."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from experiments.hugepages.languages import jmh
from tlb.inference import curves, splinter
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import UNKNOWN, Interval, median_interval, summarise_beside
from tlb.page_sizes import BASE, LARGE, SWEPT, hardware, page_bytes, rank, words
from tlb.prose import listed
from tlb.reasons import Unavailable, if_available, required
from tlb.report import analysis

SAME = 0.05  # what this book calls no difference
ENTRY_BYTES = 8  # of a page table
LEAST_JVMS = 3  # for JMH's own interval, of 99.9 %, to speak of more than one mapping


class Analysis(analysis.Analysis):
    """The rows of `page_chase`, `page_gather` and `random_touch` by page size. A curve is of ns per
    access by lines, one to each base page, and empty on page sizes that were not measured; so is a
    frame of what was not.

    The page defines: spread, packed, price, speedup, most_lines, touches, missed and heap_bytes.
    """

    documents = ("scores",)

    # --- the chase

    def price_on(self, pages: str, spread: Curve, packed: Curve) -> Curve:
        """Return the price of translation on one page size. A size without its control has none.
        The table of whole large pages is too small to matter beside the data, so theirs is the
        plain difference."""
        pieces = self.splintering() if pages in (*LARGE, "1g") else None
        return (
            spread - packed
            if pieces and not pieces.is_splintered
            else self.price_of(spread, packed)
        )

    @cached_property
    def gathers(self) -> dict[str, Curve]:
        """By page size: the published loop in numpy, over one byte to each base page."""
        return {
            pages: curves.spread(self.frame, kernel="page_gather", engine="numpy", pages=pages)
            for pages in SWEPT
        }

    @property
    def gathered(self) -> str:
        """Which 2 MiB pages the published loop ran on. Raises Unavailable("pool-empty")."""
        return required(
            [pages for pages in LARGE if len(self.gathers[pages])],
            "the published loop ran on no large pages",
            "pool-empty",
        )[0]

    @property
    def kinds(self) -> list[str]:
        """The page sizes that were chased on, from small to large."""
        return [pages for pages, curve in self.spread.items() if len(curve)]

    @property
    def large(self) -> str:
        """Which 2 MiB pages were chased on. Raises Unavailable("pool-empty")."""
        return splinter.large_pages(select(self.frame, kernel="page_chase"))

    def below_reach(self) -> dict[str, Curve]:
        """The speedups of large pages where base pages miss little: inside the first level, and
        between the two; those that were measured. Raises Unavailable: no-geometry, pool-empty."""
        first, last = self.known_entries[0], self.known_entries[-1]
        gain = self.speedup(self.large)
        parts = {
            "inside the first level": gain.between(0, 0.9 * first),
            "between the two": gain.between(1.3 * first, 0.6 * last),
        }
        return {name: part for name, part in parts.items() if len(part)}

    def largest(self, *kinds: str) -> tuple[int, dict[str, float]]:
        """The most lines that all these page sizes were measured at, and the medians there, ns.
        Raises Unavailable("too-few-points")."""
        shared = set.intersection(*(set(self.spread[pages].xs) for pages in kinds))
        most = max(required(shared, f"no size was measured on {listed(map(words, kinds))} alike"))
        return most, {pages: self.spread[pages].at(most).value for pages in kinds}

    def page_tables(self, *kinds: str) -> tuple[int, dict[str, int]]:
        """The largest working set that was chased on all these page sizes, and the page tables of
        its processes, bytes. Raises Unavailable("too-few-points")."""
        most, _ = self.largest(*kinds)
        rows = select(self.frame, kernel="page_chase", layout="spread", lines=most)
        tables = {
            pages: select(rows, pages=pages)
            .get("page_table_bytes", pd.Series(dtype=float))
            .median()
            for pages in kinds
        }
        if any(map(pd.isna, tables.values())):
            raise Unavailable("too-few-points", "no row says how large its page tables were")
        return most * self.base_page_bytes, {pages: int(table) for pages, table in tables.items()}

    def last_level_bytes(self, pages: str, size_bytes: int) -> int:
        """Return the last level of a page table over so much memory; a page of 64 KiB is mapped by
        entries of base pages."""
        entries = size_bytes // page_bytes(hardware(pages), self.base_page_bytes)
        return max(entries, 1) * ENTRY_BYTES

    @property
    def spans(self) -> pd.DataFrame:
        """The points of the chase whose mappings differ by more than 1.5 times: pages, lines, min,
        max, ratio; the widest first."""
        dots = pd.concat(
            [curve.processes.assign(pages=pages) for pages, curve in self.spread.items()],
            ignore_index=True,
        )
        dots = dots.reindex(columns=["pages", "lines", "median"])
        ends = dots.groupby(["pages", "lines"], as_index=False)["median"].agg(["min", "max"])
        return ends.assign(ratio=ends["max"] / ends["min"]).sort_values(
            "ratio", ascending=False, ignore_index=True
        )

    @cached_property
    def pieces(self) -> splinter.Splinter:
        """Whether an entry of the TLB spans a large page. Raises Unavailable, as `splinter.judge`
        does."""
        return splinter.judge(self.frame, self.host.hypervisor)

    def splintering(self) -> splinter.Splinter | None:
        """Return what these rows show of large pages, or None if they cannot tell."""
        return if_available(lambda: self.pieces)

    # --- random reads of an array

    def reads(self, spare_draws: int) -> pd.DataFrame:
        """Return pages, array_bytes, the estimate (ns per read), n, generator_ns (of it, drawing
        the index: the median of that alone).

        spare_draws: of the loop that throws so many draws away before each read.
        """
        rows = select(self.frame, kernel="random_touch", spare_draws=spare_draws).rename(
            columns={"bytes": "array_bytes"}
        )
        reads = summarise_beside(
            rows, ["pages", "array_bytes"], {"generator_ns_per_access": "generator_ns"}
        )
        return reads.astype({"array_bytes": "int64"}).sort_values(
            ["pages", "array_bytes"], key=rank, ignore_index=True
        )

    @property
    def extreme_reads(self) -> tuple[int, int, dict[tuple[str, int], float]]:
        """The smallest and the largest array read both on base pages and on large ones, and ns per
        read by pages and bytes. Raises Unavailable: pool-empty, too-few-points."""
        reads = self.touches.set_index(["pages", "array_bytes"])["median"]
        sizes = [
            set(select(self.touches, pages=pages)["array_bytes"])
            for pages in (BASE, splinter.large_pages(self.touches))
        ]
        shared = required(set.intersection(*sizes), "no array was read on both page sizes")
        return min(shared), max(shared), reads.to_dict()

    # --- the JVM

    @cached_property
    def scores(self) -> jmh.Jmh:
        """What JMH measured in the JVM. Raises Unavailable, as `document` does."""
        return self.document("jmh", jmh.make, jmh.Jmh)

    @property
    def against_c(self) -> pd.DataFrame:
        """JMH beside the loop in C, and beside that loop with a spare draw before each read: pages,
        array_bytes, jmh_ns, ours_ns, ratio, median_spare and ratio_spare, NaN without it. Raises
        Unavailable: as `document` does, too-few-points where both read no array."""
        both = required(
            jmh.against(self.scores, self.touches),
            "no size was read on the same pages by the JVM and in C",
        )
        spare = self.reads(1)[["pages", "array_bytes", "median"]].rename(
            columns={"median": "median_spare"}
        )
        both = both.merge(spare, on=["pages", "array_bytes"], how="left").sort_values(
            "array_bytes", ignore_index=True
        )
        return both.assign(ratio_spare=both["jmh_ns"] / both["median_spare"])

    def java(self, array_bytes: int, pages: str) -> Interval:
        """A random read by JMH, ns, with the interval that it gives. Of fewer than three JVMs it
        covers nothing: each has one mapping. UNKNOWN where it was not measured."""
        scores = if_available(lambda: self.scores.scores) or []
        for score in scores:
            if (score.quantity, score.pages, score.array_bytes) == (
                "touch",
                pages,
                array_bytes,
            ) and score.error_ns is not None:
                covers = 0.999 if score.forks >= LEAST_JVMS else 0.0
                mean, error = score.ns_per_access, score.error_ns
                return Interval(mean, max(mean - error, 0.0), mean + error, covers)
        return UNKNOWN


def typical(speedups: Curve) -> Interval:
    """The speedup over a range of sizes where one number should hold for all: the median over
    sizes, with its exact interval, since each size was measured by itself. Of fewer than five
    sizes, which have none worth the name, the bounds are the medians of theirs."""
    return speedups.typical() if len(speedups) < 5 else median_interval(speedups.medians)
