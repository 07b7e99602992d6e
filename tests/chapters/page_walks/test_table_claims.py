"""Verdicts about walks on machines where each sentence holds, fails or cannot be tested."""

import pytest
from support.synthetic import words_of
from support.tables import MACHINES, Walker, analysis, rows

from experiments.page_walks import claims

pytestmark = pytest.mark.filterwarnings("error")

HOLD = {
    "walk-caches-hold-upper-entries",
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


def test_without_a_step_it_is_open_whether_anything_is_kept():
    found = words_of(claims, analysis(MACHINES["no upper caches"]()))
    assert found["every-walk-visits-all-levels"] == "cannot tell"
    assert found["walk-caches-hold-upper-entries"] != "holds"


def test_a_guest_judges_no_walk_of_one_dimension():
    found = told(WARM, hypervisor="kvm")
    assert {
        found[claim] for claim in ("walk-caches-hold-upper-entries", "every-walk-visits-all-levels")
    } == {"not testable here"}
    # Its source's machine is a guest too, so what a miss costs there is judged.
    assert found["few-ranges-pay-30-cycles"] == found["full-walks-would-hurt"] == "holds"
