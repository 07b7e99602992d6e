"""The claims about the cliff, judged on machines whose truth is known: holds, fails, or cannot tell and why."""

from __future__ import annotations

import re

import pytest
from support.stlb_cliff import analysis, hashed, of
from support.synthetic import GIB, MIB, Stated, Truth, fit_to_be_shown, frame, grid, tlbs

from experiments.article.verdicts import Claim, Verdict, claims_of, judge, verdicts
from experiments.chapters.stlb_cliff import Analysis, claims
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

FLAT, FLAT_PRICE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE = (
    "latency-flat-below-reach", "price-flat-below-reach", "fourfold-within-a-doubling", "climbs-at-a-gibibyte", "capacity-alone",
    "sharp-so-associative")
H, F, C = "holds", "fails", "cannot tell"


def judged(a: Analysis, **bands: dict) -> dict[str, Verdict]:
    """Each claim's verdict, found fit to be shown, by its id."""
    return {found.claim.id: found for found in fit_to_be_shown(verdicts(claims, a, **bands), 6)}


def words(a: Analysis, **bands: dict) -> dict[str, str]:
    return {name: found.verdict for name, found in judged(a, **bands).items()}


def test_on_the_textbooks_machine_every_claim_holds():
    assert words(analysis()) == dict.fromkeys((FLAT, FLAT_PRICE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE), H)


@pytest.mark.parametrize(("walk_ns", "verdict"), [(2.0, F), (9.0, H), (40.0, F)])
def test_a_fourfold_rise_is_neither_twice_nor_fourteen_times(walk_ns: float, verdict: str):
    assert words(of(Truth(walk_ns=walk_ns)))[FOURFOLD] == verdict


def test_a_rise_whose_interval_spans_the_line_cannot_be_told():
    found = judged(of(Truth(walk_ns=12.0, noise=0.08)))[FOURFOLD]  # fivefold, the upper line, give or take a tenth
    assert found.verdict == C and re.search(r"[45]\.\d\d \([34]\.\d\d to [56]\.\d\d\)", found.evidence)


@pytest.mark.parametrize(("climb", "verdict"), [(1.0, F), (0.9, F), (1.02, F), (1.15, H), (1.5, H)])
def test_a_price_climbs_if_it_grows_by_more_than_5_percent_an_octave(climb: float, verdict: str):
    assert words(of(Truth(climb=climb, noise=0.002)))[CLIMBING] == verdict


def test_a_sweep_that_ends_before_a_gibibyte_cannot_tell_whether_it_climbs_there():
    found = judged(of(Truth(climb=1.3), grid(512 * MIB)))[CLIMBING]
    assert (found.verdict, "262,144" in found.evidence) == (C, True)


def test_a_gibibyte_has_as_many_pages_as_the_machines_own_make_it():
    """Four times as large, they are a quarter as many, and were measured up to 4 GiB of 4 KiB: so 16 GiB of them."""
    found = judged(analysis(frame(Truth(climb=1.3), grid(512 * MIB)), Stated(changes={"base_page_bytes": 16384})))[CLIMBING]
    assert found.verdict == H and "512 KiB" in found.evidence


def test_a_step_of_hashed_sets_is_not_that_of_full_associativity():
    found = judged(of(Truth(missed=hashed)))
    assert (found[ASSOCIATIVE].verdict, found[CAPACITY].verdict) == (F, H)
    assert 1.3 < float(re.search(r"([\d.]+)\.$", found[ASSOCIATIVE].evidence)[1]) < 4


@pytest.mark.parametrize("entries", [(64, 1536), (64, 1500), (72, 3072), (48, 1280)])
def test_a_sharp_step_is_sharp_wherever_it_stands_between_the_points(entries: tuple[int, int]):
    assert words(of(Truth(entries=entries), grid(GIB, entries), Stated(tlb=tlbs(entries))))[ASSOCIATIVE] == H


def test_a_grid_without_a_zoom_cannot_tell_a_sharp_step_from_a_wide_one():
    found = judged(of(Truth(), grid(64 * MIB, per_octave=1)))[ASSOCIATIVE]
    assert found.verdict == C and "too few" in found.evidence


def test_a_cache_that_ends_where_the_tlb_does_takes_the_credit_from_capacity():
    assert words(of(Truth(cache_step=(1537, 5.0))))[CAPACITY] == F


def test_a_cache_that_shares_an_eighth_of_the_rise_leaves_capacity_open():
    assert words(of(Truth(cache_step=(1537, 9 / 7), noise=0.002)))[CAPACITY] == C


