"""What the articles say of page sizes, as predicates on the chapter's Analysis."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from experiments.article.verdicts import Answer, claim, inside
from experiments.chapters.hugepages.analysis import SAME, Analysis, typical
from experiments.inference.curves import Curve, select
from experiments.inference.intervals import Interval
from experiments.lab.record import Point
from experiments.words.pages import BASE, LARGE, words
from experiments.words.reasons import Unavailable, required
from experiments.words.units import format_size

PUBLISHED_BYTES = (256 << 20, 1 << 30, 4 << 30)
FIVE = 5.0
EIGHTH = (1.05, 1.25)  # 32.5 ns over 28.7 is 1.13
SIX = (4.0, 9.0)  # 838 s over 135 is 6.2
TOUCH_BYTES = 10**8


def _chased(*kinds: str, layouts: tuple[str, ...] = ("spread",)) -> Callable[[Point], bool]:
    return lambda point: point.kernel == "page_chase" and point.layout in layouts and point.pages in kinds


def _touched(kernel: str, mode: str = "") -> Callable[[Point], bool]:
    return lambda point: point.kernel == kernel and point.mode == mode and point.pages in (BASE, "thp")


@claim("large-pages-fivefold", source="padho_tlb", points=_chased(BASE, *LARGE),
       says="2 MiB pages make random accesses five times as fast and more, from 256 MiB on.")
def five_times_as_fast(a: Analysis, least: float = FIVE, sizes: tuple[int, ...] = PUBLISHED_BYTES) -> Answer:
    gain = a.speedup(a.large)
    published = select(gain.table, lines=[size // a.base_page_bytes for size in sizes])
    known = Curve(required(published, f"nothing was measured at {format_size(min(sizes))} or above"))
    told = ", ".join(f"{times:.2f} at {format_size(int(lines) * a.base_page_bytes)}" for lines, times in known)
    worst = Interval(*known.table[["median", "low", "high"]].min(), modes=known.modes)
    return inside(worst, least), f"On {words(a.large)}, the dependent chase speeds up by {told}."


@claim("nothing-below-reach", source="padho_tlb", says="Below the STLB's reach larger pages gain nothing.", points=_chased(BASE, *LARGE))
def nothing_below_the_reach(a: Analysis, same: float = SAME) -> Answer:
    parts = required(a.below_reach(), "nothing was measured on both below the reach")
    gains = {name: typical(part) for name, part in parts.items()}
    told = "; ".join(f"{name}, {gain:.2f}" for name, gain in gains.items())
    truth = (True if all(inside(gain, 1 - same, 1 + same) for gain in gains.values()) else
             False if any(gain.low > 1 + same for gain in gains.values()) else None)
    return truth, f"The speedup of {words(a.large)} over base pages is, in the median over sizes: {told}."


@claim("entry-spans-large-page", source="padho_tlb", says="A TLB entry for a 2 MiB page spans 2 MiB.",
       points=_chased(BASE, *LARGE, layouts=("spread", "packed")))
def an_entry_spans_a_large_page(a: Analysis) -> Answer:
    return {"not splintered": True, "splintered by the host": False}.get(a.pieces.verdict), a.pieces.evidence


@claim("thp-like-pool", source="shipilev_thp", says="THP is as good as the pool once it has the memory.", points=_chased(*LARGE))
def thp_is_like_the_pool(a: Analysis, same: float = SAME, from_bytes: int = 64 << 20) -> Answer:
    far = required(a.speedup("2m", "thp").between(from_bytes // a.base_page_bytes, inf), "both kinds of 2 MiB pages are needed",
                   "too-few-points" if len(a.spread["2m"]) else "pool-empty")
    gain = typical(far)  # the published run found them within 1 % of each other
    return inside(gain, 1 - same, 1 + same), (
        f"From {format_size(from_bytes)} on, the pool's pages are {gain:.2f} times as fast as transparent ones in the median over "
        f"{len(far)} sizes.")


@claim("thp-an-eighth-faster", source="shipilev_thp", says="THP makes random reads of a 100 MB array an eighth faster.",
       points=_touched("random_touch"))
def thp_is_an_eighth_faster(a: Analysis, band: tuple[float, float] = EIGHTH) -> Answer:
    reads = select(a.touches, array_bytes=TOUCH_BYTES).set_index("pages")
    if not {BASE, "thp"} <= set(reads.index):
        raise Unavailable("too-few-points", "random touches of 100 MB were not measured on both")
    slow, fast = (Interval.of(reads.loc[pages]) for pages in (BASE, "thp"))
    return inside(slow / fast, *band), (f"A random read of 100 MB takes {slow.value:.2f} ns on base pages and {fast.value:.2f} on THP, a "
                                        f"factor of {slow / fast:.2f}.")


@claim("thp-faults-six-times", source="shipilev_thp", says="With THP memory is faulted in about six times as fast.",
       points=_touched("prefault", "touch"))
def thp_faults_six_times_as_fast(a: Analysis, band: tuple[float, float] = SIX) -> Answer:
    rates = {pages: select(a.faults, mode="touch", pages=pages).set_index("threads") for pages in (BASE, "thp")}
    shared = set.intersection(*(set(rows.index) for rows in rates.values()))
    threads = max(required(shared, "faulting in was not measured on both by as many threads"))
    slow, fast = (Interval.of(rows.loc[threads]) for rows in rates.values())
    by = "one thread" if threads == 1 else f"{threads} threads"
    return inside(slow / fast, *band), (
        f"Touched by {by}, memory is ready at {rates[BASE].loc[threads, 'gb_per_s']:.2f} GB/s on base pages and "
        f"{rates['thp'].loc[threads, 'gb_per_s']:.2f} on THP, a factor of {slow / fast:.1f}.")


@claim("gigabyte-pages-gain", source="padho_tlb", says="Above 32 Ki pages, 1 GiB pages gain over 2 MiB.", points=_chased(*LARGE, "1g"))
def gigabyte_pages_gain(a: Analysis, same: float = SAME, above: int = 32 * 1024) -> Answer:
    required(a.spread["1g"], "no page of 1 GiB was to be had", "pool-empty")
    far = required(a.speedup("1g", a.large).between(above + 1, inf), "nothing was measured above 32 Ki lines on both")
    return inside(far.last, 1 + same), (
        f"At {format_size(far.xs[-1] * a.base_page_bytes)}, 1 GiB pages are {far.last:.2f} times as fast as {words(a.large)}.")
