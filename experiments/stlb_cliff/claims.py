"""What articles say of TLBs, of the cliff and of walks, as predicates on the chapter's Analysis."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf
from typing import Any

from experiments.stlb_cliff.analysis import Analysis
from tlb.machine.cpuid import Tlb
from tlb.machine.host import data_tlbs
from tlb.measure.events import missing_event_reason
from tlb.measure.grid import Scope
from tlb.report.chapter import literature
from tlb.report.claims import (
    Answer,
    Band,
    Fact,
    PointPredicate,
    claim,
    count_inside_band,
    points_where,
)
from tlb.report.verdicts import does_answer_hold, effects_judgeable_in_guest, measured_outside_guest
from tlb.stats.curves import (
    HALF_OCTAVE_TOLERANCE,
    counter_curve,
    last_level_plateau,
    missing_counter_reason,
    packed_walk_bound,
    select_rows,
)
from tlb.stats.effects import Effect, effect_inside_band
from tlb.stats.geometry_curves import PageTableLocation, WalkPrice
from tlb.stats.intervals import Interval
from tlb.system.page_sizes import (
    BASE_PAGES,
    CACHE_LINE_BYTES,
    PUBLISHED_BASE_PAGE_BYTES,
    TABLE_ENTRY_BYTES,
    page_bytes,
)
from tlb.system.reasons import Unavailable, Undecided, require_nonempty
from tlb.system.units import format_size, list_in_words, with_thousands

# "Capacity alone": the control, which differs in nothing but the pages, may share at most a tenth
# of the rise.
SHARED_RISE = 0.10
# A step of a fully associative LRU TLB has no width; a grid of 8 points an octave resolves 9 %.
STEP_WIDTH = 1.25
INSIDE_THE_REACH = 1 << 20, 4 << 20  # bytes: where the published line stays flat
PUBLISHED_CLIMB = {16 << 20: 18.0, 256 << 20: 60.0, 4 << 30: 130.0}  # ns an access, by bytes
ABOUT_ONE = (0.75, 1.25)  # a quarter around a number without a range
# The sources have pages of 4 KiB. So many has 1 GiB, whose table outgrows the nearer caches, and so
# many the end of the published sweep, 4 GiB.
FAR_PAGES, MOST_PAGES = ((gib << 30) // PUBLISHED_BASE_PAGE_BYTES for gib in (1, 4))
THRASHING_BYTES = 8 << 30  # of the 10 GB that "thrashes those caches", the power of two below
ENTRIES, POOL_PAGES = 32, 2200
X86_MICROARCHITECTURES = (*("Haswell", "Ice Lake", "Golden Cove", "Gracemont", "Zen 2", "Zen 5"),)
# Entries, about, with the 5 % by which chases may find more or fewer than CPUID states.
MOST_ON_INTEL, LEAST_ON_AMD = 1875 * 1.05, 2000 * 0.95

# --- which points the claims compare

# Of the last level's entries: the published sizes around its reach are two doublings apart.
HALF_TO_TWICE = (0.5, 2.0)
_BOTH: dict[str, Any] = {
    "pages": BASE_PAGES,
    "mode": "",
    "order": "cycle",
    "layout": ("spread", "packed"),
}


def selected_chase(
    *layouts: str, order: tuple[str, ...] = ("cycle",), low: float = 0.0, high: float = inf
) -> PointPredicate:
    """Select the chase on base pages, between multiples of the last level's entries."""

    def times(factor: float) -> Callable[[Scope], float]:
        return lambda scope: max(scope.entries, default=0) * factor

    return points_where(
        "page_chase",
        **_BOTH | {"layout": layouts, "order": order},
        low=times(low * 0.7),
        high=inf if high == inf else times(high * 1.5),
    )


def selected_gather(*sizes: int, layouts: tuple[str, ...] = ("spread",)) -> PointPredicate:
    """Select the published loop over these sizes in bytes, by default around the last level's
    reach."""

    def lines(scope: Scope) -> tuple[int, ...]:
        around = [round(max(scope.entries, default=0) * times) for times in HALF_TO_TWICE]
        return tuple([scope.lines(size) for size in sizes] or around)

    return points_where("page_gather", pages=BASE_PAGES, layout=layouts, lines=lines)


