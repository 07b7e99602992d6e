"""Which rows speak for a computer: of its present state, of its kernels as they are, and of one
engine."""

import pandas as pd
import pytest

from tlb.measure import build, row_tables
from tlb.measure.build import Kernel
from tlb.measure.record import KernelBuild
from tlb.system.reasons import Unavailable

GONE = {"gone": "bad-parameter", "page_gather": "no-compiler", "page_store": "engine-lacks"}
NOW = {
    ("page_chase", "c"): KernelBuild(2, "cc 12"),
    ("page_chase", "numba"): KernelBuild(2, "python 3.11"),
    ("graph_walk", "c"): KernelBuild(1, "cc 12"),
}


def frame(*rows: tuple[str, str, int, str, str]) -> pd.DataFrame:
    columns = ["kernel", "engine", "measures", "compiler", "state"]
    return pd.DataFrame(rows, columns=columns).assign(number=range(len(rows)))


@pytest.fixture(autouse=True)
def kernels_of_today(monkeypatch):
    def kernel(name: str, engine: str) -> Kernel:
        if (name, engine) not in NOW:
            raise Unavailable(GONE.get(name, "compile-failed"))
        return Kernel(name, engine, ("true",), "a" * 16, NOW[name, engine])

    monkeypatch.setattr(build, "kernel", kernel)


def test_rows_of_another_state_version_or_compiler_are_left_out_in_their_order():
    there = frame(
        ("page_chase", "c", 2, "cc 12", "now"),
        ("page_chase", "c", 1, "cc 12", "now"),
        ("page_chase", "c", 2, "cc 11", "now"),
        ("page_chase", "numba", 2, "python 3.11", "now"),
        ("graph_walk", "c", 1, "cc 12", "then"),
        ("graph_walk", "c", 1, "cc 12", "now"),
        *((name, "c", 1, "cc 12", "now") for name in GONE),
    )
    kept = row_tables.current_rows(there, "now")
    assert list(kept["number"]) == [0, 3, 5]
    assert list(kept.index) == [0, 1, 2] and list(kept) == list(there)


def test_a_kernel_that_does_not_compile_is_no_kernel_that_is_gone():
    with pytest.raises(Unavailable, match="compile"):
        row_tables.current_rows(frame(("shootdown", "c", 1, "cc 12", "now")), "now")


BOTH = frame(
    ("page_chase", "c", 2, "cc 12", "now"),
    ("page_chase", "numba", 2, "python 3.11", "now"),
    ("graph_walk", "numba", 1, "python 3.11", "now"),
)


@pytest.mark.parametrize(
    ("asked", "engine", "numbers"),
    [
        (
            {("page_chase", "numba")},
            "c",
            [1, 2],
        ),  # the other kernel has rows of the other engine alone
        ({("page_chase", "c"), ("page_chase", "numba")}, "c", [0, 1, 2]),
        (set(), "c", [0, 2]),
        (set(), "numba", [1, 2]),
        ({("graph_walk", "c")}, "numba", [1]),  # asked for by an engine that it has no rows of
    ],
)
def test_no_median_mixes_two_engines(asked, engine, numbers):
    kept = row_tables.rows_of_one_engine(BOTH, asked, engine)
    assert (
        list(kept["number"]) == numbers
        and list(kept.index) == [*range(len(numbers))]
        and list(kept) == list(BOTH)
    )


def test_a_disturbed_row_of_few_mappings_is_left_out_and_of_many_kept():
    points = [("4k", n, noisy) for n, noisy in enumerate(["", "stolen", "", "", ""])]
    points += [("thp", n, noisy) for n, noisy in enumerate(["stolen", ""])]
    rows = pd.DataFrame(points, columns=["pages", "repeat", "noisy"]).assign(kernel="page_chase")
    kept = row_tables.without_disturbed_of_few(rows, 5)
    assert list(zip(kept["pages"], kept["repeat"], strict=True)) == [
        *(("4k", n) for n in range(5)),
        ("thp", 1),
    ]
