"""The claims about the cliff, judged on machines whose truth is known: holds, fails, or cannot tell and why."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from support.synthetic import GIB, MIB, Truth, frame, grid

from experiments.inference import curves as claims
from experiments.inference import misses as model
from experiments.inference.curves import Verdict, judge
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

FLAT, FLAT_PRICE, FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE = range(6)
H, F, C = "holds", "fails", "cannot tell"
CPUID = [64, 1536]


def verdicts(rows: pd.DataFrame, entries: list[int] = CPUID) -> list[Verdict]:
    """Of each claim, each a sentence with evidence fit to be shown."""
    found = claims.cliff(rows, entries, MIB)
    assert len(found) == 6
    for claim, verdict, evidence in found:
        assert verdict in (H, F, C)
        for text in (claim, evidence):
            assert text == text.strip() and text.endswith(".") and len(text.splitlines()) == 1
            assert not re.search(r"\b(nan|inf|None)\b|-0(\.0+)?(?![.\d])|[\[\]{}]", text), text
    return found


def judged(rows: pd.DataFrame, entries: list[int] = CPUID) -> list[str]:
    return [verdict for _, verdict, _ in verdicts(rows, entries)]


def smeared(order: str, lines: np.ndarray, entries: int) -> np.ndarray:
    """Misses of hashed sets that replace at random."""
    return model.hashed_random_replacement(lines, entries // 12, 12)


def test_on_the_textbooks_machine_every_claim_holds():
    assert judged(frame(Truth(climb=1.3))) == [H, H, H, H, H, H]


@pytest.mark.parametrize(("walk_ns", "verdict"), [(2.0, F), (9.0, H), (40.0, F)])
def test_a_fourfold_rise_is_neither_twice_nor_fourteen_times(walk_ns: float, verdict: str):
    assert judged(frame(Truth(walk_ns=walk_ns)))[FOURFOLD] == verdict


def test_a_rise_whose_interval_spans_the_line_cannot_be_told():
    rows = frame(Truth(walk_ns=12.0, noise=0.08))  # fivefold, the upper line, give or take a tenth
    found = verdicts(rows)[FOURFOLD]
    assert found.verdict == C and re.search(r"factor of [45]\.\d\d \([34]\.\d\d to [56]\.\d\d\)", found.evidence)


@pytest.mark.parametrize(("climb", "verdict"), [(1.0, F), (0.9, F), (1.02, F), (1.15, H), (1.5, H)])
def test_a_price_climbs_if_it_grows_by_more_than_5_percent_an_octave(climb: float, verdict: str):
    assert judged(frame(Truth(climb=climb, noise=0.002)))[CLIMBING] == verdict


def test_a_sweep_that_ends_before_a_gibibyte_cannot_tell_whether_it_climbs_there():
    found = verdicts(frame(Truth(climb=1.3), grid(512 * MIB)))[CLIMBING]
    assert (found.verdict, "262144" in found.evidence) == (C, True)


def test_a_step_of_hashed_sets_is_not_that_of_full_associativity():
    found = verdicts(frame(Truth(missed=smeared)))
    assert found[ASSOCIATIVE].verdict == F
    width = float(re.search(r"a factor of ([\d.]+)\.", found[ASSOCIATIVE].evidence)[1])
    assert 1.3 < width < 4
    assert found[CAPACITY].verdict == H


@pytest.mark.parametrize("entries", [(64, 1536), (64, 1500), (72, 3072), (48, 1280)])
def test_a_sharp_step_is_sharp_wherever_it_stands_between_the_points(entries: tuple[int, int]):
    assert judged(frame(Truth(entries=entries), grid(GIB, entries)), list(entries))[ASSOCIATIVE] == H


def test_a_grid_without_a_zoom_cannot_tell_a_sharp_step_from_a_wide_one():
    found = verdicts(frame(Truth(), grid(64 * MIB, per_octave=1)))[ASSOCIATIVE]
    assert found.verdict == C and "too few" in found.evidence


def test_a_cache_that_ends_where_the_tlb_does_takes_the_credit_from_capacity():
    assert judged(frame(Truth(cache_step=(1537, 5.0))))[CAPACITY] == F


def test_a_cache_that_shares_an_eighth_of_the_rise_leaves_capacity_open():
    assert judged(frame(Truth(cache_step=(1537, 9 / 7), noise=0.002)))[CAPACITY] == C


def test_a_cache_that_ends_below_the_stlb_bends_the_latency_and_not_the_price():
    found = judged(frame(Truth(cache_step=(400, 4.0))))
    assert (found[FLAT], found[FLAT_PRICE]) == (F, H)


def test_a_machine_without_a_cliff_has_no_step_to_explain():
    found = verdicts(frame(Truth(hit_ns=0.0, walk_ns=0.0)))
    assert [one.verdict for one in found] == [H, found[FLAT_PRICE].verdict, F, found[CLIMBING].verdict, C, C]
    assert H not in (found[FLAT_PRICE].verdict, found[CLIMBING].verdict)
    for number in (CAPACITY, ASSOCIATIVE):
        assert found[number].evidence.startswith("The data show no step")


def test_a_second_level_that_is_larger_than_stated_is_no_step_at_the_stated_size():
    found = verdicts(frame(Truth(entries=(64, 2**19))))
    assert [found[i].verdict for i in (FOURFOLD, CAPACITY, ASSOCIATIVE)] == [F, C, C]


def test_noise_alone_is_never_a_step():
    for seed in range(5):
        with pytest.raises(Unavailable) as refused:
            claims.staircase(frame(Truth(hit_ns=0.0, walk_ns=0.0, noise=0.05), seed=seed), CPUID)
        assert refused.value.code == "no-step"


@pytest.mark.parametrize("entries", [[], [64]])
def test_where_cpuid_is_silent_only_the_gibibyte_can_be_judged(entries: list[int]):
    found = verdicts(frame(Truth(climb=1.3)), entries)
    assert [one.verdict for one in found] == [C, C, C, H, C, C]
    assert all("CPUID" in one.evidence for one in found if one.verdict == C)


@pytest.mark.parametrize("largest", [64 << 10, 128 << 10, MIB])
def test_a_sweep_of_tiny_sizes_can_tell_nothing(largest: int):
    found = verdicts(frame(Truth(), grid(largest)))
    assert {one.verdict for one in found} <= {C, H}
    assert {found[i].verdict for i in (FOURFOLD, CLIMBING, CAPACITY, ASSOCIATIVE)} == {C}


def test_a_single_repeat_never_lets_a_claim_fail_by_error():
    assert len(judged(frame(Truth(), repeats=1))) == 6


def test_a_spread_point_without_its_control_has_no_price_and_does_no_harm():
    rows = frame(Truth(climb=1.3))
    lone = (rows["layout"] == "packed") & (rows["lines"] == rows["lines"].max())
    assert judged(rows[~lone]) == [H, H, H, H, H, H]


# --- the measure of the staircase


def test_the_staircase_finds_heights_and_places_as_they_are():
    steps = claims.staircase(frame(Truth()), CPUID)
    assert (steps.stlb_hit_ns, steps.walk_ns) == pytest.approx((2, 11), rel=0.03)
    assert steps.first_step == pytest.approx(64, rel=0.1)
    for place in (steps.second_begins, steps.second_step, steps.second_ends):
        assert place == pytest.approx(1536, rel=0.1)
    assert steps.second_begins <= steps.second_step <= steps.second_ends


def test_a_crossing_is_interpolated_in_the_logarithm_and_is_the_last_one():
    priced = pd.DataFrame({"lines": [10, 20, 40, 80, 160], "median": [0.0, 5.0, 1.0, 3.0, 9.0]})
    assert claims.crossing(priced, 2.0, 1, 1000) == pytest.approx(40 * 2**0.5)
    with pytest.raises(Unavailable) as refused:
        claims.crossing(priced, 10.0, 1, 1000)
    assert refused.value.code == "no-step"
    with pytest.raises(Unavailable) as refused:
        claims.crossing(priced, 2.0, 500, 1000)
    assert refused.value.code == "too-few-points"


def test_what_decides_may_say_true_false_or_neither_or_that_it_cannot():
    def refuses() -> tuple[bool, str]:
        raise Unavailable("no-pmu")

    assert judge("c", lambda: (True, "e")) == ("c", H, "e")
    assert judge("c", lambda: (False, "e")) == ("c", F, "e")
    assert judge("c", lambda: (None, "e")) == ("c", C, "e")
    assert judge("c", refuses)[1:] == (C, str(Unavailable("no-pmu")))


def test_an_error_that_is_no_reason_is_not_turned_into_a_verdict():
    with pytest.raises(ZeroDivisionError):
        judge("c", lambda: (1 / 0 > 0, "e"))
