"""What the articles say of a walk through a graph, as predicates on the chapter's Analysis."""

from __future__ import annotations

import numpy as np

from experiments.article.verdicts import Answer, claim, inside
from experiments.chapters.graph_walk.analysis import REGIMES, SIZE, Analysis, largest
from experiments.inference.curves import select
from experiments.inference.intervals import Interval
from experiments.lab.record import Point
from experiments.words.pages import BASE, words
from experiments.words.reasons import Unavailable, required
from experiments.words.units import format_size

TWICE = (1.6, 2.4)  # the published run's 95th percentile at its largest sizes: 1.88 to 2.06 medians
SHORT_TAIL = 1.35  # and 1.03 to 1.13 of them on large pages: what is nearer to one than to twice
LARGEST = 2 << 30  # bytes: from there on the published run has its largest sizes
WALKS_OF_MEMORY = 4 << 30  # and from there on its median hop walks in memory
# Of what base pages cost more at four times the TLB's reach, where three draws in four miss; at half the reach none should.
BEFORE = 0.25
AGREES = 0.25  # a whole number of walkers, from times with a few percent of noise and a walk's time that is a lower bound
SAME = 0.05  # THP that gains less than what the book calls unstable is useless


def _hop_by_hop(point: Point) -> bool:
    return point.kernel == "graph_walk" and ("per_hop", 1) in point.options


def _in_batches(point: Point) -> bool:
    return point.kernel == "graph_walk" and not {"per_hop", "walkers"} & dict(point.options).keys()


@claim("three-regimes", source="matthews_tlbperf", says="The walk has three regimes: cache, memory, memory and a page walk.",
       points=_hop_by_hop)
def three_regimes(a: Analysis, reads_memory_from: int = WALKS_OF_MEMORY) -> Answer:
    answers = a.regimes.answers
    seen = [name for name in REGIMES if a.regimes.sizes(name)]
    ranges = ", ".join(f"{name} {' to '.join(dict.fromkeys(format_size(a.regimes.sizes(name)[end]) for end in (0, -1)))}" for name in seen)
    all_three = len(seen) == len(REGIMES)
    truth = True if all_three and answers.is_monotonic_increasing else None if all_three or answers.index[-1] < reads_memory_from else False
    return truth, f"What answers the median hop on base pages: {ranges}. A load from memory takes {a.regimes.memory_ns:.0f} ns."


def _tail(a: Analysis, pages: str, from_bytes: int) -> tuple[Interval, str]:
    size, ratio = a.tail(pages)
    if size < from_bytes:
        raise Unavailable("too-few-points", f"the sweep on {words(pages)} ends at {format_size(size)}, where the 95th percentile is "
                          f"{ratio.value:.2f} times the median")
    return ratio, f"At {format_size(size)} on {words(pages)} the 95th percentile is {ratio:.2f} times the median."


@claim("tail-twice-the-median", source="matthews_tlbperf", points=_hop_by_hop,
       says="At the largest sizes on 4k pages the 95th percentile is about twice the median.")
def tail_is_twice_the_median(a: Analysis, band: tuple[float, float] = TWICE, from_bytes: int = LARGEST) -> Answer:
    ratio, evidence = _tail(a, BASE, from_bytes)
    return inside(ratio, *band), evidence


@claim("no-tail-on-large-pages", source="matthews_tlbperf", says="On large pages that tail is gone.", points=_hop_by_hop)
def tail_is_gone(a: Analysis, most: float = SHORT_TAIL, from_bytes: int = LARGEST) -> Answer:
    ratio, evidence = _tail(a, largest(a.p50), from_bytes)
    return inside(ratio, most=most), evidence


@claim("misses-rise-past-the-reach", source="matthews_tlbperf", points=_in_batches,
       says="The probability of a miss rises where the working set passes the TLB's reach.")
