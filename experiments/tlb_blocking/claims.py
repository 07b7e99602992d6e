"""What the articles say of blocking, prefetching and strides, as predicates on the chapter's
Analysis."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import pandas as pd

from experiments.tlb_blocking.analysis import (
    HUGE_PAGES_REMEDY,
    NO_REMEDY,
    PUBLISHED_SINGLE_BLOCK_LABEL,
    Analysis,
    graph_size_words,
)
from experiments.tlb_blocking.grid import NARROW_STRIDE, PAGE_STRIDE, TWO_PAGE_STRIDE, WIDEST_STRIDE
from tlb.report.claims import Answer, Band, PointPredicate, claim, points_where
from tlb.report.verdicts import does_answer_hold, require_unsplintered_pages
from tlb.stats import curves
from tlb.stats.curves import Curve
from tlb.stats.effects import Effect, effect_inside_band
from tlb.stats.intervals import Interval
from tlb.stats.splinter import huge_page_kind_to_compare
from tlb.system.page_sizes import BASE_PAGES, CACHE_LINE_BYTES, HUGE_PAGE_KINDS, page_words
from tlb.system.reasons import Unavailable, Undecided, none_if_unavailable, require_nonempty
from tlb.system.units import format_size, list_in_words

# The published block left (117 - 71) / (242 - 71) = 27 % of the tail's excess over 2 MiB pages.
ALL_BUT_VANISHED = 0.30
WALKS_BEYOND = "walks beyond one per page"
LEFT_WITH_64_BYTES_MORE = "what remains with 64 bytes more:"
ABOUT_AS_MUCH = (0.75, 1.25)  # a quarter around the number, as for every number without a range

_HOP_BY_HOP = points_where("graph_walk", per_hop=1)


def _remedies_at(a: Analysis, blocks: str) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Return the walk on base pages, in such blocks of them, and on huge pages."""
    return (
        a.remedy(NO_REMEDY, BASE_PAGES),
        a.remedy(blocks, BASE_PAGES),
        a.remedy(HUGE_PAGES_REMEDY, *HUGE_PAGE_KINDS),
    )


@claim("blocking-removes-misses", points=_HOP_BY_HOP)
def blocking_removes_misses(a: Analysis, most: float = ALL_BUT_VANISHED) -> Answer:
    plain, cut, large = _remedies_at(a, PUBLISHED_SINGLE_BLOCK_LABEL)
    told = (
        f"The 95th percentile of a hop in {graph_size_words(plain['vertices'])} is {plain['p95']:.0f} "
        f"ns on base pages, {cut['p95']:.0f} in one block of {graph_size_words(cut['block_vertices'])} "
        f"and {large['p95']:.0f} on {page_words(large['pages'])}"
    )
    excess, left = (Interval.of(row, "p95") - Interval.of(large, "p95") for row in (plain, cut))
    if excess.low <= 0:
        raise Unavailable(
            "no-step", f"{told}: huge pages do not show what a hop without misses takes"
        )
    if cut["p50_high"] < large["p50_low"]:
        return (
            Undecided("ambiguous"),
            f"{told}. The block's median is below that of huge pages, so it gains in the caches "
            "too.",
        )
    # Both differences have the huge pages in them: the farthest ends of a quotient of the two
    # intervals are wide enough.
    low = left.low / (excess.high if left.low > 0 else excess.low)
    high = left.high / (excess.low if left.high > 0 else excess.high)
    coverage = min(cut["coverage"], plain["coverage"], large["coverage"])
    share = Interval(left.value / excess.value, low, high, coverage)
    evidence = f"{told}. Of what base pages add to a hop, {share:.0%} remains."
    return effect_inside_band(share, most=most), evidence


@claim("prefetch-walks", points=points_where("graph_walk", mode="prefetch"))
def prefetch_walks(a: Analysis, band: Band) -> Answer:
    base = a.best_ahead(BASE_PAGES)
    gain, most = Interval.of(base, "gain"), a.most_from_hits
    what = "over dropped prefetches"
    told = (
        f"Prefetched {int(base['distance'])} hops ahead, a hop is {gain:rounded} times as fast on base "
        f"pages. It could be at most {most:.2f} times as fast if a TLB miss dropped the "
        "prefetch."
    )
    if does_answer_hold(
        helps := effect_inside_band(gain * (1 / most), *band, among=a.distances, what=what)
    ):
        return helps, told
    # That base pages gain nothing says something only if prefetches gain anything.
    if (
        large := none_if_unavailable(lambda: a.best_ahead(huge_page_kind_to_compare(a.ahead)))
    ) is None:
        return Undecided("ambiguous"), told
    other = Interval.of(large, "gain")
    told = f"{told} On {page_words(large['pages'])} the gain is {other:rounded}."
    is_gain = does_answer_hold(effect_inside_band(other * (1 / most), *band, among=a.distances))
    return helps if does_answer_hold(helps) is False and is_gain else Undecided("ambiguous"), told


