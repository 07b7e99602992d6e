"""The same points measured twice: which rows are of one program, which are of one run, and what
their ratio can tell."""

from math import exp, log

import numpy as np
import pandas as pd
import pytest

from experiments.overview.machine_pairs import (
    PAUSE_S,
    Pair,
    point_pairs,
    rows_of_shared_kernels,
    run_numbers,
)
from tlb.stats.intervals import median_interval


def rows(
    times: list[float],
    lines: int = 64,
    kernel: str = "page_chase",
    state: str = "s",
    run: list[int] | int = 0,
    engine: str = "c",
    measures: int = 1,
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kernel": kernel,
            "engine": engine,
            "state": state,
            "lines": lines,
            "ns": times,
            "run": run,
            "measures": measures,
        }
    )


def compared(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[float], list[float], set[str]]:
    """The times of both sides that are of the same kernels, and what is left out."""
    mine, theirs, left_out = rows_of_shared_kernels(a, b)
    return mine["ns"].tolist(), theirs["ns"].tolist(), left_out


def both(*frames: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)


def pair_of(a: list[float], b: list[float]) -> Pair:
    ((_, pair),) = point_pairs(rows(a), rows(b), ["kernel", "lines"], "ns")
    return pair


# --- runs


def test_a_pause_begins_another_run_in_whatever_order_rows_stand():
    begins = pd.Timestamp("2026-01-31T23:00:00Z")
    seconds = [0.0, 10.0, PAUSE_S + 5, 2 * PAUSE_S + 30, 2 * PAUSE_S + 31]
    stamps = pd.Series(
        [(begins + pd.Timedelta(seconds=s)).strftime("%Y-%m-%dT%H:%M:%SZ") for s in seconds],
        index=[4, 2, 9, 7, 1],
    )
    assert run_numbers(stamps).to_dict() == {4: 0, 2: 0, 9: 0, 7: 1, 1: 1}
    shuffled = stamps.iloc[[3, 0, 4, 2, 1]]
    assert run_numbers(shuffled).tolist() == [1, 0, 1, 0, 0]


# --- programs


def test_rows_are_compared_of_the_kernels_that_are_on_both_sides():
    a = both(rows([1.0]), rows([3.0], kernel="page_gather"))
    b = both(rows([4.0]), rows([6.0], kernel="stride_sum"))
    assert compared(a, b) == ([1.0], [4.0], set())


def test_two_versions_of_what_a_kernel_measures_are_never_compared():
    first, second = (rows([float(measures)], measures=measures) for measures in (1, 2))
    assert compared(first, second) == ([], [], {"page_chase"})
    assert compared(both(second, first), first) == ([1.0], [1.0], set())
    assert compared(both(second, first), both(first, second)) == ([2.0], [2.0], set())


# --- pairs


def test_a_pair_has_the_medians_and_the_ratio_of_its_point_and_of_no_other():
    a = both(rows([1.0, 2.0, 3.0]), rows([7.0], lines=128), rows([9.0], lines=512))
    b = both(rows([4.0, 4.0, 5.0, np.nan]), rows([14.0, 14.0], lines=128), rows([9.0], lines=256))
    found = dict(point_pairs(a, b, ["kernel", "lines"], "ns"))
    assert set(found) == {("page_chase", 64), ("page_chase", 128)}
    near, far = found["page_chase", 64], found["page_chase", 128]
    assert (near.a, near.b, near.processes, near.runs) == (
        median_interval([1, 2, 3]),
        median_interval([4, 4, 5]),
        (3, 3),
        (1, 1),
    )
    assert near.ratio == median_interval([4, 4, 5]) / median_interval([1, 2, 3])
    assert (far.ratio.value, far.processes) == (2.0, (1, 2))


def test_runs_that_differ_say_by_how_much_and_lend_it_to_points_of_one_run():
    a = both(rows([1.0, 1.1, 2.0, 2.2], run=[0, 0, 1, 1]), rows([5.0, 5.0], lines=128))
    found = dict(
        point_pairs(a, both(rows([3.0]), rows([5.0], lines=128)), ["kernel", "lines"], "ns")
    )
    near, far = found["page_chase", 64], found["page_chase", 128]
    assert near.runs == (2, 1) and near.spread == pytest.approx(2.1 / 1.05) == far.spread
    assert far.runs == (1, 1) and far.slack == near.slack == pytest.approx(log(2.0))


@pytest.mark.parametrize("among", [1, 40])
def test_a_pair_the_other_way_round_is_the_inverse(among):
    slow, fast = [2.0, 2.1, 2.2, 2.9, 3.0], [1.0, 1.1, 1.3, 1.4, 1.9]
    one, other = pair_of(fast, slow), pair_of(slow, fast)
    wide, back = one.widened(among), other.widened(among)
    assert (wide.low, wide.high) == pytest.approx((1 / back.high, 1 / back.low))
    assert one.would_show(among) == pytest.approx(
        other.would_show(among)
    ) and one.logs.value == pytest.approx(-other.logs.value)
    assert exp(one.logs.value) == pytest.approx(one.ratio.value)
