"""What a walk of a graph says of loads, misses and walks: rows as quantiles by working set,
regimes, accesses to memory and walks under way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.graph_walk.models import MemoryPeaks, memory_peaks, shares_by_accesses
from experiments.graph_walk.walkers import SIZE_COLUMN, WalkersAnalysis
from tlb.stats.curves import Curve, select
from tlb.stats.hops import below, merged, quantile, smoothed
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import BASE, PAGES, ordered, words
from tlb.system.reasons import Unavailable, required

# A hop that takes half as long again as one load from memory did something else beside it: a walk
# whose own reads went to memory, which on every machine known to us takes as long as the load
# itself. Half of that is the least doubtful line.
PAST_MEMORY = 1.5
REGIMES = ("cache", "memory", "memory and walk")
LARGEST_SIZES = 4  # an octave each: a walk's accesses leave the caches one after the other
DENSITY_POINTS = 220  # a chart is 600 px wide
DENSITY_SHOWN = 0.99  # of the slowest distribution; its tail would take as much room as the modes


def largest_page_size(kinds: Mapping[str, Curve]) -> str:
    """The large pages to compare base pages with: those that reach the largest size, and of them
    the largest, whose walks are the fewest and shortest. Raises Unavailable("pool-empty")."""
    far = required(
        {pages: curve.xs[-1] for pages, curve in kinds.items() if pages != BASE},
        "no walk was measured on large pages",
        "pool-empty",
    )
    return ordered(pages for pages, size in far.items() if size == max(far.values()))[-1]


class Regimes(NamedTuple):
    """Which place answers half of the hops on base pages, by size; the lines between them, ns."""

    memory_ns: float  # the median hop that is a load from memory with as little walking as possible
    large: str  # the page size that shows it
    cut_ns: tuple[float, float]  # cache | memory | memory and a walk that reads it
    answers: pd.Series  # by working set: the index in REGIMES

    def sizes(self, regime: str) -> list[int]:
        return self.answers.index[self.answers == REGIMES.index(regime)].tolist()


class Analysis(WalkersAnalysis):
    """The rows of `graph_walk`. Curves run over the working set in bytes. What nothing was measured
    for is empty here; methods and what is derived further raise Unavailable("too-few-points").

    The page defines: p50, p95, ridges, touched and walkers.
    """

    # --- quantiles of a hop

    @cached_property
    def hops(self) -> pd.DataFrame:
        """A row per process of walks timed hop by hop: pages, working_set_bytes, p50 and p95 of a
        hop in ns without the clock's cost, and tail, their ratio."""
        rows = self.walks(1)
        each = [quantile(smoothed(row), [0.5, 0.95]) for _, row in rows.iterrows()]
        p50, p95 = np.array(each).reshape(-1, 2).T
        return rows[["pages", SIZE_COLUMN]].assign(
            p50=p50, p95=p95, tail=lambda t: t["p95"] / t["p50"]
        )

    def curves(self, quantile: str) -> dict[str, Curve]:
        """A column of `hops` by page size: medians over processes."""
        return Curve.by(self.hops, PAGES, x=SIZE_COLUMN, value=quantile)

    def tail(self, pages: str) -> tuple[int, Interval]:
        """The largest size in bytes, and there how many times its median the 95th percentile is,
        each process by itself."""
        rows = required(
            select(self.hops, pages=pages), f"no walk on {words(pages)} was timed hop by hop"
        )
        size = int(rows[SIZE_COLUMN].max())
        ratio = median_interval(select(rows, **{SIZE_COLUMN: size})["tail"])
        if np.isnan(ratio.value):
            raise Unavailable("too-few-points", "half of all hops are too short for this clock")
        return size, ratio

    # --- distributions on base pages

    def distributions(self, pages: str) -> dict[int, pd.DataFrame]:
        """By working set: `hops.merged` of all processes, in which each counts alike."""
        groups = self.walks(1, pages=pages).groupby(SIZE_COLUMN)
        return {int(rows[SIZE_COLUMN].iloc[0]): merged(rows) for _, rows in groups}

    def densities(self, pages: str) -> pd.DataFrame:
        """The distributions' densities, largest size first: working_set_bytes, ns, share_per_ns.

        A bin is a tick of the clock where a chart could show less: narrower ones would fall between
        two readings and draw notches that no hop made.
        """
        spreads = self.distributions(pages)
        if not spreads:
            return pd.DataFrame()
        most = max(float(quantile(spread, DENSITY_SHOWN)) for spread in spreads.values())
        tick = max((spread["high_ns"] - spread["low_ns"]).min() for spread in spreads.values())
        width = max(float(tick), most / DENSITY_POINTS)
        least = min(spread["low_ns"].min() for spread in spreads.values()) - width
        edges = least + width * np.arange(int((most - least) / width) + 2)
        middles = (edges[:-1] + edges[1:]) / 2
        tables = []
        for size in sorted(spreads, reverse=True):
            share = np.diff(below(spreads[size], edges)) / width
            tables.append(pd.DataFrame({SIZE_COLUMN: size, "ns": middles, "share_per_ns": share}))
        return pd.concat(tables, ignore_index=True)

    @cached_property
    def regimes(self) -> Regimes:
        """The regime of each size on base pages, from the distributions alone.

        A load from memory takes what half of the hops on large pages do not exceed, two octaves
        past the size where that median has done half of its rise: most hops miss the caches there,
        and the walks of large pages are still short. The line between cache and memory is the
        geometric mean of the two; that past memory, PAST_MEMORY. Raises Unavailable: also no-step.
        """
        if BASE not in self.p50:
            raise Unavailable("too-few-points", "no walk on base pages was timed hop by hop")
        large = largest_page_size(self.p50)
        base, control = self.p50[BASE].medians, self.p50[large].medians
        cache, most = float(base.iloc[0]), float(control.max())
        if most < 4 * max(cache, float(control.iloc[0])):
            why = f"the median hop on {words(large)} takes {most:.1f} ns at the most"
            raise Unavailable("no-step", why)
        past = control[control.index >= 4 * control.index[control > most / 2].min()]
        memory = float(past.iloc[0] if len(past) else control.iloc[-1])
        cuts = float(np.sqrt(max(cache, 1.0) * memory)), PAST_MEMORY * memory
        answers = pd.Series(np.searchsorted(cuts, base), index=base.index)
        return Regimes(memory, large, cuts, answers)

    # --- accesses to memory

    def _peaks_on(self, pages: str) -> dict[int, MemoryPeaks]:
        """The peaks of a hop's time on a page size, past the caches, by working set: the largest
        LARGEST_SIZES. Raises Unavailable, as `regimes` does."""
        rows = required(
            self.walks(1, pages=pages), f"no walk on {words(pages)} was timed hop by hop"
        )
        return {
            int(of_size[SIZE_COLUMN].iloc[0]): memory_peaks(
                merged(of_size),
                [smoothed(row) for _, row in of_size.iterrows()],
                self.regimes.cut_ns[0],
                self.regimes.memory_ns,
            )
            for size, of_size in list(rows.groupby(SIZE_COLUMN))[-LARGEST_SIZES:]
        }

    @cached_property
    def peaks_by_size(self) -> dict[str, dict[int, MemoryPeaks]]:
        """By page size, of base pages and of the large pages that reach as far, and working set:
        the graphs with most peaks, largest first. At the largest size of all the first peak may
        have gone, so it alone does not tell how many accesses a peak is."""
        kept = {}
        for pages in (BASE, largest_page_size(self.p50)):
            found = self._peaks_on(pages)
            most = max(len(peaks.peaks_ns) for peaks in found.values())
            sizes = sorted((n for n in found if len(found[n].peaks_ns) == most), reverse=True)
            kept[pages] = {size: found[size] for size in sizes}
        return kept

    @cached_property
    def peaks(self) -> dict[str, MemoryPeaks]:
        """`peaks_by_size` of the largest graph, by page size."""
        return {pages: next(iter(of.values())) for pages, of in self.peaks_by_size.items()}

    @property
    def peak_error_ns(self) -> float:
        """How far off a peak on base pages may be: to the farther end of its interval over
        processes, of the peak where that is farthest; no less than a tick of the clock."""
        peaks = self.peaks[BASE].peaks_ns
        ends = [abs(end - peak.value) for peak in peaks for end in (peak.low, peak.high)]
        return max(float(self.walks(1)["clock_step_ns"].median()), *ends)

    @cached_property
    def access_shares(self) -> pd.DataFrame:
        """pages (those of `peaks`), working_set_bytes, accesses, share (of hops that wait for so
        many accesses to memory or more, by the cuts between the peaks on base pages)."""
        cuts_ns = required(self.peaks[BASE].cuts_ns, "no hop on base pages left the caches")
        tables = {
            pages: shares_by_accesses(self.distributions(pages), cuts_ns).stack()
            for pages in self.peaks
        }
        shares = pd.concat(tables, names=["pages", SIZE_COLUMN, "accesses"])
        return pd.Series(shares, name="share").reset_index()

    @property
    def large_peaks(self) -> tuple[str, MemoryPeaks]:
        return list(self.peaks.items())[-1]

    # --- means per batch

    @cached_property
    def means(self) -> dict[str, Curve]:
        """ns per hop of one walker, timed per batch, by page size."""
        return Curve.by(self.walks(0, walkers=1), PAGES, x=SIZE_COLUMN)

    # --- misses

    @cached_property
    def counted(self) -> dict[str, Curve]:
        """Walks per hop as counted, by page size; empty where no row has a count."""
        return Curve.by(self.walks(0, walkers=1), PAGES, x=SIZE_COLUMN, value="walk_per_access")

    @property
    def in_pieces(self) -> bool:
        return self.is_splintered
