"""The claims about the cliff, judged on machines whose truth is known: holds, fails, or cannot tell
and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from support.stlb_cliff import DEARER, TEXTBOOK, analysis, counted, hashed, of
from support.synthetic import (
    GIB,
    MIB,
    Stated,
    Truth,
    fit,
    fit_to_be_shown,
    frame,
    grid,
    lru,
    scope,
    tlbs,
)

from experiments.stlb_cliff import Analysis, claims
from tlb.reasons import REASONS
from tlb.report.verdicts import REGISTRY, Verdict, claims_of, judge, verdicts

pytestmark = pytest.mark.filterwarnings("error")

FLAT, FLAT_PRICE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE = (
    "latency-flat-below-reach",
    "price-flat-below-reach",
    "gather-flat-then-fourfold",
    "climbs-at-a-gibibyte",
    "capacity-alone",
    "sharp-so-associative",
)
H, F, C, N = "holds", "fails", "cannot tell", "not testable here"
ARITHMETIC = ("flat-table-2-to-52", "a-million-pages-in-4gib")


def judged(a: Analysis, **bands: dict) -> dict[str, Verdict]:
    """Each claim's verdict, found fit to be shown, by its id."""
    return {
        found.claim.id: found
        for found in fit_to_be_shown(verdicts(claims, a, **bands), "stlb_cliff")
    }


def words(a: Analysis, **bands: dict) -> dict[str, str]:
    return {name: found.verdict for name, found in judged(a, **bands).items()}