def test_a_noisy_control_is_told():
    rows = frame(Truth())
    packed = rows["layout"] == "packed"
    rows.loc[packed & (rows["repeat"] > 4), "ns_per_access"] *= 6
    assert "noisy" in judged(analysis(rows))[CAPACITY].evidence and "noisy" not in judged(analysis())[CAPACITY].evidence


def test_a_cache_that_ends_below_the_stlb_bends_the_latency_and_not_the_price():
    found = words(of(Truth(cache_step=(400, 4.0))))
    assert (found[FLAT], found[FLAT_PRICE]) == (F, H)


def test_a_machine_without_a_cliff_has_no_step_to_explain():
    found = judged(of(Truth(hit_ns=0.0, walk_ns=0.0)))
    assert {name: found[name].verdict for name in (FLAT, FOURFOLD, CAPACITY, ASSOCIATIVE)} == {
        FLAT: H, FOURFOLD: F, CAPACITY: C, ASSOCIATIVE: C}
    assert H not in (found[FLAT_PRICE].verdict, found[CLIMBING].verdict)
    assert all(found[name].evidence.startswith("The data show no step") for name in (CAPACITY, ASSOCIATIVE))


def test_a_second_level_that_is_larger_than_stated_is_no_step_at_the_stated_size():
    found = words(of(Truth(entries=(64, 2**19))))
    assert [found[name] for name in (FOURFOLD, CAPACITY, ASSOCIATIVE)] == [F, C, C]


@pytest.mark.parametrize("levels", [0, 1])
def test_where_cpuid_is_silent_only_the_gibibyte_can_be_judged(levels: int):
    found = judged(of(Truth(climb=1.3), stated=Stated(tlb=tlbs()[:levels])))
    assert {name: one.verdict for name, one in found.items()} == dict.fromkeys(found, C) | {CLIMBING: H}
    assert all("CPUID" in one.evidence for one in found.values() if one.verdict == C)


@pytest.mark.parametrize("largest", [64 << 10, 128 << 10, MIB])
def test_a_sweep_of_tiny_sizes_can_tell_nothing(largest: int):
    found = words(of(Truth(), grid(largest)))
    assert set(found.values()) <= {C, H}
    assert {found[name] for name in (FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE)} == {C}


def test_a_single_repeat_never_lets_a_claim_fail_by_error():
    judged(of(Truth(), repeats=1))


def test_a_spread_point_without_its_control_has_no_price_and_does_no_harm():
    rows = frame(Truth(climb=1.3))
    lone = (rows["layout"] == "packed") & (rows["lines"] == rows["lines"].max())
    assert set(words(analysis(rows[~lone])).values()) == {H}


def test_whoever_draws_a_line_elsewhere_gets_the_verdict_of_that_line():
    """The price's medians vary by some per cent, and a walk of 9 ns on 3 is a factor of 4."""
    bands = {"price_is_flat": {"most": 1.0001}, "latency_is_flat": {"most": 1.0001}, "rises_fourfold": {"band": (5.0, 6.0)},
             "climbs_at_a_gibibyte": {"least": 2.0}, "capacity_alone": {"most": -1.0}, "is_fully_associative": {"most": 1.0}}
    found = words(analysis(), **bands)
    assert found[FOURFOLD] == found[CLIMBING] == found[CAPACITY] == F
    assert H not in (found[FLAT], found[FLAT_PRICE], found[ASSOCIATIVE])


def test_another_definition_of_the_price_is_judged_in_its_place():
    a = analysis()
    a.price = a.spread / a.packed
    assert words(a)[CLIMBING] == H
    a.price = a.packed / a.packed
    assert words(a)[CLIMBING] == F


def test_each_claim_names_the_points_that_it_compares():
    points = grid()
    for claim in claims_of(claims):
        compared = [point for point in points if claim.points(point)]
        assert {(point.kernel, point.order, point.pages) for point in compared} == {("page_chase", "cycle", "4k")}
        layouts = {point.layout for point in compared}
        assert layouts == ({"spread"} if claim.id in (FLAT, FOURFOLD) else {"spread", "packed"})


def test_what_decides_says_true_false_or_neither_and_an_error_is_no_verdict():
    def claim(decide) -> Claim:
        return Claim("made-up", "padho_tlb", "c", decide, None)

    def refuses(a):
        raise Unavailable("no-pmu")

    a = analysis()
    assert [judge(claim(lambda a, t=truth: (t, "e")), a).verdict for truth in (True, False, None)] == [H, F, C]
    assert (judge(claim(refuses), a).verdict, judge(claim(refuses), a).evidence) == (C, str(Unavailable("no-pmu")))
    with pytest.raises(ZeroDivisionError):
        judge(claim(lambda a: (1 / 0 > 0, "e")), a)
