"""The measured geometry as a staircase: on machines of one level and of two, whatever they lack."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from support.pages import Elements
from support.your_machine import LINES, PENALTY, STEPS, SURVEYS, geometry, measured, surveyed

from experiments.article.render import Figure
from experiments.chapters.your_machine.figures import staircase
from experiments.words.reasons import Unavailable


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def layers(figure: Figure, mark: str, **of_mark: object) -> list[list[dict]]:
    """The rows that each layer of a mark draws."""
    spec = figure.spec()
    wanted = [layer for layer in spec["layer"] if layer["mark"]["type"] == mark and of_mark.items() <= layer["mark"].items()]
    return [spec["datasets"][layer.get("data", spec.get("data"))["name"]] for layer in wanted]


@pytest.mark.parametrize("name", SURVEYS)
def test_every_survey_has_a_figure_that_is_drawn(name: str):
    frame, found = SURVEYS[name]
    drawn = Elements(staircase(surveyed(frame, found)).svg())
    assert drawn.tags.count("svg") == 1
    treads = ["hits in the L1 dTLB", "hits in the STLB", "walks"] if len(found.levels) == 2 else ["hits in the L1 dTLB", "walks"]
    assert [text for text in drawn.text if text in treads] == treads
    assert f"{found.unit} per access" in drawn.text


def test_a_rule_stands_at_the_entries_of_each_level_with_its_name():
    (rules,) = layers(staircase(surveyed(*SURVEYS["two levels"])), "rule", strokeDash=[4, 4])
    assert [(rule["lines"], rule["label"]) for rule in rules] == [(64, "L1 dTLB: 64"), (2048, "STLB: 2,048")]


def test_each_label_stands_on_its_tread():
    treads, = (rows for rows in layers(staircase(surveyed(*SURVEYS["two levels"])), "text") if "start" in rows[0])
    assert [(row["start"], row["end"]) for row in treads] == [(16, 64), (65, 2048), (2049, 16384)]
    assert all(row["start"] < row["lines"] < row["end"] for row in treads)
    assert [row["cost"] for row in treads] == pytest.approx([4, 11, 41])  # of the lower curve, which a label is written below


def test_the_text_alternative_names_the_steps_and_the_treads():
    two, one = (staircase(surveyed(*SURVEYS[name])).alt for name in ("two levels", "one level"))
    for words in ("64 pages and 2,048 pages", "L1 dTLB from 16 to 64", "STLB from 65 to 2,048", "walks from 2,049 to 16,384"):
        assert words in two
    assert "L1 dTLB from 16 to 64" in one and "STLB" not in one


@pytest.mark.parametrize(("name", "series"), [
    ("two levels", {"spread - packed", "alias"}), ("alias alone", {"alias"}), ("price alone", {"spread - packed"}),
    ("no clock", {"spread - packed", "alias"})])
def test_the_data_are_both_curves_in_the_unit_of_the_axis(name: str, series: set[str]):
    data = staircase(surveyed(*SURVEYS[name])).data
    assert [*data.columns] == ["series", "lines", "cost", "low", "high", "n"]
    assert set(data["series"]) == series
    for drawn in series:
        first = 4 + (PENALTY if drawn == "alias" else 0)
        mine = data[data["series"] == drawn]
        assert dict(zip(mine["lines"], mine["cost"], strict=True)) == pytest.approx(
            {n: first + (7 if n > 64 else 0) + (30 if n > 2048 else 0) for n in LINES[1:]})
    assert (data["n"] == 1).all()


def test_a_control_dearer_than_its_chase_leaves_a_tenth_of_it():
    frame = measured()
    frame.loc[(frame["layout"] == "packed") & (frame["lines"] == 32), "ns_per_access"] = 50.0
    data = staircase(surveyed(frame, geometry())).data
    assert data.query("series == 'spread - packed' and lines == 32")["cost"].item() == pytest.approx(0.4)


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
