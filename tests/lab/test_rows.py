"""Which rows speak for a computer: of its present state, of its kernels as they are, and of one
engine."""

import math

import pandas as pd
import pytest

from tlb.lab import build, rows
from tlb.lab.record import Identity, Point
from tlb.reasons import Unavailable

GONE = {"gone": "bad-parameter", "page_gather": "no-compiler", "page_store": "engine-lacks"}
NOW = {
    ("page_chase", "c"): "a",
    ("page_chase", "numba"): "b",
    ("graph_walk", "c"): "c",
}  # the digests of what the kernels run


def frame(*lines: tuple[str, str, str, str]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=["kernel", "engine", "kernel_digest", "state"]).assign(
        number=range(len(lines)), mode="", layout="spread", order="cycle", measures=1
    )


@pytest.fixture(autouse=True)
def kernels_of_today(monkeypatch):
    def identity(point: Point) -> Identity:
        program = point.kernel, point.engine
        if program not in NOW:
            raise Unavailable(GONE.get(point.kernel, "compile-failed"))
        return Identity(
            1,
            NOW[program]
            + ("" if point.order == "cycle" else point.order)
            + "".join(f"{n}{v}" for n, v in point.options),
        )

    monkeypatch.setattr(build, "identities", lambda: identity)


def test_rows_of_another_state_or_kernel_are_left_out_in_their_order():
    there = frame(
        ("page_chase", "c", "a", "now"),
        ("page_chase", "c", "old", "now"),
        ("page_chase", "numba", "b", "now"),
        ("page_chase", "numba", "a", "now"),
        ("graph_walk", "c", "c", "then"),
        ("graph_walk", "c", "c", "now"),
    )
    kept = rows.current(there, "now")
    assert (
        list(kept["number"]) == [0, 2, 5]
        and list(kept.index) == [0, 1, 2]
        and list(kept) == list(there)
    )


def test_a_row_is_of_the_function_that_its_point_runs_and_of_the_version_of_what_that_measures():
    there = pd.concat(
        [
            frame(*[("graph_walk", "c", digest, "now")] * 2).assign(**changes)
            for digest, changes in [
                ("c", {"measures": [1, 2]}),
                ("crandom", {"order": ["random", "cycle"]}),
                ("cwalkers2", {"walkers": [2.0, math.nan]}),
            ]
        ]
    )
    assert list(rows.current(there, "now")["number"]) == [0, 0, 0]


BOTH = frame(
    ("page_chase", "c", "a", "now"),
    ("page_chase", "numba", "b", "now"),
    ("graph_walk", "numba", "d", "now"),
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
    kept = rows.of_one_engine(BOTH, asked, engine)
    assert (
        list(kept["number"]) == numbers
        and list(kept.index) == [*range(len(numbers))]
        and list(kept) == list(BOTH)
    )
