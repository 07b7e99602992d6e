"""Claims about page sizes, as predicates on the Analysis."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from experiments.hugepages.analysis import Analysis, typical_speedup
from tlb.report.claims import Answer, Band, PointPredicate, claim, count_inside_band, points_where
from tlb.stats.curves import packed_curve, select_rows, spread_curve
from tlb.stats.effects import Effect, effect_inside_band
from tlb.stats.intervals import Interval, median_interval
from tlb.stats.splinter import UNSPLINTERED_MAX_PRICE_RATIO
from tlb.system.page_sizes import BASE_PAGES, HUGE_PAGE_KINDS, page_bytes, page_words
from tlb.system.reasons import Unavailable, Undecided, require_nonempty
from tlb.system.units import format_size, list_in_words

EIGHTH = (1.05, 1.25)  # 32.5 ns over 28.7 is 1.13
FLAT = 1.28  # 11.2 to 14.1 ns, in what the source calls essentially flat
TOUCH_BYTES = 10**8
FOUR_GIB = 4 << 30  # bytes, the largest of the published sizes


# --- which points a claim compares


def _chase(packed: bool, **where: Any) -> PointPredicate:
    layout = ("spread", "packed") if packed else "spread"
    return points_where("page_chase", mode="", layout=layout, **where)


def chases_on(
    *kinds: str, packed: bool = False, low: int = 0, high: int = 1 << 62
) -> PointPredicate:
    """Select the chase on these page sizes over working sets between so many bytes."""
    lines = {"low": lambda scope: scope.lines(low), "high": lambda scope: scope.lines(high)}
    return _chase(packed, pages=kinds, **lines)


def gathers_on(*sizes: int) -> PointPredicate:
    return points_where(
        "page_gather",
        engine="numpy",
        layout="spread",
        lines=lambda scope: tuple(scope.lines(size) for size in sizes),
    )


def touches_of(*sizes: int, kinds: tuple[str, ...] = (BASE_PAGES, "thp")) -> PointPredicate:
    return points_where("random_touch", pages=kinds, bytes=sizes)


# --- the published program, hugepage_demo: independent loads, one byte to each base page


def _gain(a: Analysis, size: int) -> tuple[Interval, str]:
    """Return how many times as fast the published loop is on huge pages, and the sentence."""
    slow, fast = (
        a.gathers[pages].at(size // a.base_page_bytes) for pages in (BASE_PAGES, a.gathered)
    )
    gain = slow / fast
    return gain, (
        f"Over {format_size(size)} the published loop takes {slow:rounded} ns an access on base "
        f"pages and {fast:rounded} on {page_words(a.gathered)}, {gain:rounded} times as fast."
    )


@claim("gather-fivefold-at-256mib", points=gathers_on(256 << 20), size=256 << 20)
def gather_gains(a: Analysis, band: Band, size: int) -> Answer:
    gain, evidence = _gain(a, size)
    return effect_inside_band(gain, *band), evidence


claim("gather-sevenfold-at-1gib", points=gathers_on(1 << 30), size=1 << 30)(gather_gains)
claim("gather-ninefold-at-4gib", points=gathers_on(4 << 30), size=4 << 30)(gather_gains)
claim("any-large-workload-leaves-eightfold", points=gathers_on(4 << 30), size=4 << 30)(gather_gains)


@claim("base-pages-worse-with-size", points=gathers_on(256 << 20, 4 << 30))
def base_pages_get_worse(a: Analysis, band: Band) -> Answer:
    small, large = (
        a.gathers[BASE_PAGES].at(size // a.base_page_bytes) for size in (256 << 20, 4 << 30)
    )
    return effect_inside_band(large / small, *band), (
        f"On base pages the published loop takes {small:rounded} ns an access over 256 MiB and "
        f"{large:rounded} over 4 GiB, {large / small:rounded} times as much."
    )


@claim("large-pages-flat", points=gathers_on(256 << 20, 4 << 30))
def large_pages_are_flat(a: Analysis, most: float = FLAT) -> Answer:
    curve = a.gathers[a.gathered]
    near, far = (curve.at(size // a.base_page_bytes) for size in (256 << 20, 4 << 30))
    return effect_inside_band(far / near, most=most), (
        f"On {page_words(a.gathered)} the published loop takes {near:median} ns an access over "
        f"256 MiB and {far:median} over 4 GiB, {far / near:rounded} times as much."
    )


claim("sixteen-mib-gains-1.4", points=gathers_on(16 << 20), size=16 << 20)(gather_gains)
claim("two-mib-gains-nothing", points=gathers_on(2 << 20), size=2 << 20)(gather_gains)


# --- the chase: loads that wait for each other


@claim(
    "large-pages-help-from-1500-to-32k",
    points=chases_on(BASE_PAGES, *HUGE_PAGE_KINDS, low=8 << 20, high=1 << 27),
)
def large_pages_help_past_the_reach(a: Analysis, band: Band) -> Answer:
    gain = a.speedup(a.large).between(2 * a.known_entries[-1], 32 * 1024)
    require_nonempty(gain, "nothing was measured on both between twice the entries and 32 Ki pages")
    return effect_inside_band(typical_speedup(gain), *band), (
        f"From {gain.xs[0]:,} to {gain.xs[-1]:,} pages the chase on {page_words(a.large)} is "
        f"{typical_speedup(gain):rounded} times as fast, the median over sizes."
    )


_LARGEST: dict[str, Any] = {"packed": True, "low": 1 << 30}


@claim("speedup-is-pure-translation", points=gathers_on(FOUR_GIB))
def the_speedup_is_translation(a: Analysis, band: Band) -> Answer:
    """Of the published loop, whose packed control is among the cliff's rows."""
    lines = FOUR_GIB // a.base_page_bytes
    loops = a.about.kept("stlb_cliff", "numpy")
    price = a.judged_price_of(
        *(
            side(loops, kernel="page_gather", pages=BASE_PAGES)
            for side in (spread_curve, packed_curve)
        )
    ).at(lines)
    saved = a.gathers[BASE_PAGES].at(lines) - a.gathers[a.gathered].at(lines)
    ratio = saved.share_of(price)
    return effect_inside_band(ratio, *band), (
        f"Over 4 GiB translation costs the published loop {price:median} ns an access on base "
        f"pages; {page_words(a.gathered)} save {saved:median}, {ratio:rounded} times as much."
    )


