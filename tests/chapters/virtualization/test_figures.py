"""Figures and tables of guests, on machines that never were."""

from __future__ import annotations

import pytest
from support.guests import chased, of, rows
from support.pages import Elements

from experiments.virtualization import figures
from tlb.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")
FIGURES = ("guest_matrix", "guest_lines", "guest_steps", "guest_ratios", "guest_references")


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("guest_matrix", "no guest"),
        ("guest_ratios", "no native"),
        ("guest_references", "no controls"),
        ("guest_steps", "no controls"),
        ("guest_lines", "nothing"),
        ("guest_counts", "no guest"),
        ("guest_touches", "no guest"),
        ("guest_touches", "no results of its own"),
        ("containers", "nothing"),
    ],
)
def test_a_figure_or_table_without_rows_is_a_reason(name: str, machine: str):
    with pytest.raises(Unavailable) as why:
        getattr(figures, name)(of(machine))
    assert why.value.code == "too-few-points"


def test_the_heat_map_shows_each_cell_once_a_size_with_the_plain_process_beside_it():
    figure = figures.guest_matrix(of())
    assert (
        len(figure.data) == 4 * 3 * 5
        and not figure.data.duplicated(["guest", "host", "lines"]).any()
    )
    assert f"{chased(rows(), '4k', '4k', 262144):.3g}" in "".join(Elements(figure.svg()).text)
    beside = figure.data.query("host == 'no guest' and guest == '2m' and lines == 262144")
    assert beside["median"].item() == pytest.approx(chased(rows(), "", "2m", 262144))
