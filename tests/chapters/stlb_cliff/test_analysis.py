"""What the cliff's rows say of machines whose truth is known: the staircase, the fits, and what was
not measured."""

import pytest
from support.common import refusal
from support.stlb_cliff import DEARER, analysis, counted, hashed, kind, of
from support.synthetic import MIB, Stated, Truth, frame, grid, tlbs

from experiments.stlb_cliff.analysis import COUNTING_MACHINE
from tlb.stats import misses

pytestmark = pytest.mark.filterwarnings("error")

PLAIN = Truth()


@pytest.mark.parametrize("name", ["the textbook's", "noise", "no zoom"])
@pytest.mark.parametrize("repeats", [1, 5])
def test_a_price_is_the_difference_at_each_size_that_has_its_control(name, repeats):
    a = kind(name, repeats)
    spread, packed = a.spread.medians, a.packed.medians
    assert (
        sorted([*a.price.xs, *a.price.gaps]) == sorted(set(spread.index) & set(packed.index))
        and a.largest == a.price.xs[-1]
    )
    assert a.price.medians.to_numpy() == pytest.approx((spread - packed)[a.price.xs].to_numpy())
    assert name == "noise" or not a.price.gaps


# --- the staircase


def test_the_staircase_finds_heights_and_places_as_they_are():
    steps = of(PLAIN).steps
    assert (steps.hit_ns, steps.walk_ns) == pytest.approx((2, 11), rel=0.03)
    assert steps.first_step == pytest.approx(64, rel=0.1)
    for place in (steps.second_begins, steps.second_step, steps.second_ends):
        assert place == pytest.approx(1536, rel=0.1)
    assert steps.second_begins <= steps.second_step <= steps.second_ends


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_is_never_a_step(seed):
    assert (
        refusal(lambda: of(Truth(hit_ns=0.0, walk_ns=0.0, noise=0.05), seed=seed).steps)
        == "no-step"
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("no cliff", "no-step"),
        ("CPUID silent", "no-geometry"),
        ("one level stated", "one-level"),
        ("tiny sizes", "too-few-points"),
        ("small sizes", "too-few-points"),
    ],
)
def test_a_step_that_is_not_there_has_no_place_and_a_reason(name, code):
    assert refusal(lambda: kind(name).steps) == code


# --- fits


def test_the_kind_of_tlb_is_told_from_its_step():
    assert of(PLAIN).fits[0].kind == misses.TEXTBOOK
    assert of(Truth(missed=hashed)).fits[0].kind == "hashed sets, random replacement"


def test_where_walks_are_counted_the_step_is_theirs_and_not_that_of_their_price():
    by_time, by_walks = of(DEARER), counted()
    assert (by_time.is_counted, by_walks.is_counted) == (False, True)
    width_by_time, width_by_walks = (
        a.steps.second_ends / a.steps.second_begins for a in (by_time, by_walks)
    )
    assert width_by_time > 1.5 and by_time.fits[0].residual > 1
    assert (
        width_by_walks < 1.1
        and by_walks.fits[0].kind == misses.TEXTBOOK
        and by_walks.fits[0].residual == 0
    )
    assert by_walks.second_step(0.5).low <= 1536 <= by_walks.second_step(0.5).high
    assert by_walks.models[misses.TEXTBOOK]["median"].isin([0.0, 1.0]).all()


def test_where_the_ways_are_unknown_no_kind_of_sets_is_claimed():
    a = of(Truth(missed=hashed), stated=Stated(tlb=tlbs(ways=(None, None))))
    assert set(a.models) == {"fully associative, LRU", "fully associative, random replacement"}


def test_the_random_order_gives_the_costs_of_its_model():
    fit, part = of(PLAIN, grid(per_octave=4)).random_fit
    assert fit.stlb_cost_ns.value == pytest.approx(
        2, rel=0.05
    ) and fit.walk_ns.value == pytest.approx(9, rel=0.05)
    assert fit.walk_ns.low < 9 < fit.walk_ns.high
    assert part.xs[-1] <= 4 * 1536


def test_a_random_order_that_was_not_measured_cannot_be_fitted():
    rows = frame(PLAIN)
    a = analysis(rows[rows["order"] != "random"])
    assert refusal(lambda: a.random_fit) == "too-few-points"


# --- the clock, and counts of another machine


def test_walks_are_another_machines_only_where_this_one_counted_none():
    a = counted()
    assert a.counting is a
    other = of(PLAIN).counting
    assert other.about.machine == COUNTING_MACHINE and other.is_counted


def test_draws_that_never_left_the_second_level_say_nothing_of_a_walk():
    a = of(PLAIN, grid(4 * MIB, per_octave=4))
    assert refusal(lambda: a.random_fit) == "too-few-points"