@claim("code-and-settings-both-help", points=chases_on(BASE_PAGES, *HUGE_PAGE_KINDS, **_LARGEST))
def layout_and_large_pages_help(a: Analysis, band: Band) -> Answer:
    most, _ = a.largest(BASE_PAGES, a.large)
    spread, packed = a.spread[BASE_PAGES].at(most), a.packed[BASE_PAGES].at(most)
    by_layout, by_pages = spread / packed, spread / a.spread[a.large].at(most)
    return [
        effect_inside_band(by_layout, *band, what="over side by side"),
        effect_inside_band(by_pages, *band, what=f"over {page_words(a.large)}"),
    ], (
        f"{most:,} lines on a base page each take {by_layout:rounded} times as long as side by side, and "
        f"{by_pages:rounded} times as long as on {page_words(a.large)}."
    )


@claim("misses-can-dominate", points=chases_on(BASE_PAGES, **_LARGEST))
def misses_dominate(a: Analysis, band: Band) -> Answer:
    most, _ = a.largest(BASE_PAGES)
    price, whole = a.price[BASE_PAGES].at(most), a.spread[BASE_PAGES].at(most)
    packed_walks = a.judged_base_price.at(most).high - price.high
    share = price.share_of(whole)  # as the first page has it, but for the upper end
    share = replace(share, high=share.high + packed_walks / whole.value)
    allowed = f" The interval allows {packed_walks:.0f} ns for page walks of the packed lines."
    return effect_inside_band(share, *band), (
        f"Over {format_size(most * a.base_page_bytes)} a load on base pages takes "
        f"{whole:median} ns, of which translation is at least {price:rounded}."
        f"{allowed * (packed_walks > 0)}"
    )