# The two largest sizes of the chase and its control.
largest_chases = points_where("page_chase", **_BOTH, low=lambda scope: scope.most_lines / 4)
chase_of_one_gib = points_where("page_chase", **_BOTH, lines=FAR_PAGES)
chases_near_first_level = points_where(
    "page_chase", **_BOTH, high=lambda scope: 4 * min(scope.entries, default=0)
)


def _in(size_bytes: float) -> str:
    return f"in {format_size(int(size_bytes))}"


def _packed_walks(a: Analysis, lines: int) -> str:
    """Return the sentence that says how far this moves an interval's end; "" if nowhere."""
    bound = packed_walk_bound(a.spread, lines, a.known_entries[-1])
    return f" Its interval allows {bound:.0f} ns for page walks of the packed lines." * (bound > 0)


def _require_far(lines: int) -> int:
    """Return a number of pages. Raises Unavailable("sweep-short") if they are fewer than in 1 GiB of
    4 KiB pages."""
    if lines < FAR_PAGES:
        raise Unavailable("sweep-short", f"{lines:,} pages")
    return lines


def _far(a: Analysis) -> int:
    """Return the lines of the published sweep's end, or of the largest that has a price."""
    return min(a.largest, MOST_PAGES)


# --- the published loop: independent loads, one line a page, in a shuffled order that is repeated


@claim("gather-one-ns-at-256kib", points=selected_gather(256 << 10), size_bytes=256 << 10)
def gather_takes(a: Analysis, band: Band, size_bytes: int) -> Answer:
    lines = size_bytes // a.base_page_bytes
    took, bare = a.as_published.at(lines), a.gather.get(lines)
    what, evidence = (
        "",
        f"The published loop takes {took:rounded} ns an access in {format_size(size_bytes)}",
    )
    if bare.value == bare.value:
        if took.low > 2 * bare.high:
            evidence += ", most of it NumPy's own work"
        evidence += (
            f"; without NumPy's own work the same {lines:,} loads take {bare:rounded} ns each"
        )
        what = f"in NumPy; in C {bare:median} ns"
    return effect_inside_band(took, *band, what=what), f"{evidence}."


claim("gather-three-ns-at-4mib", points=selected_gather(4 << 20), size_bytes=4 << 20)(gather_takes)
claim("gather-thirty-ns-at-64mib", points=selected_gather(64 << 20), size_bytes=64 << 20)(
    gather_takes
)


