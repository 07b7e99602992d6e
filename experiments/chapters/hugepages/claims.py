"""What the articles say of page sizes, as predicates on the rows of experiment `hugepages`."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.chapters.hugepages.analysis import best_large, kinds, prefaults, speedup, touches, typical
from experiments.inference import intervals as stats
from experiments.inference import splinter
from experiments.inference.curves import PAGE, Verdict, judge
from experiments.words.reasons import Unavailable
from experiments.words.units import format_size

# THP and the pool give the same hardware page; the published run found them within 1 % of each other.
SAME = 0.05


def verdicts(frame: pd.DataFrame, entries: Sequence[int], hypervisor: str) -> list[Verdict]:
    """What the articles say of page sizes, and what this frame says of it. entries: 4 KiB data entries of each TLB level."""

    def five() -> tuple[bool | None, str]:
        large = best_large(frame)
        found = speedup(frame, large)
        found = found[found["lines"].isin([size // PAGE for size in (256 << 20, 1 << 30, 4 << 30)])]
        if found.empty:
            raise Unavailable("too-few-points", "nothing was measured at 256 MiB or above")
        text = ", ".join(f"{row.value:.2f} ({row.low:.2f} to {row.high:.2f}) at {format_size(row.lines * PAGE)}"
                         for row in found.itertuples())
        truth = True if found["low"].min() >= 5 else False if found["high"].min() < 5 else None
        return truth, f"On {large}, the dependent chase speeds up by {text}."

    def nothing() -> tuple[bool | None, str]:
        if not entries:
            raise Unavailable("no-geometry", "CPUID names no TLB level here")
        large = best_large(frame)
        found = speedup(frame, large)
        parts = {"inside the first level": found[found["lines"] <= 0.9 * entries[0]]}
        if len(entries) > 1:
            parts["between the two"] = found[found["lines"].between(1.3 * entries[0], 0.6 * entries[-1])]
        parts = {name: part for name, part in parts.items() if len(part)}
        if not parts:
            raise Unavailable("too-few-points", "nothing was measured on both below the reach")
        over = {name: typical(part) for name, part in parts.items()}
        said = "; ".join(f"{name}, {one.value:.2f} ({one.low:.2f} to {one.high:.2f})" for name, one in over.items())
        truth = True if all(one.low > 1 - SAME and one.high < 1 + SAME for one in over.values()) else (
            False if any(one.low > 1 + SAME for one in over.values()) else None)
        return truth, f"The speedup of {large} over 4k is, in the median over sizes: {said}."

    def thp_like_pool() -> tuple[bool | None, str]:
        found = speedup(frame, "2m", "thp")
        far = found[found["lines"] >= (64 << 20) // PAGE]
        if far.empty:
            raise Unavailable("pool-empty" if "2m" not in kinds(frame) else "too-few-points", "both kinds of 2 MiB pages are needed")
        middle, low, high, _ = typical(far)
        truth = True if low > 1 - SAME and high < 1 + SAME else False if low > 1 + SAME or high < 1 - SAME else None
        return truth, (f"From 64 MiB on, the pool's pages are {middle:.2f} times as fast as transparent ones in the median over "
                       f"{len(far)} sizes ({low:.2f} to {high:.2f}).")

    def eighth() -> tuple[bool | None, str]:
        found = touches(frame).set_index(["pages", "array_bytes"])
        need = [("4k", 10**8), ("thp", 10**8)]
        if not set(need) <= set(found.index):
            raise Unavailable("too-few-points", "random touches of 100 MB were not measured on both")
        slow, fast = (stats.Interval(*(float(found.loc[key, name]) for name in ("median", "low", "high")), 1.0) for key in need)
        ratio = stats.interval_of_ratio(slow, fast)
        inside = ratio.low > 1.05 and ratio.high < 1.25
        truth = True if inside else False if ratio.low > 1.25 or ratio.high < 1.05 else None
        return truth, (f"A random read of 100 MB takes {slow.value:.2f} ns on base pages and {fast.value:.2f} on THP, a factor of "
                       f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f}).")

    def six() -> tuple[bool | None, str]:
        found = prefaults(frame)
        touch = found[found["mode"] == "touch"]
        by_both = set(touch.loc[touch["pages"] == "4k", "threads"]) & set(touch.loc[touch["pages"] == "thp", "threads"])
        if not by_both:
            raise Unavailable("too-few-points", "faulting in was not measured on both by as many threads")
        many = touch[touch["threads"] == max(by_both)].set_index("pages")
        slow, fast = (stats.Interval(*(float(many.loc[key, name]) for name in ("median", "low", "high")), 1.0) for key in ("4k", "thp"))
        ratio = stats.interval_of_ratio(slow, fast)
        truth = True if ratio.low >= 4 and ratio.high <= 9 else False if ratio.high < 4 or ratio.low > 9 else None
        threads = int(many["threads"].iloc[0])
        by = "one thread" if threads == 1 else f"{threads} threads"
        return truth, (f"Touched by {by}, memory is ready at {PAGE / slow.value:.2f} GB/s on base pages and "
                       f"{PAGE / fast.value:.2f} on THP, a factor of {ratio.value:.1f} ({ratio.low:.1f} to {ratio.high:.1f}).")

    def gigabytes() -> tuple[bool | None, str]:
        if "1g" not in kinds(frame):
            raise Unavailable("pool-empty", "no page of 1 GiB was to be had")
        large = best_large(frame)
        found = speedup(frame, "1g", large)
        far = found[found["lines"] > 32 * 1024]
        if far.empty:
            raise Unavailable("too-few-points", "nothing was measured above 32 Ki lines on both")
        row = far.iloc[-1]
        truth = True if row["low"] > 1 + SAME else False if row["high"] < 1 + SAME else None
        return truth, (f"At {format_size(int(row['lines']) * PAGE)}, 1 GiB pages are {row['value']:.2f} times as fast as {large} "
                       f"({row['low']:.2f} to {row['high']:.2f}).")

    def spans() -> tuple[bool | None, str]:
        found = splinter.judge(frame, hypervisor)
        return {"not splintered": True, "splintered by the host": False, "cannot tell": None}[found.verdict], found.evidence

    return [
        judge("2 MiB pages make random accesses five times as fast and more, from 256 MiB on.", five),
        judge("Below the STLB's reach larger pages gain nothing.", nothing),
        judge("A TLB entry for a 2 MiB page spans 2 MiB.", spans),
        judge("THP is as good as the pool once it has the memory.", thp_like_pool),
        judge("THP makes random reads of a 100 MB array an eighth faster.", eighth),
        judge("With THP memory is faulted in about six times as fast.", six),
        judge("Above 32 Ki pages, 1 GiB pages gain over 2 MiB.", gigabytes),
    ]
