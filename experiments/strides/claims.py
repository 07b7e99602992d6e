"""What the article about strides says, as predicates on the chapter's Analysis."""

from __future__ import annotations

from itertools import pairwise
from math import inf

from experiments.strides.analysis import Analysis
from experiments.strides.grid import (
    LINE_BYTES,
    NARROW_STRIDE,
    PAGE_STRIDE,
    TWO_PAGE_STRIDE,
    WIDEST_STRIDE,
)
from tlb.report.verdicts import (
    Answer,
    Band,
    Compares,
    claim,
    inside,
    points_of,
    require_unsplintered,
)
from tlb.stats import curves
from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import BASE, words
from tlb.system.prose import listed
from tlb.system.reasons import Unavailable, required
from tlb.system.units import format_size

PUBLISHED = (8, LINE_BYTES, NARROW_STRIDE, PAGE_STRIDE, TWO_PAGE_STRIDE)


def _plain(*strides: int, pages: tuple[str, ...] = (BASE,)) -> Compares:
    """The published loop at these strides."""

    return points_of("stride_sum", mode="plain", pages=pages, step_bytes=strides)


BOTH = (BASE, "thp", "2m")
_AND_A_LINE_MORE = NARROW_STRIDE, NARROW_STRIDE + LINE_BYTES, PAGE_STRIDE, PAGE_STRIDE + LINE_BYTES


def _base(a: Analysis) -> Curve:
    return required(a.base, "no stride was measured on base pages")


def _price(a: Analysis) -> Curve:
    return required(a.price, "no stride was measured on base pages and on large ones")


def _share(a: Analysis, stride: int) -> Interval:
    """Return the share of a stride's time on base pages that translation takes."""
    return _price(a).at(stride).share_of(_base(a).at(stride))


@claim("small-strides-hit", points=_plain(8, 64, NARROW_STRIDE, pages=BOTH))
def small_strides_hit(a: Analysis, band: Band) -> Answer:
    shares = {stride: _share(a, stride) for stride in PUBLISHED[:3]}
    told = listed(f"{share.value:.0%} at {format_size(stride)}" for stride, share in shares.items())
    evidence = f"Of the time of a load, translation is {told}."
    return [inside(share, *band) for share in shares.values()], evidence


@claim("page-strides-miss", points=_plain(PAGE_STRIDE, pages=BOTH))
def page_strides_miss(a: Analysis, band: Band) -> Answer:
    """Splintered pages miss too, so what base pages take longer is then a lower bound: it cannot
    refute the sentence."""
    price = _price(a).at(PAGE_STRIDE)
    return require_unsplintered(a, inside(price, *band), answer=False), (
        f"At a stride of 4 KiB a load takes {price:.2f} ns longer on base pages than on "
        f"{words(a.large)}."
    )


@claim("wider-strides-are-slower", points=_plain(*PUBLISHED))
def wider_is_slower(a: Analysis, band: Band) -> Answer:
    ratios = [_base(a).at(wide) / _base(a).at(narrow) for narrow, wide in pairwise(PUBLISHED)]
    told = listed(
        f"{ratio.value:.2f} to {format_size(stride)}"
        for ratio, stride in zip(ratios, PUBLISHED[1:], strict=True)
    )
    evidence = f"From each published stride to the next a load slows by a factor of {told}."
    return [inside(ratio, *band) for ratio in ratios], evidence


@claim(
    "stride-miss-penalty-10-ns", points=_plain(PAGE_STRIDE, PAGE_STRIDE + LINE_BYTES, pages=BOTH)
)
def a_miss_costs_10_ns(a: Analysis, band: Band) -> Answer:
    """Splintered pages miss too. What spread lines take longer than packed ones is then an upper
    bound: below the band it refutes the sentence, and it cannot support it."""
    if not a.is_splintered:
        price = _price(a).at(PAGE_STRIDE)
        evidence = f"At a stride of 4 KiB translation costs {price:.2f} ns a load."
        return inside(price, *band), evidence
    most = required(a.at_most, "no stride was measured with its lines packed").at(PAGE_STRIDE)
    effect = inside(most, *band)
    if effect.decided() is not False or most.value > band[1]:
        raise Unavailable("splintered")
    return effect, (
        f"At a stride of 4 KiB and one cache line more, translation costs at most {most:.2f} ns a "
        "load: by so much a load takes longer than over as many lines side by side."
    )


@claim("every-page-stride-misses", points=_plain(PAGE_STRIDE))
def every_access_misses(a: Analysis, band: Band) -> Answer:
    walks = required(a.counted("walk"), "no walks were counted", "no-pmu").at(PAGE_STRIDE)
    return inside(walks, *band), f"At a stride of 4 KiB {walks:.2f} walks a load were counted."


@claim("penalty-is-fixed", points=_plain(PAGE_STRIDE, WIDEST_STRIDE, pages=BOTH))
def the_penalty_is_fixed(a: Analysis, band: Band) -> Answer:
    ratio = _price(a).at(WIDEST_STRIDE) / _price(a).at(PAGE_STRIDE)
    evidence = f"At a stride of 64 KiB translation costs {ratio:.2f} times what it costs at 4 KiB."
    return inside(ratio, *band), evidence


