"""The chart of rates shows those of its table."""

from __future__ import annotations

import pytest
from support.keeping_pages import analysis, rows

from experiments.keeping_pages import figures
from tlb.page_sizes import SWEPT

pytestmark = pytest.mark.filterwarnings("error")


def test_the_rates_drawn_are_those_of_the_table_with_their_bounds_in_order():
    a = analysis()
    data = figures.prefault(a).data
    assert data["gb_per_s"].to_numpy() == pytest.approx(
        a.faults[a.faults["pages"].isin(SWEPT)]["gb_per_s"].to_numpy()
    )
    assert (data["slow"] <= data["gb_per_s"]).all() and (data["gb_per_s"] <= data["fast"]).all()
    best = (
        4096
        / rows()
        .query("pages == 'thp' and mode == 'populate' and threads == 4")["ns_per_access"]
        .median()
    )
    assert f"thp {best:.1f} GB/s" in figures.prefault(a).alt
