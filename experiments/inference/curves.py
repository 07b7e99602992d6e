"""The literature's claims as predicates on data: each gives a verdict (holds, fails, cannot tell) with its evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.inference import intervals as stats
from experiments.words.reasons import Unavailable, explain
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


PAGE = 4096  # lines of a spread layout lie this far apart, bytes; 64 of them packed fill one


CAPACITY = "The step comes from TLB capacity alone."


class Verdict(NamedTuple):
    claim: str
    verdict: str  # holds, fails, cannot tell
    evidence: str


def judge(claim: str, decide: Callable[[], tuple[bool | None, str]]) -> Verdict:
    """`decide` gives (truth, evidence), truth None where the interval spans the line; what it cannot measure it raises."""
    try:
        truth, evidence = decide()
    except Unavailable as why:
        return Verdict(claim, "cannot tell", explain(why.code, why.detail))
    return Verdict(claim, "cannot tell" if truth is None else "holds" if truth else "fails", evidence)


def curve(frame: pd.DataFrame, layout: str, kernel: str = "page_chase", order: str = "cycle") -> pd.DataFrame:
    """`stats.summarise` of one kernel, layout and order, a row for each number of lines."""
    chosen = frame[(frame["kernel"] == kernel) & (frame["layout"] == layout) & (frame["order"] == order)]
    return stats.summarise(chosen, ["lines"])


def price(frame: pd.DataFrame, order: str = "cycle", kernel: str = "page_chase") -> pd.DataFrame:
    """The price of translation of one order, ns per access, with columns as `stats.summarise` names them."""
    chosen = frame[(frame["kernel"] == kernel) & (frame["order"] == order)]
    priced = stats.price_of_translation(chosen).sort_values("lines").reset_index(drop=True)
    return priced.rename(columns={"price_ns": "median", "low_ns": "low", "high_ns": "high"})


def mean_price(priced: pd.DataFrame, above: float, below: float) -> float:
    """The median price over the points with above <= lines <= below: the height of a tread, ns. Unavailable without any."""
    tread = priced[priced["lines"].between(above, below) & priced["median"].notna()]["median"]
    if tread.empty:
        raise Unavailable("too-few-points", f"nothing was measured between {above:.0f} and {below:.0f} lines")
    return float(tread.median())


def crossing(priced: pd.DataFrame, height_ns: float, above: float, below: float) -> float:
    """The number of lines at which the price first passes `height_ns` for good, between two sizes; interpolated in log lines."""
    part = priced[priced["lines"].between(above, below) & priced["median"].notna()]
    x, y = np.log2(part["lines"].to_numpy(float)), part["median"].to_numpy(float)
    under = np.flatnonzero(y < height_ns)
    if len(y) < 2:
        raise Unavailable("too-few-points", f"nothing was measured between {above:.0f} and {below:.0f} lines")
    if under.size == 0 or under[-1] == len(y) - 1:
        raise Unavailable("no-step", f"the price does not pass {height_ns:.1f} ns between {above:.0f} and {below:.0f} lines")
    i = under[-1]
    return float(2 ** np.interp(height_ns, [y[i], y[i + 1]], [x[i], x[i + 1]]))


def _nearest(side: pd.DataFrame, lines: float) -> pd.Series:
    """The row nearest to a number of lines, at most half an octave away. Unavailable("too-few-points") without one."""
    away = np.log2(side["lines"] / lines).abs()
    if not (away <= 0.5).any():
        raise Unavailable("too-few-points", f"nothing was measured near {lines:.0f} lines")
    return side.loc[away.idxmin()]


def _must_rise(priced: pd.DataFrame, below: tuple[float, float], past: tuple[float, float]) -> None:
    """Unavailable("no-step") where the interval of the upper tread's price reaches down into that of the lower."""
    before, after = mean_price(priced, *below), mean_price(priced, *past)
    if priced[priced["lines"].between(*past)]["low"].median() <= priced[priced["lines"].between(*below)]["high"].median():
        raise Unavailable("no-step", f"{before:z.2f} ns up to {below[1]:.0f} lines, {after:z.2f} ns from {past[0]:.0f} on")


class Staircase(NamedTuple):
    """The price of translation as treads (ns per access) and the places of its two steps (lines)."""

    stlb_hit_ns: float  # past the first level, inside the second
    walk_ns: float  # an octave and more past the second
    first_step: float
    second_step: float
    second_begins: float  # a tenth of the second rise done
    second_ends: float  # nine tenths


