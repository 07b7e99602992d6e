"""The charts: drawn on every machine that has their rows, the numbers told beside them."""

from __future__ import annotations

import json

import pytest
from support.keeping_pages import MACHINES, analysis, only, rows
from support.pages import Elements
from support.synthetic import HOLE

from experiments.chapters.keeping_pages import figures
from experiments.words.pages import SWEPT
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")
COLUMNS = {figures.ladder: {"pages", "median", "low", "high", "lines"},
           figures.prefault: {"pages", "mode", "threads", "gb_per_s", "slow", "fast", "free_ns", "one_byte_bytes", "n"}}


@pytest.mark.parametrize("machine", ["everything", "splintered", "no ladder", "base pages alone", "one repeat", "one CPU"])
@pytest.mark.parametrize("make", COLUMNS, ids=lambda make: make.__name__)
def test_every_figure_is_drawn_on_every_machine_that_has_its_rows(make, machine: str):
    figure = make(analysis(MACHINES[machine]()))
    assert COLUMNS[make] <= set(figure.data.columns) and len(figure.csv().splitlines()) == len(figure.data) + 1
    json.dumps(figure.spec(), allow_nan=False)
    if machine == "everything":
        assert Elements(figure.svg()).tags.count("svg") == 1
    assert not HOLE.search(figure.alt.replace("(", "")) and figure.alt.endswith(".")


def test_the_rates_drawn_are_those_of_the_table_with_their_bounds_in_order():
    a = analysis()
    data = figures.prefault(a).data
    assert data["gb_per_s"].to_numpy() == pytest.approx(a.faults[a.faults["pages"].isin(SWEPT)]["gb_per_s"].to_numpy())
    assert (data["slow"] <= data["gb_per_s"]).all() and (data["gb_per_s"] <= data["fast"]).all()
    best = 4096 / rows().query("pages == 'thp' and mode == 'populate' and threads == 4")["ns_per_access"].median()
    assert f"thp {best:.1f} GB/s" in figures.prefault(a).alt


@pytest.mark.parametrize(("make", "code"), [(figures.ladder, "too-few-points"), (figures.prefault, "engine-lacks")])
def test_a_figure_without_rows_is_a_reason(make, code: str):
    with pytest.raises(Unavailable) as why:
        make(analysis(only()))
    assert why.value.code == code
