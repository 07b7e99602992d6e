"""What others published in a figure: drawn from the start, taken away by a switch, and drawn once where the reference is beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pandas as pd
import pytest
import vl_convert
from support import blocking, hugepages, stlb_cliff, strides, walk
from support.synthetic import GIB

from experiments import chapters
from experiments.article.charts import PUBLISHED
from experiments.article.overlay import SWITCH, overlaid
from experiments.article.render import Figure


def graphs(most: int = GIB) -> chapters.graph_walk.Analysis:
    return walk.analysis(walk.rows(most=most, repeats=3))


# Each figure that has published rows: what draws it, the column that says so, its name there, and what these rows are grouped by, a line
# each; None where they are points or bars alone.
FIGURES: dict[str, tuple[Callable[[], Figure], str, str, list[str] | None]] = {
    "quantiles": (lambda: chapters.graph_walk.figures.quantiles(graphs()), "where", "published", ["pages", "series"]),
    "walk_misses": (lambda: chapters.graph_walk.figures.walk_misses(graphs()), "series", "published", ["pages"]),
    "latency_throughput": (lambda: chapters.stlb_cliff.figures.latency_throughput(stlb_cliff.kind("the textbook's")), "series",
                           "published gather", ["series"]),
    "mitigations": (lambda: chapters.tlb_blocking.figures.mitigations(blocking.analysis(blocking.rows())), "where", "published", None),
    "touch": (lambda: chapters.hugepages.figures.touch(hugepages.analysis()), "where", "published", ["pages"]),
}


def paths(figure: Figure, **switches: bool) -> int:
    """How many lines, points and bars are drawn."""
    spec = figure.spec()
    for param in spec["params"]:
        param["value"] = switches.get(param["name"], param["value"])
    return len(re.findall(r'<path (?!class)', vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])))  # frames of groups have a class


@pytest.mark.parametrize("name", FIGURES)
def test_the_switch_takes_away_what_was_published_and_nothing_else(name: str):
    make, column, label, lines = FIGURES[name]
    figure = make()
    theirs = figure.data[figure.data[column] == label]
    drawn = len(theirs) + (theirs.groupby(lines).ngroups if lines else 0)
    assert len(theirs) and paths(figure) - paths(figure, published=False) == drawn


def test_the_published_strides_are_points_that_the_switch_takes_away():
    a = strides.analysis()
    figure = chapters.strides.figures.strides(a)
    assert paths(figure) - paths(figure, published=False) == len(a.published)


def test_with_the_reference_beside_it_what_was_published_is_drawn_once():
    own, theirs = (chapters.graph_walk.figures.quantiles(graphs(most)) for most in (GIB, GIB >> 1))
    made = overlaid(own, theirs)
    assert [param["name"] for param in made.spec()["params"]] == [SWITCH, PUBLISHED]
    marked = json.dumps(made.spec()["layer"][1:])
    assert '"diamond"' in json.dumps(own.spec()) and '"diamond"' not in marked and PUBLISHED not in marked
    published = own.data["where"] == "published"
    drawn = published.sum() + own.data[published].groupby(["pages", "series"]).ngroups
    assert paths(made) - paths(made, published=False) == drawn


def test_machines_of_which_nothing_was_published_have_no_switch():
    made = chapters.graph_walk.figures.quantiles(walk.analysis(walk.only("thp")))
    assert isinstance(made.data, pd.DataFrame) and "params" not in made.spec()
