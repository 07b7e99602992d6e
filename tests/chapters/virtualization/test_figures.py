"""Figures and tables of guests, on machines that never were."""

from __future__ import annotations

import pytest
from support.guests import CELLS, chased, of, rows
from support.pages import Elements

from experiments.chapters.virtualization import figures
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")
FIGURES = ("guest_matrix", "guest_lines", "guest_steps", "guest_ratios", "guest_references")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_becomes_a_picture(name: str):
    for machine in ("bare metal", "one cell"):
        assert Elements(getattr(figures, name)(of(machine)).svg()).tags.count("svg") == 1


@pytest.mark.parametrize(("name", "machine"), [
    ("guest_matrix", "no guest"), ("guest_ratios", "no native"), ("guest_references", "no controls"), ("guest_steps", "no controls"),
    ("guest_lines", "nothing"), ("guest_counts", "no guest"), ("guest_touches", "no guest"), ("guest_touches", "no results of its own"),
    ("containers", "nothing")])
def test_a_figure_or_table_without_rows_is_a_reason(name: str, machine: str):
    with pytest.raises(Unavailable) as why:
        getattr(figures, name)(of(machine))
    assert why.value.code == "too-few-points"


def test_the_heat_map_shows_each_cell_once_a_size_with_the_plain_process_beside_it():
    figure = figures.guest_matrix(of())
    assert len(figure.data) == 4 * 3 * 5 and not figure.data.duplicated(["guest", "host", "lines"]).any()
    assert f"{chased(rows(), '4k', '4k', 262144):.3g}" in "".join(Elements(figure.svg()).text)
    beside = figure.data.query("host == 'no guest' and guest == '2m' and lines == 262144")
    assert beside["median"].item() == pytest.approx(chased(rows(), "", "2m", 262144))


def test_lines_and_steps_show_the_cells_of_the_steps_and_the_plain_process():
    names = ["no guest, 4k", "no guest, thp", "4k on 4k", "4k on thp", "2m on 4k", "2m on thp"]
    time, price = figures.guest_lines(of()).data, figures.guest_steps(of()).data
    assert set(time["series"]) == set(price["series"]) == set(names) and price["lines"].max() <= 1 << 15 < time["lines"].max()
    far, near = (data.query("series == '2m on 4k' and lines == 1024")["median"].item() for data in (time, price))
    spread, packed = (chased(rows(), "2m", "4k", 1024, layout) for layout in ("spread", "packed"))
    assert far == pytest.approx(spread) and near == pytest.approx(spread - packed)
    assert set(figures.guest_lines(of("no guest")).data["series"]) == set(names[:2])


def test_tables_have_a_row_a_cell_and_a_row_a_depth():
    assert len(figures.guest_counts(of()).text.splitlines()) == 1 + len(CELLS) == len(figures.guest_touches(of()).text.splitlines())
    assert [line.split("\t")[1:] for line in figures.guest_depths(of()).text.splitlines()[1:]] == [["24", "29"], ["29", "35"]]
    assert figures.guest_counts(of()).text.splitlines()[1].split("\t")[:3] == ["4k on 4k", "24", "24"]
    inside = [line.split("\t")[:3] for line in figures.containers(of()).text.splitlines()[1:]]
    assert ["spread", "262,144", "1 GiB"] in inside and ["packed", "262,144", "16 MiB"] in inside
