"""What tlb_pressure's article says of the cliff, as predicates on the chapter's Analysis."""

from __future__ import annotations

from experiments.article.verdicts import Answer, claim, inside
from experiments.chapters.stlb_cliff.analysis import ENTRY_BYTES, Analysis
from experiments.inference.curves import HALF_AN_OCTAVE, Curve
from experiments.lab.record import Point
from experiments.words.pages import BASE
from experiments.words.prose import count
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

# "Flat" in the published run is 4.2 to 4.8 ns, a rise of 14 %; twice that is still nothing beside a cliff.
FLAT = 1.28
# "4x": anything that rounds to a small whole number of that size.
ABOUT_FOUR = (3.0, 5.0)
# A rise of 5 % an octave is what this book calls unstable in a single point: less is not "climbing".
CLIMBING = 1.05
# "Capacity alone": the control, which differs in nothing but the pages, may share at most a tenth of the rise.
SHARED_RISE = 0.10
# A step of a fully associative LRU TLB has no width; a grid of 8 points an octave resolves 9 %.
STEP_WIDTH = 1.25


def _cycle(point: Point) -> bool:
    return (point.kernel, point.order, point.pages) == ("page_chase", "cycle", BASE)


def _spread(point: Point) -> bool:
    return _cycle(point) and point.layout == "spread"


def _is_flat(a: Analysis, curve: Curve, name: str, most: float) -> Answer:
    first, last = a.two_levels()
    low, high = 1.4 * first, 0.6 * last
    over = curve.flatness(low, high)
    truth = True if over.value <= most else False if over.low > most or over.value > most * 1.2 else None
    return truth, f"{name} varies by a factor of {over.value:.2f} between {low:,.0f} and {high:,.0f} pages."


@claim("latency-flat-below-reach", source="padho_tlb", says="Latency is flat below the STLB's reach.", points=_spread)
def latency_is_flat(a: Analysis, most: float = FLAT) -> Answer:
    return _is_flat(a, a.spread, "The chase's latency", most)


@claim("price-flat-below-reach", source="padho_tlb", says="The price of translation is flat below the STLB's reach.", points=_cycle)
def price_is_flat(a: Analysis, most: float = FLAT) -> Answer:
    return _is_flat(a, a.price, "The price", most)


@claim("fourfold-within-a-doubling", source="padho_tlb", says="Latency grows about fourfold within one doubling past it.", points=_spread)
def rises_fourfold(a: Analysis, band: tuple[float, float] = ABOUT_FOUR) -> Answer:
    _, entries = a.two_levels()
    ratio = a.spread.doubling(entries)
    return inside(ratio, *band), f"From {entries:,} to {2 * entries:,} pages the chase slows by a factor of {ratio:.2f}."


@claim("climbs-at-a-gibibyte", source="padho_tlb", points=_cycle,
       says="It still climbs at 1 GiB, where the page table itself has left the caches.")
def climbs_at_a_gibibyte(a: Analysis, least: float = CLIMBING) -> Answer:
    gib = 2**30 // a.base_page_bytes
    ratio, l2_bytes = a.price.doubling(gib // 2), a.cache_bytes(2)
    beside = f", the second-level cache {format_size(l2_bytes)}" if l2_bytes else ""
    return inside(ratio, least), (f"From 512 MiB to 1 GiB the price grows by a factor of {ratio:.2f}; the last level of the page table is "
                                  f"{format_size(gib * ENTRY_BYTES)} there{beside}.")


@claim("capacity-alone", source="padho_tlb", says="The step comes from TLB capacity alone.", points=_cycle)
def capacity_alone(a: Analysis, most: float = SHARED_RISE) -> Answer:
    _, entries = a.two_levels()
    ends = (entries * 2**-0.75, entries * 2)
    (before, after), control = ([curve.at(end, HALF_AN_OCTAVE) for end in ends] for curve in (a.spread, a.packed))
    rise, shared = after - before, control[1] - control[0]
    if after.low <= before.high:
        raise Unavailable("no-step", f"the chase gains {rise.value:z.1f} ns from about {ends[0]:,.0f} to {ends[1]:,.0f} pages")
    share = shared.value / rise.value
    noisy = " The control is noisy there." if shared.high / rise.value > 2 * most else ""
    return (True if share <= most else False if share > 2 * most else None,
            f"Across the step the chase gains {rise.value:z.1f} ns; its packed control, the same lines on a 64th of the pages, gains "
            f"{shared.value:z.1f} ns.{noisy}")


@claim("sharp-so-associative", source="padho_tlb", says="The step is sharp because the TLB is fully associative.", points=_cycle)
def is_fully_associative(a: Analysis, most: float = STEP_WIDTH) -> Answer:
    steps = a.steps
    width, begins, ends = steps.second_width, count(steps.second_begins), count(steps.second_ends)
    if width > most and not len(a.price.between(steps.second_begins, steps.second_ends)):
        raise Unavailable("too-few-points", f"nothing was measured between {begins} and {ends} pages")
    return width <= most, (f"A fully associative LRU TLB would step at {count(a.entries[-1])} pages and nowhere else; here a tenth of the "
                           f"rise is done at {begins} pages and nine tenths at {ends}, a factor of {width:.2f}.")
