"""The figures of the chapter about the graph: each of every frame, or the reason why there is none,
and what its data are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.synthetic import HOLE, Truth
from support.synthetic import frame as chases
from support.walk import FRAMES, Walk, analysis, rows

from experiments.graph_walk import Analysis, figures
from tlb.inference.intervals import Interval
from tlb.reasons import Unavailable
from tlb.report.render import Figure
from tlb.units import rounded

pytestmark = pytest.mark.filterwarnings("error")
OF_ROWS = ("quantiles", "ridges", "walk_misses", "walkers")


def drawn(name: str, a: Analysis) -> Figure | None:
    try:
        figure = getattr(figures, name)(a)
    except Unavailable:
        return None
    assert figure.named(name).svg() and not HOLE.search(figure.alt), figure.alt
    return figure


@pytest.mark.parametrize("name", ["everything", "base pages alone", "no single hops", "nothing"])
def test_every_figure_of_every_frame_renders_or_says_why_not(name: str):
    made = [drawn(figure, analysis(FRAMES[name]())) for figure in OF_ROWS]
    assert all(made) or name != "everything"
    assert any(made) or name == "nothing"


def test_ridges_keep_the_shape_of_the_densities_and_not_their_points():
    a = analysis()
    data = drawn("ridges", a).data
    assert len(data) < len(a.ridges) / 2
    for size, full in a.ridges.groupby("working_set_bytes"):
        thin = data[data["working_set_bytes"] == size]
        again = np.interp(full["ns"].map(rounded), thin["ns"], thin["share_per_ns"])
        assert np.abs(again - full["share_per_ns"]).max() < 0.012 * full["share_per_ns"].max()


@pytest.mark.parametrize("name", ["counted", "base pages alone"])
def test_misses_are_drawn_with_what_they_are(name: str):
    a = analysis(FRAMES[name]())
    data = drawn("walk_misses", a).data
    assert set(data["series"]) == {"predicted, 1 − C/M", "published"} | (
        {"counted"} if name == "counted" else set()
    )
    predicted = data[data["series"] == "predicted, 1 − C/M"].set_index(
        ["pages", "working_set_bytes"]
    )["median"]
    assert predicted["4k", 256 << 10] == 0 and set(data["pages"]) <= {"4k", "thp", "2m", "1g"}
    simulated = analysis(rows(Walk(counted=True)))
    simulated.about.machine = "simulated-1"
    assert "simulated" in set(drawn("walk_misses", simulated).data["series"])


def test_the_model_is_drawn_and_its_parameters_are_in_a_table():
    a = analysis(
        stlb_cliff=chases(Truth(cache_step=(512, 3.0), noise=0.01), repeats=3).assign(state="s")
    )
    assert set(drawn("model", a).data["seen"]) == {"fitted", "held out"}
    loose = Interval(8.0, 1.0, 80.0, 0.95)
    a.fitted = replace(a.fitted, parameters=a.fitted.parameters | {"l2_smear_ways": loose})
    table = dict(line.split("\t", 1) for line in figures.parameters(a).text.splitlines()[1:])
    assert [name.replace(" ", "_") for name in table] == list(a.fitted.parameters)
    assert table["walk ns"].startswith(f"{a.fitted.parameters['walk_ns'].value:,.3g}\t")
    assert table["l2 smear ways"].startswith("–\tnot determined")
    with pytest.raises(Unavailable):
        figures.parameters(analysis())
