"""What the articles say of blocking, prefetching and fan-out, as predicates on the rows of experiment `tlb_blocking`."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.chapters.tlb_blocking import analysis as blocking
from experiments.chapters.tlb_blocking.analysis import BLOCKED, LARGE, NONE, SAME, graph_size, interval, remedy
from experiments.inference import intervals as stats
from experiments.inference.curves import Verdict, judge
from experiments.words.reasons import Unavailable

# Of the tail's excess over 2 MiB pages the published run left (117 - 71) / (242 - 71) = 27 %, and its words are these.
ALL_BUT_VANISHED = 0.30
# Partitions past the entries, where three in four writes miss: less than this is no limit to plan for.
JUMP = 0.10


def _told(name: str, one: stats.Interval) -> str:
    return f"{one.value:.2f} {name} ({one.low:.2f} to {one.high:.2f})"


def tlb_blocking(frame: pd.DataFrame, entries: Sequence[int]) -> list[Verdict]:
    """What the articles say, and what this frame says of it. entries: 4 KiB data entries of each TLB level."""

    def vanishes() -> tuple[bool | None, str]:
        found = blocking.mitigations(frame, entries)
        plain, cut = remedy(found, NONE, "4k"), remedy(found, BLOCKED, "4k")
        large = remedy(found, LARGE, "2m", "thp")
        told = (f"The 95th percentile of a hop over {graph_size(plain['vertices'])} is {plain['p95']:.0f} ns on base pages, "
                f"{cut['p95']:.0f} in blocks of {graph_size(cut['block_vertices'])} and {large['p95']:.0f} on {large['pages']}")
        excess = stats.interval_of_difference(interval(plain, "p95"), interval(large, "p95"))
        left = stats.interval_of_difference(interval(cut, "p95"), interval(large, "p95"))
        if excess.low <= 0:
            raise Unavailable("no-step", f"{told}: large pages do not show what a hop without misses takes")
        # Both differences have the large pages in them: the farthest ends of a quotient of the two intervals are wide enough.
        low = left.low / (excess.high if left.low > 0 else excess.low)
        high = left.high / (excess.low if left.high > 0 else excess.high)
        truth = True if high <= ALL_BUT_VANISHED else False if low > ALL_BUT_VANISHED else None
        near = " A block is nearer in the caches too, which this does not tell apart." if cut["p50_high"] < large["p50_low"] else ""
        rest = f"{left.value / excess.value:.0%} is left ({low:z.0%} to {high:z.0%})" if left.value > 0 else "nothing is left"
        return truth, f"{told}; of what base pages take more than those, {rest}.{near}"

    def useless() -> tuple[bool | None, str]:
        found = blocking.mitigations(frame, entries)
        middle, tail = (stats.interval_of_ratio(interval(remedy(found, NONE, "4k"), name), interval(remedy(found, LARGE, "thp"), name))
                        for name in ("p50", "p95"))
        truth = (False if max(middle.low, tail.low) > 1 + SAME else True if max(middle.high, tail.high) < 1 + SAME else None)
        size = graph_size(found["vertices"].max())
        return truth, (f"With THP a hop over {size} is {_told('times as fast in the median', middle)} and "
                       f"{_told('times at the 95th percentile', tail)}.")

    def walks() -> tuple[bool | None, str]:
        found = blocking.by_distance(frame)
        base = blocking.best_gain(found, "4k")
        most = blocking.prefetched_hits(int(base["vertices"]), entries)
        told = (f"Asked for {int(base['distance'])} hops ahead, a hop is {base['gain']:.2f} times as fast on base pages "
                f"({base['gain_low']:.2f} to {base['gain_high']:.2f}); prefetches that are dropped where the TLB "
                f"misses could gain {most:.2f} at the most.")
        if base["gain_low"] > most * (1 + SAME):
            return True, told
        try:  # that base pages gain nothing says something only if prefetches gain anything
            large = blocking.best_gain(found, blocking.best_large(found))
        except Unavailable:
            return None, told
        told += f" On {large['pages']} the gain is {large['gain']:.2f} ({large['gain_low']:.2f} to {large['gain_high']:.2f})."
        return (False if base["gain_high"] < most * (1 + SAME) and large["gain_low"] > most * (1 + SAME) else None), told

    def order() -> tuple[bool | None, str]:
        found = blocking.mitigations(frame, entries)
        wanted = (("1 GiB pages", LARGE, ("1g",)), ("2 MiB pages", LARGE, ("2m", "thp")), ("blocking", BLOCKED, ("4k",)),
                  ("base pages", NONE, ("4k",)))
        there, missing = [], []
        for name, what, pages in wanted:
            try:
                there.append((name, remedy(found, what, *pages)))
            except Unavailable:
                missing.append(name)
        if len(there) < 2:
            raise Unavailable("too-few-points", "no remedy was measured hop by hop beside the walk on base pages")
        steps = [stats.interval_of_ratio(interval(worse, short), interval(better, short)) for short in ("p50", "p95")
                 for (_, better), (_, worse) in zip(there, there[1:], strict=False)]
        truth = False if any(one.high < 1 for one in steps) else True if not missing and all(one.low > 1 for one in steps) else None
        said = "; ".join(f"{name} {row['p50']:.0f} and {row['p95']:.0f} ns" for name, row in there)
        return truth, f"Median and 95th percentile: {said}." + (f" Not measured: {', '.join(missing)}." if missing else "")

    def limit() -> tuple[bool | None, str]:
        if not entries:
            raise Unavailable("no-geometry", "CPUID names no TLB level here")
        found = blocking.by_fan_out(frame)
        base, few, many = blocking.fan_out_rise(found, "4k", entries[0])
        told = f"From {few:,} to {many:,} partitions a row takes {_told('times as long on base pages', base)}"
        if base.high < 1 + JUMP:
            return False, f"{told}; the first level has {entries[0]:,} entries."
        try:
            large = blocking.best_large(found)
            rise, _, _ = blocking.fan_out_rise(found, large, entries[0])
        except Unavailable:
            return None, f"{told}. Large pages, which would tell the TLB from the caches, were not measured."
        told += f" and {_told(f'times on {large}', rise)}."
        if base.low <= 1 + JUMP:
            return None, told
        if rise.high < base.low:
            return True, told
        return None, told + " Large pages rise as well: their entries may span pieces, or it is not the TLB."

    def pays() -> tuple[bool | None, str]:
        best = blocking.best_gain(blocking.by_join(frame), "4k")
        truth = True if best["gain_low"] > 1 + SAME else False if best["gain_high"] < 1 + SAME else None
        return truth, (f"With {int(best['partitions']):,} partitions the join is {best['gain']:.2f} times as fast as the naive one "
                       f"({best['gain_low']:.2f} to {best['gain_high']:.2f}).")

    return [
        judge("TLB blocking makes the miss regime all but vanish.", vanishes),
        judge("THP is between useless and counterproductive for random access.", useless),
        judge("A software prefetch starts the translation, too.", walks),
        judge("1 GiB pages are best, then 2 MiB pages, then blocking on base pages, then nothing.", order),
        judge("One pass can partition to as many places as the first level has entries, and no more.", limit),
        judge("On base pages a join is faster if it partitions first.", pays),
    ]
