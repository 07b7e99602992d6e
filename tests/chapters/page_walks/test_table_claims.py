"""Verdicts about walks on machines where each sentence holds, fails or cannot be tested."""

import pandas as pd
import pytest
from support.synthetic import words_of
from support.tables import MACHINES, Walker, analysis, rows

from experiments.page_walks import claims

pytestmark = pytest.mark.filterwarnings("error")

HOLD = {
    "walk-caches-hold-upper-entries",
    "walk-caches-hold-three-levels",
    "full-walks-would-hurt",
    "few-ranges-pay-30-cycles",
    "scattered-ranges-pay-200-cycles",
}
WARM = Walker(
    leaf_ns=10.0, read_ns=(30.0, 30.0, 30.0)
)  # 30 cycles at 3 GHz, and 300 with nothing kept


def told(walker: Walker, **about: str) -> dict[str, str]:
    return words_of(claims, analysis(rows(walker), **about))


def test_a_machine_that_keeps_upper_entries_reads_fewer_levels():
    found = told(WARM)
    assert {found[claim] for claim in HOLD} == {"holds"} and found[
        "every-walk-visits-all-levels"
    ] == "fails"
    assert (
        found["smaller-tables-cheapen-walks"] == "not testable here"
    )  # cycles of a walk were not counted
    assert found["walk-caches-hide-the-fifth-level"] in {"not testable here", "cannot tell"}


def test_without_a_step_it_is_open_whether_anything_is_kept():
    found = words_of(claims, analysis(MACHINES["no upper caches"]()))
    assert {
        found[claim] for claim in ("every-walk-visits-all-levels", "walk-caches-hold-three-levels")
    } == {"cannot tell"}
    assert found["walk-caches-hold-upper-entries"] != "holds"


def test_a_guest_judges_no_walk_of_one_dimension():
    found = told(WARM, hypervisor="kvm")
    assert {
        found[claim]
        for claim in (
            "warm-walk-reads-one-line",
            "upper-entries-stay-cached",
            "walk-caches-hold-upper-entries",
            "walk-caches-hold-three-levels",
            "every-walk-visits-all-levels",
            "few-ranges-pay-30-cycles",
            "scattered-ranges-pay-200-cycles",
        )
    } == {"not testable here"}
    assert found["full-walks-would-hurt"] == "holds"


@pytest.mark.parametrize(("on_base", "verdict"), [(90.0, "holds"), (20.0, "fails")])
def test_what_a_walk_costs_by_page_size_is_counted_in_the_sources_own_loops(on_base, verdict):
    counted = pd.DataFrame(
        [
            {
                "kernel": kernel,
                "pages": pages,
                "working_set_bytes": size,
                "walk_per_access": 0.9,
                "walk_cycles_per_access": 0.9 * cycles * (1 + noise / 1000),
            }
            for kernel in ("random_touch", "graph_walk")
            for pages, cycles in (("4k", on_base), ("2m", 30.0))
            for size in (1 << 28, 1 << 30)
            for noise in range(5)
        ]
    )
    a = analysis(pd.concat([rows(), counted]))
    a.about.rows |= {"hugepages": pd.concat([a.about.rows["hugepages"], counted])}
    found = words_of(claims, a)
    counted = ("smaller-tables-cheapen-walks", "large-pages-keep-tables-cached")
    assert {found[id] for id in counted} == {verdict}
