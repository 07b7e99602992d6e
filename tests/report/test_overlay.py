"""The reference machine's curves under another's: in grey, and not there where they cannot be
compared."""

from typing import Any

import pandas as pd
from support.common import About
from support.stlb_cliff import cliff_figure
from support.synthetic import Stated, Truth, frame, grid

from experiments import stlb_cliff
from tlb.report.notebook import Overlaid, with_reference
from tlb.report.render import MUTED, Figure

POINTS = grid(64 << 20)
OWN, SLOW = frame(Truth(), POINTS), frame(Truth(hit_ns=20.0), POINTS)


def about(
    machine: str = "zen-5-bbbbbbbb", rows: pd.DataFrame | None = SLOW, of: str = "zen-3-aaaaaaaa"
) -> About:
    """A machine whose reference is another one, with these rows."""
    other = About(Stated().host(), of, rows={} if rows is None else {"stlb_cliff": rows})
    return About(Stated().host(), machine, other=other)


def shown(a: stlb_cliff.Analysis, **how: Any) -> Figure:
    return with_reference(cliff_figure, a, cliff_figure(a), **how)


def layers(spec: dict[str, Any], outer: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The marks of a chart, each with its data set."""
    inner = {**(outer or {}), **({"data": spec["data"]} if "data" in spec else {})}
    found = [{**inner, "mark": spec["mark"]}] if "mark" in spec else []
    return found + [one for layer in spec.get("layer", ()) for one in layers(layer, inner)]


def encodings(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The encodings of all layers."""
    found = [spec["encoding"]] if "encoding" in spec else []
    return found + [one for layer in spec.get("layer", ()) for one in encodings(layer)]


def test_the_reference_s_medians_are_drawn_in_grey_under_the_own_ones():
    made = shown(stlb_cliff.Analysis(OWN, about()))
    spec = made.spec()
    theirs = [one for one in layers(spec) if one["data"]["name"].startswith("reference-")]
    assert theirs == layers(spec)[: len(theirs)]
    assert {one["mark"]["type"] for one in theirs} <= {"line", "point"}
    assert {one["mark"]["color"] for one in theirs} == {MUTED}
    drawn = [row["median"] for one in theirs for row in spec["datasets"][one["data"]["name"]]]
    expected = (
        SLOW.query("layout == 'spread' and order == 'cycle' and kernel == 'page_chase'")
        .groupby("lines")["ns_per_access"]
        .median()
    )
    assert {float(f"{ns:.4g}") for ns in expected} <= {float(ns) for ns in drawn}
    assert made.label in made.html() and MUTED in made.svg()


def test_series_that_colours_told_apart_stay_apart_in_grey():
    spec = shown(stlb_cliff.Analysis(OWN, about())).spec()
    lines = [one for one in encodings(spec) if "detail" in one]
    assert lines and all({"field": "layout", "type": "nominal"} in one["detail"] for one in lines)


def test_the_reference_s_own_page_has_nothing_in_grey_but_that_of_such_a_computer_has():
    a = stlb_cliff.Analysis(OWN, about("zen-3-aaaaaaaa"))
    assert not isinstance(shown(a), Overlaid) and isinstance(shown(a, is_own=True), Overlaid)


def test_a_reference_that_another_version_of_the_kernel_measured_is_not_drawn():
    assert isinstance(shown(stlb_cliff.Analysis(OWN, about())), Overlaid)
    assert type(shown(stlb_cliff.Analysis(OWN, about(rows=SLOW.assign(measures=2))))) is Figure


def test_the_axis_has_ticks_for_the_reference_s_numbers_too():
    def ticks(figure: Figure) -> set[float]:
        axes = [one.get("y", {}).get("axis") or {} for one in encodings(figure.spec())]
        return {tick for axis in axes for tick in axis.get("values", ())}

    slow = SLOW.assign(ns_per_access=50 * SLOW["ns_per_access"])
    own = cliff_figure(stlb_cliff.Analysis(OWN, about()))
    assert max(ticks(shown(stlb_cliff.Analysis(OWN, about(rows=slow))))) > max(ticks(own))