def misses_rise_past_the_reach(a: Analysis, share: float = BEFORE) -> Answer:
    reach, (large, saved) = a.known_entries[-1] * a.base_page_bytes, a.saved
    near, past = saved.between(reach / 8, reach / 2), saved.between(2.9 * reach, 5.7 * reach)  # half an octave around four times
    if not len(near) or not len(past):
        raise Unavailable("too-few-points", f"nothing was measured on both up to {format_size(reach // 2)} and at "
                          f"{format_size(4 * reach)}")
    low, high = (Interval(*curve.table[["median", "low", "high"]].median(), modes=curve.modes) for curve in (near, past))
    evidence = (f"A hop on base pages takes {low:.1f} ns longer than on {words(large)} up to half of the reach of {format_size(reach)}, "
                f"and {high:.1f} ns longer around four times the reach.")
    if high.low <= 0:
        return (False if high.high <= 0 else None), evidence
    return (True if low.high <= share * high.low else False if low.low > share * high.high else None), evidence


@claim("huge-pages-lower-both", source="matthews_tlbperf", says="Huge pages lower both the number of misses and the price of one.",
       points=_in_batches)
def huge_pages_lower_both(a: Analysis, same: float = SAME) -> Answer:
    large = largest(a.means)
    if {BASE, large} <= a.counted.keys() and "walk_cycles_per_access" in a.frame and a.frame["walk_cycles_per_access"].notna().any():
        return _counted(a, large, same)
    splintered = a.splintering()
    if splintered is None:
        raise Unavailable("no-pmu", "and the chapter about page sizes, whose chases could tell the two apart, says nothing")
    if splintered.walk is None:
        raise Unavailable("too-few-points", "no chase past the last level was measured on both")
    if splintered.is_splintered:
        return False, (f"The host splinters large pages, so they miss as often; a miss costs {splintered.walk.share:.2f} of one on base "
                       f"pages. {splintered.evidence}")
    if splintered.verdict == "not splintered":
        raise Unavailable("no-pmu", "large pages miss less often, and of the few misses left no time can be told without counters")
    return None, splintered.evidence


def _counted(a: Analysis, large: str, same: float) -> Answer:
    """By counters at the largest size that both have: walks a hop, and cycles a walk."""
    size, both = max(required(set(a.counted[BASE].xs) & set(a.counted[large].xs), "no size was counted on both")), (BASE, large)
    rates = np.array([a.counted[pages].at(size).value for pages in both])
    cycles = np.array([select(a.walks(0, walkers=1, pages=pages), **{SIZE: size})["walk_cycles_per_access"].median() for pages in both])
    if not ((rates > 0) & (cycles >= 0)).all():
        raise Unavailable("too-few-points", "one of the two never walked, or its cycles were not counted")
    costs = cycles / rates
    return bool(rates[1] < (1 - same) * rates[0] and costs[1] < (1 - same) * costs[0]), (
        f"At {format_size(size)}: {rates[0]:.3g} walks a hop of {costs[0]:.0f} cycles each on base pages, {rates[1]:.3g} of {costs[1]:.0f} "
        f"on {words(large)}.")


@claim("page-walkers-as-stated", source="matthews_tlbperf", says="A core has as many page walkers as its maker or others say.",
       points=lambda point: point.kernel == "graph_walk" and "walkers" in dict(point.options))
def page_walkers_as_stated(a: Analysis, agrees: float = AGREES) -> Answer:
    if a.page_walkers is None:
        raise Unavailable("no-data", f"nobody says how many page walkers {a.host.microarchitecture} has")
    base, _, busy = a.under_way
    least, most = (a.page_walkers * (1 + give) for give in (-agrees, agrees))
    # Fewer that were seen busy rule nothing out: something else may end the gain.
    truth = None if busy.high < least else inside(busy, least, most)
    return truth, (f"{a.host.microarchitecture} is said to have {a.page_walkers:.0f}. With {base.best_walkers} walks in turn at least "
                   f"{busy:.1f} page walks were under way at once.")


@claim("thp-useless-for-a-mean", source="matthews_tlbperf", says="THP is between useless and counterproductive for random access.",
       points=_in_batches)
def thp_is_useless(a: Analysis, same: float = SAME) -> Answer:
    if not {BASE, "thp"} <= a.means.keys():
        raise Unavailable("thp-never", "no walk lies on transparent pages")
    both = a.means[BASE] / a.means["thp"]
    ratio, size = both.last, both.xs[-1]
    slow, fast = (a.means[pages].at(size).value for pages in (BASE, "thp"))
    return inside(ratio, most=1 + same), (
        f"At {format_size(size)} a hop takes {slow:.0f} ns on base pages and {fast:.0f} on THP, {ratio:.2f} times the time.")