@claim("gather-hundred-ns-at-4gib", points=selected_gather(4 << 30, layouts=("spread", "packed")))
def a_hundred_ns_at_four_gibibytes(a: Analysis, band: Band) -> Answer:
    prices = require_nonempty(
        a.numpy_price, "the published loop was not run in numpy with its control"
    )
    price = prices.at((4 << 30) // a.base_page_bytes)
    evidence = f"Over 4 GiB translation costs the published loop {price:rounded} ns an access."
    return effect_inside_band(price, *band), evidence


@claim("latency-flat-below-reach", points=selected_gather(*INSIDE_THE_REACH))
def four_ns_inside_the_reach(a: Analysis, band: Band) -> Answer:
    took = {size: a.as_published.at(size // a.base_page_bytes) for size in INSIDE_THE_REACH}
    each = list_in_words(f"{ns:rounded} ns in {format_size(size)}" for size, ns in took.items())
    return [effect_inside_band(ns, *band, what=_in(size)) for size, ns in took.items()], (
        f"An access of the published loop takes {each}."
    )


@claim(
    "gather-flat-then-fourfold",
    points=lambda *point: selected_gather()(*point) or selected_gather(*INSIDE_THE_REACH)(*point),
)
def rises_fourfold(a: Analysis, band: Band, flat: Band = ABOUT_ONE) -> Answer:
    _, entries = a.two_levels()
    near, far = (a.as_published.at(size // a.base_page_bytes) for size in INSIDE_THE_REACH)
    below, ratio = far / near, a.rise_across(a.as_published)
    evidence = (
        f"From 1 to 4 MiB, inside the second level's {entries:,} entries, the time of the published "
        f"loop changes by a factor of {below:rounded}; from half of the entries to twice as many it "
        f"grows by {ratio:rounded}"
    )
    across = "in NumPy"
    if len(a.gather):
        bare = a.rise_across(a.gather)
        evidence += f", and that of the same loads without NumPy's own work by {bare:rounded}"
        across += f"; in C {bare:rounded} times"
    return [
        effect_inside_band(below, *flat, what="4 MiB over 1 MiB"),
        effect_inside_band(ratio, *band, what=across),
    ], f"{evidence}."


@claim("gather-climbs-with-every-size", points=selected_gather(*PUBLISHED_CLIMB))
def it_climbs_as_published(a: Analysis, band: Band) -> Answer:
    """The first of the published times has the claim's band, the others a quarter around theirs."""
    effects, words = list[Effect](), list[str]()
    for size, published_ns in PUBLISHED_CLIMB.items():
        took = a.as_published.at(size // a.base_page_bytes)
        least, most = (end * published_ns for end in ABOUT_ONE) if effects else band
        effects.append(effect_inside_band(took, least, most, what=_in(size)))
        words.append(f"{took:rounded} ns in {format_size(size)}")
    return effects, f"An access of the published loop takes {list_in_words(words)}."


# --- the step: the chase, whose every load waits for the last one


@claim("price-flat-below-reach", points=selected_chase("spread", low=0.5, high=1))
def no_walks_below_reach(a: Analysis, band: Band) -> Answer:
    """Of counted walks alone: a hit in the second level takes time too."""
    _, entries = a.two_levels()
    walks = require_nonempty(a.counted("walk"), "no walks were counted", "no-pmu")
    below = walks.at(7 / 8 * entries, HALF_OCTAVE_TOLERANCE / 2)
    evidence = f"At seven eighths of the entries we counted {below:rounded} walks an access."
    return effect_inside_band(below, *band), evidence


@claim("first-level-ceiling-at-256-kib", points=chases_near_first_level)
def the_first_ceiling_is_where_it_is_stated(a: Analysis, band: Band) -> Answer:
    first, _ = a.two_stated_levels()
    place = a.price.passes(a.steps.hit_ns / 2, 0.4 * first, 4 * first)
    return effect_inside_band(place * (1 / first), *band), (
        f"Half of the first rise is done at {place:rounded} pages; CPUID states {first:,} entries, "
        f"{format_size(first * a.base_page_bytes)}."
    )


@claim("cliff-at-stated-entries", points=selected_chase("spread", "packed", low=0.5, high=4))
def the_step_is_where_it_is_stated(a: Analysis, band: Band) -> Answer:
    _, entries = a.two_stated_levels()
    what, place = a.what_rises(), a.second_step(0.5)
    return effect_inside_band(place * (1 / entries), *band), (
        f"{what} done half of the second rise at a working set of {place:rounded} pages; "
        f"CPUID states {entries:,} entries."
    )


@claim("capacity-alone", points=selected_chase("spread", "packed", low=0.5, high=2))
def capacity_alone(a: Analysis, most: float = SHARED_RISE) -> Answer:
    _, entries = a.two_levels()
    near, far = entries * 2**-0.75, entries * 2
    steps = [a.spread.row(pages, HALF_OCTAVE_TOLERANCE) for pages in (near, far)]
    if {step["lines"] for step in steps} & {*a.price.gaps}:  # where the page shades its curves
        raise Unavailable("control-elsewhere", f"from {near:,.0f} to {far:,.0f} lines")
    before, after = map(Interval.of, steps)
    rise, shared = a.gain_across(a.spread), a.gain_across(a.packed)
    if after.low <= before.high:
        gain = f"the chase gains {rise:median} ns from about {near:,.0f} to {far:,.0f} pages"
        raise Unavailable("no-step", gain)
    # The rise is far from zero, so its spread changes the share by little beside the control's.
    share = shared * (1 / rise.value)
    return effect_inside_band(share, most=most), (
        f"Across the second step the chase gains {rise:median} ns; its packed control, the "
        f"same lines {a.base_page_bytes // CACHE_LINE_BYTES} to a page, gains {shared:median} ns, {share:rounded} of that."
    )


@claim("sharp-so-associative", points=selected_chase("spread", "packed", low=0.5, high=4))
def is_fully_associative(a: Analysis, most: float = STEP_WIDTH) -> Answer:
    """By the width of the step, or by the ways that CPUID states where that cannot tell."""
    try:
        effect, evidence = _width_of_step(a, most)
        if effect.decided() is not None:
            return effect, evidence
    except Unavailable:
        if (known := _by_stated_ways(a)) is None:
            raise
        return known
    return _by_stated_ways(a) or (effect, evidence)


def _width_of_step(a: Analysis, most: float) -> tuple[Effect, str]:
    rises, begins, ends = a.what_rises(), a.second_step(0.1), a.second_step(0.9)
    width = ends / begins
    return effect_inside_band(width, most=most), (
        f"A fully associative LRU TLB would step at {with_thousands(a.entries[-1])} pages and nowhere else. "
        f"{rises} done a tenth of the rise at {with_thousands(begins.value)} pages and nine tenths "
        f"at {with_thousands(ends.value)}, a factor of {width:rounded}."
    )


def _by_stated_ways(a: Analysis) -> Fact | None:
    """Return the fact that the last level is no fully associative one; None if CPUID does not state
    that."""
    tlbs = data_tlbs(a.host)
    if not tlbs or (ways := ways_text(tlbs[-1])) in (None, "full"):
        return None
    evidence = f"By CPUID, level {tlbs[-1].level} has {ways} ways."
    return Fact(False, evidence, f"by CPUID: {ways} ways")


@claim("step-not-slow-degradation", points=selected_chase("spread", "packed", low=0.5, high=4))
def it_is_a_step(a: Analysis, band: Band) -> Answer:
    what, width = a.what_rises(), a.second_step(0.9) / a.second_step(0.1)
    return effect_inside_band(width, *band), (
        f"{what} done a tenth of the second rise at one size and nine tenths at another "
        f"that is larger by a factor of {width:rounded}."
    )


def _of_a_walk(a: Analysis, lines: float) -> Interval:
    """Return the price at so many pages as a share of that from twice to four times the entries.
    Raises Unavailable."""
    if (walk := a.walked).low <= 0:
        raise Unavailable("no-step", f"past the second level translation costs {walk:rounded} ns")
    return a.price.at(lines, HALF_OCTAVE_TOLERANCE / 2).share_of(walk)


@claim(
    "every-access-misses-past-capacity", points=selected_chase("spread", "packed", low=1.4, high=4)
)
def every_access_misses(a: Analysis, band: Band) -> Answer:
    lines = 1.5 * a.two_levels()[1]
    if a.is_counted:
        walks = a.counted("walk").at(lines, HALF_OCTAVE_TOLERANCE / 2)
        evidence = (
            f"At one and a half times the entries we counted {walks:rounded} walks an access."
        )
        return effect_inside_band(walks, *band), evidence
    a.what_rises()
    share = _of_a_walk(a, lines)
    return effect_inside_band(share, *band, what="of the cost on the plateau"), (
        f"At one and a half times the entries translation costs {share:rounded} of what it costs at "
        "twice to four times."
    )


@claim("under-1500-pages-fine", points=selected_chase("spread", "packed", low=0.7, high=4))
def inside_the_entries_is_fine(a: Analysis, band: Band) -> Answer:
    share = _of_a_walk(a, 0.75 * a.two_levels()[1])
    return effect_inside_band(share, *band), (
        f"At three quarters of the entries, translation costs {share:rounded} of what it costs at two to "
        "four times as many."
    )


@claim(
    "knee-at-capacity",
    points=selected_chase("spread", "packed", order=("random",), low=0.3, high=4),
)
def the_knee_is_at_the_capacity(a: Analysis, band: Band) -> Answer:
    _, entries = a.two_levels()
    draws = select_rows(a.frame, kernel="page_chase", order="random", layout="spread")
    what, rise = a.what_rises().lower(), counter_curve(draws, "walk") if a.is_counted else a.random
    plateau_begins, _ = last_level_plateau(*a.two_levels())
    # draws at random miss some entries before the last level is full
    hit, walk = rise.level(plateau_begins, 0.5 * entries), rise.level(3 * entries, 5 * entries)
    begins = rise.passes(hit + 0.1 * (walk - hit), 0.3 * entries, 4 * entries)
    return effect_inside_band(begins * (1 / entries), *band), (
        f"Drawn at random, {what} done a tenth of the rise at a working set of {begins:rounded} "
        f"pages; {a.entries_source} says {entries:,} entries."
    )


# --- what a walk costs


@claim("walk-60-to-250-cycles", points=selected_chase("spread", "packed", low=2))
def a_walk_takes_60_to_250_cycles(a: Analysis, band: Band) -> Answer:
    size = _far(a) * a.base_page_bytes
    near, far = a.walked * a.ghz, a.judged_price.at(a.far_from_walked(_far(a))) * a.ghz
    return [
        effect_inside_band(near, *band, what="at 2 to 4 times the entries"),
        effect_inside_band(far, *band, what=_in(size)),
    ], (
        f"In cycles of the core, translation costs {near:rounded} at two to four times the second "
        f"level's entries and {far:rounded} over {format_size(size)}.{_packed_walks(a, _far(a))}"
    )


@claim("walk-of-several-hundred-ns", points=largest_chases)
def a_walk_takes_several_hundred_ns(a: Analysis, band: Band) -> Answer:
    past = a.judged_price.between(FAR_PAGES, inf)
    price = require_nonempty(past, f"nothing was measured over {FAR_PAGES:,} pages and more").last
    evidence = f"Over {format_size(a.largest_bytes)} translation costs {price:median} ns."
    evidence += _packed_walks(a, a.largest)
    effect = effect_inside_band(price, *band, what=_in(a.largest_bytes))
    effects = effects_judgeable_in_guest(a, effect)
    # A walk in a larger graph may cost more, so a smaller one can only support the claim.
    if a.largest_bytes < THRASHING_BYTES and not does_answer_hold(effect):
        raise Unavailable("sweep-short", evidence)
    return effects, evidence


@claim("climbs-at-a-gibibyte", points=selected_chase("spread", "packed", low=2))
def climbs_past_the_second_cache(a: Analysis, band: Band) -> Answer:
    """From where the second-level cache holds the page table to where it cannot."""
    l2_bytes = require_nonempty(a.cache_bytes(2), "the second-level cache is unknown")
    far = a.far_from_walked(_far(a))
    outgrown = a.judged_price.between(2 * l2_bytes / TABLE_ENTRY_BYTES, far)
    ratio = (
        require_nonempty(outgrown, "no page table was twice as large as that cache").last / a.walked
    )
    size = _far(a) * a.base_page_bytes
    return effect_inside_band(ratio, *band, what=_in(size)), (
        f"Over {format_size(size)} the page table's last level has "
        f"{format_size(_far(a) * TABLE_ENTRY_BYTES)}, the second-level cache {format_size(l2_bytes)}, and "
        f"translation costs {ratio:rounded} times what it costs just past the second level."
    )


@claim("miss-dearer-than-an-l3-miss", points=largest_chases)
def a_miss_is_dearer_than_memory(a: Analysis, band: Band) -> Answer:
    memory, size = a.packed.at(_require_far(_far(a))), _far(a) * a.base_page_bytes
    # (spread - packed) / packed is spread / packed less one, whose two sides are independent.
    whole = a.spread.at(_far(a)) / memory
    most = max(whole.high, (a.spread.at(_far(a)) / a.memory.at(_far(a))).high)
    bounds = whole.value - 1, whole.low - 1, most - 1
    ratio = Interval(*bounds, whole.coverage, whole.modes)
    return effect_inside_band(ratio, *band, what=_in(size)), (
        f"Over {format_size(size)} translation costs {ratio:rounded} times what the same "
        f"lines take packed, which miss the caches as often: {memory:rounded} ns each."
    )


@claim(
    "every-walk-from-memory-at-a-gibibyte",
    points=lambda *point: largest_chases(*point) or chase_of_one_gib(*point),
)
def every_walk_is_from_memory(a: Analysis, band: Band) -> Answer:
    lines = FAR_PAGES
    ratio = a.judged_price.at(lines) / a.from_memory
    return effect_inside_band(ratio, *band), (
        f"At {format_size(lines * a.base_page_bytes)} translation costs {ratio:median} times what a load from memory takes, "
        f"{a.packed.last:median} ns.{_packed_walks(a, lines)}"
    )


@claim("dense-layout-lowers-the-tax", points=largest_chases)
def a_dense_layout_lowers_the_tax(a: Analysis, band: Band) -> Answer:
    lines = _far(a)
    ratio = a.spread.at(lines) / a.packed.at(lines)
    return effect_inside_band(ratio, *band, what=_in(lines * a.base_page_bytes)), (
        f"With a page to itself each of {lines:,} lines takes {ratio:rounded} times as long as packed."
    )


@claim("miss-latency-is-not-constant", points=selected_chase("spread", "packed", low=2))
def miss_latency_is_not_constant(a: Analysis, band: Band) -> Answer:
    lines, size = a.far_from_walked(_far(a)), _far(a) * a.base_page_bytes
    ratio = a.judged_price.at(lines) / a.walked
    return effect_inside_band(ratio, *band, what=_in(size)), (
        f"Over {format_size(size)} translation costs {ratio:rounded} times what it costs just "
        f"past the second level.{_packed_walks(a, _far(a))}"
    )


@claim("four-reads-cost-400-ns", points=largest_chases)
def four_reads_cost_400_ns(a: Analysis, band: Band) -> Answer:
    four = a.from_memory * 4
    evidence = f"Four loads from memory, as the packed chase times one, take {four:median} ns."
    evidence += _packed_walks(a, a.packed.xs[-1])
    return effect_inside_band(four, *band), evidence


@claim(
    "sequential-order-warms-the-walker",
    points=selected_chase("spread", "packed", order=("sequential", "cycle"), low=2),
)
def sequential_order_warms(a: Analysis, band: Band) -> Answer:
    _, entries = a.two_levels()
    shared = [n for n in a.sequential.xs if n >= 2 * entries and n in set(a.price.xs)]
    most = max(require_nonempty(shared, "no size past the second level was visited in both orders"))
    ratio = a.sequential.at(most).share_of(a.judged_price.at(most))
    return effect_inside_band(ratio, *band, what=_in(most * a.base_page_bytes)), (
        f"Over {format_size(most * a.base_page_bytes)} translation costs {ratio:rounded} times as much "
        "in sequential order as in a random cycle."
    )


# --- what a machine states of its TLB and its page tables


def ways_text(tlb: Tlb) -> str | None:
    """Return the associativity as stated: "full", "12", "8 to 15"; None if it is not."""
    if tlb.ways_between:
        return f"{tlb.ways_between[0]} to {tlb.ways_between[1]}"
    return None if tlb.ways is None else "full" if tlb.ways == 0 else str(tlb.ways)


@claim("fully-associative")
def fully_associative(a: Analysis) -> Answer:
    """Of the first level; the evidence names the others too."""
    levels = {tlb.level: ways_text(tlb) for tlb in data_tlbs(a.host)}
    if not levels:
        raise Unavailable(a.host.tlb_reason or "no-geometry")
    phrase = {None: "is of unstated associativity", "full": "is fully associative"}
    each = [f"level {n} {phrase.get(ways, f'has {ways} ways')}" for n, ways in levels.items()]
    first = levels[min(levels)]
    if first is None:
        raise Unavailable("no-geometry", f"by CPUID, {list_in_words(each)}")
    shown = "first level " + ("fully associative" if first == "full" else f"{first} ways")
    return Fact(first == "full", f"By CPUID, {list_in_words(each)}.", shown)


@claim("entries-cover-a-pool")
def entries_cover_a_pool(
    a: Analysis, entries: int = ENTRIES, pool_pages: int = POOL_PAGES
) -> Answer:
    reach, pool = (n * page_bytes("2m", a.base_page_bytes) for n in (entries, pool_pages))
    return count_inside_band(
        reach,
        (pool, inf),
        f"{entries} × 2 MiB are {format_size(reach)}. The article's figure is the size of a pool of "
        f"{pool_pages:,} pages, and a pool holds no translations.",
    )


@claim("flat-table-exabytes")
def a_flat_table_takes_exabytes(a: Analysis, band: Band) -> Answer:
    entries = 2**64 // PUBLISHED_BASE_PAGE_BYTES
    return count_inside_band(
        entries * TABLE_ENTRY_BYTES,
        band,
        f"2^64 bytes are {entries / 1e15:.1f} x 10^15 pages of {format_size(PUBLISHED_BASE_PAGE_BYTES)}, "
        f"whose entries of {TABLE_ENTRY_BYTES} bytes take {entries * TABLE_ENTRY_BYTES / 1e15:.0f} petabytes.",
    )


# --- how many entries: as the survey found them, beside what CPUID states


@claim("first-level-64-to-128")
@claim("below-100-entries")
@claim("first-level-64-entries", only_x86=True)
def entries_are_typical(a: Analysis, band: Band, only_x86: bool = False) -> Answer:
    """Of the first level. Typical is the median of the microarchitectures that published tables name, whatever this
    machine is."""
    known = literature("microarchitectures").query(
        "structure == 'l1_dtlb' and quantity == 'entries'"
    )
    is_named = ~known["microarchitecture"].str.contains("unnamed|CPUID")
    known = known[is_named & (known["pages"].isna() | (known["pages"] == "4k"))]
    if only_x86:
        known = known[known["microarchitecture"].isin(X86_MICROARCHITECTURES)]
    entries = known.groupby("microarchitecture")["value_high"].max()
    each = list_in_words(f"{name} {number:,.0f}" for name, number in entries.items())
    return count_inside_band(
        float(entries.median()),
        band,
        f"The median of {len(entries)} {'x86 ' * only_x86}microarchitectures in published tables is "
        f"{entries.median():,.0f}: {each}.",
    )


def _second_level(a: Analysis) -> tuple[Interval, str]:
    """Return the second level's own entries where CPUID gives them, unless the chases contradict it,
    with the evidence. The chases find where walks begin: somewhere between its entries and the sum
    of all levels, since a level need not hold what another one holds."""
    try:
        levels = a.survey.levels
        found = require_nonempty(levels, "our chases show no level")[-1].narrow_entries
    except Unavailable:
        if len(a.stated_entries) < 2:
            raise
        entries = a.stated_entries[-1]
        return Interval(entries, entries, entries), f"CPUID states {entries:,} entries."
    if len(levels) < 2:
        raise Unavailable("no-step", "our chases show one level")
    own = levels[-1].stated
    each = f"{'both' if len(levels) == 2 else 'all'} levels together"
    evidence = f"Our chases find {found:rounded} entries in {each}"
    if own is None:
        return found, f"{evidence}; no number is stated."
    evidence += "; CPUID states "
    if own <= found.high and found.low <= sum(level.stated or 0 for level in levels):
        stated = list_in_words(f"{level.stated or 0:,}" for level in levels)
        return Interval(own, own, own, found.coverage), f"{evidence}{stated}, which agrees."
    return found, f"{evidence}{own:,} for the last one."


@claim("second-level-1024-to-2048")
def entries_of_the_second_level(a: Analysis, band: Band) -> Answer:
    found, evidence = _second_level(a)
    return effect_inside_band(found, *band), evidence


@claim("second-level-1500-or-2-to-3k")
def entries_by_vendor(a: Analysis, band: Band) -> Answer:
    of_vendor = {"GenuineIntel": (band[0], MOST_ON_INTEL), "AuthenticAMD": (LEAST_ON_AMD, band[1])}
    if a.host.vendor not in of_vendor:
        return Undecided("conditions"), "The sentence is about Intel and AMD."
    found, evidence = _second_level(a)
    return effect_inside_band(found, *of_vendor[a.host.vendor]), evidence


# --- what a walk costs by the size of its page table: all pages are the same few lines of memory, so
# that nothing else misses


def _walk(a: Analysis, place: PageTableLocation) -> WalkPrice:
    """Return the walks whose table fits one place by the stated sizes of the caches."""
    survey = a.survey
    found = [walk for walk in survey.walks if walk.table_in == place and walk.cost]
    if not found:
        raise Unavailable("too-few-points", f"no walk was measured with its table in {place}")
    if place == "L3" and not any(walk.table_in == "memory" and walk.cost for walk in survey.walks):
        raise Unavailable("too-few-points", "no walk from memory was measured to tell L3 from it")
    if survey.unit != "cycles":
        raise Unavailable("no-clock")
    return found[0]


def _cycles(walk: WalkPrice) -> Interval:
    """Return what such a walk adds to a hit in the last level."""
    assert walk.cost is not None
    return walk.cost.interval * 1


@claim("walk-30-cycles-in-l2", place="L2")
def a_walk_costs(a: Analysis, band: Band, place: PageTableLocation) -> Answer:
    cost = _cycles(walk := _walk(a, place))
    table = format_size(walk.table_bytes)
    return effect_inside_band(
        cost, *band
    ), f"A walk costs {cost:rounded} cycles with {table} of page table."


claim("walk-100-cycles-in-l3", place="L3")(a_walk_costs)
claim("walk-250-cycles-in-memory", place="memory")(a_walk_costs)


@claim("upper-entries-cost-20-to-30-ns")
def a_walk_takes_ns(a: Analysis, band: Band) -> Answer:
    walk = measured_outside_guest(a, lambda: _walk(a, "L3"))
    if not a.survey.core_ghz:
        raise Unavailable("no-clock")
    ns = _cycles(walk) * (1 / a.survey.core_ghz)
    table = format_size(walk.table_bytes)
    return effects_judgeable_in_guest(a, effect_inside_band(ns, *band)), (
        f"A walk costs {ns:rounded} ns with {table} of page table."
    )


@claim("cold-walks-200-to-300-cycles", points=selected_gather(4 << 30), size_bytes=4 << 30)
@claim("hot-walks-30-to-50-cycles", points=selected_gather(16 << 20), size_bytes=16 << 20)
def counted_cycles_a_walk(a: Analysis, band: Band, size_bytes: int) -> Answer:
    """The quotient of two counters: it counts a cycle in which two walks go on once."""
    rows = select_rows(a.frame, kernel="page_gather", pages=BASE_PAGES, layout="spread")
    rows = rows[rows["lines"] == size_bytes // a.base_page_bytes]
    walking, walks = (counter_curve(rows, quantity) for quantity in ("walk_cycles", "walk"))
    why = missing_event_reason(a.host.microarchitecture, "walk_cycles")
    why = why or missing_counter_reason(rows, "walk", a.host.pmu.reason)
    quotient = (
        require_nonempty(walking, "the cycles of walks were not counted", why).last
        / require_nonempty(walks, "walks were not counted", why).last
    )
    return effect_inside_band(quotient, *band), (
        f"In {format_size(size_bytes)} each walk had {quotient:rounded} cycles in which a walk was in progress."
    )


@claim("walk-4-to-5-times-from-memory")
def four_to_five_times_from_memory(a: Analysis, band: Band) -> Answer:
    near, far = _walk(a, "L2"), _walk(a, "memory")
    ratio = _cycles(far) / _cycles(near)
    return effect_inside_band(ratio, *band), (
        f"A walk costs {ratio:rounded} times as much with {format_size(far.table_bytes)} of page table "
        f"as with {format_size(near.table_bytes)}."
    )


@claim("tables-go-through-the-caches")
def tables_go_through_the_caches(a: Analysis) -> Answer:
    walks = [_walk(a, "L2"), _walk(a, "L3"), _walk(a, "memory")]
    costs = [_cycles(walk) for walk in walks]
    each = list_in_words(
        f"{cost:median} with {format_size(walk.table_bytes)}"
        for walk, cost in zip(walks, costs, strict=True)
    )
    evidence = f"A walk costs more cycles the larger its page table is: {each}."
    return [
        effect_inside_band(far / near, 1, what=what)
        for (near, far), what in zip(pairwise(costs), ("L3 over L2", "memory over L3"), strict=True)
    ], evidence
