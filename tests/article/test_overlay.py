"""The reference machine's curves behind a switch: whose they are, that they are faint and off, and where there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import altair as alt
import pandas as pd
import pytest
import vl_convert
from support.common import About
from support.pages import figure
from support.synthetic import Stated, Truth, frame, grid

from experiments.article.overlay import SWITCH, Overlaid, overlaid, with_reference
from experiments.article.render import Figure
from experiments.chapters import stlb_cliff

POINTS = grid(64 << 20)
OWN, SLOW = frame(Truth(), POINTS), frame(Truth(hit_ns=20.0), POINTS)


def about(machine: str = "zen-5-bbbbbbbb", rows: pd.DataFrame | None = SLOW, of: str = "zen-3-aaaaaaaa") -> About:
    """A machine whose reference is another one, with these rows."""
    other = About(Stated().host(), of, rows={} if rows is None else {"stlb_cliff": rows})
    return About(Stated().host(), machine, other=other)


def shown(a: stlb_cliff.Analysis, **how: Any) -> Figure:
    return with_reference(stlb_cliff.figures.cliff, a, stlb_cliff.figures.cliff(a), **how)


def layers(spec: dict[str, Any], outer: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The marks of a chart, each with its data set."""
    inner = {**(outer or {}), **({"data": spec["data"]} if "data" in spec else {})}
    found = [{**inner, "mark": spec["mark"]}] if "mark" in spec else []
    return found + [one for layer in spec.get("layer", ()) for one in layers(layer, inner)]


def scales(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of y that end at given numbers."""
    own = spec.get("encoding", {}).get("y", {}).get("scale", {})
    return [own] * ("domain" in own) + [scale for layer in spec.get("layer", ()) for scale in scales(layer)]


def test_the_reference_s_medians_are_drawn_faint_and_only_while_the_switch_is_set():
    made = shown(stlb_cliff.Analysis(OWN, about()))
    spec = made.spec()
    (switch,) = spec["params"]
    assert (switch["name"], switch["value"], switch["bind"]["input"]) == (SWITCH, False, "checkbox")
    theirs = [one for one in layers(spec) if one["data"]["name"].startswith("reference-")]
    assert theirs and {one["mark"]["type"] for one in theirs} <= {"line", "point"}
    assert {json.dumps(one["mark"]["opacity"]) for one in theirs} == {json.dumps({"expr": f"{SWITCH} ? 0.5 : 0"})}
    drawn = [row["median"] for one in theirs for row in spec["datasets"][one["data"]["name"]]]
    expected = SLOW.query("layout == 'spread' and order == 'cycle' and kernel == 'page_chase'").groupby("lines")["ns_per_access"].median()
    assert {float(f"{ns:.4g}") for ns in expected} <= {float(ns) for ns in drawn}


def test_its_own_layers_and_its_static_drawing_stay_as_they_are():
    a = stlb_cliff.Analysis(OWN, about())
    own, made = stlb_cliff.figures.cliff(a), shown(a)
    mine = [one for one in layers(made.spec()) if not one["data"]["name"].startswith("reference-")]
    assert [one["mark"] for one in mine] == [one["mark"] for one in layers(own.spec())]
    ends = {tuple(scale["domain"]) for scale in scales(made.spec()) if scale.get("type") == "log"}
    sides = [rows.query("kernel == 'page_chase' and order == 'cycle'") for rows in (OWN, SLOW)]
    times = pd.concat([rows.groupby(["layout", "lines"])["ns_per_access"].median() for rows in sides])
    ((low, high),) = ends
    assert low <= times.min() and times.max() <= high  # one axis, with room for both
    assert made.named("cliff").svg() == own.named("cliff").svg()
    assert made.alt.startswith(own.alt) and len(made.alt) > len(own.alt)
    assert made.data.equals(own.data) and len(json.dumps(made.spec())) - len(json.dumps(own.spec())) < 12_000  # before it is packed


def test_a_chart_with_the_switch_set_is_drawn_and_differs():
    made = shown(stlb_cliff.Analysis(OWN, about()))
    assert isinstance(made, Overlaid)
    spec = made.spec()
    off = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    spec["params"][0]["value"] = True
    on = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    assert off != on and on.count('opacity="0.5"') > off.count('opacity="0.5"')


def test_there_is_no_switch_on_the_reference_s_own_page_but_on_that_of_such_a_computer():
    a = stlb_cliff.Analysis(OWN, about("zen-3-aaaaaaaa"))
    assert not isinstance(shown(a), Overlaid) and isinstance(shown(a, is_own=True), Overlaid)


@pytest.mark.parametrize("of", [about(rows=None), about(rows=SLOW[:0]), About(Stated().host(), "zen-5-bbbbbbbb")])
def test_without_rows_of_a_reference_the_figure_is_as_it_is(of: About):
    assert type(shown(stlb_cliff.Analysis(OWN, of))) is Figure


def test_a_reference_that_another_version_of_the_kernel_measured_is_not_drawn():
    assert SWITCH in str(shown(stlb_cliff.Analysis(OWN, about())).spec())
    assert type(shown(stlb_cliff.Analysis(OWN, about(rows=SLOW.assign(measures=2))))) is Figure


def test_what_a_cell_defines_anew_is_compared_with_nothing_of_another_definition():
    a = stlb_cliff.Analysis(OWN, about())
    a.price = a.spread - a.packed
    assert isinstance(shown(a), Overlaid)  # the same definition as the chapter's own
    a.spread = a.spread / a.packed
    assert type(shown(a)) is Figure


def test_a_figure_that_no_chapter_names_has_no_switch():
    a = stlb_cliff.Analysis(OWN, about())
    make = stlb_cliff.figures.orders
    assert type(with_reference(make, a, make(a))) is Figure


def test_bars_and_charts_that_are_asked_something_are_not_laid_upon_each_other():
    own = figure()
    bars = replace(own, chart=alt.Chart(own.data).mark_bar().encode(x="layout:N", y="ns_per_access:Q"))
    assert overlaid(bars, bars) is bars and overlaid(own, own) is own  # which has a selection
