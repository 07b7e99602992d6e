"""Do large pages reach the TLB? In a guest an entry spans the smaller of the guest's page and the
host's.

The same lines, one to each base page, on base pages and on large ones. If an entry spans a large
page, a few entries hold all lines and the price on large pages stays at zero where base pages step.
If the host backs the guest with base pages, both step at the same number of lines: the large page
is splintered, and only its walk is shorter.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple

import pandas as pd

from tlb.stats.curves import select_rows
from tlb.stats.geometry import EntryPageBacking
from tlb.stats.geometry_curves import curve_knees, has_core_clock, price_curve
from tlb.stats.intervals import LEAST_COVERAGE, Interval
from tlb.system.page_sizes import BASE_PAGES, HUGE_PAGE_KINDS, page_words
from tlb.system.reasons import Unavailable, explain_reason

# Half of what base pages pay: a splintered page pays all of it, a whole one nothing.
UNSPLINTERED_MAX_PRICE_RATIO = 0.5
_RANGE_OF_THREE = 0.75  # how often the range of three mappings holds the median
# 128 MiB are 64 pages of 2 MiB: what a published first level cannot hold of them (Haswell to Golden
# Cove: 32), any second level does.
MAX_SPLINTERING_TEST_LINES = 1 << 15


def judge_page_backing(frame: pd.DataFrame, hypervisor: str) -> EntryPageBacking:
    """Return `judge_splintering` for `tlb geometry`, with the reason in words where it raises Unavailable."""
    try:
        verdict = judge_splintering(frame, hypervisor)
    except Unavailable as why:
        return EntryPageBacking(verdict="cannot tell", evidence=str(why))
    return EntryPageBacking(verdict=verdict.verdict, evidence=verdict.evidence)


class PriceComparison(NamedTuple):
    """The price of translation on both kinds of pages, core cycles (ns where no clock was measured)
    over the packed control."""

    base: float
    large: float
    share: Interval  # large over base
    lines: tuple[int, int]  # the fewest and the most compared

    def sentence(self, unit: str, name: str) -> str:
        return (
            f"from {self.lines[0]:,} to {self.lines[1]:,} lines, one to each base page, "
            f"translation costs {self.base:z.1f} {unit} a "
            f"load on base pages and {self.large:z.1f} on {name}"
        )


SplinterVerdict = Literal["not splintered", "splintered by the host", "cannot tell"]


class SplinteringVerdict(NamedTuple):
    """The verdict with what it rests on: between the first level's entries and the second's, and
    past both."""

    verdict: SplinterVerdict
    evidence: str
    pages: str  # which large pages
    unit: str  # cycles or ns
    first: PriceComparison
    walk: PriceComparison | None

    @property
    def is_splintered(self) -> bool:
        return self.verdict == "splintered by the host"

    @property
    def is_of_few(self) -> bool:
        """Whether it rests on fewer mappings than decide."""
        return not self.first.share.coverage >= LEAST_COVERAGE


def huge_page_kind_to_compare(frame: pd.DataFrame) -> str:
    """Which 2 MiB pages of a frame to compare: the pool's before transparent ones. Raises
    Unavailable("pool-empty") without any."""
    for pages in HUGE_PAGE_KINDS:
        if (frame["pages"] == pages).any():
            return pages
    raise Unavailable("pool-empty", "neither the pool nor THP gave 2 MiB pages")


def judge_splintering(frame: pd.DataFrame, hypervisor: str) -> SplinteringVerdict:
    """The verdict from the rows of page_chase in cyclic order, one line to a base page, on base
    pages and on 2m or thp (columns of Store.load).

    hypervisor: "none" on bare metal. Raises Unavailable: pool-empty without large pages, no-step
    where base pages show no step that large ones could lack, too-few-points.
    """
    chase = select_rows(frame, kernel="page_chase", order="cycle", stride_pages=1)
    chase = chase[chase["lines"] <= MAX_SPLINTERING_TEST_LINES]
    large = huge_page_kind_to_compare(chase)
    base, huge = (price_curve(select_rows(chase, pages=pages)) for pages in (BASE_PAGES, large))
    knees = curve_knees(base)[:2] if len(base) else []
    if not knees:
        raise Unavailable("no-step", "base pages show no step that large ones could lack")
    unit = "cycles" if has_core_clock(chase) else "ns"
    second = knees[1].tenth if len(knees) > 1 else float(base["lines"].max())
    first = _compare(base, huge, knees[0].nine_tenths, 0.9 * second)
    evidence = first.sentence(unit, page_words(large))
    walk = None
    if len(knees) > 1:
        with suppress(Unavailable):  # the sweep ends before
            walk = _compare(base, huge, 1.2 * knees[1].nine_tenths, 4 * knees[1].nine_tenths)
            evidence += f"; past the second level it costs {walk.base:z.1f} and {walk.large:z.1f}"
    verdict, why = _decide(first.share, walk.share if walk else None, hypervisor)
    return SplinteringVerdict(
        verdict, f"{evidence[0].upper()}{evidence[1:]}. {why}", large, unit, first, walk
    )


def _compare(base: pd.DataFrame, huge: pd.DataFrame, above: float, below: float) -> PriceComparison:
    """Medians over the points between two numbers of lines. Raises Unavailable: too-few-points,
    no-step."""
    shared = sorted(
        lines for lines in {*base["lines"]} & {*huge["lines"]} if above <= lines <= below
    )
    if not shared:
        raise Unavailable(
            "too-few-points",
            f"nothing was measured on both between {above:.0f} and {below:.0f} lines",
        )
    small, big = (_above_hits(points, shared) for points in (base, huge))
    lines = int(shared[0]), int(shared[-1])
    if small.low <= 0:
        raise Unavailable("no-step", f"base pages pay {small:.1f} there")
    if big.value <= 0:  # large pages pay nothing: of such a ratio only the upper bound counts
        share = Interval(
            0.0, 0.0, max(big.high, 0.0) / small.low, min(small.coverage, big.coverage)
        )
        return PriceComparison(small.value, big.value, share, lines)
    return PriceComparison(small.value, big.value, big / small, lines)


def _above_hits(points: pd.DataFrame, lines: list[int]) -> Interval:
    """Return the medians of costs and bounds at these numbers of lines, less the cost of a load
    that hits everywhere, which `price_curve` adds."""
    part, hit = select_rows(points, lines=lines), float(points["cost"].iloc[0])
    value, low, high = (float(part[name].median()) - hit for name in ("cost", "low", "high"))
    return Interval(value, low, high, float(part["coverage"].min()))


def _decide(first: Interval, walk: Interval | None, hypervisor: str) -> tuple[SplinterVerdict, str]:
    if first.coverage < _RANGE_OF_THREE:
        return "cannot tell", "Fewer than three mappings were measured."
    if first.low > UNSPLINTERED_MAX_PRICE_RATIO:
        if hypervisor == "none":
            return "cannot tell", (
                "Large pages step where base pages do, and no host is in sight that would split "
                "them: the processor "
                "may hold large pages in pieces, or a hypervisor may hide itself."
            )
        why = (
            "since the emulator keeps no larger ones"
            if hypervisor == "qemu-tcg"
            else "as if the host backed this guest with smaller pages"
        )
        return "splintered by the host", (
            "Few entries would hold all of those lines if an entry spanned a large page. It spans "
            f"a piece, {why}."
        )
    for share in (first, walk):
        if share is not None and share.high >= UNSPLINTERED_MAX_PRICE_RATIO:
            return "cannot tell", explain_reason("unstable", f"large over base is {share:.2f}")
    return "not splintered", "An entry spans a large page."