def staircase(frame: pd.DataFrame, entries: Sequence[int]) -> Staircase:
    """Treads and steps around the entries that CPUID names. Raises Unavailable: no-geometry without two levels,
    too-few-points, no-step where the price does not rise."""
    if len(entries) < 2:
        raise Unavailable("no-geometry", "CPUID names no two TLB levels here")
    first, second = entries[0], entries[-1]
    priced = price(frame)
    hit = mean_price(priced, 1.4 * first, 0.6 * second)
    walk = mean_price(priced, 2 * second, 4 * second)
    treads = [(1, 0.9 * first), (1.4 * first, 0.6 * second), (2 * second, 4 * second)]
    for below, past in zip(treads, treads[1:], strict=False):
        _must_rise(priced, below, past)
    rise = walk - hit
    place = [crossing(priced, hit + share * rise, 0.4 * second, 4 * second) for share in (0.1, 0.5, 0.9)]
    return Staircase(hit, walk, crossing(priced, hit / 2, 0.4 * first, 4 * first), place[1], place[0], place[2])


def cliff(frame: pd.DataFrame, entries: Sequence[int], l2_bytes: int | None) -> list[Verdict]:
    """What tlb_pressure's article says of the cliff, and what this frame says of it."""
    spread, packed, priced = curve(frame, "spread"), curve(frame, "packed"), price(frame)

    def second() -> int:
        if len(entries) < 2:
            raise Unavailable("no-geometry", "CPUID names no two TLB levels here")
        return entries[-1]

    def flat(what: pd.DataFrame, name: str) -> tuple[bool | None, str]:
        high, low = 0.6 * second(), 1.4 * entries[0]
        over = stats.flatness(what, high, above=low)
        said = f"{name} varies by a factor of {over.value:.2f} between {low:.0f} and {high:.0f} pages."
        return (True if over.value <= FLAT else False if over.low > FLAT or over.value > FLAT * 1.2 else None), said

    def four() -> tuple[bool | None, str]:
        ratio = stats.doubling_ratio(spread, second())
        said = (f"From {second()} to {2 * second()} pages the chase slows by a factor of {ratio.value:.2f} "
                f"({ratio.low:.2f} to {ratio.high:.2f}).")
        apart = ratio.high < ABOUT_FOUR[0] or ratio.low > ABOUT_FOUR[1]
        inside = ABOUT_FOUR[0] <= ratio.low and ratio.high <= ABOUT_FOUR[1]
        return (False if apart else True if inside else None), said

    def climbing() -> tuple[bool | None, str]:
        gib = 2**30 // PAGE
        ratio = stats.doubling_ratio(priced, gib // 2)
        table = format_size(gib * 8)
        beside = f", the second-level cache {format_size(l2_bytes)}" if l2_bytes else ""
        said = (f"From 512 MiB to 1 GiB the price grows by a factor of {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f}); "
                f"the last level of the page table is {table} there{beside}.")
        return (True if ratio.low > CLIMBING else False if ratio.high < CLIMBING else None), said

    def capacity() -> tuple[bool | None, str]:
        ends = [second() * 2**-0.75, second() * 2]
        rises = []
        for side in (spread, packed):
            at = [_nearest(side, end) for end in ends]
            rises.append((at[1]["median"] - at[0]["median"], at[1]["high"] - at[0]["low"]))
            if side is spread and at[1]["low"] <= at[0]["high"]:
                raise Unavailable("no-step", f"the chase gains {rises[0][0]:z.1f} ns from {at[0]['lines']:,} to {at[1]['lines']:,} pages")
        share, most = rises[1][0] / rises[0][0], rises[1][1] / rises[0][0]
        said = (f"Across the step the chase gains {rises[0][0]:z.1f} ns; its packed control, the same lines on a 64th of the "
                f"pages, gains {rises[1][0]:z.1f} ns.")
        return (True if share <= SHARED_RISE else False if share > 2 * SHARED_RISE else None), said + (
            "" if most <= 2 * SHARED_RISE else " The control is noisy there.")

    def associative() -> tuple[bool | None, str]:
        steps = staircase(frame, entries)
        width = steps.second_ends / steps.second_begins
        if width > STEP_WIDTH and not priced["lines"].between(steps.second_begins, steps.second_ends).any():
            raise Unavailable("too-few-points", f"none between {steps.second_begins:.0f} and {steps.second_ends:.0f} pages")
        said = (f"A fully associative LRU TLB would step at {second()} pages and nowhere else; here a tenth of the rise is done at "
                f"{steps.second_begins:.0f} pages and nine tenths at {steps.second_ends:.0f}, a factor of {width:.2f}.")
        return width <= STEP_WIDTH, said

    return [
        judge("Latency is flat below the STLB's reach.", lambda: flat(spread, "The chase's latency")),
        judge("The price of translation is flat below the STLB's reach.", lambda: flat(priced, "The price")),
        judge("Latency grows about fourfold within one doubling past it.", four),
        judge("It still climbs at 1 GiB, where the page table itself has left the caches.", climbing),
        judge(CAPACITY, capacity),
        judge("The step is sharp because the TLB is fully associative.", associative),
    ]