@claim("strides-4k-and-8k-alike", points=_plain(PAGE_STRIDE, TWO_PAGE_STRIDE))
def one_page_and_two_are_alike(a: Analysis, band: Band) -> Answer:
    ratio = _base(a).at(TWO_PAGE_STRIDE) / _base(a).at(PAGE_STRIDE)
    evidence = f"At a stride of 8 KiB a load takes {ratio:.2f} times what it takes at 4 KiB."
    return inside(ratio, *band), evidence


@claim("stride-8-hits-both", points=_plain(8))
def eight_bytes_hit_both(a: Analysis, band: Band) -> Answer:
    ratio = _base(a).at(8) / a.near_ns
    evidence = (
        f"At a stride of 8 B a load takes {ratio:.2f} times what it takes inside the first cache."
    )
    return inside(ratio, *band), evidence


@claim("stride-64-misses-the-cache", points=_plain(8, 64, pages=BOTH[1:]))
def a_line_each_misses(a: Analysis, band: Band) -> Answer:
    ratio = a.times[a.large].at(64) / a.times[a.large].at(8)
    evidence = (
        f"On {words(a.large)} a load takes {ratio:.2f} times as long at a stride of 64 B as at 8 B."
    )
    return inside(ratio, *band), evidence


@claim("stride-512-misses-the-cache-alone", points=_plain(NARROW_STRIDE, pages=BOTH))
def eight_to_a_page_hit(a: Analysis, band: Band) -> Answer:
    share = _share(a, NARROW_STRIDE)
    evidence = f"At a stride of 512 B translation is {share:.2f} of a load's time."
    return inside(share, *band), evidence


@claim("stride-4k-misses-both", points=_plain(PAGE_STRIDE, pages=BOTH))
def a_page_each_misses_both(a: Analysis, band: Band) -> Answer:
    """A lower bound on splintered pages, as in page_strides_miss."""
    ratio = _base(a).at(PAGE_STRIDE) / a.times[a.large].at(PAGE_STRIDE)
    return require_unsplintered(a, inside(ratio, *band), answer=False), (
        f"At a stride of 4 KiB a load takes {ratio:.2f} times as long on base pages as on "
        f"{words(a.large)}."
    )


def _kept(a: Analysis, narrow: int, wide: int) -> Interval:
    """Return the share of the slowdown between two strides that remains on large pages."""
    slower = [curve.at(wide) - curve.at(narrow) for curve in (a.times[a.large], _base(a))]
    return slower[0].share_of(slower[1])


@claim("slowdown-64-to-512-is-cache", points=_plain(64, NARROW_STRIDE, pages=BOTH))
def lines_slow_it_first(a: Analysis, band: Band) -> Answer:
    kept = _kept(a, 64, NARROW_STRIDE)
    evidence = f"Of the slowdown from 64 to 512 B {kept:.2f} remains on {words(a.large)}."
    return inside(kept, *band), evidence


@claim("slowdown-512-to-4k-is-tlb", points=_plain(*_AND_A_LINE_MORE, pages=BOTH))
def translation_slows_it_then(a: Analysis, band: Band) -> Answer:
    """A line more than the stride misses the TLB as often, so what misses cost remains with it and
    goes on whole large pages."""
    staggered = required(a.base_staggered, "no stride was measured with a line more")
    near, far, beyond = (
        _base(a).at(NARROW_STRIDE),
        _base(a).at(PAGE_STRIDE),
        staggered.at(PAGE_STRIDE),
    )
    remains = (beyond - staggered.at(NARROW_STRIDE)).share_of(far - near)
    evidence = (
        f"A read takes {near.value:.1f} ns at a stride of 512 B, {far.value:.1f} ns at 4 KiB, and "
        f"{beyond.value:.1f} ns at one cache line more, which visits as many pages. The share of the "
        f"slowdown that remains with a line more is {remains:.2f}"
    )
    if a.is_splintered:
        return require_unsplintered(a, inside(remains, *band), answer=True), f"{evidence}."
    kept = _kept(a, NARROW_STRIDE, PAGE_STRIDE)
    gone = Interval(1 - kept.value, 1 - kept.high, 1 - kept.low, kept.coverage, kept.modes)
    return [
        inside(remains, *band),
        inside(gone, *band),
    ], f"{evidence}; the share that goes on {words(a.large)} is {gone:z.2f}."


@claim("page-stride-hits-up-to-large-reach", points=None)
def hits_up_to_the_large_reach(a: Analysis, band: Band) -> Answer:
    entries, chases = a.known_entries[-1], a.about.kept("hugepages")
    walk = curves.price(chases, entries, pages=BASE).between(2 * entries, 4 * entries).typical()
    place = curves.price(chases, inf, pages=a.large).passes(walk.value / 2) * (
        a.base_page_bytes / (entries * (2 << 20))
    )
    return inside(place, *band), (
        "A chase that visits a line to each base page pays half of what a walk costs there at "
        f"{place:.2f} times the {entries:,} entries' reach in pages of 2 MiB."
    )