def quarter(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    """Misses of a second level that has a quarter of the entries stated."""
    return lru(order, lines, entries // 4)


def gathered(**changes: float) -> Analysis:
    """A machine on which the published loop takes 1, 3, 35 and 518 ns at 256 KiB, 4 MiB, 16 MiB and
    4 GiB; changed."""
    return of(
        Truth(
            **{"load_ns": 5.0, "hit_ns": 10.0, "walk_ns": 160.0, "climb": 1.4, "climb_from": 2**12}
            | changes
        )
    )


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


TINY = 64 << 10
FAR = Truth(cache_step=(2**15, 110.0))
# The claim, a machine, the verdict. What is judged at length below is not here again.
JUDGED: dict[str, tuple[str, Callable[[], Analysis], str]] = {
    "one ns": ("gather-one-ns-at-256kib", gathered, H),
    "not one": ("gather-one-ns-at-256kib", lambda: gathered(load_ns=9.0), F),
    "never over 256 KiB": ("gather-one-ns-at-256kib", lambda: of(Truth(), grid(TINY)), C),
    "three ns": ("gather-three-ns-at-4mib", gathered, H),
    "not three": ("gather-three-ns-at-4mib", lambda: gathered(hit_ns=40.0), F),
    "never over 4 MiB": ("gather-three-ns-at-4mib", lambda: of(Truth(), grid(MIB)), C),
    "thirty ns": ("gather-thirty-ns-at-64mib", gathered, H),
    "not thirty": ("gather-thirty-ns-at-64mib", lambda: gathered(walk_ns=20.0), F),
    "never over 64 MiB": ("gather-thirty-ns-at-64mib", lambda: of(Truth(), grid(16 * MIB)), C),
    "a hundred ns": ("gather-hundred-ns-at-4gib", gathered, H),
    "not a hundred": ("gather-hundred-ns-at-4gib", lambda: gathered(climb=1.0), F),
    "never over 4 GiB": ("gather-hundred-ns-at-4gib", lambda: of(Truth(), grid(GIB)), C),
    "each size is slower": ("gather-climbs-with-every-size", gathered, H),
    "the last sizes are faster": ("gather-climbs-with-every-size", lambda: of(Truth(climb=0.7)), F),
    "two sizes are alike": ("gather-climbs-with-every-size", textbook, C),
    "one size has no next one": (
        "gather-climbs-with-every-size",
        lambda: of(Truth(), grid(4 * MIB)),
        C,
    ),
    "faulted in before": ("prefaulted-loop-takes-no-faults", textbook, H),
    "faults all the time": (
        "prefaulted-loop-takes-no-faults",
        lambda: changed(minor_faults=5_000_000),
        F,
    ),
    "never run in numpy": (
        "prefaulted-loop-takes-no-faults",
        lambda: analysis(frame(TEXTBOOK).query("engine != 'numpy'")),
        C,
    ),
    "a step inside": (FLAT_PRICE, lambda: of(Truth(missed=quarter)), F),
    "the first step as stated": ("first-level-ceiling-at-256-kib", textbook, H),
    "twice as many in the first": (
        "first-level-ceiling-at-256-kib",
        lambda: of(Truth(entries=(128, 1536))),
        F,
    ),
    "no first step": ("first-level-ceiling-at-256-kib", lambda: of(Truth(hit_ns=0.0)), C),
    "the second step as stated": ("cliff-at-stated-entries", textbook, H),
    "half as many again in the second": (
        "cliff-at-stated-entries",
        lambda: of(Truth(entries=(64, 2400))),
        F,
    ),
    "no second step": ("cliff-at-stated-entries", lambda: of(Truth(walk_ns=0.0)), C),
    "a step": ("step-not-slow-degradation", textbook, H),
    "a slope": ("step-not-slow-degradation", lambda: of(Truth(missed=hashed)), F),
    "no grid to see it": (
        "step-not-slow-degradation",
        lambda: of(Truth(), grid(64 * MIB, per_octave=1)),
        C,
    ),
    "each one misses": ("every-access-misses-past-capacity", textbook, H),
    "some still hit": (
        "every-access-misses-past-capacity",
        lambda: of(Truth(missed=hashed, noise=0.002)),
        F,
    ),
    "too loud to say that each misses": (
        "every-access-misses-past-capacity",
        lambda: of(Truth(noise=0.3)),
        N,
    ),
    "fine inside": ("under-1500-pages-fine", textbook, H),
    "not fine inside": ("under-1500-pages-fine", lambda: of(Truth(missed=quarter)), F),
    "no walks beside it": ("under-1500-pages-fine", lambda: of(Truth(), grid(4 * MIB)), C),
    "a knee as stated": ("knee-at-capacity", lambda: of(Truth(), grid(64 * MIB, per_octave=4)), H),
    "a grid too coarse for a knee": ("knee-at-capacity", textbook, C),
    "a knee far behind": ("knee-at-capacity", lambda: of(Truth(entries=(64, 2400))), F),
    "no draws": (
        "knee-at-capacity",
        lambda: analysis(frame(TEXTBOOK).query("order != 'random'")),
        C,
    ),
    "a hundred cycles": ("walk-60-to-250-cycles", lambda: of(Truth(walk_ns=40.0)), H),
    "thirty cycles": ("walk-60-to-250-cycles", textbook, F),
    "cycles of no clock": ("walk-60-to-250-cycles", lambda: changed(core_ghz=0.0), C),
    "dearer than memory": ("miss-dearer-than-an-l3-miss", textbook, H),
    "cheaper than memory": ("miss-dearer-than-an-l3-miss", far, F),
    "dearer or not": (
        "miss-dearer-than-an-l3-miss",
        lambda: of(Truth(walk_ns=98.0, cache_step=(2**15, 99.0), noise=0.1)),
        C,
    ),
    "dearer than memory at 1 GiB": ("every-walk-from-memory-at-a-gibibyte", textbook, H),
    "cheaper at 1 GiB": ("every-walk-from-memory-at-a-gibibyte", far, F),
    "no GiB": ("every-walk-from-memory-at-a-gibibyte", lambda: of(Truth(), grid(512 * MIB)), C),
    "a walk of several hundred ns": (
        "walk-of-several-hundred-ns",
        lambda: of(Truth(walk_ns=300.0)),
        H,
    ),
    "a walk of a hundred": ("walk-of-several-hundred-ns", lambda: of(Truth(walk_ns=20.0)), F),
    "a large walk unmeasured": (
        "walk-of-several-hundred-ns",
        lambda: of(Truth(walk_ns=200.0), grid(512 * MIB)),
        C,
    ),
    "four of 111 ns": ("four-reads-cost-400-ns", far, H),
    "four of 1 ns": ("four-reads-cost-400-ns", textbook, F),
    "four of about 100": (
        "four-reads-cost-400-ns",
        lambda: of(Truth(cache_step=(2**15, 99.0), noise=0.1)),
        C,
    ),
    "order warms": ("sequential-order-warms-the-walker", textbook, H),
    "order chills": ("sequential-order-warms-the-walker", lambda: of(Truth(in_order=1.5)), F),
    "order does nothing": ("sequential-order-warms-the-walker", lambda: of(Truth(in_order=1.0)), C),
    "no order": (
        "sequential-order-warms-the-walker",
        lambda: analysis(frame(TEXTBOOK).query("order != 'sequential'")),
        C,
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_each_claim_is_judged_by_its_own_rows(name: str):
    claim, make, verdict = JUDGED[name]
    found = fit(judge(REGISTRY[claim], make()))
    assert found.verdict == verdict, found


def test_each_claim_is_judged_here_once_where_it_holds_and_once_where_it_does_not():
    at_length = {FLAT, FLAT_PRICE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE, *ARITHMETIC}
    ways = {
        claim.id: {verdict for id, _, verdict in JUDGED.values() if id == claim.id}
        for claim in claims_of(claims)
    }
    assert {id for id, found in ways.items() if not {H, F} <= found} <= at_length


def test_on_the_textbooks_machine_its_claims_hold():
    found = words(textbook())
    assert {
        found[id]
        for id in (FLAT, FLAT_PRICE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE, *ARITHMETIC)
    } == {H}


def test_the_published_loop_is_numpys_and_without_it_nothing_stands_in():
    rows = frame(TEXTBOOK)
    faster = (rows["engine"] == "numpy") & (rows["lines"] > 1000)
    with_numpy, without = (
        rows.assign(ns_per_access=rows["ns_per_access"].where(~faster, 0.6)),
        rows.query("engine != 'numpy'"),
    )
    assert [words(analysis(each))[FOURFOLD] for each in (rows, with_numpy, without)] == [H, F, C]


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
        assert {timed[id] for id in steps} == {N}
        if counts:
            assert [words(counted(truth))[id] for id in steps] == counts


def test_a_walks_price_over_memory_is_the_ratio_of_two_independent_medians_less_one():
    """(S - P) / P takes the noise of P twice."""
    a = of(FAR, repeats=5)
    (effect,) = judge(REGISTRY["miss-dearer-than-an-l3-miss"], a).effects
    whole = a.spread.last / a.packed.last
    assert effect.interval[:3] == pytest.approx([bound - 1 for bound in whole[:3]])


@pytest.mark.parametrize(("walk_ns", "verdict"), [(2.0, F), (9.0, H), (40.0, F)])
def test_a_fourfold_rise_is_neither_twice_nor_fourteen_times(walk_ns: float, verdict: str):
    assert words(of(Truth(walk_ns=walk_ns)))[FOURFOLD] == verdict


def test_a_rise_whose_interval_spans_the_line_cannot_be_told():
    found = judged(of(Truth(walk_ns=12.0, noise=0.08)))[
        FOURFOLD
    ]  # fivefold, the upper line, give or take a tenth
    assert found.verdict == C and re.search(
        r"[45]\.\d\d \([34]\.\d\d to [56]\.\d\d\)", found.evidence
    )


@pytest.mark.parametrize(("climb", "verdict"), [(0.9, F), (1.02, F), (1.15, H)])
def test_a_price_climbs_if_it_grows_by_more_than_5_percent_an_octave(climb: float, verdict: str):
    assert words(of(Truth(climb=climb, noise=0.002)))[CLIMBING] == verdict


def test_a_sweep_that_ends_before_a_gibibyte_cannot_tell_whether_it_climbs_there():
    found = judged(of(Truth(climb=1.3), grid(512 * MIB)))[CLIMBING]
    assert (found.verdict, "262,144" in found.evidence) == (C, True)


def test_a_gibibyte_has_as_many_pages_as_the_machines_own_make_it():
    """Four times as large, they are a quarter as many, and were measured up to 4 GiB of 4 KiB: so
    16 GiB of them."""
    found = judged(
        analysis(
            frame(Truth(climb=1.3), grid(512 * MIB)), Stated(changes={"base_page_bytes": 16384})
        )
    )[CLIMBING]
    assert found.verdict == H and "512 KiB" in found.evidence


def test_a_step_of_hashed_sets_is_not_that_of_full_associativity():
    found = judged(of(Truth(missed=hashed)))
    assert (found[ASSOCIATIVE].verdict, found[CAPACITY].verdict) == (F, H)
    assert 1.3 < float(re.search(r"factor of ([\d.]+)", found[ASSOCIATIVE].evidence)[1]) < 4


@pytest.mark.parametrize("entries", [(64, 1500), (72, 3072)])
def test_a_sharp_step_is_sharp_wherever_it_stands_between_the_points(entries: tuple[int, int]):
    assert (
        words(of(Truth(entries=entries), grid(GIB, entries), Stated(tlb=tlbs(entries))))[
            ASSOCIATIVE
        ]
        == H
    )


def test_a_grid_without_a_zoom_cannot_tell_a_sharp_step_from_a_wide_one():
    """Nor where between two of its points a step is: a whole octave apart, each of these is at one
    of the two ends."""
    assert words(of(Truth(), grid(64 * MIB, per_octave=1)))[ASSOCIATIVE] == C
    for entries in (1030, 2040):
        assert (
            words(of(Truth(entries=(64, entries)), grid(64 * MIB, per_octave=1)))[
                "cliff-at-stated-entries"
            ]
            == C
        )


@pytest.mark.parametrize(("step_ns", "verdict"), [(0.5, H), (1.0, C), (9 / 7, F)])
def test_a_cache_that_shares_a_tenth_of_the_rise_leaves_capacity_open(step_ns: float, verdict: str):
    assert words(of(Truth(cache_step=(1537, step_ns), noise=0.002)))[CAPACITY] == verdict


def test_a_noisy_control_leaves_capacity_open():
    rows = frame(Truth())
    packed = rows["layout"] == "packed"
    rows.loc[packed & (rows["repeat"] > 4), "ns_per_access"] *= 6
    assert (words(analysis(rows))[CAPACITY], words(textbook())[CAPACITY]) == (C, H)


def test_a_cache_that_ends_below_the_stlb_bends_the_latency_and_not_the_price():
    found = words(of(Truth(cache_step=(400, 4.0))))
    assert (found[FLAT], found[FLAT_PRICE]) == (F, H)


def test_a_machine_without_a_cliff_has_no_step_to_explain():
    found = judged(of(Truth(hit_ns=0.0, walk_ns=0.0)))
    assert {name: found[name].verdict for name in (FLAT, FOURFOLD, CAPACITY, ASSOCIATIVE)} == {
        FLAT: H,
        FOURFOLD: F,
        CAPACITY: C,
        ASSOCIATIVE: C,
    }
    assert H not in (found[FLAT_PRICE].verdict, found[CLIMBING].verdict)
    assert all(
        found[name].evidence.startswith("The data show no step") for name in (CAPACITY, ASSOCIATIVE)
    )


def test_a_second_level_that_is_larger_than_stated_is_no_step_at_the_stated_size():
    found = words(of(Truth(entries=(64, 2**19))))
    assert [found[name] for name in (FOURFOLD, CAPACITY, ASSOCIATIVE)] == [F, C, C]


@pytest.mark.parametrize("levels", [0, 1])
def test_where_cpuid_is_silent_what_hangs_on_the_entries_cannot_be_told_and_all_else_can(
    levels: int,
):
    found, known = (
        judged(of(Truth(climb=1.3), stated=Stated(tlb=tlbs()[:levels]))),
        judged(of(Truth(climb=1.3))),
    )
    why = REASONS["one-level" if levels else "no-geometry"].sentence.rstrip(".")
    silent = {
        name for name, one in found.items() if one.verdict == C and one.evidence.startswith(why)
    }
    assert silent == {
        FLAT,
        FLAT_PRICE,
        FOURFOLD,
        CAPACITY,
        ASSOCIATIVE,
        "first-level-ceiling-at-256-kib",
        "cliff-at-stated-entries",
        "step-not-slow-degradation",
        "every-access-misses-past-capacity",
        "under-1500-pages-fine",
        "knee-at-capacity",
        "walk-60-to-250-cycles",
        "sequential-order-warms-the-walker",
    }
    assert {name: one.verdict for name, one in found.items() if name not in silent} == {
        name: one.verdict for name, one in known.items() if name not in silent
    }


@pytest.mark.parametrize("largest", [64 << 10, MIB])
def test_a_sweep_of_tiny_sizes_can_tell_nothing(largest: int):
    found = words(of(Truth(), grid(largest)))
    assert {found[name] for name in (FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE)} == {C}
    assert {
        name for name, verdict in found.items() if verdict != C
    } <= {  # what needs no size past the second level
        FLAT,
        FLAT_PRICE,
        "gather-one-ns-at-256kib",
        "four-reads-cost-400-ns",
        "miss-dearer-than-an-l3-miss",
        "prefaulted-loop-takes-no-faults",
        "first-level-ceiling-at-256-kib",
        *ARITHMETIC,
    }


def test_fewer_than_five_processes_decide_nothing_that_was_timed():
    found = words(of(TEXTBOOK, repeats=4))
    assert {name for name, verdict in found.items() if verdict != C} == {
        "prefaulted-loop-takes-no-faults",
        *ARITHMETIC,
    }
    assert C not in {
        words(of(TEXTBOOK, repeats=5))[name]
        for name in (FLAT, FLAT_PRICE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE)
    }


def test_whoever_draws_a_line_elsewhere_gets_the_verdict_of_that_line():
    """The price's medians vary by some per cent, and a walk of 9 ns on 3 is a factor of 4."""
    bands = {
        "price_is_flat": {"most": 1.0001},
        "latency_is_flat": {"most": 1.0001},
        "rises_fourfold": {"band": (5.0, 6.0)},
        "climbs_at_a_gibibyte": {"band": (2.0, 9.0)},
        "capacity_alone": {"most": -1.0},
        "is_fully_associative": {"most": 1.0},
    }
    found = words(textbook(), **bands)
    assert found[FOURFOLD] == found[CLIMBING] == found[CAPACITY] == F
    assert H not in (found[FLAT], found[FLAT_PRICE], found[ASSOCIATIVE])


def test_each_claim_names_the_points_that_it_compares():
    """Of the grid some and not all; and on a computer of another reach others."""
    points = grid()
    orders = {
        "knee-at-capacity": {"random"},
        "sequential-order-warms-the-walker": {"cycle", "sequential"},
    }
    for claim in claims_of(claims):
        if claim.points is None:
            assert claim.id in (*ARITHMETIC, "prefaulted-loop-takes-no-faults")
            continue
        compared = [point for point in points if claim.points(point, scope())]
        gathers = "gather" in claim.id
        assert 0 < len(compared) < len(points) / 2 and {point.kernel for point in compared} == {
            "page_gather" if gathers else "page_chase"
        }, claim.id
        assert {(point.order, point.pages) for point in compared} == {
            (order, "4k") for order in orders.get(claim.id, {"cycle"})
        }
        assert {point.layout for point in compared} == (
            {"spread"}
            if claim.id == FLAT or gathers and "hundred" not in claim.id
            else {"spread", "packed"}
        )
