"""Do large pages reach the TLB? In a guest an entry spans the smaller of the guest's page and the host's.

The same lines, one to each 4 KiB, on base pages and on large ones. If an entry spans a large page, a few entries hold all of
them and the large pages' price stays at nothing where base pages step. If the host backs the guest with base pages, the
processor can only hold pieces, and both step at the same number of lines: the large page is splintered. What is left of it
then is its shorter walk.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import pandas as pd

from experiments.inference import geometry
from experiments.inference.geometry import Backing
from experiments.inference.intervals import Interval, interval_of_ratio
from experiments.words.reasons import Unavailable, explain

LARGE = ("2m", "thp")  # 2 MiB both, as far as a TLB is concerned; the pool's are the surer
# Half of what base pages pay: a splintered page pays all of it, a whole one nothing.
HALF = 0.5
# 128 MiB are 64 pages of 2 MiB: what a published first level cannot hold of them (Haswell to Golden Cove: 32), any second level does.
MOST_LINES = 1 << 15


def backing(frame: pd.DataFrame, hypervisor: str) -> Backing:
    """`judge` for `tlb geometry`: what it cannot tell, it says."""
    try:
        found = judge(frame, hypervisor)
    except Unavailable as why:
        return Backing(verdict="cannot tell", evidence=str(why))
    return Backing(verdict=found.verdict, evidence=found.evidence)


class Compared(NamedTuple):
    """The price of translation on both kinds of pages, core cycles (ns where no clock was measured) over the packed control."""

    base: float
    large: float
    share: Interval  # large over base
    lines: tuple[int, int]  # the fewest and the most compared

    def words(self, unit: str, name: str) -> str:
        return (f"from {self.lines[0]:,} to {self.lines[1]:,} lines, one to each 4 KiB, translation costs {self.base:z.1f} {unit} a load "
                f"on base pages and {self.large:z.1f} on {name}")


class Splinter(NamedTuple):
    """The verdict with what it rests on: between the first level's entries and the second's, and past both."""

    verdict: str  # not splintered, splintered by the host, cannot tell
    evidence: str
    pages: str  # which large pages
    unit: str  # cycles or ns
    first: Compared
    walk: Compared | None


def large_pages(frame: pd.DataFrame) -> str:
    """Which of the frame's large pages to compare. Raises Unavailable("pool-empty") without any."""
    for pages in LARGE:
        if (frame["pages"] == pages).any():
            return pages
    raise Unavailable("pool-empty", "neither the pool nor THP gave 2 MiB pages")


def judge(frame: pd.DataFrame, hypervisor: str) -> Splinter:
    """The verdict from the rows of page_chase in cyclic order, one line to 4 KiB, on 4k and on 2m or thp (columns of Store.load).

    hypervisor: "none" on bare metal. Raises Unavailable: pool-empty without large pages, no-step where base pages show no step
    that large ones could lack, too-few-points.
    """
    chase = frame[(frame["kernel"] == "page_chase") & (frame["order"] == "cycle") & (frame["stride_pages"] == 1)
                  & (frame["lines"] <= MOST_LINES)]
    large = large_pages(chase)
    base, huge = (geometry.priced(chase[chase["pages"] == pages]) for pages in ("4k", large))
    knees = geometry.steps(base)[:2] if len(base) else []
    if not knees:
        raise Unavailable("no-step", "base pages show no step that large ones could lack")
    unit = "cycles" if geometry.has_clock(chase) else "ns"
    second = knees[1].tenth if len(knees) > 1 else float(base["lines"].max())
    first = _compare(base, huge, knees[0].nine_tenths, 0.9 * second)
    said = first.words(unit, _NAME[large])
    walk = None
    if len(knees) > 1:
        with suppress(Unavailable):  # the sweep ends before
            walk = _compare(base, huge, 1.2 * knees[1].nine_tenths, 4 * knees[1].nine_tenths)
            said += "; " + walk.words(unit, "those")
    verdict, why = _decide(first.share, walk.share if walk else None, hypervisor)
    return Splinter(verdict, f"{said[0].upper()}{said[1:]}. {why}", large, unit, first, walk)


_NAME = {"2m": "2 MiB pages of the pool", "thp": "transparent pages of 2 MiB"}


def _compare(base: pd.DataFrame, huge: pd.DataFrame, above: float, below: float) -> Compared:
    """Medians over the points between two numbers of lines. Raises Unavailable: too-few-points, no-step."""
    both = base.merge(huge, on="lines", suffixes=("", "_huge"))
    both = both[both["lines"].between(above, below)]
    if both.empty:
        raise Unavailable("too-few-points", f"nothing was measured on both between {above:.0f} and {below:.0f} lines")
    sides = []
    for suffix, points in (("", base), ("_huge", huge)):
        floor = float(points["cost"].iloc[0])  # `priced` adds what a load costs that hits everywhere; here it goes off again
        sides.append(Interval(*(float(both[f"{name}{suffix}"].median()) - floor for name in ("cost", "low", "high")), 1.0))
    small, big = sides
    lines = int(both["lines"].min()), int(both["lines"].max())
    if small.low <= 0:
        raise Unavailable("no-step", f"base pages pay {small.value:z.1f} ({small.low:z.1f} to {small.high:z.1f}) there")
    if big.value <= 0:  # large pages pay nothing: of such a ratio only the upper bound counts
        return Compared(small.value, big.value, Interval(0.0, 0.0, max(big.high, 0.0) / small.low, 1.0), lines)
    return Compared(small.value, big.value, interval_of_ratio(big, small), lines)


def _decide(first: Interval, walk: Interval | None, hypervisor: str) -> tuple[str, str]:
    if first.low > HALF:
        if hypervisor == "none":
            return "cannot tell", ("Large pages step where base pages do, and no host is in sight that would split them: the processor "
                                   "may hold large pages in pieces, or a hypervisor may hide itself.")
        return "splintered by the host", ("Few entries would hold all of those lines if an entry spanned a large page. It spans a "
                                          "piece: the host backs this guest with smaller pages.")
    if first.high < HALF and (walk is None or walk.high < HALF):
        return "not splintered", "An entry spans a large page."
    doubtful = first if walk is None or first.high >= HALF else walk
    return "cannot tell", explain("unstable", f"large over base is {doubtful.value:.2f}, {doubtful.low:.2f} to {doubtful.high:.2f}")
