"""The measured geometry as a staircase: on machines of one level and of two, whatever they lack."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from support.your_machine import LINES, PENALTY, STEPS, SURVEYS, geometry, measured, surveyed

from experiments.your_machine.figures import staircase
from tlb.reasons import Unavailable


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("two levels", {"spread - packed", "alias"}),
        ("alias alone", {"alias"}),
        ("price alone", {"spread - packed"}),
        ("no clock", {"spread - packed", "alias"}),
    ],
)
def test_the_data_are_both_curves_in_the_unit_of_the_axis(name: str, series: set[str]):
    data = staircase(surveyed(*SURVEYS[name])).data
    assert [*data.columns] == ["series", "lines", "cost", "low", "high", "n"]
    assert set(data["series"]) == series
    for drawn in series:
        first = 4 + (PENALTY if drawn == "alias" else 0)
        mine = data[data["series"] == drawn]
        assert dict(zip(mine["lines"], mine["cost"], strict=True)) == pytest.approx(
            {n: first + (7 if n > 64 else 0) + (30 if n > 2048 else 0) for n in LINES[1:]}
        )
    assert (data["n"] == 1).all()


def test_a_control_dearer_than_its_chase_leaves_a_tenth_of_it():
    frame = measured()
    frame.loc[(frame["layout"] == "packed") & (frame["lines"] == 32), "ns_per_access"] = 50.0
    data = staircase(surveyed(frame, geometry())).data
    assert data.query("series == 'spread - packed' and lines == 32")[
        "cost"
    ].item() == pytest.approx(0.4)


def test_prices_that_would_flatten_the_stairs_are_left_out():
    frame = measured((*STEPS, (8192, 4 * 60)))
    assert staircase(surveyed(frame, geometry())).data["lines"].max() == 8192
    frame = measured((*STEPS, (8192, 4 * 60 - 60)))
    assert staircase(surveyed(frame, geometry())).data["lines"].max() == 16384


def test_rows_without_a_point_of_the_stairs_have_no_figure():
    for frame in (measured(tried=(8,)), measured().query("layout == 'packed'")):
        with pytest.raises(Unavailable) as why:
            staircase(surveyed(frame, geometry()))
        assert why.value.code == "too-few-points"
