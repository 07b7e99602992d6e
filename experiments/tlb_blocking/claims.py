"""What the articles say of blocking and prefetching, as predicates on the chapter's
Analysis."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pandas as pd

from experiments.tlb_blocking.analysis import (
    AS_PUBLISHED,
    LARGE_PAGES,
    NO_DIFFERENCE,
    NO_REMEDY,
    PUBLISHED_BLOCK,
    TLB_BLOCKING,
    Analysis,
    graph_size,
)
from experiments.tlb_blocking.grid import block_points
from tlb.report.verdicts import (
    Answer,
    Effect,
    Truth,
    claim,
    decided,
    inside,
    points_of,
    require_unsplintered,
)
from tlb.stats.intervals import Interval
from tlb.stats.splinter import large_pages
from tlb.system.page_sizes import BASE, LARGE, words
from tlb.system.reasons import Unavailable, Undecided, if_available, required
from tlb.system.units import format_size

# The published block left (117 - 71) / (242 - 71) = 27 % of the tail's excess over 2 MiB pages.
ALL_BUT_VANISHED = 0.30

_HOP_BY_HOP = points_of("graph_walk", per_hop=1)


def _remedies_at(a: Analysis, blocks: str) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Return the walk on base pages, in such blocks of them, and on large pages."""
    return a.remedy(NO_REMEDY, BASE), a.remedy(blocks, BASE), a.remedy(LARGE_PAGES, *LARGE)


@claim("blocking-removes-misses", points=_HOP_BY_HOP)
def blocking_removes_misses(a: Analysis, most: float = ALL_BUT_VANISHED) -> Answer:
    plain, cut, large = _remedies_at(a, AS_PUBLISHED)
    told = (
        f"The 95th percentile of a hop in {graph_size(plain['vertices'])} is {plain['p95']:.0f} "
        f"ns on base pages, {cut['p95']:.0f} in one block of {graph_size(cut['block_vertices'])} "
        f"and {large['p95']:.0f} on {words(large['pages'])}"
    )
    excess, left = (Interval.of(row, "p95") - Interval.of(large, "p95") for row in (plain, cut))
    if excess.low <= 0:
        raise Unavailable(
            "no-step", f"{told}: large pages do not show what a hop without misses takes"
        )
    if cut["p50_high"] < large["p50_low"]:
        return (
            Undecided("ambiguous"),
            f"{told}. The block's median is below that of large pages, so it gains in the caches "
            "too.",
        )
    # Both differences have the large pages in them: the farthest ends of a quotient of the two
    # intervals are wide enough.
    low = left.low / (excess.high if left.low > 0 else excess.low)
    high = left.high / (excess.low if left.high > 0 else excess.high)
    coverage = min(cut["coverage"], plain["coverage"], large["coverage"])
    share = Interval(left.value / excess.value, low, high, coverage)
    evidence = f"{told}; of what base pages take longer than those, {share:.0%} is left."
    return inside(share, most=most), evidence


@claim("blocks-inside-the-reach-gain", points=lambda point, scope: point in block_points(scope))
def blocks_inside_the_reach_gain(a: Analysis) -> Answer:
    """Only blocks larger than the last cache show what the TLB alone gains."""
    reach = a.known_entries[-1] * a.base_page_bytes
    cache = max((cache.size_bytes for cache in a.host.caches), default=0)
    measured = a.blocks[(a.blocks["pages"] == BASE) & a.blocks["gain"].notna()]
    inside_reach = required(
        measured[(measured["block_bytes"] <= reach) & (measured["block_bytes"] > cache)],
        f"no block is larger than the {format_size(cache)} of the last cache and inside the reach",
    )
    best = inside_reach.loc[inside_reach["gain"].idxmax()]
    gain = Interval.of(best, "gain")
    return inside(gain, 1, among=len(inside_reach)), (
        f"In blocks of {graph_size(best['block_vertices'])}, larger than any cache and inside the "
        f"reach of {format_size(reach)}, a hop is {gain:.2f} times as fast."
    )


