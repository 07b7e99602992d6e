"""The sentences of the chapter about the cliff, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from experiments.article.machine_words import guest_note, tlb
from experiments.article.setting import run_this, set_up, smaller
from experiments.article.verdicts import decided
from experiments.chapters.stlb_cliff import claims
from experiments.chapters.stlb_cliff.analysis import ENTRY_BYTES, Analysis
from experiments.inference.counts import why_not_counted
from experiments.inference.misses import TEXTBOOK
from experiments.words.prose import Prose, choose, count
from experiments.words.reasons import explain, if_available, required
from experiments.words.units import format_size

__all__ = ["clock", "control", "counters", "counts_are", "coverage", "guest_note", "largest", "lead", "set_up", "overlap", "price_last",
           "random", "repeats", "sequential", "stable", "step_shape", "steps", "stores_said", "table_last", "tlb", "change", "run_this"]


def lead(a: Analysis) -> Prose:
    last, price = a.spread.get(a.largest).value, a.price.last.value
    return Prose(
        "On this machine a load that finds its translation in the first-level TLB and its data in the first-level cache takes "
        f"{a.packed.intervals[0].value:.2f} ns. Spread the same loads over {largest(a)}, one line a page, and each takes {last:.0f} ns, "
        f"of which {price:z.0f} ns, {100 * price / last:z.0f} %, is the price of translation: what is left when the same number of lines, "
        "packed onto a 64th of the pages, has been paid for.")


def largest(a: Analysis) -> str:
    return format_size(a.largest * a.base_page_bytes)


def table_last(a: Analysis) -> str:
    """The last level of the page table at the largest size."""
    return format_size(a.largest * ENTRY_BYTES)


def price_last(a: Analysis) -> str:
    """The price at the largest size, ns with its interval."""
    return f"{a.price.last:.0f}"


# --- how it was measured


def repeats(a: Analysis) -> float:
    return a.spread.table["n"].median()


def coverage(a: Analysis) -> float:
    """Of the intervals of the medians, per cent."""
    return 100 * a.spread.table["coverage"].median()


def stable(a: Analysis) -> Prose:
    unstable = [is_unstable for curve in (a.spread, a.packed) for is_unstable in curve.table["unstable"]]
    return Prose(f"{sum(unstable)} of the {len(unstable)} points of the two curves spread by more than 5 % over their fresh mappings; they "
                 "are marked unstable in the data and drawn with their interval, not left out." if any(unstable) else
                 "Every point's spread over its fresh mappings is under 5 %.")


def clock(a: Analysis) -> Prose:
    """The core's clock, and the packed chase inside the first-level cache told in its cycles."""
    return Prose(f"It ran at {a.ghz:.2f} GHz here, and at that clock the packed chase inside the first-level cache takes "
                 f"{required(a.packed, 'no packed chase was measured').intervals[0].value * a.ghz:.2f} cycles.")


# --- the staircase


def steps(a: Analysis) -> Prose:
    found, (first, second) = a.steps, a.two_levels()
    says = f"{a.entries_source} says"
    return Prose(
        f"The first step stands at {count(found.first_step)} pages; {says} {count(first)}. Past it every access misses the "
        f"first-level TLB, finds its translation in the second, and pays {found.hit_ns:.2f} ns{_cycles(a, found.hit_ns, 1)}.\n\nThe second "
        f"step has done half of its rise at {count(found.second_step)} pages; {says} {count(second)}. From twice to four times that "
        f"number translation costs {found.walk_ns:.1f} ns{_cycles(a, found.walk_ns)}.")


def _cycles(a: Analysis, ns: float, decimals: int = 0) -> str:
    """", 7.1 cycles" of a time; nothing where the clock was not measured."""
    ghz = if_available(lambda: a.ghz)
    return f", {ns * ghz:.{decimals}f} cycles" if ghz else ""


def price_of(a: Analysis, ns: float) -> str:
    """A time in cycles of the core, in ns where the clock was not measured."""
    return _cycles(a, ns).removeprefix(", ") or f"{ns:.1f} ns"


