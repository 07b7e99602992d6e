"""What the articles say of a walk through a graph, as predicates on the rows of experiment `graph_walk`."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.chapters.graph_walk.prose import page_walkers, walkers_verdict
from experiments.inference import hops as walks
from experiments.inference import intervals as stats
from experiments.inference.curves import Verdict, judge
from experiments.inference.splinter import Splinter
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

PAGE = 4096
TWICE = (1.6, 2.4)  # the published run's 95th percentile at its largest sizes: 1.88 to 2.06 medians
SHORT_TAIL = 1.35  # and 1.03 to 1.13 of them on large pages: what is nearer to one than to twice
LARGEST = 2 << 30  # bytes: from there on the published run has its largest sizes
WALKS_OF_MEMORY = 4 << 30  # and from there on its median hop walks in memory
# Of what base pages cost more at four times the TLB's reach, where three draws in four miss; at half the reach none should.
BEFORE = 0.25
SAME = 0.05  # THP that gains less than what the book calls unstable is useless


def graph_walk(frame: pd.DataFrame, entries: Sequence[int], cores: pd.DataFrame, microarchitecture: str = "unknown",
               splintered: Splinter | None = None) -> list[Verdict]:
    """What the article says of the walk, and what this frame says of it. entries: 4 KiB data entries of each TLB level; cores: the
    literature's frame `microarchitectures`.

    splintered: what the chapter about page sizes found, which alone separates the number of misses from their price where no
    counter does.
    """

    def three() -> tuple[bool | None, str]:
        found = walks.regimes(frame)
        there = [name for name in walks.REGIMES if found.sizes(name)]
        most = int(found.table["working_set_bytes"].max())
        said = "; ".join(f"{name}, {_between(found.sizes(name))}" for name in there)
        ordered = [walks.REGIMES.index(name) for name in found.table["regime"]] == sorted(
            walks.REGIMES.index(name) for name in found.table["regime"])
        truth = True if len(there) == 3 and ordered else None if most < WALKS_OF_MEMORY or len(there) == 3 else False
        return truth, f"What answers the median hop on base pages: {said}. A load from memory takes {found.memory_ns:.0f} ns."

    def twice() -> tuple[bool | None, str]:
        size, ratio = walks.tail(frame, "4k")
        said = f"At {format_size(size)} on base pages the 95th percentile is {_times(ratio)} the median."
        if size < LARGEST:
            raise Unavailable("too-few-points", f"the sweep ends at {format_size(size)}, where it is {ratio.value:.2f} times the median")
        return (True if TWICE[0] <= ratio.low and ratio.high <= TWICE[1] else
                False if ratio.high < TWICE[0] or ratio.low > TWICE[1] else None), said

    def short() -> tuple[bool | None, str]:
        large = walks.large_pages(walks.clocked(frame))
        size, ratio = walks.tail(frame, large)
        if size < LARGEST:
            raise Unavailable("too-few-points", f"the sweep on {large} ends at {format_size(size)}, where it is {ratio.value:.2f} times "
                              "the median")
        return (True if ratio.high <= SHORT_TAIL else False if ratio.low > SHORT_TAIL else None), (
            f"At {format_size(size)} on {large} the 95th percentile is {_times(ratio)} the median.")

    def capacity() -> tuple[bool | None, str]:
        if not entries:
            raise Unavailable("no-geometry", "CPUID names no TLB level here")
        large, more = walks.saved(frame)
        reach = entries[-1] * PAGE
        before = more[more["working_set_bytes"].between(reach / 8, reach / 2)]
        after = more[more["working_set_bytes"].between(2.9 * reach, 5.7 * reach)]  # half an octave around four times
        if before.empty or after.empty:
            raise Unavailable("too-few-points", f"nothing was measured on both up to {format_size(reach // 2)} and at "
                              f"{format_size(4 * reach)}")
        low, high = (stats.Interval(*(float(part[name].median()) for name in ("value", "low", "high")), 1.0) for part in (before, after))
        said = (f"A hop on base pages takes {low.value:z.1f} ns longer than on {large} ({low.low:z.1f} to {low.high:z.1f}) up to half of "
                f"the reach of {format_size(reach)}, and {high.value:z.1f} ns longer ({high.low:z.1f} to {high.high:z.1f}) around four "
                "times the reach.")
        if high.high <= 0:
            return False, said
        if high.low <= 0:
            return None, said
        return (True if low.high <= BEFORE * high.low else False if low.low > BEFORE * high.high else None), said

    def both() -> tuple[bool | None, str]:
        counts = walks.counted(frame)
        large = walks.large_pages(walks.batched(frame))
        if {"4k", large} <= set(counts["pages"]) and "walk_cycles_per_access" in frame and frame["walk_cycles_per_access"].notna().any():
            return _counted(frame, counts, large)
        if splintered is None:
            raise Unavailable("no-pmu", "and the chapter about page sizes, whose chases could tell the two apart, says nothing")
        if splintered.walk is None:
            raise Unavailable("too-few-points", "no chase past the last level was measured on both")
        share = splintered.walk.share
        if splintered.verdict == "splintered by the host":
            return False, (f"The host splinters large pages, so they miss as often; a miss costs {share.value:.2f} of one on base pages "
                           f"({share.low:.2f} to {share.high:.2f}). {splintered.evidence}")
        if splintered.verdict == "not splintered":
            raise Unavailable("no-pmu", "large pages miss less often, and of the few misses left no time can be told without counters")
        return None, splintered.evidence

    def walkers() -> tuple[bool | None, str]:
        stated = page_walkers(microarchitecture, cores)
        if stated is None:
            raise Unavailable("no-data", f"nobody says how many page walkers {microarchitecture} has")
        base, _, found = walks.walks_under_way(walks.by_walkers(frame))
        return walkers_verdict(found, stated), (
            f"{microarchitecture} is said to have {stated:.0f}. With {base.best_walkers} walks in turn at least {found.value:.1f} page "
            f"walks were under way at once ({found.low:.1f} to {found.high:.1f}).")

    def useless() -> tuple[bool | None, str]:
        found = walks.means(frame)
        sides = [found[found["pages"] == one].set_index("working_set_bytes") for one in ("4k", "thp")]
        sizes = sorted(set(sides[0].index) & set(sides[1].index))
        if not sizes:
            raise Unavailable("thp-never", "no walk lies on transparent pages")
        slow, fast = (walks.interval(side.loc[sizes[-1]]) for side in sides)
        ratio = stats.interval_of_ratio(slow, fast)
        return (True if ratio.high <= 1 + SAME else False if ratio.low > 1 + SAME else None), (
            f"At {format_size(int(sizes[-1]))} a hop takes {slow.value:.0f} ns on base pages and {fast.value:.0f} on THP, "
            f"{_times(ratio)} the time.")

    return [
        judge("The walk has three regimes: cache, memory, memory and a page walk.", three),
        judge("At the largest sizes on 4k pages the 95th percentile is about twice the median.", twice),
        judge("On large pages that tail is gone.", short),
        judge("The probability of a miss rises where the working set passes the TLB's reach.", capacity),
        judge("Huge pages lower both the number of misses and the price of one.", both),
        judge("A core has as many page walkers as its maker or others say.", walkers),
        judge("THP is between useless and counterproductive for random access.", useless),
    ]


def _times(ratio: stats.Interval) -> str:
    return f"{ratio.value:.2f} times ({ratio.low:.2f} to {ratio.high:.2f})"


def _between(sizes: Sequence[int]) -> str:
    ends = list(dict.fromkeys(format_size(size) for size in (sizes[0], sizes[-1])))
    return " to ".join(ends)


def _counted(frame: pd.DataFrame, counts: pd.DataFrame, large: str) -> tuple[bool | None, str]:
    """By counters at the largest size that both have: walks a hop, and cycles a walk."""
    sides = [counts[counts["pages"] == one].set_index("working_set_bytes") for one in ("4k", large)]
    shared = sorted(set(sides[0].index) & set(sides[1].index))
    if not shared:
        raise Unavailable("too-few-points", "no size was counted on both")
    size = shared[-1]
    rate = [float(side.loc[size, "median"]) for side in sides]
    rows = walks.batched(frame)
    rows = rows[rows["working_set_bytes"] == size]
    cycles = [float(rows.loc[rows["pages"] == one, "walk_cycles_per_access"].median()) for one in ("4k", large)]
    if not (rate[0] > 0 and rate[1] > 0 and cycles[0] >= 0 and cycles[1] >= 0):
        raise Unavailable("too-few-points", "one of the two never walked, or its cycles were not counted")
    cost = [c / r for c, r in zip(cycles, rate, strict=True)]
    return rate[1] < rate[0] * (1 - SAME) and cost[1] < cost[0] * (1 - SAME), (
        f"At {format_size(int(size))}: {rate[0]:.3g} walks a hop of {cost[0]:.0f} cycles each on 4k, {rate[1]:.3g} of {cost[1]:.0f} on "
        f"{large}.")