@claim("prefetch-walks", points=points_of("graph_walk", mode="prefetch"))
def prefetch_walks(a: Analysis, same: float = NO_DIFFERENCE) -> Answer:
    base = a.best_ahead(BASE)
    gain, most = Interval.of(base, "gain"), a.most_from_hits * (1 + same)
    told = (
        f"Prefetched {int(base['distance'])} hops ahead, a hop is {gain:.3g} times as fast on base "
        f"pages. It could be at most {a.most_from_hits:.2f} times as fast if a TLB miss dropped the "
        "prefetch."
    )
    if decided(helps := inside(gain, most, among=a.distances)):
        return helps, told
    # That base pages gain nothing says something only if prefetches gain anything.
    if (large := if_available(lambda: a.best_ahead(large_pages(a.ahead)))) is None:
        return Undecided("ambiguous"), told
    other = Interval.of(large, "gain")
    told = f"{told} On {words(large['pages'])} the gain is {other:.2f}."
    is_gain = decided(inside(other, most, among=a.distances))
    return helps if decided(helps) is False and is_gain else Undecided("ambiguous"), told


def _faster(base: pd.Series, better: pd.Series) -> list[Effect]:
    """Return how many times as long a hop takes without a remedy as with it, at the median and at
    the 95th percentile."""
    return [
        inside(Interval.of(base, name) / Interval.of(better, name), 1) for name in ("p50", "p95")
    ]


@claim("remedies-at-every-size", points=_HOP_BY_HOP)
def each_remedy_helps(a: Analysis) -> Answer:
    """At the one size that all remedies were measured at."""
    base, block, large = _remedies_at(a, AS_PUBLISHED)
    return [
        *_faster(base, block),
        *(require_unsplintered(a, effect, answer=False) for effect in _faster(base, large)),
    ], _remedies(
        base, {f"one block of {graph_size(PUBLISHED_BLOCK)}": block, words(large["pages"]): large}
    )


@claim("code-and-settings-both-help", points=_HOP_BY_HOP)
def blocks_and_large_pages_help(a: Analysis) -> Answer:
    base, block, large = _remedies_at(a, TLB_BLOCKING)
    return [
        _faster(base, block)[0],
        require_unsplintered(a, _faster(base, large)[0], answer=False),
    ], _remedies(
        base,
        {f"blocks of {graph_size(block['block_vertices'])}": block, words(large["pages"]): large},
    )


def _remedies(base: pd.Series, better: Mapping[str, pd.Series]) -> str:
    told = "; ".join(
        f"{name} {row['p50']:.0f} and {row['p95']:.0f} ns"
        for name, row in {"base pages": base, **better}.items()
    )
    return f"Median and 95th percentile of a hop in {graph_size(base['vertices'])}: {told}."


@claim("order-of-remedies", points=_HOP_BY_HOP)
def order_of_remedies(a: Analysis) -> Answer:
    """Blocking is what the source measured: a walk that never leaves one block of 256 MiB."""
    wanted = {
        "1 GiB pages": (LARGE_PAGES, "1g"),
        "2 MiB pages": (LARGE_PAGES, *LARGE),
        "one block of 256 MiB": (AS_PUBLISHED, BASE),
        "base pages": (NO_REMEDY, BASE),
    }
    measured = {
        name: row
        for name, remedy in wanted.items()
        if (row := if_available(a.remedy, *remedy)) is not None
    }
    missing = [name for name in wanted if name not in measured]
    if len(measured) < 2:
        raise Unavailable(
            "too-few-points", "no remedy was measured hop by hop beside the walk on base pages"
        )
    steps = [
        Interval.of(worse, short) / Interval.of(better, short)
        for short in ("p50", "p95")
        for better, worse in pairwise(measured.values())
    ]
    truth: Truth = [inside(step, 1) for step in steps]
    if missing and decided(truth) is not False:
        truth = Undecided("conditions")
    said = "; ".join(
        f"{name} {row['p50']:.0f} and {row['p95']:.0f} ns" for name, row in measured.items()
    )
    return truth, f"Median and 95th percentile: {said}." + (
        f" Not measured: {', '.join(missing)}." if missing else ""
    )
