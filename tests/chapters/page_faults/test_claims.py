"""The verdicts about page faults on kernels where each sentence is true, or is not, or cannot be
tested."""

import pandas as pd
import pytest
from support.faults import NOTHING, Kernel, analysis, rows
from support.synthetic import words_of

from experiments.page_faults import claims


def told(frame: pd.DataFrame | None = None, **about: object) -> dict[str, str]:
    return words_of(claims, analysis(frame, **about))


def test_on_an_ordinary_kernel_what_is_known_of_faults_holds():
    found = told()
    assert {
        found[claim]
        for claim in (
            "only-used-parts-have-tables",
            "fault-affects-2-mib",
            "fewer-faults-on-large-pages",
            "kernel-walks-elsewhere-too",
        )
    } == {"holds"}
    assert found["lower-locks-per-page"] == "cannot tell"


def test_on_a_kernel_that_does_otherwise_it_fails():
    frame = rows().assign(
        untouched_table_bytes=24576.0, one_byte_resident_bytes=4096.0, protect_ns_per_access=0.1
    )
    found = told(frame)
    assert (
        found["only-used-parts-have-tables"]
        == found["fault-affects-2-mib"]
        == found["kernel-walks-elsewhere-too"]
        == "fails"
    )
    slower = rows().copy()
    slower.loc[slower["threads"] == 2, "ns_per_access"] *= 4
    assert told(slower)["lower-locks-per-page"] == "fails"


def test_what_was_printed_is_judged_by_arithmetic_on_any_machine():
    found = told(NOTHING)
    assert found["fault-difference-is-significant"] == "holds"
    assert found["mode-holds-most-faults"] == "holds"


@pytest.mark.parametrize(
    ("host", "side", "verdict"),
    [
        ({"la57": False}, {}, "not testable here"),
        ({"la57": True, "page_table_levels": 5}, {}, "holds"),
        ({"la57": True}, {}, "cannot tell"),
        ({"la57": True}, {"no5lvl": True}, "cannot tell"),
        ({"arch": "aarch64", "vendor": "ARM", "la57": None}, {}, "not testable here"),
    ],
)
def test_five_levels_are_judged_where_there_are_five(host, side, verdict):
    assert told(host=host, **side)["five-levels-by-default"] == verdict


@pytest.mark.parametrize(
    ("flag", "high", "verdict"),
    [
        (False, False, "holds"),
        (True, True, "holds"),
        (True, False, "fails"),
        (False, None, "cannot tell"),
    ],
)
def test_the_flag_is_held_against_a_mapping(flag, high, verdict):
    assert told(la57_flag=flag, high_mapping=high)["lscpu-tells-five-levels"] == verdict


def test_with_one_cpu_two_threads_are_not_testable():
    assert told(rows(Kernel(cpus=1)), cpus=1)["lower-locks-per-page"] == "not testable here"
