"""What page sizes buy and cost: the rows of chases, of random reads and of faulting in as curves by page size, speedups and rates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import pandas as pd
from pydantic import BaseModel, ValidationError

from experiments.article import analysis
from experiments.chapters.hugepages.languages import jmh, runtimes
from experiments.inference import curves, splinter
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import Interval, median_interval, summarise
from experiments.words.pages import BASE, PAGES, rank, words
from experiments.words.prose import listed
from experiments.words.reasons import Unavailable

SAME = 0.05  # what this book calls no difference
_READS = ["pages", "array_bytes"]
_FAULTS = ["pages", "mode", "threads"]
Document = TypeVar("Document", bound=BaseModel)


class Analysis(analysis.Analysis):
    """The rows of `page_chase`, `random_touch` and `prefault` by page size. A curve is of ns per access by lines, one to each base page,
    and empty on page sizes that were not measured; so is a frame of what was not."""

    most_lines = splinter.MOST_LINES  # of the figure about pieces

    # --- the chase

    @cached_property
    def spread(self) -> dict[str, Curve]:
        """By page size: the chase over one line to each base page."""
        return {pages: curves.spread(self.frame, pages=pages) for pages in PAGES}

    @cached_property
    def packed(self) -> dict[str, Curve]:
        """By page size: its control, as many lines side by side."""
        return {pages: curves.packed(self.frame, pages=pages) for pages in PAGES}

    @cached_property
    def price(self) -> dict[str, Curve]:
        """By page size: the price of translation. A size without its control has none."""
        return {pages: spread - self.packed[pages] for pages, spread in self.spread.items()}

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
        if not self.entries:
            raise Unavailable("no-geometry", "CPUID names no TLB level here")
        gain, first, last = self.speedup(self.large), self.entries[0], self.entries[-1]
        parts = {"inside the first level": gain.between(0, 0.9 * first), "between the two": gain.between(1.3 * first, 0.6 * last)}
        return {name: part for name, part in parts.items() if len(part)}

    def largest(self, *kinds: str) -> tuple[int, dict[str, float]]:
        """The most lines that all these page sizes were measured at, and the medians there, ns. Raises Unavailable("too-few-points")."""
        shared = set.intersection(*(set(self.spread[pages].xs) for pages in kinds))
        if not shared:
            raise Unavailable("too-few-points", f"no size was measured on {listed(map(words, kinds))} alike")
        return max(shared), {pages: self.spread[pages].at(max(shared)).value for pages in kinds}

    @cached_property
    def pieces(self) -> splinter.Splinter:
        """Whether an entry of the TLB spans a large page. Raises Unavailable, as `splinter.judge` does."""
        return splinter.judge(self.frame, self.host.hypervisor)

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
        if rows.empty:
            return pd.DataFrame(columns=[*_READS, "median", "low", "high", "coverage", "n", "generator_ns"])
        drawn = rows.groupby(_READS)["generator_ns_per_access"].median().rename("generator_ns").reset_index()
        reads = summarise(rows, _READS).merge(drawn, on=_READS).astype({"array_bytes": "int64"})
        return reads.sort_values(_READS, key=rank, ignore_index=True)

    @cached_property
    def reads_apart(self) -> pd.DataFrame:
        """The loop with and without a spare draw before each read: pages, array_bytes, median, median_spare."""
        columns = [*_READS, "median"]
        return self.touches[columns].merge(self.reads(1)[columns], on=_READS, suffixes=("", "_spare"))

    # --- faulting in

    @cached_property
    def faults(self) -> pd.DataFrame:
        """A row a page size, mode and number of threads: the estimate (ns per base page made ready), gb_per_s (10^9 bytes), free_ns
        (ns per base page given back), one_byte_bytes (resident for one byte touched)."""
        rows = select(self.frame, kernel="prefault")
        if rows.empty:
            return pd.DataFrame(columns=[*_FAULTS, "median", "low", "high", "n", "gb_per_s", "free_ns", "one_byte_bytes"])
        others = {"free_ns_per_access": "free_ns", "one_byte_resident_bytes": "one_byte_bytes"}
        beside = rows.groupby(_FAULTS)[list(others)].median().rename(columns=others).reset_index()
        faults = summarise(rows, _FAULTS).merge(beside, on=_FAULTS).astype({"threads": int})
        faults["gb_per_s"] = self.base_page_bytes / faults["median"]
        return faults.sort_values(_FAULTS, key=rank, ignore_index=True)

    # --- other people's languages

    @cached_property
    def scores(self) -> jmh.Jmh:
        """What JMH measured in the JVM. Raises Unavailable, as `_document` does."""
        return self._document("jmh", jmh.make, jmh.Jmh)

    @cached_property
    def programs(self) -> runtimes.Runtimes:
        """What each language's program got. Raises Unavailable, as `_document` does."""
        return self._document("runtimes", runtimes.make, runtimes.Runtimes)

    def _document(self, name: str, make: Callable[[str], dict[str, Any]], kind: type[Document]) -> Document:
        """A document of data/. Raises Unavailable: no-data also for one that an older version wrote, and what `make` raises."""
        try:
            return kind.model_validate(self.about.document(name, make))
        except ValidationError:
            raise Unavailable("no-data", f"{name}.json is of another version") from None


def typical(speedups: Curve) -> Interval:
    """The speedup over a range of sizes where one number should hold for all: the median over sizes, with its exact interval, since
    each size was measured by itself. Fewer than five sizes have no interval of their own worth the name: then the bounds are the
    medians of theirs."""
    table = speedups.table
    if len(table) < 5:
        return Interval(*table[["median", "low", "high"]].median(), table["coverage"].min())
    return median_interval(table["median"])