@claim("large-page-latency-is-the-caches", points=chases_on(*HUGE_PAGE_KINDS, **_LARGEST))
def what_is_left_is_the_caches(a: Analysis, band: Band) -> Answer:
    most, _ = a.largest(a.large)
    left = a.spread[a.large].at(most) / a.packed[a.large].at(most)
    return effect_inside_band(left, *band), (
        f"Over {format_size(most * a.base_page_bytes)} on {page_words(a.large)} a load takes "
        f"{left:rounded} times what it takes where as many lines lie side by side."
    )


@claim("entry-spans-large-page", points=chases_on(BASE_PAGES, *HUGE_PAGE_KINDS, **_LARGEST))
def an_entry_spans_a_large_page(a: Analysis, band: Band) -> Answer:
    """By how many times the entries' reach on base pages, at the least, huge pages cover: the
    largest working set at which they cost at most half of what base pages do."""
    entries, large = a.known_entries[-1], a.large
    on_base, on_large = (
        price.between(2 * entries, inf) for price in (a.judged_base_price, a.price[large])
    )
    both = set(on_base.xs) & set(on_large.xs)
    require_nonempty(both, f"nothing was measured on both from {2 * entries:,} lines")
    base_reach = format_size(entries * a.base_page_bytes)
    for lines in sorted(both, reverse=True):
        base, left = on_base.get(lines), on_large.get(lines)
        share = left.share_of(base)
        covers = effect_inside_band(share, most=UNSPLINTERED_MAX_PRICE_RATIO, among=len(both))
        # Measured entries can be fewer than the TLB's: an entry covers its page at the most.
        expansion = min(lines / entries, page_bytes(large, a.base_page_bytes) / a.base_page_bytes)
        evidence = (
            f"Over {format_size(lines * a.base_page_bytes)} translation costs {base:median} ns a "
            f"load on base pages, whose entries reach {base_reach}, and {left:median} on "
            f"{page_words(large)}."
        )
        if covers.decided():
            at_least = Interval(expansion, expansion, inf, share.coverage)
            covered = format_size(lines * a.base_page_bytes)
            return effect_inside_band(at_least, *band, what=f"at least {covered},"), evidence
    at_most = Interval(expansion, 0, expansion, share.coverage)
    return (
        effect_inside_band(at_most, *band) if covers.decided() is False else Undecided("crosses")
    ), evidence


@claim("gigabyte-pages-gain", points=chases_on(*HUGE_PAGE_KINDS, "1g", low=1 << 30))
def gigabyte_pages_gain(a: Analysis, band: Band, above: int = 32 * 1024) -> Answer:
    require_nonempty(a.spread["1g"], "no 1 GiB page was available", "pool-empty")
    far = a.speedup("1g", a.large).between(above + 1, inf)
    gain = require_nonempty(far, "nothing was measured above 32 Ki lines on both").last
    return effect_inside_band(gain, *band), (
        f"At {format_size(far.xs[-1] * a.base_page_bytes)}, 1 GiB pages are {gain:rounded} times as "
        f"fast as {page_words(a.large)}."
    )


# --- random reads of an array, as the JVM's benchmark makes them


def _counted(a: Analysis, pages: str, quantity: str = "walk_per_access") -> Interval:
    """Return a counted quantity of one read of the 100 MB array. Raises
    Unavailable("too-few-points")."""
    rows = select_rows(
        a.frame, kernel="random_touch", bytes=TOUCH_BYTES, spare_draws=0, pages=pages
    )
    counts = rows[quantity].dropna().tolist() if quantity in rows else []
    return median_interval(
        require_nonempty(counts, f"no row of 100 MB on {page_words(pages)} counted this")
    )


@claim("one-miss-an-operation", points=touches_of(TOUCH_BYTES), pages=BASE_PAGES)
def walks_a_read(a: Analysis, band: Band, pages: str) -> Answer:
    walks = _counted(a, pages)
    evidence = f"A random read of 100 MB on {page_words(pages)} makes {walks:rounded} page walks."
    return effect_inside_band(walks, *band), evidence


def _in_words(size: int) -> str:
    return f"{size // 1000} kB" if size < 10**6 else f"{size // 10**6} MB"


