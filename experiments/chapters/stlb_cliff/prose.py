"""The sentences of the chapter about the cliff, chosen by its Analysis; each function of __all__ is glued under its name."""

from __future__ import annotations

from math import expm1

from experiments.article.machine_words import guest_note, tlb
from experiments.article.setting import run_this, set_up, smaller
from experiments.article.verdicts import decided
from experiments.chapters.stlb_cliff import claims
from experiments.chapters.stlb_cliff.analysis import ENTRY_BYTES, Analysis
from experiments.inference.counts import why_not_counted
from experiments.inference.curves import HALF_AN_OCTAVE, select
from experiments.inference.intervals import Interval
from experiments.inference.misses import TEXTBOOK
from experiments.inference.scatter import trend
from experiments.words.prose import Prose, choose, count, listed
from experiments.words.reasons import explain, if_available, required
from experiments.words.units import format_size

__all__ = ["clock", "control", "counters", "counts_are", "coverage", "guest_note", "largest", "lead", "set_up", "no_price", "numpy_said",
           "overlap", "price_last", "random", "repeats", "sequential", "stable", "step_shape", "steps", "stores_said", "table_last", "tlb",
           "walk_range", "change", "run_this"]

OCTAVES = (-0.5, 0.5)  # from the last level's entries: sizes at which counted walks are quoted
CLOSE_WALKS = 0.1  # a load: a model that misses the counts by more is not close


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
    told = (f"{sum(unstable)} of the {len(unstable)} points of the two curves spread by more than 5 % over their fresh mappings; they "
            "are marked unstable in the data and drawn with their interval, not left out." if any(unstable) else
            "Every point's spread over its fresh mappings is under 5 %.")
    spans = a.spread.processes.groupby("lines")["median"].agg(["min", "max"]).assign(ratio=lambda table: table["max"] / table["min"])
    if len(spans):
        lines, worst = spans["ratio"].idxmax(), spans.loc[spans["ratio"].idxmax()]
        told += (f"\n\nAt {len(spans)} sizes the processes of the spread chase differ by more than 1.5 times, most at "
                 f"{format_size(lines * a.base_page_bytes)}: from {worst['min']:.3g} to {worst['max']:.3g} ns. There a median says little, "
                 "so the text gives the range and the figure shows each process.")
    if rise := trend(select(a.frame, kernel="page_chase"), ["layout", "order", "lines"], "ns_per_access"):
        told += (f" Each process of a point was {abs(expm1(rise)):.1%} {'slower' if rise > 0 else 'faster'} than the one before, in the "
                 "median. The intervals are widened by half of what that makes from the first to the last, on either side.")
    return Prose(told)


def clock(a: Analysis) -> Prose:
    """The core's clock, and the packed chase inside the first-level cache told in its cycles."""
    return Prose(f"It ran at {a.ghz:.2f} GHz here, and at that clock the packed chase inside the first-level cache takes "
                 f"{required(a.packed, 'no packed chase was measured').intervals[0].value * a.ghz:.2f} cycles.")


# --- the staircase


def no_price(a: Analysis) -> Prose:
    """Where the control cannot be subtracted."""
    if not a.price.gaps:
        return Prose("On this machine that is the case at every size.")
    sizes = listed(map(count, a.price.gaps))
    return Prose(f"It is not at {sizes} pages: there the spread lines and their page tables may have left a cache "
                 "in which the packed lines still lie, so more than half of the difference may be the data's. These sizes have no price, "
                 "and the curve has a gap.")


def walk_range(a: Analysis) -> Prose:
    """What translation costs on this machine past the last level: the least and the most."""
    return Prose(f"On this machine translation costs {a.walked * a.ghz:.0f} cycles from twice to four times the STLB's entries, and "
                 f"{a.price.last.value * a.ghz:z.0f} at {largest(a)}.")


def steps(a: Analysis) -> Prose:
    found, (first, second) = a.steps, a.two_levels()
    says = f"{a.entries_source} says"
    return Prose(
        f"The first step is at {count(found.first_step)} pages; {says} {count(first)}. Past it every access misses the "
        f"first-level TLB, finds its translation in the second, and pays {found.hit_ns:.2f} ns{_cycles(a, found.hit_ns, 1)}.\n\n"
        f"{_second_rise(a)}\n\nFrom twice to four times {count(second)} pages translation costs {a.walked:.0f} ns.")


