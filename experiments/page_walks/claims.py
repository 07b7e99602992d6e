"""What articles say of page walks and of a random walk through a graph, as predicates on the
chapter's Analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pandas as pd

from experiments.page_walks.analysis import WORKING_SET_COLUMN, Analysis, largest_measured_page_kind
from experiments.page_walks.grid import (
    LARGE_GRAPH_VERTICES,
    PAGE_TABLE_ENTRIES_PER_LINE,
    PAGE_TABLE_LEVELS,
    PAGE_TABLE_OPTION_NAMES,
    max_graph_vertices,
    page_table_sweep,
    pages_beyond_tlb,
)
from experiments.page_walks.table_chases import MIN_COST_STEP_RATIO
from tlb.measure.catalogue import GRAPH_VERTEX_BYTES
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.report.claims import (
    Answer,
    Band,
    Fact,
    PointPredicate,
    claim,
    count_inside_band,
    points_where,
)
from tlb.report.verdicts import does_answer_hold, effects_judgeable_in_guest
from tlb.stats import curves
from tlb.stats.curves import Curve, select_rows
from tlb.stats.effects import NEGLIGIBLE_RELATIVE_DIFFERENCE, Effect, effect_inside_band
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import BASE_PAGES, TABLE_ENTRY_BYTES, page_bytes, page_words
from tlb.system.reasons import Unavailable, Undecided, require_nonempty
from tlb.system.units import format_size

TWICE = (1.6, 2.4)  # the published run's 95th percentile at its largest sizes: 1.88 to 2.06 medians
SHORT_TAIL = 1.35  # and 1.03 to 1.13 of them on huge pages: what is nearer to one than to twice
LARGEST_GRAPH = (
    8 << 30
)  # bytes: from there on it is twice in the published run; at 4 GiB it is 1.4 times
MIDDLE = (128 << 20, 512 << 20)  # bytes: "hundreds of megabytes"
LARGE_GRAPH = 2 << 30  # bytes: "multiple gigabytes" begin here
SAID_WALKERS = {"Zen 4": 6}
SOME_WALKS = 0.01  # a hop: fewer are no misses of the walk's own
PLATEAU_BYTES = 256 << 20, 1 << 30  # bytes, "hundreds of megabytes"
_HOP_BY_HOP: dict[str, Any] = {"mode": "plain", "per_hop": 1}
_IN_BATCHES: dict[str, Any] = {"mode": "plain", "per_hop": None, "walkers": None}


def _past_half(scope: Scope) -> int:
    """Vertices of a graph that is larger than half of the largest working set."""
    return scope.profile.max_working_set // 2 // GRAPH_VERTEX_BYTES + 1


def _reach(scope: Scope) -> float:
    """Vertices in the reach of the last TLB level."""
    return max(scope.entries, default=0) * scope.base_page_bytes / GRAPH_VERTEX_BYTES


hop_by_hop = points_where("graph_walk", **_HOP_BY_HOP)
in_batches = points_where("graph_walk", **_IN_BATCHES)
largest_hop_by_hop = points_where("graph_walk", **_HOP_BY_HOP, low=_past_half)
largest_in_batches = points_where("graph_walk", **_IN_BATCHES, low=_past_half)
around_the_reach = points_where(
    "graph_walk",
    **_IN_BATCHES,
    low=lambda scope: _reach(scope) / 8,
    high=lambda scope: 5.7 * _reach(scope),
)
on_the_plateau = points_where(
    "graph_walk",
    **_HOP_BY_HOP,
    low=PLATEAU_BYTES[0] // GRAPH_VERTEX_BYTES,
    high=PLATEAU_BYTES[1] // GRAPH_VERTEX_BYTES,
)


def one_or_more_walkers(point: Point, scope: Scope) -> bool:
    if point.kernel == "graph_walk" and "walkers" in dict(point.options):
        return True
    return in_batches(point, scope) and point.lines == min(
        LARGE_GRAPH_VERTICES, max_graph_vertices(scope)
    )


def base_page_curve(curves: Mapping[str, Curve]) -> Curve:
    return require_nonempty(curves.get(BASE_PAGES), "no walk on base pages was timed hop by hop")


def walks_per_hop(a: Analysis, pages: str) -> Curve:
    """Return the walks per hop of one walker, by size. Raises Unavailable("no-pmu")."""
    return require_nonempty(
        a.counted.get(pages), f"no walks were counted on {page_words(pages)}", "no-pmu"
    )


def cycles_per_hop(a: Analysis, pages: str, quantity: str) -> Curve:
    """Return a count of cycles per hop of one walker, by size. Raises
    Unavailable("no-walk-cycle-event")."""
    curve = Curve.of(
        a.walks(0, walkers=1, pages=pages), WORKING_SET_COLUMN, f"{quantity}_per_access"
    )
    return require_nonempty(curve, f"{quantity} on {page_words(pages)}", "no-walk-cycle-event")


def at_largest(base: Curve, large: Curve) -> tuple[Interval, Interval]:
    """Return both at the largest size that both have. Raises Unavailable("too-few-points")."""
    size = max(require_nonempty(set(base.xs) & set(large.xs), "no size was counted on both"))
    return base.get(size), large.get(size)


# --- a random walk through a graph


@claim("three-regimes", points=hop_by_hop)
def three_regimes(a: Analysis, band: Band) -> Answer:
    """The regimes lie where the source puts them, so that no line is drawn from the times that it
    divides."""
    curve = base_page_curve(a.p50)
    middle = require_nonempty(
        curve.between(*MIDDLE),
        f"no graph from {format_size(MIDDLE[0])} to {format_size(MIDDLE[1])} was walked",
    )
    large = require_nonempty(
        curve.between(LARGE_GRAPH, inf),
        f"no graph of {format_size(LARGE_GRAPH)} or more was walked",
    )
    small, typical = curve.intervals[0], middle.typical()
    return [
        effect_inside_band(typical / small, *band, what="hundreds of MiB over the cache"),
        effect_inside_band(
            large.last / typical, *band, what=f"{format_size(large.xs[-1])} over those"
        ),
    ], (
        f"Half of all hops on base pages take {small:median} ns or less at "
        f"{format_size(curve.xs[0])}, {typical:median} at hundreds "
        f"of megabytes and {large.last:median} at {format_size(large.xs[-1])}."
    )


def _tail(a: Analysis, pages: str, from_bytes: int) -> tuple[Interval, str]:
    size, ratio = a.tail(pages)
    if size < from_bytes:
        raise Unavailable(
            "sweep-short",
            f"on {page_words(pages)} it ends at {format_size(size)}, where the 95th percentile is "
            f"{ratio:median} times the median",
        )
    where = f"At {format_size(size)} on {page_words(pages)}"
    return ratio, f"{where} the 95th percentile is {ratio:rounded} times the median."


@claim("tail-twice-the-median", points=largest_hop_by_hop)
def tail_is_twice_the_median(
    a: Analysis, band: tuple[float, float] = TWICE, from_bytes: int = LARGEST_GRAPH
) -> Answer:
    ratio, evidence = _tail(a, BASE_PAGES, from_bytes)
    return effect_inside_band(
        ratio, *band, what=f"in {format_size(a.tail(BASE_PAGES)[0])}"
    ), evidence


# --- by counted walks


@claim("misses-rise-past-the-reach", points=around_the_reach)
def misses_rise_past_the_reach(a: Analysis, band: Band) -> Answer:
    reach, walks = a.known_entries[-1] * a.base_page_bytes, walks_per_hop(a, BASE_PAGES)
    past = walks.between(2.9 * reach, 5.7 * reach)
    require_nonempty(past, f"nothing was counted around {format_size(4 * reach)}")
    low, high = walks.at(reach / 2, curves.HALF_OCTAVE_TOLERANCE), past.typical()
    return [
        effect_inside_band(high, SOME_WALKS, what="at four times", unit="walks a hop"),
        effect_inside_band(low.share_of(high), *band, what="half over four times"),
    ], (
        f"A hop walks {low:median} times at half of the reach of {format_size(reach)}, and "
        f"{high:median} times around four times the reach."
    )


@claim("huge-pages-lower-both", points=in_batches)
def huge_pages_lower_both(a: Analysis, same: float = NEGLIGIBLE_RELATIVE_DIFFERENCE) -> Answer:
    large = largest_measured_page_kind(a.means)
    walks = at_largest(walks_per_hop(a, BASE_PAGES), walks_per_hop(a, large))
    cycles = at_largest(*(cycles_per_hop(a, pages, "walk_cycles") for pages in (BASE_PAGES, large)))
    if min(side.value for side in (*walks, *cycles)) <= 0:
        raise Unavailable("too-few-points", "one of the two never walked")
    price = [cycle / walk for cycle, walk in zip(cycles, walks, strict=True)]
    return [
        effect_inside_band(walks[0] / walks[1], 1 + same, what="walks"),
        effect_inside_band(price[0] / price[1], 1 + same, what="cycles a walk"),
    ], (
        f"At the largest size: {walks[0]:median} walks a hop of {price[0]:median} cycles "
        f"each on base pages, {walks[1]:median} of {price[1]:median} on {page_words(large)}."
    )


@claim("page-walkers-as-stated", points=one_or_more_walkers)
def page_walkers_as_stated(a: Analysis, band: Band) -> Answer:
    """By the numbers of the sentence itself: two on Intel since Skylake, six on Zen 4."""
    core = a.host.microarchitecture
    walkers = SAID_WALKERS.get(core, 2 if a.host.vendor == "GenuineIntel" else None)
    if walkers is None:
        return Undecided("conditions"), f"The sentence names no number for {core}."
    base, _, busy = a.under_way
    ratio = busy * (1 / walkers)
    # Fewer overlapping walks rule nothing out: something else may end the gain.
    return Undecided("ambiguous") if ratio.high < band[0] else effect_inside_band(ratio, *band), (
        f"The sentence gives this core {walkers} page walkers. With {base.best_walkers} searches in turn, {busy:rounded} "
        "page walks overlap, if each takes as long as alone."
    )


# --- what a hop takes, and what a model of two terms makes of it


@claim("a-load-is-70-to-80-ns", points=hop_by_hop)
def a_load_takes_70_to_80_ns(a: Analysis, band: Band) -> Answer:
    regimes = a.regimes
    load = min(a.p50[regimes.large].intervals, key=lambda took: abs(took.value - regimes.memory_ns))
    pages = page_words(regimes.large)
    evidence = (
        f"Half of all hops on {pages}, once they miss the caches, take {load:rounded} ns or less."
    )
    return effect_inside_band(load, *band), evidence


@claim("triple-digits-at-10gb", points=largest_hop_by_hop)
def triple_digits(a: Analysis, band: Band) -> Answer:
    curve = base_page_curve(a.p50)
    size = format_size(curve.xs[-1])
    effect = effect_inside_band(curve.last, *band, what=f"in {size}")
    if curve.xs[-1] < LARGEST_GRAPH and not does_answer_hold(effect):
        raise Unavailable(
            "sweep-short",
            f"half of all hops over {size}, the largest graph walked, take {curve.last:rounded} ns or "
            "less",
        )
    return (
        effect,
        f"Half of all hops over {size} take {curve.last:rounded} ns or less on base pages.",
    )


@claim("second-regime-plateaus", points=on_the_plateau)
def the_second_regime_plateaus(a: Analysis, band: Band) -> Answer:
    curve = base_page_curve(a.p50)
    over = curve.flatness(*PLATEAU_BYTES)
    return effect_inside_band(over, *band), (
        f"From {format_size(PLATEAU_BYTES[0])} to {format_size(PLATEAU_BYTES[1])} the median hop on base pages "
        f"varies by a factor of {over:rounded}."
    )


@claim("cost-is-hit-plus-misses-times-walk", points=None)
def two_terms_fit(a: Analysis, band: Band) -> Answer:
    """Neither term is fitted to what it predicts: two orders visit the same pages and miss
    differently often (see `predicted_by_two_terms`)."""
    points = predicted_by_two_terms(a)
    errors = median_interval((points["predicted_ns"] / points["measured_ns"] - 1).abs())
    errors = replace(errors, coverage=min(errors.coverage, points["coverage"].min()))
    return effect_inside_band(errors, *band), (
        f"At {len(points)} sizes a chase in random order misses less often than one in a cycle "
        "over the same pages. With the cycle's time "
        f"of a walk, half of them are predicted within {errors.value:.0%} ({errors.low:.0%} to "
        f"{errors.high:.0%})."
    )


@claim("fewer-large-entries-more-misses", points=largest_in_batches)
def large_pages_may_miss_more(a: Analysis, band: Band) -> Answer:
    large = largest_measured_page_kind(a.means)
    base, other = (walks_per_hop(a, pages) for pages in (BASE_PAGES, large))
    shared = [size for size in other.xs if size in set(base.xs)]
    worst = max(
        require_nonempty(shared, "no size was counted on both"),
        key=lambda size: other.at(size).value - base.at(size).value,
    )
    more = other.at(worst) - base.at(worst)
    return effect_inside_band(more, *band, among=len(shared)), (
        f"The most that {page_words(large)} walk more than base pages is at {format_size(worst)}: "
        f"{other.at(worst):median} walks a hop against {base.at(worst):median}."
    )


@claim("millions-of-walks", points=largest_in_batches)
def millions_of_walks(a: Analysis, band: Band) -> Answer:
    walks = walks_per_hop(a, BASE_PAGES).last
    evidence = f"A million hops over the largest graph walk {walks * 1e6:median} times."
    return effect_inside_band(walks * 1_000_000, *band), evidence


@claim("in-cache-graph-flies", points=in_batches)
def a_graph_in_the_caches_flies(a: Analysis, band: Band) -> Answer:
    """By the mean hop, in a loop without the clock, whose cost exceeds such a hop."""
    curve = require_nonempty(a.means.get(BASE_PAGES), "no walk on base pages was timed")
    last = max((cache.size_bytes for cache in a.host.caches), default=0)
    if curve.xs[0] > last:
        raise Unavailable(
            "too-few-points",
            f"the smallest graph walked, {format_size(curve.xs[0])}, is not known to fit in a "
            "cache",
        )
    slower = curve.last / curve.intervals[0]
    what = f"{format_size(curve.xs[-1])} over {format_size(curve.xs[0])}"
    return effect_inside_band(slower, *band, what=what), (
        f"A hop over {format_size(curve.xs[-1])} takes {slower:rounded} times as long as one over "
        f"{format_size(curve.xs[0])}, which fits in a cache."
    )


@claim("entries-still-cached-in-memory-regime")
def entries_are_still_cached(a: Analysis, band: Band) -> Answer:
    reach = a.known_entries[-1] * a.base_page_bytes
    evidence = (
        f"The {a.known_entries.whose} {a.known_entries[-1]:,} entries reach {format_size(reach)}."
    )
    if reach < band[0]:
        evidence += (
            " At hundreds of megabytes the caches still hold the page table, but the TLB only a "
            "small part of the translations."
        )
        return Undecided("ambiguous", "it depends on the reading"), evidence
    reach_words = f"the TLB reaches {reach / 2**20:.3g} MiB"
    return Fact(bool(band[0] <= reach <= band[1]), evidence, reach_words)


@claim("large-pages-worth-fewer-entries", points=largest_in_batches)
def large_pages_are_worth_it(a: Analysis) -> Answer:
    large = largest_measured_page_kind(a.means)
    base = require_nonempty(a.means.get(BASE_PAGES), "no walk on base pages was timed")
    both = base / a.means[large]
    gain, size = both.last, format_size(both.xs[-1])
    evidence = f"Over {size} a hop is {gain:rounded} times as fast on {page_words(large)}."
    return effect_inside_band(gain, 1, what=f"in {size}"), evidence


# --- the model `T = T_hit + p_miss * T_walk` taken at its word: two orders of the same chase, which
# miss differently often

# Misses per load in random order: fewer show no second term, more are as many as in a cycle.
MISSES = (0.05, 0.95)
LEAST = 5  # sizes that a median of errors takes


def predicted_by_two_terms(a: Analysis) -> pd.DataFrame:
    """Return by lines misses (counted, a load), measured_ns and predicted_ns of the chase in random
    order, and the least coverage of the times' intervals.

    T_hit is the time of as many lines side by side in the same order. T_walk is what a miss costs a
    cycle over the same pages, whose tables lie in the same caches: the cycle's time less that of
    its own lines side by side, over its counted walks. So no number is fitted. Raises Unavailable:
    no-data, no-pmu, too-few-points.
    """
    chases = select_rows(a.about.kept("stlb_cliff"), kernel="page_chase", pages=BASE_PAGES)
    cycle, random = (_sides(chases, order) for order in ("cycle", "random"))
    both = random.join(cycle.add_suffix("_cycle"), how="inner")
    both = both[both["misses"].between(*MISSES) & (both["misses_cycle"] > both["misses"])]
    walk_ns = (both["ns_cycle"] - both["hit_ns_cycle"]) / both["misses_cycle"]
    if len(both) < LEAST:
        why = f"{len(both)} sizes were counted at which the two orders differ; it takes {LEAST}"
        raise Unavailable("too-few-points", why)
    predicted_ns = both["hit_ns"] + both["misses"] * walk_ns
    coverage = both[["coverage", "coverage_cycle"]].min(axis=1)
    return both.assign(measured_ns=both["ns"], predicted_ns=predicted_ns, coverage=coverage)


def _sides(chases: pd.DataFrame, order: str) -> pd.DataFrame:
    """Return ns, hit_ns (of as many lines side by side), misses of an order, and the coverage of
    ns, indexed by lines. Raises Unavailable("no-pmu")."""
    spread, packed = (
        select_rows(chases, order=order, layout=kind) for kind in ("spread", "packed")
    )
    walks = Curve.of(spread, value="walk_per_access")
    require_nonempty(walks, "no walks of the chase were counted", "no-pmu")
    sides = {"ns": Curve.of(spread), "hit_ns": Curve.of(packed), "misses": walks}
    columns = {name: curve.medians for name, curve in sides.items()}
    columns["coverage"] = sides["ns"].table.set_index("lines")["coverage"]
    return pd.concat(columns, axis=1, join="inner").rename_axis("lines")


# --- chases through more and more page tables


def _ends(*levels: int) -> PointPredicate:
    """The first and last point of the sweeps of these levels, and the pages that the TLB holds."""

    def compares(point: Point, scope: Scope) -> bool:
        pages, own = pages_beyond_tlb(scope), dict(point.options)
        sweeps = [
            page_table_sweep(level, pages, scope.base_page_bytes // TABLE_ENTRY_BYTES)
            for level in levels
        ]
        ends = [end for tables in sweeps if tables for end in (tables[0], tables[-1])]
        return (
            point.kernel == "table_chase"
            and point.mode == "random"
            and (
                point.lines == pages // PAGE_TABLE_ENTRIES_PER_LINE
                or point.lines == pages
                and tuple(own.get(name, 1) for name in PAGE_TABLE_OPTION_NAMES) in ends
            )
        )

    return compares


def _cycles(a: Analysis, ns: Interval) -> Interval:
    return ns * a.ghz


def _rise(a: Analysis, level: int) -> Interval:
    """How many times as much a miss costs at the end of a level's sweep as at its beginning. Raises
    Unavailable."""
    curve = require_nonempty(a.miss_costs.get(level), "no tables of this level were swept")
    return curve.last / curve.intervals[0]


@claim("walk-caches-hold-upper-entries", points=_ends(1))
def upper_entries_are_kept(a: Analysis, band: Band) -> Answer:
    ratio = _rise(a, 1)
    return effect_inside_band(ratio, *band), (
        f"With a table of its own for each page a miss costs {ratio:rounded} times what it costs with "
        f"{PAGE_TABLE_ENTRIES_PER_LINE**2} pages to a table."
    )


@claim("every-walk-visits-all-levels", points=_ends(*PAGE_TABLE_LEVELS))
def every_walk_visits_all(a: Analysis) -> Answer:
    require_nonempty(a.miss_costs, "no tables were swept")
    rise = effect_inside_band(a.last_ns / a.first_ns, most=MIN_COST_STEP_RATIO)
    return Undecided("ambiguous") if rise.decided() else rise, (
        f"A miss costs {a.first_ns:rounded} ns through few tables and {a.last_ns:rounded} through many, "
        "whose entries take as much room: a walk through few reads less."
    )


@claim("few-ranges-pay-30-cycles", points=_ends(1))
def few_ranges_are_cheap(a: Analysis, band: Band) -> Answer:
    cycles = _cycles(a, a.first_ns)
    return effect_inside_band(
        cycles, *band
    ), f"A miss inside few ranges costs {cycles:rounded} cycles."


@claim("scattered-ranges-pay-200-cycles", points=_ends(3))
def scattered_ranges_are_dear(a: Analysis, band: Band) -> Answer:
    cycles, tables = _cycles(a, a.last_ns), max(a.miss_costs[max(a.miss_costs)].xs)
    return effect_inside_band(cycles, *band), (
        f"A miss among pages scattered over {tables:.0f} tables of the third level costs "
        f"{cycles:rounded} cycles."
    )


@claim("full-walks-would-hurt", points=_ends(3))
def full_walks_hurt(a: Analysis, band: Band) -> Answer:
    ratio = (
        require_nonempty(a.times.get(3), "no tables of the third level were swept").last
    ) / a.held_ns
    return effect_inside_band(ratio, *band), (
        f"A visit that walks through many tables of each level takes {ratio:rounded} times as long as "
        "one that hits."
    )


# --- by the place of the lowest table


def _reads_of_a_walk_from_memory(a: Analysis) -> Interval:
    """Return how long a walk takes whose lowest table is in memory, in reads of one entry from
    memory: both are reads of page tables, without a load's own data. Raises Unavailable."""
    _, walk_ns = a.surveyed_walk("memory")
    return walk_ns / a.entry_ns