@claim("prefetch-helps-a-chase", points=points_where("graph_walk", mode="prefetch"))
def prefetching_helps(a: Analysis, band: Band) -> Answer:
    base = a.best_ahead(BASE_PAGES)
    gain = Interval.of(base, "gain")
    return effect_inside_band(gain, *band, among=a.distances), (
        f"Prefetched {int(base['distance'])} hops ahead, a hop is {gain:rounded} times as fast on base "
        "pages."
    )


# --- strides

PUBLISHED_STRIDES = (8, CACHE_LINE_BYTES, NARROW_STRIDE, PAGE_STRIDE, TWO_PAGE_STRIDE)


def _plain(*strides: int, pages: tuple[str, ...] = (BASE_PAGES,)) -> PointPredicate:
    """The published loop at these strides."""

    return points_where("stride_sum", mode="plain", pages=pages, step_bytes=strides)


BOTH = (BASE_PAGES, "thp", "2m")
_AND_A_LINE_MORE = (
    NARROW_STRIDE,
    NARROW_STRIDE + CACHE_LINE_BYTES,
    PAGE_STRIDE,
    PAGE_STRIDE + CACHE_LINE_BYTES,
)


def _base(a: Analysis) -> Curve:
    return require_nonempty(a.base, "no stride was measured on base pages")


def _price(a: Analysis) -> Curve:
    return require_nonempty(a.stride_price, "no stride was measured on base pages and on huge ones")


def _share(a: Analysis, stride: int) -> Interval:
    """Return the share of a stride's time on base pages that translation takes."""
    return _price(a).at(stride).share_of(_base(a).at(stride))


def _more_than_one_walk_a_page(a: Analysis, stride: int) -> Interval:
    """Return the walks a load, as counted, beyond the first load to each page: 0 if all others hit.
    To a thousandth, for counts are no exacter."""
    walks, first = a.stride_walks.at(stride), stride / PAGE_STRIDE
    value, low, high = (round(n - first, 3) + 0.0 for n in walks.value_and_bounds)
    return Interval(value, low, high, walks.coverage, walks.modes)


@claim("small-strides-hit", points=_plain(8, 64, NARROW_STRIDE, pages=BOTH))
def small_strides_hit(a: Analysis, band: Band) -> Answer:
    """By counts where there are any: splintered pages, which miss too, have no price of a miss."""
    strides = PUBLISHED_STRIDES[:3]
    if len(a.stride_walks):
        beyond = [_more_than_one_walk_a_page(a, stride) for stride in strides]
        told = list_in_words(f"{a.stride_walks.at(stride):median}" for stride in strides)
        evidence = (
            f"At strides of 8, 64 and 512 B we counted {told} walks a load, which is one a page."
        )
        return [
            effect_inside_band(walks, *band, what=f"at {format_size(stride)}", unit=WALKS_BEYOND)
            for stride, walks in zip(strides, beyond, strict=True)
        ], evidence
    if a.is_splintered:
        raise Unavailable("splintered")
    shares = {stride: _share(a, stride) for stride in strides}
    told = list_in_words(
        f"{share.value:.0%} at {format_size(stride)}" for stride, share in shares.items()
    )
    evidence = f"Of the time of a load, translation is {told}."
    return [
        effect_inside_band(share, *band, what=f"at {format_size(stride)}")
        for stride, share in shares.items()
    ], evidence


@claim("page-strides-miss", points=_plain(PAGE_STRIDE, pages=BOTH))
def page_strides_miss(a: Analysis, band: Band) -> Answer:
    """Splintered pages miss too, so what base pages take longer is then a lower bound: it cannot
    refute the sentence."""
    price = _price(a).at(PAGE_STRIDE)
    return require_unsplintered_pages(a, effect_inside_band(price, *band), answer=False), (
        f"At a stride of 4 KiB a load takes {price:rounded} ns longer on base pages than on "
        f"{page_words(a.large)}."
    )


