"""The claims about the cliff, judged on machines whose truth is known: holds, fails, or cannot tell
and why."""

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from support.stlb_cliff import DEARER, TEXTBOOK, analysis, counted, hashed, of
from support.synthetic import GIB, MIB, Stated, Truth, fit, frame, grid, lru, tlbs

from experiments.stlb_cliff import Analysis, claims
from tlb.report.claims import REGISTRY
from tlb.report.verdicts import Verdict, chapter_verdicts, judge
from tlb.system.reasons import none_if_unavailable

pytestmark = pytest.mark.filterwarnings("error")

FREE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE = (
    "price-flat-below-reach",
    "gather-flat-then-fourfold",
    "climbs-at-a-gibibyte",
    "capacity-alone",
    "sharp-so-associative",
)
H, F, C, N = "holds", "fails", "cannot tell", "not testable here"


def judged(a: Analysis, **bands: dict) -> dict[str, Verdict]:
    return {one.claim.id: fit(one) for one in chapter_verdicts(claims, a, **bands)}


def words(a: Analysis, **bands: dict) -> dict[str, str]:
    return {name: found.verdict for name, found in judged(a, **bands).items()}


def quarter(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    """Misses of a second level that has a quarter of the entries stated."""
    return lru(order, lines, entries // 4)


def changed(**columns: object) -> Analysis:
    """The textbook's rows with other columns."""
    return analysis(frame(TEXTBOOK).assign(**columns))


@cache
def textbook() -> Analysis:
    """Several tests read it, so none assigns to it."""
    return analysis()


@cache
def far() -> Analysis:
    return of(FAR)


FAR = Truth(cache_step=(2**15, 120.0))


def without(query: str) -> Callable[[], Analysis]:
    """The textbook's machine without some of its rows."""
    return lambda: analysis(frame(TEXTBOOK).query(query))


def up_to(most_bytes: int, **truth: float) -> Callable[[], Analysis]:
    """A sweep that ends early."""
    return lambda: of(Truth(**truth), grid(most_bytes))


# By claim and verdict, a machine. Claims with a test of their own below are not here.
JUDGED: dict[str, dict[str, Callable[[], Analysis]]] = {
    "cliff-at-stated-entries": {
        H: textbook,
        F: lambda: of(Truth(entries=(64, 2400))),
        C: lambda: of(Truth(walk_ns=0.0)),
    },
    "step-not-slow-degradation": {
        H: textbook,
        F: lambda: of(Truth(missed=hashed)),
        C: lambda: of(Truth(), grid(64 * MIB, per_octave=1)),
    },
    "every-access-misses-past-capacity": {
        H: textbook,
        F: lambda: of(Truth(missed=hashed, noise=0.002)),
        N: lambda: of(Truth(noise=0.3)),
    },
    "knee-at-capacity": {
        H: lambda: of(Truth(), grid(64 * MIB, per_octave=4)),
        F: lambda: of(Truth(entries=(64, 2400))),
        C: textbook,  # the grid is too coarse
    },
    "walk-60-to-250-cycles": {
        H: lambda: of(Truth(walk_ns=30.0)),
        F: textbook,
        C: lambda: changed(core_ghz=0.0),
    },
    "miss-dearer-than-an-l3-miss": {
        H: textbook,
        F: far,
        C: lambda: of(Truth(walk_ns=98.0, cache_step=(2**15, 99.0), noise=0.1)),
    },
    "walk-of-several-hundred-ns": {
        H: lambda: of(Truth(walk_ns=250.0)),
        F: lambda: of(Truth(), grid(8 * GIB)),
        C: textbook,  # a larger graph may cost more
    },
    "every-walk-from-memory-at-a-gibibyte": {H: textbook, F: far, C: up_to(512 * MIB)},
    "four-reads-cost-400-ns": {
        H: far,
        F: textbook,
        C: lambda: of(Truth(cache_step=(2**15, 99.0), noise=0.1)),
    },
}


@pytest.mark.parametrize(
    ("claim", "verdict"), [(claim, verdict) for claim, made in JUDGED.items() for verdict in made]
)
def test_each_claim_is_judged_by_its_own_rows(claim, verdict):
    found = fit(judge(REGISTRY[claim], JUDGED[claim][verdict]()))
    assert found.verdict == verdict, found


def test_on_the_textbooks_machine_its_claims_hold():
    found = words(textbook())
    assert {found[id] for id in (FOURFOLD, CAPACITY, ASSOCIATIVE)} == {H}


@pytest.mark.parametrize(("walks", "verdict"), [(0.0, H), (0.2, F)])
def test_counted_walks_decide_what_is_paid_below_the_reach(walks, verdict):
    rows = frame(TEXTBOOK).assign(walk_per_access=walks, walk_reason="")
    assert words(analysis(rows))[FREE] == verdict
    assert words(textbook())[FREE] != verdict


def test_a_slope_in_time_alone_refutes_no_step_of_misses_and_counts_decide_it():
    steps = (
        "cliff-at-stated-entries",
        ASSOCIATIVE,
        "step-not-slow-degradation",
        "every-access-misses-past-capacity",
        "knee-at-capacity",
    )
    for truth, counts in (
        (DEARER, [H, H, H, H, C]),
        (Truth(missed=hashed, climb=1.8, climb_from=1536), None),
    ):
        timed = words(of(truth))
        # The ways that CPUID states refute full associativity without a count.
        assert [timed[id] for id in steps] == [N, F, N, N, N]
        if counts:
            assert [words(counted(truth))[id] for id in steps] == counts


@pytest.mark.parametrize(("climb", "verdict"), [(0.9, F), (1.0, F), (1.15, H)])
def test_a_price_climbs_if_it_grows_from_inside_the_second_cache_to_past_it(climb, verdict):
    """Of a TLB that reaches all packed lines: otherwise their walks may hide a climb."""
    entries = 64, 4096
    truth = Truth(entries=entries, climb=climb, noise=0.002)
    a = of(truth, grid(GIB, entries), Stated(tlb=tlbs(entries)))
    assert words(a)[CLIMBING] == verdict


def test_a_step_of_hashed_sets_is_not_that_of_full_associativity():
    found = judged(of(Truth(missed=hashed)))
    assert (found[ASSOCIATIVE].verdict, found[CAPACITY].verdict) == (F, H)
    assert 1.3 < float(re.search(r"factor of ([\d.]+)", found[ASSOCIATIVE].evidence)[1]) < 4


@pytest.mark.parametrize("entries", [(64, 1500), (72, 3072)])
def test_a_sharp_step_is_sharp_wherever_it_stands_between_the_points(entries):
    assert (
        words(of(Truth(entries=entries), grid(GIB, entries), Stated(tlb=tlbs(entries))))[
            ASSOCIATIVE
        ]
        == H
    )


def test_a_grid_without_a_zoom_cannot_tell_a_sharp_step_from_a_wide_one():
    """Nor where between two of its points a step is: a whole octave apart, each of these is at one
    of the two ends. Of associativity, the ways that CPUID states are then left."""
    assert words(of(Truth(), grid(64 * MIB, per_octave=1)))[ASSOCIATIVE] == F
    for entries in (1030, 2040):
        assert (
            words(of(Truth(entries=(64, entries)), grid(64 * MIB, per_octave=1)))[
                "cliff-at-stated-entries"
            ]
            == C
        )


@pytest.mark.parametrize(("step_ns", "verdict"), [(0.5, H), (1.0, C), (9 / 7, F)])
def test_a_cache_that_shares_a_tenth_of_the_rise_leaves_capacity_open(step_ns, verdict):
    assert words(of(Truth(cache_step=(1537, step_ns), noise=0.002)))[CAPACITY] == verdict


def test_capacity_is_not_judged_at_a_size_that_the_figure_shades():
    a = of(Truth(cache_step=(5000, 8.0)))  # a cache that spread lines leave at twice the entries
    found = judge(REGISTRY[CAPACITY], a)
    assert 2 * a.two_levels()[1] in a.price.gaps
    assert (found.verdict, found.reason) == (C, "control-elsewhere")


def test_the_published_loop_is_numpys_and_without_it_nothing_replaces_it():
    rows = frame(TEXTBOOK)
    far = (rows["engine"] == "numpy") & (rows["lines"] > 1000)
    faster = rows.assign(ns_per_access=rows["ns_per_access"].where(~far, 0.6))
    without_numpy = rows.query("engine != 'numpy'")
    verdicts = [words(analysis(each))[FOURFOLD] for each in (rows, faster, without_numpy)]
    assert verdicts == [H, F, C]


def test_a_machine_without_a_cliff_has_no_step_to_explain():
    found = words(of(Truth(hit_ns=0.0, walk_ns=0.0)))
    assert found[CAPACITY] == C and found[ASSOCIATIVE] == F  # by the ways that CPUID states


@pytest.mark.parametrize("least_ns, is_memory", [(14.0, False), (120.0, True)])
def test_what_never_left_the_caches_is_no_load_from_memory(least_ns, is_memory):
    rows = frame(Truth(cache_step=(2**15, least_ns)))
    last = {"level": 3, "kind": "unified", "line_bytes": 64, "ways": 16, "sets": 2**20}
    held = last | {"size_bytes": GIB, "shared_cpus": (0,)}
    a = analysis(rows, Stated(changes={"caches": [held]}))
    for id in ("four-reads-cost-400-ns", "every-walk-from-memory-at-a-gibibyte"):
        assert (judge(REGISTRY[id], a).reason != "sweep-short") == is_memory
    kept = none_if_unavailable(lambda: a.cached_bytes)
    assert kept == (64 * rows["lines"][rows["lines"] < 2**15].max() if is_memory else None)


def test_a_size_is_not_compared_with_itself():
    rows, entries = frame(TEXTBOOK), textbook().two_levels()[1]
    past = rows["lines"] >= 2 * entries
    largest = rows.loc[rows["lines"] <= 4 * entries, "lines"].max()
    a = analysis(rows[~past | (rows["lines"] == largest)].reset_index(drop=True))
    for id in ("miss-latency-is-not-constant", "walk-60-to-250-cycles"):
        found = judge(REGISTRY[id], a)
        assert (found.verdict, found.reason) == (C, "too-few-points")