@claim("warm-walk-reads-one-line", points=None)
def a_warm_walk_reads_one_line(a: Analysis, band: Band = (0.5, 1.5)) -> tuple[Effect, str]:
    reads = _reads_of_a_walk_from_memory(a)
    evidence = (
        f"A walk whose lowest table is in memory takes {reads:rounded} times as long as one read of an "
        f"entry from memory, {a.entry_ns:median} ns."
    )
    return effect_inside_band(reads, *band), evidence


@claim("upper-entries-stay-cached", points=None)
def upper_entries_stay(a: Analysis, band: Band) -> Answer:
    answer, evidence = a_warm_walk_reads_one_line(a, band)
    return effects_judgeable_in_guest(a, answer), evidence


@claim("only-larger-pages-raise-reach", points=None)
def only_pages_raise_reach(a: Analysis, band: Band) -> Answer:
    stated, last = a.two_stated_levels()[1], a.survey.levels[-1]
    reach = last.opinions.get("price", last.entries).interval * (1 / stated)
    return effect_inside_band(reach, *band), (
        f"Chases begin to miss at {reach:rounded} times as many pages as the last level has entries, "
        f"{stated:,}."
    )


# --- what is smaller on larger pages


def _largest(curve: Curve) -> float:
    return float(curve.xs[-1])


