"""Each claim about the walk, judged on machines for which it holds, fails, and cannot be told."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
import pytest
from support.synthetic import GIB, MIB, Truth, fit, lru
from support.synthetic import frame as chases
from support.walk import Walk, analysis, rows

from experiments.page_walks import Analysis
from tlb.measure.grid import octaves
from tlb.measure.record import Point
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import judge
from tlb.stats.intervals import Interval
from tlb.stats.splinter import PriceComparison, SplinteringVerdict

pytestmark = pytest.mark.filterwarnings("error")

THREE, TWICE, CAPACITY, BOTH, WALKERS = (
    "three-regimes",
    "tail-twice-the-median",
    "misses-rise-past-the-reach",
    "huge-pages-lower-both",
    "page-walkers-as-stated",
)
PLATEAU, MODEL = ("second-regime-plateaus", "cost-is-hit-plus-misses-times-walk")
WORTH, TABLES = "large-pages-worth-fewer-entries", "large-pages-keep-tables-cached"
ONE_READ = "warm-walk-reads-one-line"
H, F, C, N = "holds", "fails", "cannot tell", "not testable here"
SIX = Walk(walkers=6, in_flight=64, noise=0.002, far_ns=300.0)


@cache
def plain() -> Analysis:
    """Several tests read it, so none assigns to it."""
    return analysis()


def split(verdict: str, share: float = 0.7) -> SplinteringVerdict:
    part = PriceComparison(
        30.0, 30 * share, Interval(share, share - 0.05, share + 0.05, 1.0), (4096, 8192)
    )
    return SplinteringVerdict(verdict, "Evidence.", "2m", "cycles", part, part)


def beside(splintered: SplinteringVerdict) -> Analysis:
    a = analysis(rows(Walk(counted=True)))
    a.splintering = lambda: splintered
    return a


def risen() -> Analysis:
    """As many walks at every size."""
    return analysis(rows(Walk(counted=True)).assign(walk_per_access=0.9))


def fewer() -> pd.DataFrame:
    """Huge pages that miss less and walk shorter."""
    frame, base = (
        rows(Walk(counted=True, splintered=True)),
        rows(Walk(counted=True, splintered=True))["pages"] == "4k",
    )
    return frame.assign(
        walk_per_access=frame["walk_per_access"] * np.where(base, 1, 0.1),
        walk_cycles_per_access=frame["walk_cycles_per_access"] * np.where(base, 1, 0.05),
    )


def slower(factor: float, where: str) -> Analysis:
    frame = rows()
    return analysis(
        frame.assign(ns_per_access=frame["ns_per_access"] * np.where(frame.eval(where), factor, 1))
    )


def chased(walks: float = 1.0) -> Analysis:
    """Beside chases whose misses are counted; those in random order so many times as often as they
    miss."""
    truth = Truth(walk_ns=40.0, noise=0.001)
    frame = chases(
        truth,
        [
            Point(kernel="page_chase", pages="4k", order=order, layout=layout, lines=lines)
            for order in ("cycle", "random")
            for layout in ("spread", "packed")
            for lines in octaves(64, 1 << 15, 2)
        ],
    )
    missed = [
        lru(row.order, np.array([row.lines]), truth.entries[1])[0]
        if row.layout == "spread"
        else 0.0
        for row in frame.itertuples()
    ]
    frame = frame.assign(walk_per_access=missed, walk_reason="")
    return analysis(
        rows(Walk(counted=True)),
        stlb_cliff=frame.assign(
            walk_per_access=frame["walk_per_access"]
            * np.where(frame["order"] == "random", walks, 1.0)
        ),
    )


def walking(reads: float) -> Analysis:
    """A walk from memory takes as long as so many reads of an entry from there."""
    a = analysis()
    ns = reads * a.entry_ns.value
    a.surveyed_walk = lambda place: (64 * MIB, Interval(ns, 0.99 * ns, 1.01 * ns, 0.9375))
    return a


JUDGED: dict[str, tuple[str, Callable[[], Analysis], str]] = {
    "three regimes": (THREE, plain, H),
    "never a walk in memory": (THREE, lambda: analysis(rows(Walk(far_ns=0.0))), F),
    "the sweep ends before it": (THREE, lambda: analysis(rows(most=256 * MIB)), C),
    "twice": (TWICE, lambda: analysis(rows(Walk(far_from=24 * GIB))), H),
    "no tail": (TWICE, lambda: analysis(rows(Walk(far_ns=0.0))), F),
    "capacity": (CAPACITY, lambda: analysis(rows(Walk(counted=True))), H),
    "capacity without counters": (CAPACITY, plain, N),
    "misses do not rise": (CAPACITY, risen, F),
    "both by counters": (BOTH, lambda: analysis(fewer()), H),
    "neither by counters": (BOTH, lambda: analysis(rows(Walk(counted=True, splintered=True))), F),
    "pieces": (BOTH, lambda: beside(split("splintered by the host")), N),
    "walks counted and their cycles not": (
        BOTH,
        lambda: analysis(fewer().drop(columns="walk_cycles_per_access")),
        N,
    ),
    "six walkers": (WALKERS, lambda: analysis(rows(SIX), core="Zen 4"), H),
    "six, not two": (WALKERS, lambda: analysis(rows(SIX), core="Skylake client"), F),
    "a core that the sentence does not name": (
        WALKERS,
        lambda: analysis(rows(SIX), core="Zen 5", vendor="AuthenticAMD"),
        C,
    ),
    "a plateau": (PLATEAU, lambda: analysis(rows(Walk(far_from=24 * GIB))), H),
    "a slope": (PLATEAU, lambda: analysis(rows(Walk(far_from=256 * MIB))), F),
    "two terms fit": (MODEL, chased, H),
    "two terms with half of the misses": (MODEL, lambda: chased(0.4), F),
    "two terms without chases": (MODEL, lambda: analysis(rows(Walk(counted=True))), C),
    "a table that the cache cannot hold": (TABLES, plain, H),
    "a table that it holds on base pages too": (TABLES, lambda: analysis(rows(most=64 * MIB)), C),
    "large pages are worth it": (WORTH, plain, H),
    "pieces have no fewer entries": (WORTH, lambda: beside(split("splintered by the host")), N),
    "a walk is one read": (ONE_READ, lambda: walking(1.0), H),
    "a walk is two reads": (ONE_READ, lambda: walking(2.0), F),
    "a walk is one read or two": (ONE_READ, lambda: walking(1.45), C),
    "large pages are not": (WORTH, lambda: slower(3.0, "pages != '4k'"), F),
}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name):
    claim, make, verdict = JUDGED[name]
    found = fit(judge(REGISTRY[claim], make()))
    assert found.verdict == verdict, found
