"""What page sizes buy: the rows of chases and of random reads as curves by page size, and speedups."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from experiments.article import analysis
from experiments.chapters.hugepages.languages import jmh
from experiments.inference import curves, splinter
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import UNKNOWN, Interval, median_interval, summarise_beside
from experiments.words.pages import BASE, LARGE, SWEPT, rank, words
from experiments.words.prose import listed
from experiments.words.reasons import Unavailable, if_available, required

SAME = 0.05  # what this book calls no difference
LEAST_JVMS = 3  # for JMH's own interval, of 99.9 %, to speak of more than one mapping


class Analysis(analysis.Analysis):
    """The rows of `page_chase`, `page_gather` and `random_touch` by page size. A curve is of ns per access by lines, one to each base page,
    and empty on page sizes that were not measured; so is a frame of what was not."""

    documents = ("scores",)
    most_lines = splinter.MOST_LINES  # of the figure about pieces

    # --- the chase

    @cached_property
    def spread(self) -> dict[str, Curve]:
        """By page size: the chase over one line to each base page."""
        return {pages: curves.spread(self.frame, pages=pages) for pages in SWEPT}

    @cached_property
    def packed(self) -> dict[str, Curve]:
        """By page size: its control, as many lines side by side."""
        return {pages: curves.packed(self.frame, pages=pages) for pages in SWEPT}

    @cached_property
    def price(self) -> dict[str, Curve]:
        """By page size: the price of translation. A size without its control has none. The table of whole large pages is too small to
        matter beside the data, so theirs is the plain difference."""
        pieces = if_available(lambda: self.pieces)
        whole = (*LARGE, "1g") if pieces and not pieces.is_splintered else ()
        return {pages: spread - self.packed[pages] if pages in whole else self.price_of(spread, self.packed[pages])
                for pages, spread in self.spread.items()}

    @cached_property
    def gathers(self) -> dict[str, Curve]:
        """By page size: the published loop in numpy, over one byte to each base page."""
        return {pages: curves.spread(self.frame, kernel="page_gather", engine="numpy", pages=pages) for pages in SWEPT}

    @property
    def gathered(self) -> str:
        """Which 2 MiB pages the published loop ran on. Raises Unavailable("pool-empty")."""
        return required([pages for pages in LARGE if len(self.gathers[pages])], "the published loop ran on no large pages", "pool-empty")[0]

    @property
    def kinds(self) -> list[str]:
        """The page sizes that were chased on, from small to large."""
        return [pages for pages, curve in self.spread.items() if len(curve)]

    @property
    def large(self) -> str:
        """Which 2 MiB pages were chased on. Raises Unavailable("pool-empty")."""
        return splinter.large_pages(select(self.frame, kernel="page_chase"))

    def speedup(self, pages: str, over: str = BASE) -> Curve:
        """How many times as fast the chase is on `pages` as on `over`, where both were measured."""
        return self.spread[over] / self.spread[pages]

    def below_reach(self) -> dict[str, Curve]:
        """The speedups of large pages where base pages miss little: inside the first level, and between the two; those that were
        measured. Raises Unavailable: no-geometry, pool-empty."""
        first, last = self.known_entries[0], self.known_entries[-1]
        gain = self.speedup(self.large)
        parts = {"inside the first level": gain.between(0, 0.9 * first), "between the two": gain.between(1.3 * first, 0.6 * last)}
        return {name: part for name, part in parts.items() if len(part)}

    def largest(self, *kinds: str) -> tuple[int, dict[str, float]]:
        """The most lines that all these page sizes were measured at, and the medians there, ns. Raises Unavailable("too-few-points")."""
        shared = set.intersection(*(set(self.spread[pages].xs) for pages in kinds))
        most = max(required(shared, f"no size was measured on {listed(map(words, kinds))} alike"))
        return most, {pages: self.spread[pages].at(most).value for pages in kinds}

    def page_tables(self, *kinds: str) -> tuple[int, dict[str, int]]:
        """The largest working set that was chased on all these page sizes, and the page tables of its processes, bytes. Raises
        Unavailable("too-few-points")."""
        most, _ = self.largest(*kinds)
        rows = select(self.frame, kernel="page_chase", layout="spread", lines=most)
        tables = {pages: select(rows, pages=pages).get("page_table_bytes", pd.Series(dtype=float)).median() for pages in kinds}
        if any(map(pd.isna, tables.values())):
            raise Unavailable("too-few-points", "no row says how large its page tables were")
        return most * self.base_page_bytes, {pages: int(table) for pages, table in tables.items()}

    @cached_property
    def pieces(self) -> splinter.Splinter:
        """Whether an entry of the TLB spans a large page. Raises Unavailable, as `splinter.judge` does."""
        return splinter.judge(self.frame, self.host.hypervisor)

    def splintering(self) -> splinter.Splinter | None:
        """Return what these rows show of large pages, or None if they cannot tell."""
        return if_available(lambda: self.pieces)

    @staticmethod
    def missed(entries: float, pieces: float) -> float:
        """The share of independent draws over so many pieces whose translation a level does not hold, whatever the replacement."""
        return max(0.0, 1 - entries / pieces)

    # --- random reads of an array

    @cached_property
    def touches(self) -> pd.DataFrame:
        """A row a page size and array, as `reads` gives them."""
        return self.reads()

    def reads(self, spare_draws: int = 0) -> pd.DataFrame:
        """pages, array_bytes, the estimate (ns per read), n, generator_ns (of it, drawing the index: the median of that alone).

        spare_draws: of the loop that throws so many draws away before each read.
        """
        rows = select(self.frame, kernel="random_touch", spare_draws=spare_draws).rename(columns={"bytes": "array_bytes"})
        reads = summarise_beside(rows, ["pages", "array_bytes"], {"generator_ns_per_access": "generator_ns"})
        return reads.astype({"array_bytes": "int64"}).sort_values(["pages", "array_bytes"], key=rank, ignore_index=True)

    @cached_property
    def reads_apart(self) -> pd.DataFrame:
        """The loop with and without a spare draw before each read: pages, array_bytes, median, median_spare."""
        plain, spare = (reads[["pages", "array_bytes", "median"]] for reads in (self.touches, self.reads(1)))
        return plain.merge(spare, on=["pages", "array_bytes"], suffixes=("", "_spare"))

    # --- the JVM

    @cached_property
    def scores(self) -> jmh.Jmh:
        """What JMH measured in the JVM. Raises Unavailable, as `document` does."""
        return self.document("jmh", jmh.make, jmh.Jmh)

    def java(self, array_bytes: int, pages: str) -> Interval:
        """A random read by JMH, ns, with the interval that it gives. Of fewer than three JVMs it covers nothing: each has one mapping.
        UNKNOWN where it was not measured."""
        scores = if_available(lambda: self.scores.scores) or []
        for score in scores:
            if (score.quantity, score.pages, score.array_bytes) == ("touch", pages, array_bytes) and score.error_ns is not None:
                covers = 0.999 if score.forks >= LEAST_JVMS else 0.0
                mean, error = score.ns_per_access, score.error_ns
                return Interval(mean, max(mean - error, 0.0), mean + error, covers)
        return UNKNOWN


def typical(speedups: Curve) -> Interval:
    """The speedup over a range of sizes where one number should hold for all: the median over sizes, with its exact interval, since
    each size was measured by itself. Of fewer than five sizes, which have none worth the name, the bounds are the medians of theirs."""
    return speedups.typical() if len(speedups) < 5 else median_interval(speedups.medians)