def hit(a: Analysis) -> Prose:
    """What a first-level miss costs."""
    cycles = _cycles(a, a.steps.hit_ns, 1)
    return Prose(f"{a.steps.hit_ns:.2f} ns{cycles}{',' * bool(cycles)} on top of the load, where the second level knows the translation.")


def walk(a: Analysis) -> Prose:
    """What a walk costs: just past the second level, and at the largest size."""
    return Prose(f"Just past the second level, {a.steps.walk_ns:.1f} ns on top of the load; at {largest(a)}, {a.price.last.value:.0f} ns. "
                 "The tree is the same. What differs is where the entries lie that a walk reads.")


def sharpness(a: Analysis) -> Prose:
    """How sharp the cliff is: the rise within a doubling, where the sweep has both sizes, and the place of the second step."""
    (_, entries), place = a.two_levels(), a.steps.second_step
    ratio = if_available(a.spread.doubling, entries)
    rise = f"From {count(entries)} pages to twice as many, a load slows by a factor of {ratio.value:.1f}. " if ratio else ""
    kind = "a cliff" if a.steps.second_width < CLIFF else "no cliff but a ramp"
    return Prose(f"{rise}Half of the second step's rise is done at {count(place)} pages; {a.entries_source} says {count(entries)}. "
                 f"From a tenth of the rise to nine tenths the pages grow {a.steps.second_width:.1f}-fold: {kind}.")


def control(a: Analysis) -> Prose:
    """What the packed control says of the second step: translation alone, or not."""
    effect, evidence = claims.capacity_alone(a)
    truth = decided(effect)
    return Prose({True: "Neither step is about the data. ", False: "The data have a share in the second step. ",
                  None: "Whether the second step is translation alone cannot be told here. "}[truth] + evidence)


CLIFF = 1.5  # a step that is done within so many times the pages; what a fully associative LRU TLB would do has no width


_SHAPES = {
    TEXTBOOK: "A full table that always drops the entry longest unused fits best, as the textbook has it: one page too many, and a cycle "
              "misses on every visit.",
    "fully associative, random replacement":
        "A full table that replaces at random fits best. Its misses do not cascade: a page survives until the cycle comes round with a "
        "probability that falls with the misses in between.",
    "hashed sets, LRU":
        "Sets chosen by a hash of the page number fit best. Some sets overflow before the whole is full, some later, and the step becomes "
        "a slope on both sides of the capacity.",
    "hashed sets, random replacement":
        "Sets chosen by a hash, with random (or nearly random) replacement inside them, fit best. Sets that overflow early start the slope "
        "before the capacity is reached, and random replacement stretches it beyond: a page survives until the cycle comes round with a "
        "probability that falls with the misses in between.",
}


def step_shape(a: Analysis) -> Prose:
    """How wide the second step is, and which kind of TLB explains it best."""
    found, (best, next_best, *others) = a.steps, a.fits
    textbook = next(fit for fit in (best, next_best, *others) if fit.kind == TEXTBOOK)
    told = (f"A tenth of the rise is done at {count(found.second_begins)} pages and nine tenths at {count(found.second_ends)}, a factor "
            f"of {found.second_width:.2f}. {_SHAPES[best.kind]}")
    if best is not textbook:
        width = "sets and replacement" if best.kind.startswith("hashed") else "replacement"
        told += (f" It leaves {best.residual_ns:.2f} ns unexplained where a fully associative LRU table leaves {textbook.residual_ns:.2f}. "
                 f"So the place of this step comes from capacity, and its width from {width}.")
    return Prose(f"{told} Of the kinds tried, the next best is {next_best.kind}, with {next_best.residual_ns:.2f} ns unexplained.")


# --- orders and loops