@claim("wider-strides-are-slower", points=_plain(*PUBLISHED_STRIDES))
def wider_is_slower(a: Analysis, band: Band) -> Answer:
    ratios = [
        _base(a).at(wide) / _base(a).at(narrow) for narrow, wide in pairwise(PUBLISHED_STRIDES)
    ]
    told = list_in_words(
        f"{ratio:median} to {format_size(stride)}"
        for ratio, stride in zip(ratios, PUBLISHED_STRIDES[1:], strict=True)
    )
    evidence = f"From each published stride to the next a load slows by a factor of {told}."
    return [
        effect_inside_band(ratio, *band, what=f"{format_size(wide)} over {format_size(narrow)}")
        for ratio, (narrow, wide) in zip(ratios, pairwise(PUBLISHED_STRIDES), strict=True)
    ], evidence


_AND_BOUND = (PAGE_STRIDE, PAGE_STRIDE + CACHE_LINE_BYTES)  # the bound is of the padded loop


def _penalty(a: Analysis, band: Band) -> tuple[Effect, str]:
    """Return what a miss costs at a stride of 4 KiB, with the evidence.

    Splintered pages miss too. What spread lines take longer than packed ones is then an upper
    bound: below the band it refutes the sentence, and it cannot support it. Raises
    Unavailable("splintered") where it does not refute.
    """
    if not a.is_splintered:
        price = _price(a).at(PAGE_STRIDE)
        evidence = f"At a stride of 4 KiB translation costs {price:rounded} ns a load."
        return effect_inside_band(price, *band), evidence
    most = require_nonempty(a.at_most, "no stride was measured with its lines packed").at(
        PAGE_STRIDE
    )
    effect = effect_inside_band(most, *band, what="at most")
    if not effect.is_of_few and (effect.decided() is not False or most.value > band[1]):
        raise Unavailable("splintered")
    return effect, (
        f"At a stride of 4 KiB and one cache line more, translation costs at most {most:rounded} ns a "
        "load, which is what a load takes longer than over as many lines side by side."
    )


@claim("stride-miss-penalty-10-ns", points=_plain(*_AND_BOUND, pages=BOTH))
def a_miss_costs_10_ns(a: Analysis, band: Band) -> Answer:
    return _penalty(a, band)


@claim("every-page-stride-misses", points=_plain(PAGE_STRIDE))
def every_access_misses(a: Analysis, band: Band) -> Answer:
    walks = require_nonempty(a.stride_walks, "no walks were counted", "no-pmu").at(PAGE_STRIDE)
    return effect_inside_band(
        walks, *band
    ), f"At a stride of 4 KiB we counted {walks:rounded} walks a load."


@claim("penalty-is-fixed", points=_plain(*_AND_BOUND, WIDEST_STRIDE, pages=BOTH))
def the_penalty_is_fixed(a: Analysis, band: Band, alike: Band = ABOUT_AS_MUCH) -> Answer:
    """Fixed at about 10 ns: a smaller penalty refutes it whatever the stride adds."""
    about_ten, evidence = _penalty(a, band)
    if a.is_splintered:
        return about_ten, evidence
    ratio = _price(a).at(WIDEST_STRIDE) / _price(a).at(PAGE_STRIDE)
    evidence += f" At a stride of 64 KiB it costs {ratio:rounded} times as much."
    return [
        replace(about_ten, what="at 4 KiB"),
        effect_inside_band(ratio, *alike, what="64 KiB over 4 KiB", unit="ratio"),
    ], evidence


@claim("strides-4k-and-8k-alike", points=_plain(PAGE_STRIDE, TWO_PAGE_STRIDE))
def one_page_and_two_are_alike(a: Analysis, band: Band) -> Answer:
    ratio = _base(a).at(TWO_PAGE_STRIDE) / _base(a).at(PAGE_STRIDE)
    evidence = f"At a stride of 8 KiB a load takes {ratio:rounded} times what it takes at 4 KiB."
    return effect_inside_band(ratio, *band), evidence


@claim("stride-8-hits-both", points=_plain(8))
def eight_bytes_hit_both(a: Analysis, band: Band) -> Answer:
    ratio = _base(a).at(8) / a.near_ns
    evidence = f"At a stride of 8 B a load takes {ratio:rounded} times what it takes inside the first cache."
    return effect_inside_band(ratio, *band), evidence


@claim("stride-64-misses-the-cache", points=_plain(8, 64, pages=BOTH[1:]))
def a_line_each_misses(a: Analysis, band: Band) -> Answer:
    ratio = a.times[a.large].at(64) / a.times[a.large].at(8)
    evidence = f"On {page_words(a.large)} a load takes {ratio:rounded} times as long at a stride of 64 B as at 8 B."
    return effect_inside_band(ratio, *band), evidence


