"""What the articles say of a walk through a graph, as predicates on the chapter's Analysis."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from experiments.article.verdicts import LEAST_COVERAGE, Answer, Band, Truth, claim, decided, inside, too_few
from experiments.chapters.graph_walk.analysis import REGIMES, SIZE, Analysis, largest
from experiments.chapters.graph_walk.grid import VERTEX_BYTES
from experiments.inference.curves import select
from experiments.inference.intervals import Interval, median_interval
from experiments.inference.splinter import HALF
from experiments.lab.grid import Scope
from experiments.lab.record import Point
from experiments.words.pages import BASE, words
from experiments.words.prose import listed
from experiments.words.reasons import Unavailable, Undecided, required
from experiments.words.units import format_size

TWICE = (1.6, 2.4)  # the published run's 95th percentile at its largest sizes: 1.88 to 2.06 medians
SHORT_TAIL = 1.35  # and 1.03 to 1.13 of them on large pages: what is nearer to one than to twice
LARGEST = 8 << 30  # bytes: from there on it is twice in the published run; at 4 GiB it is 1.4 times
WALKS_OF_MEMORY = 4 << 30  # and from there on its median hop walks in memory
# Of what base pages cost more at four times the TLB's reach, where three draws in four miss; at half the reach none should.
BEFORE = 0.25
AGREES = 0.25  # a whole number of walkers, from times with a few percent of noise and a walk's time that is a lower bound
PLATEAU = 256 << 20, 1 << 30  # bytes, "hundreds of megabytes"
SAME = 0.05  # THP that gains less than what the book calls unstable is useless


def _hop_by_hop(point: Point, scope: Scope) -> bool:
    return point.kernel == "graph_walk" and point.mode == "plain" and ("per_hop", 1) in point.options


def _largest_hop_by_hop(point: Point, scope: Scope) -> bool:
    return _hop_by_hop(point, scope) and point.lines * VERTEX_BYTES > scope.profile.max_working_set / 2


def _in_batches(point: Point, scope: Scope) -> bool:
    return point.kernel == "graph_walk" and point.mode == "plain" and not {"per_hop", "walkers"} & dict(point.options).keys()


def _largest_in_batches(point: Point, scope: Scope) -> bool:
    return _in_batches(point, scope) and point.lines * VERTEX_BYTES > scope.profile.max_working_set / 2


def _around_the_reach(point: Point, scope: Scope) -> bool:
    reach = max(scope.entries, default=0) * scope.base_page_bytes
    return _in_batches(point, scope) and reach / 8 <= point.lines * VERTEX_BYTES <= 5.7 * reach


@claim("three-regimes",
       points=_hop_by_hop)
def three_regimes(a: Analysis, reads_memory_from: int = WALKS_OF_MEMORY) -> Answer:
    answers = a.regimes.answers
    seen = [name for name in REGIMES if a.regimes.sizes(name)]
    ranges = ", ".join(f"{name} {' to '.join(dict.fromkeys(format_size(a.regimes.sizes(name)[end]) for end in (0, -1)))}" for name in seen)
    all_three = len(seen) == len(REGIMES)
    truth: Truth = all_three and bool(answers.is_monotonic_increasing)
    if (coverage := a.p50[BASE].table["coverage"].min()) < LEAST_COVERAGE:
        truth = too_few(coverage)
    elif not truth and (all_three or answers.index[-1] < reads_memory_from):
        truth = Undecided("ambiguous" if all_three else "conditions")
    return truth, f"What answers the median hop on base pages: {ranges}. A load from memory takes {a.regimes.memory_ns:.0f} ns."


def _tail(a: Analysis, pages: str, from_bytes: int) -> tuple[Interval, str]:
    size, ratio = a.tail(pages)
    if size < from_bytes:
        raise Unavailable("too-few-points", f"the sweep on {words(pages)} ends at {format_size(size)}, where the 95th percentile is "
                          f"{ratio.value:.2f} times the median")
    return ratio, f"At {format_size(size)} on {words(pages)} the 95th percentile is {ratio:.2f} times the median."


@claim("tail-twice-the-median", points=_largest_hop_by_hop)
def tail_is_twice_the_median(a: Analysis, band: tuple[float, float] = TWICE, from_bytes: int = LARGEST) -> Answer:
    ratio, evidence = _tail(a, BASE, from_bytes)
    return inside(ratio, *band), evidence


@claim("no-tail-on-large-pages", points=_largest_hop_by_hop)
def tail_is_gone(a: Analysis, most: float = SHORT_TAIL, from_bytes: int = LARGEST) -> Answer:
    ratio, evidence = _tail(a, largest(a.p50), from_bytes)
    return inside(ratio, most=most), evidence


@claim("misses-rise-past-the-reach", points=_around_the_reach)
def misses_rise_past_the_reach(a: Analysis, share: float = BEFORE) -> Answer:
    reach, (large, saved) = a.known_entries[-1] * a.base_page_bytes, a.saved
    near, past = saved.between(reach / 8, reach / 2), saved.between(2.9 * reach, 5.7 * reach)  # half an octave around four times
    if not len(near) or not len(past):
        raise Unavailable("too-few-points", f"nothing was measured on both up to {format_size(reach // 2)} and at "
                          f"{format_size(4 * reach)}")
    low, high = near.typical(), past.typical()
    evidence = (f"A hop on base pages takes {low:.1f} ns longer than on {words(large)} up to half of the reach of {format_size(reach)}, "
                f"and {high:.1f} ns longer around four times the reach.")
    if high.value <= 0:
        return inside(high, 0), evidence
    return (inside(high, 0), inside(low - high * share, most=0)), evidence


@claim("huge-pages-lower-both",
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
        return inside(splintered.first.share, most=HALF), (
            f"The host splinters large pages, so they miss as often; a miss costs {splintered.walk.share:.2f} of one on base pages. "
            f"{splintered.evidence}")
    if splintered.verdict == "not splintered":
        raise Unavailable("no-pmu", "large pages miss less often, and of the few misses left no time can be told without counters")
    return Undecided("ambiguous"), splintered.evidence


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


@claim("page-walkers-as-stated",
       points=lambda point, scope: point.kernel == "graph_walk" and "walkers" in dict(point.options))
def page_walkers_as_stated(a: Analysis, agrees: float = AGREES) -> Answer:
    if a.page_walkers is None:
        raise Unavailable("no-data", "nobody says how many page walkers this core has")
    base, _, busy = a.under_way
    least, most = (a.page_walkers * (1 + give) for give in (-agrees, agrees))
    # Fewer that were seen busy rule nothing out: something else may end the gain.
    return Undecided("ambiguous") if busy.high < least else inside(busy, least, most), (
        f"{a.host.microarchitecture} is said to have {a.page_walkers:.0f}. With {base.best_walkers} walks in turn at least {busy:.1f} page "
        "walks were under way at once.")


# --- what a hop takes, and what a model of two terms makes of it


@claim("a-load-is-70-to-80-ns", points=_hop_by_hop)
def a_load_takes_70_to_80_ns(a: Analysis, band: Band) -> Answer:
    regimes = a.regimes
    load = min(a.p50[regimes.large].intervals, key=lambda took: abs(took.value - regimes.memory_ns))
    return inside(load, *band), f"Half of all hops on {words(regimes.large)}, once they miss the caches, take {load:.0f} ns or less."


@claim("triple-digits-at-10gb", points=_largest_hop_by_hop)
def triple_digits(a: Analysis, band: Band) -> Answer:
    curve = required(a.p50.get(BASE, ()), "no walk on base pages was timed hop by hop")
    size, effect = format_size(curve.xs[-1]), inside(curve.last, *band)
    if curve.xs[-1] < LARGEST and not decided(effect):
        raise Unavailable("too-few-points", f"half of all hops over {size}, the largest graph walked, take {curve.last:.0f} ns or less")
    return effect, f"Half of all hops over {size} take {curve.last:.0f} ns or less on base pages."


@claim("second-regime-plateaus", points=lambda point, scope: _hop_by_hop(point, scope)
       and PLATEAU[0] <= point.lines * VERTEX_BYTES <= PLATEAU[1])
def the_second_regime_plateaus(a: Analysis, band: Band) -> Answer:
    curve = required(a.p50.get(BASE, ()), "no walk on base pages was timed hop by hop")
    over = curve.flatness(*PLATEAU)
    return inside(over, *band), (f"From {format_size(PLATEAU[0])} to {format_size(PLATEAU[1])} the median hop on base pages varies by a "
                                 f"factor of {over:.2f}.")


@claim("cost-is-hit-plus-misses-times-walk", points=None)
def the_model_fits(a: Analysis, band: Band) -> Answer:
    held = select(a.modelled, seen="held out")
    errors = median_interval((held["predicted_ns"] / held["measured_ns"] - 1).abs())
    return inside(errors, *band), (f"Of {len(held)} points that the model did not see, half are predicted within {errors.value:.0%} "
                                   f"({errors.low:.0%} to {errors.high:.0%}).")


@claim("fewer-large-entries-more-misses", points=_largest_in_batches)
def large_pages_may_miss_more(a: Analysis, band: Band) -> Answer:
    large = largest(a.means)
    base, other = (required(a.counted.get(pages, ()), f"no walks were counted on {words(pages)}", "no-pmu") for pages in (BASE, large))
    shared = [size for size in other.xs if size in set(base.xs)]
    worst = max(required(shared, "no size was counted on both"), key=lambda size: other.at(size).value - base.at(size).value)
    more = other.at(worst) - base.at(worst)
    return inside(more, *band, among=len(shared)), (f"The most that {words(large)} walk more than base pages is at {format_size(worst)}: "
                                 f"{other.at(worst).value:.3f} walks a hop against {base.at(worst).value:.3f}.")


@claim("millions-of-walks", points=_largest_in_batches)
def millions_of_walks(a: Analysis, band: Band) -> Answer:
    walks = required(a.counted.get(BASE, ()), "no walks were counted", "no-pmu").last
    return inside(walks * 1_000_000, *band), f"A million hops over the largest graph walk {walks.value * 1e6:,.0f} times."


@claim("in-cache-graph-flies", points=_hop_by_hop)
def a_graph_in_the_caches_flies(a: Analysis, band: Band) -> Answer:
    curve = required(a.p50.get(BASE, ()), "no walk on base pages was timed hop by hop")
    last = max((cache.size_bytes for cache in a.host.caches), default=0)
    if curve.xs[0] > last:
        raise Unavailable("too-few-points", f"the smallest graph walked, {format_size(curve.xs[0])}, is not known to fit in a cache")
    slower = curve.last / curve.intervals[0]
    return inside(slower, *band), (f"A hop over {format_size(curve.xs[-1])} takes {slower:.1f} times as long as one over "
                                   f"{format_size(curve.xs[0])}, which fits in a cache.")


@claim("quantiles-grow-with-size", points=_hop_by_hop)
def quantiles_grow_with_size(a: Analysis, band: Band) -> Answer:
    curves = {name: required(of.get(BASE, ()), "no walk on base pages was timed hop by hop") for name, of in
              (("median", a.p50), ("95th percentile", a.p95))}
    worst = {name: min(required([later / earlier for (_, earlier), (_, later) in pairwise(curve)], "one size was walked"),
                       key=lambda step: step.value) for name, curve in curves.items()}
    told = listed(f"the {name} by {step:.2f}" for name, step in worst.items())
    return [inside(step, *band, among=len(curve)) for step, curve in zip(worst.values(), curves.values(), strict=True)], (
        f"From one size to the next on base pages at the least {told}.")


@claim("entries-still-cached-in-memory-regime")
def entries_are_still_cached(a: Analysis, band: Band) -> Answer:
    reach = a.known_entries[-1] * a.base_page_bytes
    truth = band[0] <= reach
    held = "" if truth else ": at hundreds of megabytes it is the page table that caches still hold, not the translations"
    return truth, f"The last level's {a.known_entries[-1]:,} entries reach {format_size(reach)}{held}."


@claim("large-pages-worth-fewer-entries", points=_largest_in_batches)
def large_pages_are_worth_it(a: Analysis) -> Answer:
    large = largest(a.means)
    gain = (required(a.means.get(BASE, ()), "no walk on base pages was timed") / a.means[large]).last
    return inside(gain, 1), f"At the largest size that both have a hop is {gain:.2f} times as fast on {words(large)}."
