"""What the articles say of blocking, prefetching and fan-out, as predicates on the chapter's Analysis."""

from __future__ import annotations

from itertools import pairwise

from experiments.article.verdicts import Answer, claim, inside
from experiments.chapters.tlb_blocking.analysis import BLOCKED, LARGE_PAGES, NONE, SAME, Analysis, graph_size
from experiments.inference.intervals import Interval
from experiments.inference.splinter import large_pages
from experiments.lab.record import Point
from experiments.words.pages import BASE, LARGE, words
from experiments.words.reasons import Unavailable, if_available

# Of the tail's excess over 2 MiB pages the published run left (117 - 71) / (242 - 71) = 27 %, and its words are these.
ALL_BUT_VANISHED = 0.30
# Partitions past the entries, where three in four writes miss: less than this is no limit to plan for.
JUMP = 0.10


def _hop_by_hop(point: Point) -> bool:
    return point.kernel == "graph_walk" and ("per_hop", 1) in point.options


@claim("blocking-removes-misses", source="matthews_tlbperf", says="TLB blocking makes the miss regime all but vanish.", points=_hop_by_hop)
def blocking_removes_misses(a: Analysis, most: float = ALL_BUT_VANISHED) -> Answer:
    plain, cut, large = a.remedy(NONE, BASE), a.remedy(BLOCKED, BASE), a.remedy(LARGE_PAGES, *LARGE)
    told = (f"The 95th percentile of a hop over {graph_size(plain['vertices'])} is {plain['p95']:.0f} ns on base pages, "
            f"{cut['p95']:.0f} in blocks of {graph_size(cut['block_vertices'])} and {large['p95']:.0f} on {words(large['pages'])}")
    excess, left = (Interval.of(row, "p95") - Interval.of(large, "p95") for row in (plain, cut))
    if excess.low <= 0:
        raise Unavailable("no-step", f"{told}: large pages do not show what a hop without misses takes")
    # Both differences have the large pages in them: the farthest ends of a quotient of the two intervals are wide enough.
    low = left.low / (excess.high if left.low > 0 else excess.low)
    high = left.high / (excess.low if left.high > 0 else excess.high)
    near = " A block is nearer in the caches too, which this does not tell apart." if cut["p50_high"] < large["p50_low"] else ""
    rest = f"{left.value / excess.value:.0%} is left ({low:z.0%} to {high:z.0%})" if left.value > 0 else "nothing is left"
    return inside(Interval(0, low, high), most=most), f"{told}; of what base pages take more than those, {rest}.{near}"


@claim("thp-useless-for-a-tail", source="matthews_tlbperf", says="THP is between useless and counterproductive for random access.",
       points=_hop_by_hop)
def thp_is_useless(a: Analysis, same: float = SAME) -> Answer:
    middle, tail = (Interval.of(a.remedy(NONE, BASE), name) / Interval.of(a.remedy(LARGE_PAGES, "thp"), name) for name in ("p50", "p95"))
    truth = False if max(middle.low, tail.low) > 1 + same else True if max(middle.high, tail.high) < 1 + same else None
    return truth, (f"With THP a hop over {graph_size(a.remedies['vertices'].max())} is {middle:.2f} times as fast in the median and "
                   f"{tail:.2f} times at the 95th percentile.")


@claim("prefetch-walks", source="matthews_tlbperf", says="A software prefetch starts the translation, too.",
       points=lambda point: point.kernel == "graph_walk" and point.mode == "prefetch")
def prefetch_walks(a: Analysis, same: float = SAME) -> Answer:
    base = a.best_ahead(BASE)
    gain, most = Interval.of(base, "gain"), a.most_from_hits * (1 + same)
    told = (f"Asked for {int(base['distance'])} hops ahead, a hop is {gain:.2f} times as fast on base pages; prefetches that are dropped "
            f"where the TLB misses could gain {a.most_from_hits:.2f} at the most.")
    if gain.low > most:
        return True, told
    # That base pages gain nothing says something only if prefetches gain anything.
    if (large := if_available(lambda: a.best_ahead(large_pages(a.ahead)))) is None:
        return None, told
    other = Interval.of(large, "gain")
    return (False if gain.high < most and other.low > most else None), f"{told} On {words(large['pages'])} the gain is {other:.2f}."


@claim("order-of-remedies", source="matthews_tlbperf", points=_hop_by_hop,
       says="1 GiB pages are best, then 2 MiB pages, then blocking on base pages, then nothing.")
def order_of_remedies(a: Analysis) -> Answer:
    wanted = {"1 GiB pages": (LARGE_PAGES, "1g"), "2 MiB pages": (LARGE_PAGES, *LARGE), "blocking": (BLOCKED, BASE),
              "base pages": (NONE, BASE)}
    measured = {name: row for name, remedy in wanted.items() if (row := if_available(a.remedy, *remedy)) is not None}
    missing = [name for name in wanted if name not in measured]
    if len(measured) < 2:
        raise Unavailable("too-few-points", "no remedy was measured hop by hop beside the walk on base pages")
    steps = [Interval.of(worse, short) / Interval.of(better, short) for short in ("p50", "p95")
             for better, worse in pairwise(measured.values())]
    truth = False if any(step.high < 1 for step in steps) else True if not missing and all(step.low > 1 for step in steps) else None
    said = "; ".join(f"{name} {row['p50']:.0f} and {row['p95']:.0f} ns" for name, row in measured.items())
    return truth, f"Median and 95th percentile: {said}." + (f" Not measured: {', '.join(missing)}." if missing else "")


@claim("fan-out-limit", source="boncz1999", points=lambda point: point.kernel == "radix_partition" and point.mode == "partition",
       says="One pass can partition to as many places as the first level has entries, and no more.")
def fan_out_limit(a: Analysis, jump: float = JUMP) -> Answer:
    entries = a.known_entries[0]
    base, few, many = a.fan_out_rise(BASE, entries)
    told = f"From {few:,} to {many:,} partitions a row takes {base:.2f} times as long on base pages"
    if base.high < 1 + jump:
        return False, f"{told}; the first level has {entries:,} entries."
    large = if_available(large_pages, a.fan_out)
    if not (risen := large and if_available(a.fan_out_rise, large, entries)):
        return None, f"{told}. Large pages, which would tell the TLB from the caches, were not measured."
    told += f" and {risen[0]:.2f} times on {words(large)}."
    if base.low <= 1 + jump:
        return None, told
    if risen[0].high < base.low:
        return True, told
    return None, told + " Large pages rise as well: their entries may span pieces, or it is not the TLB."


@claim("join-partitions-first", source="boncz1999", says="On base pages a join is faster if it partitions first.",
       points=lambda point: point.kernel == "radix_partition" and point.mode in ("naive", "partitioned"))
def join_partitions_first(a: Analysis, same: float = SAME) -> Answer:
    best = a.best_join(BASE)
    gain = Interval.of(best, "gain")
    return inside(gain, 1 + same), f"With {int(best['partitions']):,} partitions the join is {gain:.2f} times as fast as the naive one."