@claim("large-pages-keep-tables-cached", points=largest_in_batches)
def large_pages_keep_tables(a: Analysis, band: Band) -> Answer:
    """By what the second-level cache can hold of the lowest page table of the largest graph."""
    cache = require_nonempty(a.cache_bytes(2), "the second-level cache is unknown")
    large = largest_measured_page_kind(a.means)
    walked = [curves[BASE_PAGES] for curves in (a.means, a.p50) if BASE_PAGES in curves]
    graph = max(require_nonempty(walked, "no walk on base pages was timed"), key=_largest).xs[-1]
    sizes = [a.base_page_bytes, page_bytes(large, a.base_page_bytes)]
    tables = [TABLE_ENTRY_BYTES * graph / size for size in sizes]
    base_share, large_share = (min(1.0, cache / table) for table in tables)
    if base_share == 1:
        return Undecided("conditions", "graph too small"), (
            f"The second-level cache, {format_size(cache)}, can hold the whole page table of the "
            f"largest graph, {format_size(graph)}, on base pages too."
        )
    return count_inside_band(
        large_share / base_share,
        band,
        f"Of the lowest page table of {format_size(graph)} the second-level cache, {format_size(cache)}, "
        f"can hold {base_share:.0%} on base pages and {large_share:.0%} on {page_words(large)}.",
    )
