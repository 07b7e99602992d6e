"""What the charts are made of: every series once, its band beside it, scales that hold the data, rules at capacities."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
import pytest

from experiments.article import charts
from experiments.article.render import PALETTE, Figure
from experiments.words.pages import SWEPT

FRAME = pd.DataFrame({
    "working_set_bytes": [2**16, 2**18, 2**20] * 2, "lines": [16, 64, 256] * 2, "layout": ["spread"] * 3 + ["packed"] * 3,
    "n": 5,
    "median": [1.0, 5.0, 20.0, 1.0, 1.1, 1.2], "low": [0.9, 4.0, 18.0, 0.9, 1.0, np.nan], "high": [1.1, 6.0, 30.0, 1.1, 1.2, np.nan],
})


def series(frame: pd.DataFrame = FRAME, **how: object) -> dict:
    x = charts.working_set(4096)
    chart = charts.series_chart(frame, x, "ns", charts.time_scale(frame), charts.TIMES, charts.LAYOUTS, "layout", **how)  # type: ignore[arg-type]
    return Figure(chart, "Two lines.", frame).spec()


def marks(spec: dict) -> list[str]:
    return [layer["mark"]["type"] for layer in spec["layer"]]


def test_a_chart_of_series_carries_its_data_once_and_draws_a_band_a_series_a_line_and_points():
    spec = series()
    assert len(spec["datasets"]) == 1 and marks(spec) == ["area", "area", "line", "point"]
    assert [layer["transform"][0]["filter"]["equal"] for layer in spec["layer"][:2]] == ["spread", "packed"]
    assert [layer["mark"]["color"] for layer in spec["layer"][:2]] == list(PALETTE[:2])


def test_a_series_that_does_not_occur_or_has_no_interval_has_no_band():
    alone = FRAME[FRAME["layout"] == "packed"]
    assert marks(series(alone)) == ["area", "line", "point"]
    assert marks(series(FRAME.assign(low=np.nan, high=np.nan))) == ["line", "point"]


def test_lines_join_those_that_are_named():
    (line,) = [layer for layer in series(joined=["packed"])["layer"] if layer["mark"]["type"] == "line"]
    assert line["transform"][0]["filter"]["oneOf"] == ["packed"]


def test_ticks_that_lie_outside_of_the_data_are_left_out():
    axis = series()["layer"][-1]["encoding"]["y"]["axis"]
    assert axis["values"] == [1, 3, 10, 30]


def test_scales_hold_the_data_with_its_intervals():
    low, high = charts.price_scale(FRAME.assign(low=-2.0)).domain
    assert low == -2.0 and high > 30
    low, high = charts.time_scale(FRAME).domain
    assert 0 < low < 1.0 and high > 30
    assert charts.price_scale(FRAME).domain[0] == 0


@pytest.mark.parametrize("kinds", [["4k"], ["1g", "4k"], [*SWEPT], [*reversed(SWEPT)]])
def test_a_page_size_has_its_colour_in_every_figure(kinds: list[str]):
    scale = charts.page_colours(kinds)
    assert scale.domain == [pages for pages in SWEPT if pages in kinds]
    assert scale.range == [charts.PAGE_COLOURS[pages] for pages in scale.domain] and len(set(charts.PAGE_COLOURS.values())) == len(SWEPT)


def test_rules_stand_at_the_capacities_of_the_first_and_the_last_level_in_the_axis_own_unit():
    assert [n for n, _ in charts.reaches([64, 512, 1536])] == [64, 1536] and charts.reaches([]) == []
    assert [n for n, _ in charts.reaches([72])] == [72]
    assert charts.capacities([]) is None
    for page in (4096, 16384):
        spec = Figure(charts.capacities([64, 1536], base_page_bytes=page), "Rules.", FRAME).spec()  # type: ignore[arg-type]
        places = [row["working_set_bytes"] for row in spec["datasets"][spec["layer"][0]["data"]["name"]]]
        assert places == [64 * page, 1536 * page]


def test_labels_of_rules_stand_a_line_below_one_another():
    spec = Figure(charts.marks([(1, "a"), (2, "b"), (3, "c")], "x"), "Rules.", FRAME).spec()
    heights = [layer["mark"]["dy"] for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    assert len(set(np.diff(heights))) == 1 and heights[1] - heights[0] > 13


def test_layers_that_there_are_not_are_left_out():
    point = alt.Chart(FRAME).mark_point().encode(x="n:Q")
    assert len(charts.layered(point, None, point).layer) == 2


def test_names_stand_above_their_rows_in_the_order_that_was_given_and_take_no_width():
    data = pd.DataFrame({"name": ["second", "first"], "ns": [2.0, 1.0]})
    points = alt.Chart(data).mark_point().encode(x="ns:Q", y=charts.row("name", ["first", "second"]))
    spec = Figure(charts.rows("name", ["first", "second"], points), "It rises.", data).spec()
    assert spec["height"] == 2 * charts.ROW_PX
    drawn = {layer["mark"]["type"]: layer["encoding"] for layer in spec["layer"]}
    assert {encoding["y"]["axis"] for encoding in drawn.values()} == {None}
    assert [encoding["y"]["sort"] for encoding in drawn.values()] == [["first", "second"]] * 2
    assert drawn["text"]["x"] == {"value": 0} and drawn["text"]["text"]["field"] == "name"
