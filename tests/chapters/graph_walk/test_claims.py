"""Each claim about the walk, judged on machines for which it holds, fails, and cannot be told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from support.synthetic import GIB, MIB, fit_to_be_shown, scope
from support.walk import ENTRIES, FRAMES, Walk, analysis, rows

from experiments.article.verdicts import claims_of, verdicts
from experiments.chapters.graph_walk import Analysis, claims, grid
from experiments.inference.intervals import Interval
from experiments.inference.splinter import Compared, Splinter

pytestmark = pytest.mark.filterwarnings("error")

THREE, TWICE, GONE, CAPACITY, BOTH, WALKERS, USELESS = (
    "three-regimes", "tail-twice-the-median", "no-tail-on-large-pages", "misses-rise-past-the-reach", "huge-pages-lower-both",
    "page-walkers-as-stated", "thp-useless-for-a-mean")
H, F, C = "holds", "fails", "cannot tell"
SIX = Walk(walkers=6, in_flight=64, noise=0.002, far_ns=300.0)


def split(verdict: str, share: float = 0.7) -> Splinter:
    part = Compared(30.0, 30 * share, Interval(share, share - 0.05, share + 0.05, 1.0), (4096, 8192))
    return Splinter(verdict, "Evidence.", "2m", "cycles", part, part)


def beside(splintered: Splinter) -> Analysis:
    a = analysis()
    a.splintering = lambda: splintered
    return a


def risen() -> pd.DataFrame:
    frame = rows(Walk(noise=0.001, walk_ns=0.0, far_ns=0.0))
    return frame.assign(ns_per_access=frame["ns_per_access"] + 5.0 * (frame["pages"] == "4k"))


def swapped() -> pd.DataFrame:
    """Large pages with the tail of base pages."""
    frame = rows(Walk(far_from=24 * GIB)).query("pages in ('4k', '2m')")
    return frame.assign(pages=frame["pages"].replace({"4k": "2m", "2m": "4k"}))


def fewer() -> pd.DataFrame:
    """Huge pages that miss less and walk shorter."""
    frame, base = rows(Walk(counted=True, splintered=True)), rows(Walk(counted=True, splintered=True))["pages"] == "4k"
    return frame.assign(walk_per_access=frame["walk_per_access"] * np.where(base, 1, 0.1),
                        walk_cycles_per_access=frame["walk_cycles_per_access"] * np.where(base, 1, 0.05))


JUDGED: dict[str, tuple[str, Callable[[], Analysis], str]] = {
    "three regimes": (THREE, analysis, H),
    "never a walk in memory": (THREE, lambda: analysis(rows(Walk(far_ns=0.0))), F),
    "the sweep ends before it": (THREE, lambda: analysis(rows(most=256 * MIB)), C),
    "twice": (TWICE, lambda: analysis(rows(Walk(far_from=24 * GIB))), H),
    "no tail": (TWICE, lambda: analysis(rows(Walk(far_ns=0.0))), F),
    "no tail yet": (TWICE, lambda: analysis(rows(most=GIB)), C),
    "a short tail on large pages": (GONE, analysis, H),
    "a tail on large pages": (GONE, lambda: analysis(swapped()), F),
    "capacity": (CAPACITY, lambda: analysis(rows(Walk(noise=0.001, walk_ns=30.0))), H),
    "loud": (CAPACITY, lambda: analysis(rows(Walk(noise=0.5))), C),
    "nothing rises": (CAPACITY, lambda: analysis(risen()), F),
    "both by counters": (BOTH, lambda: analysis(fewer()), H),
    "neither by counters": (BOTH, lambda: analysis(rows(Walk(counted=True, splintered=True))), F),
    "pieces": (BOTH, lambda: beside(split("splintered by the host")), F),
    "whole pages without counters": (BOTH, lambda: beside(split("not splintered")), C),
    "no other chapter": (BOTH, analysis, C),
    "six walkers": (WALKERS, lambda: analysis(rows(SIX), core="Zen 4"), H),
    "six, not two": (WALKERS, lambda: analysis(rows(SIX), core="Skylake client"), F),
    "fewer busy than said": (WALKERS, lambda: analysis(rows(Walk(walkers=9, in_flight=4, noise=0.002)), core="Zen 4"), C),
    "nobody says": (WALKERS, analysis, C),
    "thp gains": (USELESS, analysis, F),
    "thp loses": (USELESS, lambda: analysis(rows(Walk(thp=3.0))), H),
}


def judged(a: Analysis, **bands: dict) -> dict[str, str]:
    return {verdict.claim.id: verdict.verdict for verdict in fit_to_be_shown(verdicts(claims, a, **bands), 7)}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name: str):
    claim, make, verdict = JUDGED[name]
    assert judged(make())[claim] == verdict


@pytest.mark.parametrize(("claim", "predicate", "band", "verdict"), [
    (THREE, "three_regimes", {"reads_memory_from": 64 * GIB}, H),
    (TWICE, "tail_is_twice_the_median", {"band": (1.0, 9.0)}, H), (TWICE, "tail_is_twice_the_median", {"band": (8.0, 9.0)}, F),
    (TWICE, "tail_is_twice_the_median", {"from_bytes": 32 * GIB}, C),
    (GONE, "tail_is_gone", {"most": 1.0}, F), (GONE, "tail_is_gone", {"from_bytes": 32 * GIB}, C),
    (USELESS, "thp_is_useless", {"same": 9.0}, H)])
def test_a_band_may_be_drawn_elsewhere(claim: str, predicate: str, band: dict, verdict: str):
    assert judged(analysis(), **{predicate: band})[claim] == verdict


@pytest.mark.parametrize("entries", [ENTRIES, []])
@pytest.mark.parametrize("name", FRAMES)
def test_every_frame_has_every_verdict(name: str, entries: list[int]):
    judged(analysis(FRAMES[name](), entries))


def test_each_claim_names_points_of_the_grid_that_it_compares():
    points = grid.points(scope(4 * GIB, per_octave=4))
    for claim in claims_of(claims):
        assert claim.source == "matthews_tlbperf" and 0 < sum(map(claim.points, points)) < len(points)
    of = {claim.id: [point for point in points if claim.points(point)] for claim in claims_of(claims)}
    assert not set(map(id, of[THREE])) & set(map(id, of[CAPACITY])) and {dict(point.options)["walkers"] for point in of[WALKERS]} > {1, 2}