def _second_rise(a: Analysis) -> str:
    """Where the last level is full, by counted walks where there are any, and how steep that is."""
    _, entries = a.two_levels()
    width = a.second_step(0.9) / a.second_step(0.1)
    says = f"{a.entries_source} says {count(entries)}"
    if not a.is_counted:
        return (f"The second step is halfway up at {count(a.second_step(0.5).value)} pages; {says}. The price goes from a tenth of its "
                f"rise to nine tenths while the pages grow by a factor of {width:.1f}. How much of that is misses and how much a walk that "
                "gets dearer, time alone does not tell.")
    before, after = (a.counted("walk").row(entries * 2**octave, HALF_AN_OCTAVE) for octave in OCTAVES)
    return (f"The second step is one of misses. The counters see {Interval.of(before):.0%} of the loads walk at {count(before['lines'])} "
            f"pages, and {Interval.of(after):.0%} at {count(after['lines'])}.\n\n{says[0].upper()}{says[1:]}. From a tenth of the loads to "
            f"nine tenths the pages grow by a factor of {width:.1f}. The time goes on rising after that, because walks get dearer.")


def _cycles(a: Analysis, ns: float | Interval, decimals: int = 0) -> str:
    """", 7.1 cycles" of a time; nothing where the clock was not measured."""
    ghz = if_available(lambda: a.ghz)
    return f", {ns * ghz:.{decimals}f} cycles" if ghz else ""


def price_of(a: Analysis, ns: float | Interval) -> str:
    """A time in cycles of the core, in ns where the clock was not measured."""
    return _cycles(a, ns).removeprefix(", ") or f"{ns:.1f} ns"


def hit(a: Analysis) -> Prose:
    """What a first-level miss costs."""
    cycles = _cycles(a, a.steps.hit_ns, 1)
    return Prose(f"{a.steps.hit_ns:.2f} ns{cycles}{',' * bool(cycles)} on top of the load, where the second level knows the translation.")


def walk(a: Analysis) -> Prose:
    """What a walk costs: just past the second level, and at the largest size."""
    hit, _ = a.treads
    return Prose(f"{a.walked:.0f} ns on top of the load just past the second level, where a hit in it costs {hit:.1f}.\n\nAt {largest(a)} "
                 f"it costs {a.price.last:.0f} ns. The tree is the same. What differs is where the entries lie that a walk reads.")


def sharpness(a: Analysis) -> Prose:
    """How sharp the cliff is: in misses where they were counted, and in time."""
    _, entries = a.two_levels()
    ratio = if_available(a.spread.doubling, entries)
    rise = f" From {count(entries)} pages to twice as many, a load slows by a factor of {ratio:.1f}." if ratio else ""
    return Prose(_second_rise(a) + rise)


def control(a: Analysis) -> Prose:
    """What the packed control says of the second step: translation alone, or not."""
    effect, evidence = claims.capacity_alone(a)
    truth = decided(effect)
    return Prose({True: "The second step is not about the data. ", False: "The data have a share in the second step. ",
                  None: "Whether the second step is translation alone cannot be told here. "}[truth] + evidence)


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
    """Which kind of TLB explains the second step best, and how well."""
    best, next_best, *others = a.fits
    textbook = next(fit for fit in (best, next_best, *others) if fit.kind == TEXTBOOK)
    unit = "walks a load" if a.is_counted else "ns"
    told = (f"A tenth of its rise is done at {count(a.steps.second_begins)} pages and nine tenths at {count(a.steps.second_ends)}. "
            f"{_SHAPES[best.kind]} It misses the points by {best.residual:.2g} {unit} in the root mean square")
    told += f", a fully associative LRU table by {textbook.residual:.2g}" if best is not textbook else ""
    loose = " None of the kinds is close." if a.is_counted and best.residual > CLOSE_WALKS else ""
    return Prose(f"{told}. The next best kind is {next_best.kind}, with {next_best.residual:.2g}.{loose}")


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


def numpy_said(a: Analysis) -> Prose:
    """Why the published loop shows another rise than the same loads in C, where both were measured."""
    (_, entries), numpy, bare = a.two_levels(), a.as_published, a.gather
    small = required([n for n in numpy.xs if n in bare.xs], "the published loop and the same loads in C share no size")[0]
    slow, fast = (claims.rise(curve, entries) for curve in (numpy, bare))
    return Prose(f"The same loop in numpy has work of its own beside each load, and at {count(small)} pages one call's overhead is shared "
                 f"by {count(small)} loads only: {numpy.get(small).value:.1f} ns an access there, {bare.get(small).value:.2f} in C. "
                 f"Across the second level's entries numpy therefore slows by a factor of {slow.value:.2f}, and C by {fast.value:.1f}.")


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