@claim("stride-512-misses-the-cache-alone", points=_plain(NARROW_STRIDE, pages=BOTH))
def eight_to_a_page_hit(a: Analysis, band: Band) -> Answer:
    """By counts where there are any, as in small_strides_hit."""
    if len(a.stride_walks):
        walks = a.stride_walks.at(NARROW_STRIDE)
        evidence = f"At a stride of 512 B we counted {walks:median} walks a load."
        beyond = _more_than_one_walk_a_page(a, NARROW_STRIDE)
        return effect_inside_band(beyond, *band, unit=WALKS_BEYOND), evidence
    if a.is_splintered:
        raise Unavailable("splintered")
    share = _share(a, NARROW_STRIDE)
    evidence = f"At a stride of 512 B translation is {share:rounded} of a load's time."
    return effect_inside_band(share, *band), evidence


@claim("stride-4k-misses-both", points=_plain(PAGE_STRIDE, pages=BOTH))
def a_page_each_misses_both(a: Analysis, band: Band) -> Answer:
    """A lower bound on splintered pages, as in page_strides_miss."""
    ratio = _base(a).at(PAGE_STRIDE) / a.times[a.large].at(PAGE_STRIDE)
    return require_unsplintered_pages(a, effect_inside_band(ratio, *band), answer=False), (
        f"At a stride of 4 KiB a load takes {ratio:rounded} times as long on base pages as on "
        f"{page_words(a.large)}."
    )


def _kept(a: Analysis, narrow: int, wide: int) -> Interval:
    """Return the share of the slowdown between two strides that remains on huge pages."""
    slower = [curve.at(wide) - curve.at(narrow) for curve in (a.times[a.large], _base(a))]
    return slower[0].share_of(slower[1])


@claim("slowdown-64-to-512-is-cache", points=_plain(64, NARROW_STRIDE, pages=BOTH))
def lines_slow_it_first(a: Analysis, band: Band) -> Answer:
    kept = _kept(a, 64, NARROW_STRIDE)
    evidence = f"Of the slowdown from 64 to 512 B {kept:rounded} remains on {page_words(a.large)}."
    return effect_inside_band(kept, *band), evidence


@claim("slowdown-512-to-4k-is-tlb", points=_plain(*_AND_A_LINE_MORE, pages=BOTH))
def translation_slows_it_then(a: Analysis, band: Band) -> Answer:
    """A line more than the stride misses the TLB as often, so what misses cost remains with it and
    goes on whole huge pages."""
    staggered = require_nonempty(a.padded, "no stride was measured with a line more")
    near, far, beyond = (
        _base(a).at(NARROW_STRIDE),
        _base(a).at(PAGE_STRIDE),
        staggered.at(PAGE_STRIDE),
    )
    share = (beyond - staggered.at(NARROW_STRIDE)).share_of(far - near)
    # Below zero a load is faster than at the narrow stride: nothing of the slowdown remains.
    value, low, high = (max(end, 0.0) for end in share.value_and_bounds)
    remains = Interval(value, low, high, share.coverage, share.modes)
    evidence = (
        f"A read takes {near:median} ns at a stride of 512 B, {far:median} ns at 4 KiB, and "
        f"{beyond:median} ns at one cache line more, which visits as many pages. The share of the "
        f"slowdown that remains with a line more is {remains:rounded}"
    )
    if a.is_splintered:
        remains_here = effect_inside_band(remains, *band, what=LEFT_WITH_64_BYTES_MORE)
        return require_unsplintered_pages(a, remains_here, answer=True), f"{evidence}."
    kept = _kept(a, NARROW_STRIDE, PAGE_STRIDE)
    gone = Interval(1 - kept.value, 1 - kept.high, 1 - kept.low, kept.coverage, kept.modes)
    return [
        effect_inside_band(remains, *band, what=LEFT_WITH_64_BYTES_MORE),
        effect_inside_band(gone, *band, what=f"what {page_words(a.large)} remove:"),
    ], f"{evidence}; the share that goes on {page_words(a.large)} is {gone:rounded}."


@claim("page-stride-hits-up-to-large-reach", points=None)
def hits_up_to_the_large_reach(a: Analysis, band: Band) -> Answer:
    entries, chases = a.known_entries[-1], a.about.kept("hugepages")
    walk = (
        curves.price(chases, entries, pages=BASE_PAGES).between(2 * entries, 4 * entries).typical()
    )
    place = curves.price(chases, inf, pages=a.large).passes(walk.value / 2) * (
        a.base_page_bytes / (entries * (2 << 20))
    )
    return effect_inside_band(place, *band), (
        "A chase that visits a line to each base page pays half of what a walk costs there at "
        f"{place:rounded} times the {entries:,} entries' reach in pages of 2 MiB."
    )
