"""What the cliff's rows say of machines whose truth is known: the staircase, counted walks, and what
was not measured."""

from dataclasses import replace

import pytest
from support.common import refusal
from support.stlb_cliff import DEARER, counted, kind, of
from support.synthetic import Truth

pytestmark = pytest.mark.filterwarnings("error")

PLAIN = Truth()


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
        ("one level stated", "no-geometry"),
        ("tiny sizes", "too-few-points"),
        ("small sizes", "too-few-points"),
    ],
)
def test_a_step_that_is_not_there_has_no_place_and_a_reason(name, code):
    assert refusal(lambda: kind(name).steps) == code


# --- counts


def test_where_walks_are_counted_the_step_is_theirs_and_not_that_of_their_price():
    by_time, by_walks = of(DEARER), counted()
    assert (by_time.is_counted, by_walks.is_counted) == (False, True)
    width_by_time, width_by_walks = (
        a.steps.second_ends / a.steps.second_begins for a in (by_time, by_walks)
    )
    assert width_by_time > 1.5 and width_by_walks < 1.1
    assert by_walks.second_step(0.5).low <= 1536 <= by_walks.second_step(0.5).high


def test_the_share_of_walks_is_read_at_a_multiple_of_the_entries():
    a = counted()
    assert a.walks_near(-0.5).value == 0 and a.walks_near(0.5).value == 1


def test_sizes_without_a_price_are_a_range_only_if_none_between_them_has_one():
    a = of(Truth(cache_step=(3500, 8.0)))
    first, *_, last = a.price.gaps
    ends = [end * a.base_page_bytes for end in (first, last)]
    assert [a.unpriced_bytes(min), a.unpriced_bytes()] == ends
    a.price = replace(a.price, gaps=(*a.price.gaps, a.price.xs[-1]))
    assert refusal(a.unpriced_bytes) == "control-elsewhere"