def random(a: Analysis) -> Prose:
    fit, part = a.random_fit
    off = abs(part.medians - fit.predict(part.xs))
    return Prose(
        f"Fitted to the random order up to {count(part.xs[-1])} pages, with the two capacities by {a.entries_source} given, the model has "
        f"two free numbers, {fit.stlb_cost_ns.value:.2f} ns for a first-level miss and {fit.walk_ns.value:.1f} ns for a walk, and misses "
        f"the points by {off.median():.2f} ns in the median, {off.max():.2f} at most. Nothing in 1 − C/M asks how the TLB "
        "replaces: a draw that is independent of the past finds its page among the C that are held with probability C/M, whichever those "
        "are.")


def sequential(a: Analysis) -> Prose:
    """The price of a sequential visit beside a random one's, at the largest size that both have."""
    n = max(required(set(a.price.xs) & set(a.sequential.xs), "no size was measured in both orders"))
    return Prose(f"At {count(n)} pages it pays {a.sequential.get(n).value:z.1f} ns an access for translation, the random cycle "
                 f"{a.price.get(n).value:z.1f}.")


def overlap(a: Analysis) -> Prose:
    """What the gap between the chase and the gather says: how many accesses are in flight."""
    ratios = required(a.in_flight.medians, "no size was measured in both loops")
    n, most = ratios.index[-1], ratios.idxmax()
    return Prose(f"At {count(n)} pages the chase takes {a.spread.get(n).value:.0f} ns an access and the gather "
                 f"{a.gather.get(n).value:.1f}: as much as if {ratios[n]:.0f} accesses were in flight at once. The ratio is largest at "
                 f"{count(most)} pages, {ratios[most]:.0f}.")


def stores_said(a: Analysis) -> Prose:
    """What a store pays for translation beside a load, and what both pay where they have to set the bits of their pages' entries."""
    prices = required(a.stores, "no stores were measured")
    kinds = [prices.get(mode) for mode in ("load", "store", "load-clean")]
    shared = set.intersection(*(set(price.xs) if price else set() for price in kinds))
    n = max(required(shared, "loads and stores were not measured at one size"))
    load, store, first = (price.get(n) for price in kinds)
    size = format_size(n * a.base_page_bytes)
    said = (f"Over {size} translation costs an independent load {load.value:z.0f} ns and a store {store.value:z.0f}: " + choose(
        store - load, {"below": "a store waits in a buffer while its page is looked up, and nothing waits for it.",
                       "above": "more, since a store leaves its buffer only in its turn.",
                       "open": "a store is translated as a load is."}, 0.0))
    if first.low <= max(load.high, 0):
        return Prose(f"{said} That the bits are to be set adds nothing that can be told from noise.")
    said += (f" Where the kernel has cleared the accessed bit, the same load costs {first.value:.0f}. Its walk has to set the bit in the "
             "page table again; the `madvise` that cleared it also flushed the TLB.")
    alone = a.price.get(n)
    if first.low > alone.value / 2 > load.high:
        said += (f" That is {first.value / alone.value:.1f} times what a walk costs in the chase, where nothing overlaps it. One reading "
                 "is that walks that write do not overlap; in a guest, setting the bit may need the host as well.")
    return Prose(said)


# --- counters


def counts_are(a: Analysis) -> str:
    return a.counts_are


def counters(a: Analysis) -> Prose:
    """Whether walks were counted; where not, why, and what stands in their place."""
    lacking = {quantity: explain(why_not_counted(a.frame, quantity, a.host)) for quantity in ("walk", "walk_cycles")
               if not len(a.counted(quantity))}
    if "walk" in lacking:
        return Prose(f"Walks are timed, not counted: {lacking['walk']} In the place of counts stand what a model predicts, what the times "
                     "imply, and what others published, each labelled.")
    told = ("This machine is simulated: these counts were computed, not measured." if a.is_simulated else
            "Hardware counters answer here, so walks are counted beside being timed.")
    return Prose(told + "".join(f" Their cycles are inferred from time: {reason}" for reason in lacking.values()))


# --- again


def change(a: Analysis) -> Prose:
    size = 1 << 30
    there = a.spread.at(size // a.base_page_bytes).value
    return smaller(a, size, f"about {there:.0f} ns a load", f"{a.spread.last.value:.0f}")
