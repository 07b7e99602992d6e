"""The verdicts about strides on machines where each sentence is true, or is not, or cannot be
tested."""

import dataclasses

import pytest
from support.strides import Machine, analysis, rows
from support.synthetic import words_of

from experiments.tlb_blocking import claims

pytestmark = pytest.mark.filterwarnings("error")

WALKS_ALONE = Machine(line_ns=1.0, apart_ns=0.0, sets_ns=0.0, walk_ns=10.0, walks=0.99)
LINES_ALONE = Machine(walk_ns=1e-6)


def told(machine: Machine, splintered: bool = False) -> dict[str, str]:
    return words_of(claims, analysis(rows(machine), splintered))


TRUE = {
    "page-strides-miss",
    "stride-miss-penalty-10-ns",
    "every-page-stride-misses",
    "penalty-is-fixed",
    "strides-4k-and-8k-alike",
    "stride-64-misses-the-cache",
    "stride-4k-misses-both",
    "slowdown-512-to-4k-is-tlb",
}


def test_a_machine_on_which_walks_are_all_that_costs_bears_them_out():
    found = told(WALKS_ALONE)
    assert {found[claim] for claim in TRUE} == {"holds"}


def test_where_lines_are_all_that_costs_what_is_said_of_translation_fails():
    found = told(LINES_ALONE)
    assert {
        found[claim] for claim in ("stride-miss-penalty-10-ns", "slowdown-512-to-4k-is-tlb")
    } == {"fails"}
    assert (
        found["small-strides-hit"] == "holds"
        and found["every-page-stride-misses"] == "not testable here"
    )


PRICE = {
    "small-strides-hit",
    "stride-miss-penalty-10-ns",
    "penalty-is-fixed",
    "stride-512-misses-the-cache-alone",
    "slowdown-64-to-512-is-cache",
    "page-stride-hits-up-to-large-reach",
}
LOWER_BOUND = {"page-strides-miss", "stride-4k-misses-both"}


def test_on_pages_that_the_host_splinters_only_what_they_can_show_is_judged():
    found = told(Machine(splintered=True), splintered=True)
    assert {found[claim] for claim in PRICE} == {"not testable here"}
    assert {found[claim] for claim in LOWER_BOUND | {"strides-4k-and-8k-alike"}} == {"holds"}
    assert (
        found["slowdown-512-to-4k-is-tlb"] == "fails"
    )  # few sets cost a part of it, which needs no large pages
    assert (
        told(dataclasses.replace(WALKS_ALONE, splintered=True), splintered=True)[
            "slowdown-512-to-4k-is-tlb"
        ]
        == "not testable here"
    )
    faster = rows(Machine(splintered=True)).assign(
        pages=lambda kept: kept["pages"].replace({"4k": "2m", "2m": "4k", "thp": "none"})
    )
    swapped = words_of(claims, analysis(faster, splintered=True))
    assert {swapped[claim] for claim in LOWER_BOUND} == {"not testable here"}


@pytest.mark.parametrize(("walk_ns", "verdict"), [(3.0, "fails"), (9.0, "not testable here")])
def test_the_upper_bound_of_splintered_pages_refutes_a_penalty_and_supports_none(walk_ns, verdict):
    """Of spread lines over packed ones, 2.5 ns are no translation: the penalty is at most 5.5, or
    11.5, which fits the band of 7.5 to 12.5 as less would."""
    found = told(Machine(walk_ns=walk_ns, splintered=True), splintered=True)
    assert {found[claim] for claim in ("stride-miss-penalty-10-ns", "penalty-is-fixed")} == {
        verdict
    }


@pytest.mark.parametrize(("beyond_one_a_page", "verdict"), [(0.0, "holds"), (0.2, "fails")])
def test_where_walks_are_counted_they_decide_whether_small_strides_hit(beyond_one_a_page, verdict):
    counted = rows(Machine(walks=1.0, splintered=True))
    counted["walk_per_access"] += beyond_one_a_page
    found = words_of(claims, analysis(counted, splintered=True))
    hits = ("small-strides-hit", "stride-512-misses-the-cache-alone")
    assert {found[claim] for claim in hits} == {verdict}
