"""What a random walk through a graph says of loads, misses and page walks: quantiles of a hop by
working set, accesses to memory, and walks that take turns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.page_walks.grid import PAGE_TOUCH_ORDERS
from experiments.page_walks.table_chases import PageTableAnalysis
from tlb.report import quantities
from tlb.report.chapter import literature
from tlb.report.quantities import HUGE_PAGES, QuantityDeclaration
from tlb.stats.curves import Curve, select_rows
from tlb.stats.hops import (
    MemoryLatencyPeaks,
    hop_quantile,
    latency_peaks_beyond_caches,
    pooled_hop_distribution,
    shares_of_hops_with_at_least,
    smoothed_hop_times,
    with_median_clock_cost,
)
from tlb.stats.intervals import Interval, interval_of_rows, median_interval, summarise
from tlb.system.page_sizes import (
    BASE_PAGES,
    PAGE_KINDS,
    ordered_page_sizes,
    page_size_rank,
    page_words,
)
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty


class Quantities(quantities.Quantities):
    """A hop is one of a random walk through a graph with a cache line a vertex; its times are
    medians of all hops. Peaks are of all hops on a page size, in the largest graph that shows all."""

    far_bytes = QuantityDeclaration("largest graph walked on base pages", "bytes")
    far_ns = QuantityDeclaration("a hop in the largest graph, on base pages", "ns")
    far_thp_ns = QuantityDeclaration(
        "a hop in the largest graph, on transparent huge pages", "ns", pages="thp"
    )
    far_thp_gain = QuantityDeclaration(
        "that hop on transparent huge pages: times as fast", "times", 2, pages="thp"
    )
    far_batch_thp_gain = QuantityDeclaration("the same, timed per batch", "times", 2, pages="thp")
    data_ns = QuantityDeclaration(
        "a median hop on large pages, where walks are shortest", "ns", pages=HUGE_PAGES
    )
    entry_ns = QuantityDeclaration("what a page-table entry from memory adds", "ns")
    walk_share = QuantityDeclaration("share of the largest graph's hop beyond that", "share")
    first_peak_ns = QuantityDeclaration("first peak, on base pages", "ns")
    second_peak_ns = QuantityDeclaration("second peak, on base pages", "ns")
    third_peak_ns = QuantityDeclaration("third peak, on base pages", "ns")
    large_first_peak_ns = QuantityDeclaration("first peak, on large pages", "ns", pages=HUGE_PAGES)
    large_second_peak_ns = QuantityDeclaration(
        "second peak, on large pages", "ns", pages=HUGE_PAGES
    )
    peaks_bytes = QuantityDeclaration("graph whose peaks these are", "bytes")
    three_from_ns = QuantityDeclaration("a hop that takes longer waits for three accesses", "ns")
    peaks_three_share = QuantityDeclaration("hops that take longer, on base pages", "share")
    large_peaks_three_share = QuantityDeclaration(
        "hops that take longer, on large pages", "share", pages=HUGE_PAGES
    )
    three_share = QuantityDeclaration(
        "hops in the largest graph that take longer, on base pages", "share"
    )
    large_three_share = QuantityDeclaration(
        "hops in the largest graph that take longer, on large pages", "share", pages=HUGE_PAGES
    )
    touch_address_ns = QuantityDeclaration("a load of pages first touched by address", "ns")
    touch_visit_ns = QuantityDeclaration(
        "a load of pages first touched in the order of the visits", "ns"
    )
    touch_shuffled_ns = QuantityDeclaration("a load of pages first touched in a random order", "ns")
    touch_saves_ns = QuantityDeclaration(
        "what first touch in the order of the visits saves of a load",
        "ns",
        part_of="touch_address_ns",
        is_judged=True,
    )
    touch_model_ns = QuantityDeclaration("what it should save: 7/8 of an entry", "ns")
    walk_l2_ns = QuantityDeclaration("a walk whose entries lie in the L2 cache", "ns", 1)
    walk_l3_ns = QuantityDeclaration("a walk whose entries fit the stated L3 cache", "ns", 1)
    walk_memory_ns = QuantityDeclaration("a walk whose entries lie in memory", "ns")
    one_walk_ns = QuantityDeclaration(
        "a hop in 1 GiB, timed in batches, one search at a time", "ns"
    )
    best_walks_ns = QuantityDeclaration("the same, with the best number of searches in turn", "ns")
    best_walkers = QuantityDeclaration(
        "best number of searches in turn", "", is_found=True, is_judged=True
    )
    sixteen_wait_ns = QuantityDeclaration(
        "how long a hop in 1 GiB waits while 16 searches take turns", "ns"
    )
    walks_per_hop = QuantityDeclaration("page walks per hop, counted, on base pages", "", 2)
    thp_walks_per_hop = QuantityDeclaration(
        "page walks per hop, counted, on transparent huge pages", "", 2, pages="thp"
    )
    few_tables_ns = QuantityDeclaration("a TLB miss through few page tables", "ns")
    many_tables_ns = QuantityDeclaration("a TLB miss through many page tables", "ns")
    cached_tables = QuantityDeclaration("tables whose upper entry is cached", "", is_found=True)
    cached_bytes = QuantityDeclaration(
        "memory that the tables map whose upper entry is cached", "bytes", is_found=True
    )


# A hop that takes half as long again as one load from memory did something else beside it: a walk
# whose own reads went to memory, which on every machine known to us takes as long as the load
# itself. Half of that is the least doubtful line.
PAST_MEMORY = 1.5
# Between the sizes of a fine sweep from half of the rise to two octaves past it, the median on the
# published machines grows by 6 to 14 %.
SAME_MEMORY = 1.2
WORKING_SET_COLUMN = "working_set_bytes"
REGIMES = ("cache", "memory", "memory and walk")
LARGEST_SIZES = 4  # an octave each: a walk's accesses leave the caches one after the other


# Whose core is in it (Linux, arch/x86/include/asm/intel-family.h). An article says two walkers of
# Sapphire Rapids; others measured four.
_CORES = {
    "Alder Lake": "Golden Cove",
    "Sapphire Rapids": "Golden Cove",
    "Skylake server": "Skylake client",
    "Cascade Lake": "Skylake client",
    "Cooper Lake": "Skylake client",
}


class Parallel(NamedTuple):
    """What many walks at once say of a page size: where their gain stops."""

    one_ns: Interval
    best_ns: Interval
    best_walkers: int
    gain: float


def largest_measured_page_kind(kinds: Mapping[str, Curve]) -> str:
    """The large pages to compare base pages with: those that reach the largest size, and of them
    the largest, whose walks are the fewest and shortest. Raises Unavailable("pool-empty")."""
    far = require_nonempty(
        {pages: curve.xs[-1] for pages, curve in kinds.items() if pages != BASE_PAGES},
        "no walk was measured on large pages",
        "pool-empty",
    )
    return ordered_page_sizes(pages for pages, size in far.items() if size == max(far.values()))[-1]


class Regimes(NamedTuple):
    """Which place answers half of the hops on base pages, by size; the lines between them, ns."""

    memory_ns: float  # the median hop that is a load from memory with as little walking as possible
    large: str  # the page size that shows it
    cut_ns: tuple[float, float]  # cache | memory | memory and a walk that reads it
    answers: pd.Series  # by working set: the index in REGIMES

    def sizes(self, regime: str) -> list[int]:
        return self.answers.index[self.answers == REGIMES.index(regime)].tolist()


class Analysis(PageTableAnalysis):
    """The rows of `graph_walk` and `first_touch`, beside those of `table_chase`. Curves run over the
    working set in bytes. What nothing was measured for is empty here; methods and what is derived
    further raise Unavailable("too-few-points")."""

    def walks(self, per_hop: int, **where: object) -> pd.DataFrame:
        """The rows of plain walks that were timed hop by hop (1) or per batch (0)."""
        walks = select_rows(self.frame, kernel="graph_walk", mode="plain", per_hop=per_hop)
        return select_rows(with_median_clock_cost(walks), **where)

    # --- quantiles of a hop

    @cached_property
    def hops(self) -> pd.DataFrame:
        """A row per process of walks timed hop by hop: pages, working_set_bytes, p50, p95 and p99
        of a hop in ns without the clock's cost, and tail, the ratio of the first two."""
        rows = self.walks(1)
        each = [
            hop_quantile(smoothed_hop_times(row), [0.5, 0.95, 0.99]) for _, row in rows.iterrows()
        ]
        p50, p95, p99 = np.array(each).reshape(-1, 3).T
        return rows[["pages", WORKING_SET_COLUMN]].assign(
            p50=p50, p95=p95, p99=p99, tail=lambda t: t["p95"] / t["p50"]
        )

    def curves(self, quantile: str) -> dict[str, Curve]:
        """A column of `hops` by page size: medians over processes."""
        return Curve.by(self.hops, PAGE_KINDS, x=WORKING_SET_COLUMN, value=quantile)

    p50 = cached_property(lambda a: a.curves("p50"))
    p95 = cached_property(lambda a: a.curves("p95"))

    def median_hop(self, pages: str) -> Curve:
        """Return the median hop on a page size, ns. Raises Unavailable("too-few-points")."""
        return require_nonempty(
            self.p50.get(pages), f"no walk on {page_words(pages)} was timed hop by hop"
        )

    def tail(self, pages: str) -> tuple[int, Interval]:
        """The largest size in bytes, and there how many times its median the 95th percentile is,
        each process by itself."""
        rows = require_nonempty(
            select_rows(self.hops, pages=pages),
            f"no walk on {page_words(pages)} was timed hop by hop",
        )
        size = int(rows[WORKING_SET_COLUMN].max())
        ratio = median_interval(select_rows(rows, **{WORKING_SET_COLUMN: size})["tail"])
        if np.isnan(ratio.value):
            raise Unavailable("too-few-points", "half of all hops are too short for this clock")
        return size, ratio

    # --- distributions on base pages

    def distributions(self, pages: str) -> dict[int, pd.DataFrame]:
        """By working set: `hops.pooled_hop_distribution` of all processes, in which each counts alike."""
        groups = self.walks(1, pages=pages).groupby(WORKING_SET_COLUMN)
        return {
            int(rows[WORKING_SET_COLUMN].iloc[0]): pooled_hop_distribution(rows)
            for _, rows in groups
        }

    @cached_property
    def regimes(self) -> Regimes:
        """The regime of each size on base pages, from the distributions alone.

        A load from memory takes what half of the hops on large pages do not exceed, two octaves
        past the size where that median has done half of its rise: most hops miss the caches there,
        and the walks of large pages are still short. If the next size of a coarse sweep is further
        away and dearer by SAME_MEMORY, its walks are long already, and the size before counts. The
        line between cache and memory is the geometric mean of the two; that past memory,
        PAST_MEMORY. Raises Unavailable: also no-step.
        """
        if BASE_PAGES not in self.p50:
            raise Unavailable("too-few-points", "no walk on base pages was timed hop by hop")
        large = largest_measured_page_kind(self.p50)
        base, control = self.p50[BASE_PAGES].medians, self.p50[large].medians
        cache, most = float(base.iloc[0]), float(control.max())
        if most < 4 * max(cache, float(control.iloc[0])):
            why = f"the median hop on {page_words(large)} takes {most:.1f} ns at the most"
            raise Unavailable("no-step", why)
        risen = control.index[control > most / 2].min()
        past = control[control.index >= 4 * risen]
        memory = float(past.iloc[0] if len(past) else control.iloc[-1])
        if len(past) and past.index[0] > 8 * risen and memory > SAME_MEMORY * control[risen]:
            memory = float(control[risen])
        cuts = float(np.sqrt(max(cache, 1.0) * memory)), PAST_MEMORY * memory
        answers = pd.Series(np.searchsorted(cuts, base), index=base.index)
        return Regimes(memory, large, cuts, answers)

    # --- accesses to memory

    def _peaks_on(self, pages: str) -> dict[int, MemoryLatencyPeaks]:
        """The peaks of a hop's time on a page size, past the caches, by working set: the largest
        LARGEST_SIZES. Raises Unavailable, as `regimes` does."""
        rows = require_nonempty(
            self.walks(1, pages=pages), f"no walk on {page_words(pages)} was timed hop by hop"
        )
        return {
            int(of_size[WORKING_SET_COLUMN].iloc[0]): latency_peaks_beyond_caches(
                pooled_hop_distribution(of_size),
                [smoothed_hop_times(row) for _, row in of_size.iterrows()],
                self.regimes.cut_ns[0],
                self.regimes.memory_ns,
            )
            for size, of_size in list(rows.groupby(WORKING_SET_COLUMN))[-LARGEST_SIZES:]
        }

    @cached_property
    def peaks_by_size(self) -> dict[str, dict[int, MemoryLatencyPeaks]]:
        """By page size, of base pages and of the large pages that reach as far, and working set:
        the graphs with most peaks, largest first. At the largest size of all the first peak may
        have gone, so it alone does not tell how many accesses a peak is."""
        kept = {}
        for pages in (BASE_PAGES, largest_measured_page_kind(self.p50)):
            found = self._peaks_on(pages)
            most = max(len(peaks.peaks_ns) for peaks in found.values())
            sizes = sorted((n for n in found if len(found[n].peaks_ns) == most), reverse=True)
            kept[pages] = {size: found[size] for size in sizes}
        return kept

    @cached_property
    def peaks(self) -> dict[str, MemoryLatencyPeaks]:
        """`peaks_by_size` of the largest graph, by page size."""
        return {pages: next(iter(of.values())) for pages, of in self.peaks_by_size.items()}

    @property
    def peaks_graph_bytes(self) -> float:
        """The size of the graph whose peaks on base pages `peaks` has; NaN for none."""
        peaks = none_if_unavailable(lambda: self.peaks_by_size) or {}
        return float(next(iter(peaks.get(BASE_PAGES, ())), float("nan")))

    @property
    def compared_pages(self) -> list[str]:
        """The page sizes of `peaks`, of those that were walked: base pages, and large ones that
        reach as far."""
        large = none_if_unavailable(lambda: largest_measured_page_kind(self.p50))
        return [pages for pages in (BASE_PAGES, large) if pages in self.p50]

    def peak_ns(self, pages: str) -> list[float]:
        """Return the peaks of a hop's time on a page size, ascending, rounded to 10 ns: most clocks
        can tell no more. Raises Unavailable, as `regimes` does."""
        return [round(peak.value, -1) for peak in self.peaks[pages].peaks_ns]

    def has_peaks(self, pages: str) -> bool:
        """Return whether two peaks or more are known on a page size."""
        return none_if_unavailable(lambda: self.peak(pages, 1)) is not None

    def peak(self, pages: str, place: int) -> Interval:
        """Return one of `peak_ns`, from 0, within a peak's error. Raises Unavailable("no-step")."""
        peaks = require_nonempty(self.peak_ns(pages)[place:], f"no peak {place + 1}", "no-step")
        return self._within_error(peaks[0], self.peak_error_ns)

    @property
    def entry_ns(self) -> Interval:
        """What an entry that comes from memory adds to a hop: from the first peak on base pages to
        the second. Raises Unavailable("no-step")."""
        first, second = (self.peak(BASE_PAGES, place).value for place in (0, 1))
        return self._within_error(second - first, self.peak_error_ns * 2**0.5)

    @staticmethod
    def _within_error(ns: float, error_ns: float) -> Interval:
        return Interval(ns, ns - error_ns, ns + error_ns)

    def accesses_from_ns(self, accesses: int) -> float:
        """Return how long a hop takes at least that counts as so many accesses to memory: half way
        between two peaks on base pages, to 10 ns. Raises Unavailable("no-step")."""
        cuts_ns = self.peaks[BASE_PAGES].cuts_ns[accesses - 1 :]
        return round(require_nonempty(cuts_ns, f"no peak {accesses}", "no-step")[0], -1)

    def waiting_share(self, pages: str, accesses: int, *, of_peaks: bool = False) -> float:
        """Return the share of hops in the largest graph, or in that of `peaks` on base pages, that
        take as long as so many accesses to memory. Raises Unavailable."""
        shares = select_rows(self.access_shares, pages=pages, accesses=accesses)
        if of_peaks:
            shares = select_rows(shares, working_set_bytes=int(self.peaks_graph_bytes))
        shares = require_nonempty(shares, f"no hop on {page_words(pages)} took {accesses} accesses")
        return float(shares.sort_values(WORKING_SET_COLUMN)["share"].iloc[-1])

    @property
    def peak_error_ns(self) -> float:
        """How far off a peak on base pages may be: to the farther end of its interval over
        processes, of the peak where that is farthest; no less than a tick of the clock."""
        peaks = self.peaks[BASE_PAGES].peaks_ns
        ends = [abs(end - peak.value) for peak in peaks for end in (peak.low, peak.high)]
        return max(float(self.walks(1)["clock_step_ns"].median()), *ends)

    @cached_property
    def access_shares(self) -> pd.DataFrame:
        """pages (those of `peaks`), working_set_bytes, accesses, share (of hops that wait for so
        many accesses to memory or more, by the cuts between the peaks on base pages)."""
        cuts_ns = require_nonempty(
            self.peaks[BASE_PAGES].cuts_ns, "no hop on base pages left the caches"
        )
        tables = {
            pages: shares_of_hops_with_at_least(self.distributions(pages), cuts_ns).stack()
            for pages in self.peaks
        }
        shares = pd.concat(tables, names=["pages", WORKING_SET_COLUMN, "accesses"])
        return pd.Series(shares, name="share").reset_index()

    # --- means per batch

    @cached_property
    def means(self) -> dict[str, Curve]:
        """ns per hop of one walker, timed per batch, by page size."""
        return Curve.by(self.walks(0, walkers=1), PAGE_KINDS, x=WORKING_SET_COLUMN)

    def mean_hop(self, pages: str) -> Curve:
        """Return the hop on a page size as timed per batch, ns. Raises
        Unavailable("too-few-points")."""
        return require_nonempty(
            self.means.get(pages), f"no walk on {page_words(pages)} was timed per batch"
        )

    @cached_property
    def touched(self) -> dict[str, Curve]:
        """ns per load of the chase over pages that were first touched in three orders, by order,
        over the number of lines."""
        return Curve.by(self.frame, PAGE_TOUCH_ORDERS, "mode", kernel="first_touch")

    # --- misses

    @cached_property
    def counted(self) -> dict[str, Curve]:
        """Walks per hop as counted, by page size; empty where no row has a count."""
        return Curve.by(
            self.walks(0, walkers=1), PAGE_KINDS, x=WORKING_SET_COLUMN, value="walk_per_access"
        )

    def walks_per_hop(self, pages: str) -> Interval:
        """Page walks per hop in the largest graph, as counted. Raises Unavailable("no-pmu")."""
        lacking = f"no walks were counted on {page_words(pages)}"
        return require_nonempty(self.counted.get(pages), lacking, "no-pmu").last

    @property
    def _touched_lines(self) -> int:
        """Lines of the largest chase over pages first touched in each order; 0 for none."""
        curves = [self.touched[name] for name in PAGE_TOUCH_ORDERS if name in self.touched]
        is_whole = len(curves) == len(PAGE_TOUCH_ORDERS)
        return min(curve.xs[-1] for curve in curves) if is_whole else 0

    @property
    def touched_bytes(self) -> int:
        return self._touched_lines * self.base_page_bytes

    def touched_ns(self, order: str) -> Interval:
        """Return a load of the largest chase over pages first touched in an order. Raises
        Unavailable("too-few-points")."""
        if not self._touched_lines:
            lacking = "no chase was measured over pages touched in three orders"
            raise Unavailable("too-few-points", lacking)
        return self.touched[order].get(self._touched_lines)

    # --- several walks at once

    @cached_property
    def walkers(self) -> pd.DataFrame:
        """A row a page size and number of walks that take turns in one thread: pages, walkers,
        vertices, as `summarise` (ns per hop), and gain, over one walk alone.

        Of each page size the largest graph that was walked by several numbers of walkers.
        """
        rows = self.walks(0)
        require_nonempty(list(rows.get("walkers", ())), "no walk through a graph was measured")
        several = rows.groupby(["pages", "lines"])["walkers"].nunique()
        most = dict(several[several > 1].index)  # sorted: of each page size the last is the largest
        rows = rows[rows["lines"] == rows["pages"].map(most).astype(float)]
        by = ["pages", "walkers"]
        summary = summarise(rows, by).astype({"walkers": int})
        summary = summary.sort_values(by, key=page_size_rank, ignore_index=True)
        alone = summary[summary["walkers"] == 1].set_index("pages")["median"]
        gain = summary["pages"].map(alone).astype(float) / summary["median"]
        return summary.assign(vertices=summary["pages"].map(most), gain=gain)

    def parallel(self, pages: str) -> Parallel:
        """Of `walkers` on a page size, beside one."""
        side = select_rows(self.walkers, pages=pages).dropna(subset="gain").set_index("walkers")
        if len(side) < 2:
            why = f"several walkers on {page_words(pages)} were not measured beside one"
            raise Unavailable("too-few-points", why)
        best = int(side.index[int(side["median"].argmin())])
        each = side.to_dict("index")
        one_ns, best_ns = (Interval.of(each[walkers]) for walkers in (1, best))
        return Parallel(one_ns, best_ns, best, float(each[best]["gain"]))

    def wait_ns(self, pages: str, walkers: int) -> Interval:
        """Return how long a hop waits, from its start to its end, in a graph of 1 GiB while so many
        walks take turns. Raises Unavailable("too-few-points")."""
        rows = select_rows(self.walks(0, walkers=walkers), pages=pages)
        rows = rows[rows[WORKING_SET_COLUMN] == 1 << 30]
        lacking = f"{walkers} walkers in 1 GiB on {page_words(pages)}"
        return interval_of_rows(require_nonempty(rows, lacking)) * walkers

    @cached_property
    def under_way(self) -> tuple[Parallel, Parallel, Interval]:
        """Base pages, large pages, and how many walks the former had under way at once at their
        best.

        By Little's law as many as a walk takes over what a hop takes then, if a walk takes what
        one walker's hop takes longer on base pages than on large ones, among many walkers too.
        Raises Unavailable: too-few-points, pool-empty, unstable.
        """
        rest = [pages for pages in ordered_page_sizes(self.walkers["pages"]) if pages != BASE_PAGES]
        require_nonempty(rest, "several walkers were not measured on large pages", "pool-empty")
        base, large = self.parallel(BASE_PAGES), self.parallel(rest[-1])
        walk = base.one_ns - large.one_ns
        if walk.low <= 0:
            raise Unavailable("unstable", f"base pages cost {walk:.1f} ns more")
        return base, large, walk / base.best_ns

    @cached_property
    def page_walkers(self) -> float | None:
        """Return the published number of page walkers of this core; None if unpublished."""
        name, facts = self.host.microarchitecture, literature("microarchitectures")
        stated = select_rows(facts, structure="page_walker", quantity="count")
        return stated.set_index("microarchitecture")["value_low"].get(_CORES.get(name, name))