def reads_gain(
    a: Analysis, band: Band, size: int, fast: str = "thp", slow: str = BASE_PAGES
) -> tuple[Effect, str]:
    """Judge how many times as fast reads are on one kind of pages as on another: by JMH, the source's
    own loop, if enough JVMs ran, otherwise by the loop in C."""
    reads = select_rows(a.touches, array_bytes=size).set_index("pages")
    if not {slow, fast} <= set(reads.index):
        reason = "too-few-points" if fast != "2m" else "pool-empty"
        raise Unavailable(reason, f"random reads of {size:,} bytes were not measured on both")
    each = reads.to_dict("index")
    before, after = (Interval.of(each[pages]) for pages in (slow, fast))
    gain = before / after
    evidence = (
        f"A random read of {_in_words(size)} takes {before:median} ns on {page_words(slow)} and "
        f"{after:median} on {page_words(fast)}, a factor of {gain:rounded}"
    )
    jmh_before, jmh_after = (a.java(size, pages) for pages in (slow, fast))
    if jmh_before.value > 0 and jmh_after.value > 0:
        in_java = jmh_before / jmh_after
        evidence += f"; in Java, by JMH, {in_java:rounded}"
        gain = in_java if in_java.coverage else gain
    return effect_inside_band(gain, *band), f"{evidence}."


@claim("jmh-small-arrays-alike", points=touches_of(1_000, 10_000))
def small_arrays_are_alike(a: Analysis, band: Band) -> Answer:
    found = {size: reads_gain(a, band, size) for size in (1_000, 10_000)}
    effects = [replace(effect, what=f"{size // 1000} kB") for size, (effect, _) in found.items()]
    return effects, " ".join(evidence for _, evidence in found.values())


claim("jmh-1mb-gains", points=touches_of(1_000_000), size=1_000_000)(reads_gain)
claim("jmh-10mb-gains", points=touches_of(10_000_000), size=10_000_000)(reads_gain)


@claim("thp-an-eighth-faster", points=touches_of(TOUCH_BYTES))
def thp_is_an_eighth_faster(a: Analysis, band: Band = EIGHTH) -> Answer:
    return reads_gain(a, band, TOUCH_BYTES)


claim(
    "jmh-thp-like-hugetlbfs",
    points=touches_of(TOUCH_BYTES, kinds=HUGE_PAGE_KINDS),
    size=TOUCH_BYTES,
    fast="2m",
    slow="thp",
)(reads_gain)


@claim(
    "jmh-grows-everywhere",
    points=touches_of(1_000, TOUCH_BYTES, kinds=(BASE_PAGES, *HUGE_PAGE_KINDS)),
)
def larger_arrays_cost_more_everywhere(a: Analysis, band: Band) -> Answer:
    growth: dict[str, Interval] = {}
    for pages, part in a.touches.groupby("pages", sort=False):
        reads = part.set_index("array_bytes")
        if {1_000, TOUCH_BYTES} <= set(reads.index):
            each = reads.to_dict("index")
            growth[str(pages)] = Interval.of(each[TOUCH_BYTES]) / Interval.of(each[1_000])
    if len(growth) < 2:
        lacking = (
            "an array of 100 MB was not read beside one of 1 KB on base pages and on huge ones"
        )
        raise Unavailable("too-few-points", lacking)
    times = list_in_words(
        f"{ratio:rounded} on {page_words(pages)}" for pages, ratio in growth.items()
    )
    evidence = f"A read of 100 MB takes this many times as long as one of 1 kB: {times}."
    return [
        effect_inside_band(ratio, *band, what=f"on {page_words(pages)}")
        for pages, ratio in growth.items()
    ], evidence


@claim("hundred-mb-array-passes-l3")
def a_hundred_megabytes_pass_the_last_cache(a: Analysis) -> Answer:
    last = max((cache.size_bytes for cache in a.host.caches), default=0)
    if not last:
        raise Unavailable("no-geometry")
    return count_inside_band(
        TOUCH_BYTES / last,
        (1, inf),
        f"The last cache has {format_size(last)}, {last / 1e6:.0f} MB; the array has "
        f"{TOUCH_BYTES / 1e6:.0f}.",
    )
