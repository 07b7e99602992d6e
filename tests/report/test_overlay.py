"""The reference machine's curves under another's: in grey, with ticks for both."""

import json
import re
from typing import Any

import altair as alt
import pandas as pd
import pytest
from support.synthetic import Truth, frame, grid

from tlb.report import charts
from tlb.report.overlay import (
    OverlaidFigure,
    _encodings,
    grey_marks,
    has_breaks,
    has_dotted_gaps,
    own_marks_at_places,
)
from tlb.report.render import MUTED_COLOUR, Figure, has_marked_numbers
from tlb.stats.intervals import summarise

POINTS = grid(64 << 20)


def loads(truth: Truth, times: float = 1.0) -> pd.DataFrame:
    rows = frame(truth, POINTS).query("order == 'cycle' and kernel == 'page_chase'")
    rows = rows.assign(ns_per_access=times * rows["ns_per_access"])
    found = summarise(rows, ["layout", "lines"])
    return found.assign(working_set_bytes=found["lines"] * 4096)


OWN, SLOW = loads(Truth()), loads(Truth(hit_ns=20.0))


def draw(data: pd.DataFrame) -> alt.LayerChart:
    x = charts.working_set(4096)
    return charts.series_chart(
        data, x, "ns per load", charts.colours(["spread", "packed"]), "layout"
    )


def shown(reference: pd.DataFrame = SLOW) -> OverlaidFigure:
    theirs = Figure(draw(reference), "A cliff.", reference, "cliff")
    return OverlaidFigure(
        draw(OWN),
        "A cliff.",
        OWN,
        "cliff",
        reference=theirs,
        label="In grey: the reference machine.",
    )


def layers(spec: dict[str, Any], outer: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The marks of a chart, each with its data set."""
    inner = {**(outer or {}), **({"data": spec["data"]} if "data" in spec else {})}
    found = [{**inner, "mark": spec["mark"]}] if "mark" in spec else []
    return found + [one for layer in spec.get("layer", ()) for one in layers(layer, inner)]


def test_the_reference_s_medians_are_drawn_in_grey_under_the_own_ones():
    made = shown()
    spec = made.spec()
    theirs = [one for one in layers(spec) if one["data"]["name"].startswith("reference-")]
    assert (
        grey_marks(spec) == {"bands", "curves", "points"} and theirs == layers(spec)[: len(theirs)]
    )
    assert {one["mark"]["type"] for one in theirs} == {"area", "line", "point", "text"}
    assert {one["mark"]["color"] for one in theirs} == {MUTED_COLOUR}
    drawn = [row["median"] for one in theirs for row in spec["datasets"][one["data"]["name"]]]
    expected = SLOW.query("layout == 'spread'")["median"]
    assert {float(f"{ns:.4g}") for ns in expected} <= {float(f"{float(ns):.4g}") for ns in drawn}
    assert made.label in made.html() and MUTED_COLOUR in made.svg()


def test_a_name_stands_at_the_end_of_its_own_curve_though_the_grey_one_goes_on():
    short = OWN[OWN["working_set_bytes"] < 16 << 20]
    made = OverlaidFigure(draw(short), "A.", short, "cliff", reference=shown().reference).spec()
    own = [rows for name, rows in made["datasets"].items() if not name.startswith("reference-")]
    names = [row for rows in own for row in rows if "wrapped" in row]
    assert names and {row["working_set_bytes"] for row in names} == {
        float(short["working_set_bytes"].max())
    }


def test_dashes_at_a_place_are_of_the_own_machine_unless_both_have_them_there():
    def marked(data: pd.DataFrame, pages: int) -> alt.LayerChart:
        return alt.layer(draw(data), charts.marks([(4096.0 * pages, "STLB")], "working_set_bytes"))

    theirs = Figure(marked(SLOW, 3072), "A cliff.", SLOW, "cliff")
    for pages, expected in ((2048, {"vertical dashes"}), (3072, set())):
        own = OverlaidFigure(marked(OWN, pages), "A cliff.", OWN, "cliff", reference=theirs)
        assert own_marks_at_places(own.spec(), theirs.html()) == expected


def test_no_size_that_can_be_compared_lies_in_a_shade():
    sizes, comparable = [512.0, 2048.0, 4096.0], [256.0, 1024.0, 8192.0]
    shaded = charts.shaded_sizes(sizes, 4096, comparable)
    (rows,) = shaded.to_dict()["datasets"].values()
    inside = [
        [any(row["least"] <= 4096 * n <= row["most"] for row in rows) for n in each]
        for each in (sizes, comparable)
    ]
    assert all(inside[0]) and not any(inside[1])
    assert [row["label"] for row in rows].count("") == len(rows) - 1 == 1


def test_a_level_line_is_of_the_own_machine():
    level = alt.Chart(pd.DataFrame({"ns": [294.0]})).mark_rule().encode(y="ns:Q")
    theirs = Figure(draw(SLOW), "A cliff.", SLOW, "cliff")
    own = OverlaidFigure(alt.layer(draw(OWN), level), "A.", OWN, "cliff", reference=theirs)
    assert own_marks_at_places(own.spec(), theirs.html()) == {"level line"}


@pytest.mark.parametrize("has_panels", [False, True])
def test_a_line_has_breaks_where_a_row_has_no_number(has_panels):
    def is_broken(ns: float, **how: Any) -> bool:
        data = pd.DataFrame({"x": [1.0, 2.0, 3.0], "ns": [1.0, ns, 2.0], "machine": "one"})
        line = alt.Chart(data).mark_line(**how).encode(x="x:Q", y="ns:Q")
        chart = line.facet("machine:N") if has_panels else line
        return has_breaks(Figure(chart, "A line.", data).spec())

    assert is_broken(float("nan")) and not is_broken(1.5)
    assert not is_broken(float("nan"), strokeDash=[2, 4])


@pytest.mark.parametrize(
    "part, is_marked",
    [
        ({"text": "9 ns *"}, True),
        ({"text": "24 * (+ 18)"}, True),
        ({"calculate": 'datum.ns + " *"'}, True),
        ({"dy": {"expr": "-6 * datum.lines"}}, False),
        ({"text": "3 * 4"}, False),
    ],
)
def test_a_product_is_no_mark_of_few_mappings(part, is_marked):
    assert has_marked_numbers({"layer": [part]}) is is_marked


def test_a_line_is_dotted_where_only_the_reference_has_points():
    theirs = shown().reference
    sparse = OWN[~OWN["lines"].between(200, 2000)]
    made = OverlaidFigure(draw(sparse), "A cliff.", sparse, "cliff", reference=theirs).spec()
    gaps = [rows for name, rows in made["datasets"].items() if name.endswith("-gaps")]
    ends = [
        (before["lines"], after["lines"])
        for before, after in zip(gaps[0][::2], gaps[0][1::2], strict=True)
    ]
    assert ends and all(before <= 200 and after >= 2000 for before, after in ends)
    assert not has_dotted_gaps(shown().spec())


def test_a_line_by_threads_is_dotted_over_a_number_that_only_the_reference_has():
    def draw_threads(data: pd.DataFrame) -> alt.Chart:
        return alt.Chart(data).mark_line().encode(x="threads:Q", y="gain:Q")

    theirs = pd.DataFrame({"threads": [1, 2, 3, 4], "gain": [1.0, 1.9, 2.0, 2.0]})
    own = theirs.query("threads != 2")
    reference = Figure(draw_threads(theirs), "Gains.", theirs, "threads")
    made = OverlaidFigure(draw_threads(own), "Gains.", own, "threads", reference=reference).spec()
    gaps = [rows for name, rows in made["datasets"].items() if name.endswith("-gaps")]
    assert [[row["threads"] for row in rows] for rows in gaps] == [[1, 3]]


def test_a_grey_curve_has_no_name_that_differs_from_the_own_only_in_brackets():
    def named(kind: str) -> pd.DataFrame:
        return OWN.query("layout == 'spread'").assign(layout=kind)

    def draw_pages(data: pd.DataFrame) -> alt.LayerChart:
        x, colours = charts.working_set(4096), charts.colours([*data["layout"].unique()])
        return charts.series_chart(data, x, "ns per load", colours, "layout")

    own, pool, base = named("2 MiB (THP)"), named("2 MiB (pool)"), named("4 KiB")
    theirs = pd.concat([pool, base])
    reference = Figure(draw_pages(theirs), "A cliff.", theirs, "pages")
    drawn = OverlaidFigure(draw_pages(own), "A cliff.", own, "pages", reference=reference).svg()
    assert ">4 KiB<" in drawn and "(pool)" not in drawn and "2 MiB" in drawn


def spec_of_curves(own: list[str], theirs: list[str]) -> dict[str, Any]:
    """The specification of a chart of curves with these names over one with others."""

    def draw_named(names: list[str]) -> tuple[alt.LayerChart, pd.DataFrame]:
        curves = [OWN.query("layout == 'spread'").assign(layout=name) for name in names]
        x, data = charts.working_set(4096), pd.concat(curves, ignore_index=True)
        drawn = charts.series_chart(data, x, "ns per load", charts.colours(own), "layout")
        return drawn, data

    chart, data = draw_named(theirs)
    reference = Figure(chart, "Curves.", data, "curves")
    chart, data = draw_named(own)
    made = OverlaidFigure(chart, "Curves.", data, "curves", reference=reference)
    return made.spec()


def test_the_names_of_both_machines_curves_are_apart_and_their_shapes_differ():
    spec = spec_of_curves(["64 KiB"], ["4 KiB", "1 GiB"])
    rows = [row for rows in spec["datasets"].values() for row in rows if charts.NAME_Y in row]
    places = sorted(row[charts.NAME_Y] for row in rows)
    assert len(places) == 3
    assert all(b >= 1.3 * a for a, b in zip(places, places[1:], strict=False))
    named = r'=== \\"(?:4 KiB|1 GiB)\\"", "value": "(\w+)"'
    shapes = re.findall(named, json.dumps(spec))
    assert len({*shapes}) == 2


@pytest.mark.parametrize(
    ("own", "other", "both"),
    [
        (
            "ns (graph of 2 GiB) or row",
            "ns (graph of 1 GiB) or row",
            "ns (graph of 2 GiB; grey: 1 GiB) or row",
        ),
        (
            "Size, in a graph of 2 GiB",
            "Size, in a graph of 1 GiB",
            "Size, in a graph of 2 GiB (grey: 1 GiB)",
        ),
        ("ns", "ns", "ns"),
    ],
)
def test_a_title_has_what_the_other_s_says_instead_and_closes_each_bracket_once(own, other, both):
    def titled(title: str) -> alt.Chart:
        return (
            alt.Chart(OWN)
            .mark_line()
            .encode(x=alt.X("lines:Q", axis=alt.Axis(title=title)), y="median:Q")
        )

    theirs = Figure(titled(other), "A line.", SLOW, "line")
    spec = OverlaidFigure(titled(own), "A line.", OWN, "line", reference=theirs).spec()
    titles = {how["axis"]["title"] for how in _encodings(spec, "x") if how.get("axis")}
    assert titles == {both}


def test_a_place_that_the_axis_does_not_reach_is_not_drawn():
    def draw_to(data: pd.DataFrame, *places: float) -> alt.LayerChart:
        x = alt.X("lines:Q", scale=alt.Scale(domain=[1, 4096]))
        named = charts.marks([(place, f"{place:g}") for place in places], "lines")
        return alt.layer(alt.Chart(data).mark_point().encode(x=x, y="median:Q"), named)

    theirs = Figure(draw_to(SLOW, 64.0), "A cliff.", SLOW, "cliff")
    made = OverlaidFigure(draw_to(OWN, 64.0, 8192.0), "A.", OWN, "cliff", reference=theirs).svg()
    assert ">64<" in made and ">8192<" not in made


def test_the_own_words_have_an_outline_over_the_grey():
    marks = [one["mark"] for one in layers(shown().spec()) if one["mark"]["type"] == "text"]
    own = [mark for mark in marks if mark.get("color") != MUTED_COLOUR]
    assert ["stroke" in mark for mark in own] == [True, False] * (len(own) // 2) and own


def test_a_histogram_has_no_dotted_gaps():
    def draw_bins(data: pd.DataFrame) -> alt.LayerChart:
        base = alt.Chart(data).encode(x="ns:Q", y="share:Q")
        return alt.layer(base.mark_area(), base.mark_line())

    bins = pd.DataFrame({"ns": [1.0, 2.0, 3.0], "share": [0.2, 0.5, 0.3]})
    theirs = Figure(draw_bins(bins), "Bins.", bins, "bins")
    own = bins.query("ns != 2")
    made = OverlaidFigure(draw_bins(own), "Bins.", own, "bins", reference=theirs)
    assert not has_dotted_gaps(made.spec())


def test_points_of_too_few_mappings_are_hollow():
    def points(n: int) -> set[bool]:
        """Whether points are filled, of those that a chart draws of n mappings."""
        data = OWN.assign(n=n)
        marks = [one["mark"] for one in layers(Figure(draw(data), "A cliff.", data).spec())]
        return {mark.get("filled", True) for mark in marks if mark["type"] == "point"}

    assert points(5) == {True} and points(4) == {False}


def test_the_name_of_a_series_stands_at_the_last_point_of_its_curve():
    texts = [one for one in layers(draw(OWN).to_dict()) if one["mark"]["type"] == "text"]
    datasets = draw(OWN).to_dict()["datasets"]
    places = [row for one in texts for row in datasets[one["data"]["name"]]]
    last = OWN.loc[OWN.groupby("layout")["lines"].idxmax(), ["layout", "lines", "median"]]
    found = pd.DataFrame(places)[["layout", "lines", "median"]]
    assert sorted(found.itertuples(index=False)) == sorted(last.itertuples(index=False))


def test_a_figure_keeps_its_legend_over_the_grey_of_the_reference():
    def draw_rows(data: pd.DataFrame) -> alt.LayerChart:
        axis = {"axis": charts.ns_axis("ns per load", [1, 10]), "scale": charts.log_scale(10)}
        names = ["spread", "packed"]
        style = {"color": charts.colour("layout", names)}
        return charts.medians_in_rows(data, "lines", [*data["lines"]], axis, "layout", **style)

    own, theirs = (data[data["lines"] == data["lines"].max()] for data in (OWN, SLOW))
    reference = Figure(draw_rows(theirs), "Two points.", theirs, "points")
    alone = Figure(draw_rows(own), "Two points.", own, "points").svg()
    made = OverlaidFigure(draw_rows(own), "Two points.", own, "points", reference=reference).svg()
    for name in ("spread", "packed"):
        assert alone.count(f">{name}<") == made.count(f">{name}<") == 1


def test_marks_in_a_legend_are_the_own_machine_s():
    def draw_shapes(data: pd.DataFrame) -> alt.Chart:
        names = ["spread", "packed"]
        colour, shape = charts.colour("layout", names), charts.shape("layout", names)
        point = alt.Chart(data).mark_point()
        return point.encode(x="lines:Q", y="median:Q", color=colour, shape=shape)

    reference = Figure(draw_shapes(SLOW), "Points.", SLOW, "points")
    few = OWN.assign(n=1)
    made = OverlaidFigure(draw_shapes(few), "Points.", few, "points", reference=reference)
    grey, own = made.spec()["layer"]
    assert "field" not in grey["encoding"]["shape"] and not own["layer"][0]["mark"]["filled"]
    svg = made.svg()
    assert all(svg.count(f">{name}<") == 1 for name in ("spread", "packed"))


def test_only_the_reference_is_grey_over_its_points():
    def draw_with_a_rule(data: pd.DataFrame) -> alt.LayerChart:
        return draw(data) + charts.marks([(1 << 20, "a capacity")], "working_set_bytes")

    theirs = Figure(draw_with_a_rule(SLOW), "A cliff.", SLOW, "cliff")
    spec = OverlaidFigure(draw_with_a_rule(OWN), "A.", OWN, "cliff", reference=theirs).spec()
    grey = [one for one in layers(spec) if one["mark"].get("color") == MUTED_COLOUR]
    assert grey and all(one["data"]["name"].startswith("reference-") for one in grey)


def test_a_row_without_data_has_no_place():
    def draw_rows(data: pd.DataFrame) -> alt.LayerChart:
        base = alt.Chart(data).encode(y=charts.row("name", ["one", "two", "three"]))
        return charts.rows("name", ["one", "two", "three"], base.mark_point().encode(x="ns:Q"))

    own = pd.DataFrame({"name": ["three"], "ns": [1.0], "n": [1]})
    theirs = pd.DataFrame({"name": ["one", "three"], "ns": [2.0, 3.0]})
    alone = Figure(draw_rows(own), "Rows.", own)
    reference = Figure(draw_rows(theirs), "Rows.", theirs)
    both = OverlaidFigure(draw_rows(own), "Rows.", own, is_of_few=True, reference=reference)
    for made, names in ((alone, ["three"]), (both, ["one", "three"])):
        spec, svg = made.spec(), made.svg()
        assert [name for name in ("one", "two", "three") if f">{name}<" in svg] == names
        assert spec["height"] == charts.ROW_PX * len(names)


def test_a_legend_names_only_what_is_drawn():
    own = pd.DataFrame({"x": [1.0], "ns": [2.0], "pages": ["4 KiB"]})
    colour = charts.colour("pages", ["4 KiB", "2 MiB"])
    drawn = alt.Chart(own).mark_point().encode(x="x:Q", y="ns:Q", color=colour)
    svg = OverlaidFigure(drawn, "A point.", own).svg()
    assert ">4 KiB<" in svg and ">2 MiB<" not in svg


def test_a_number_in_a_chart_is_marked_of_too_few_mappings():
    data = pd.DataFrame({"x": [1.0, 2.0], "median": [3.25, 4.5], "n": [4, 5]})
    text = alt.Chart(data).mark_text().encode(x="x:Q", text=alt.Text("median:Q", format=".1f"))
    drawn = Figure(text, "Numbers.", data, is_of_few=True).svg()
    assert ">3.3 *<" in drawn and ">4.5<" in drawn
    unknown = Figure(text.properties(data=data[["x", "median"]]), "Numbers.", data, is_of_few=True)
    assert ">4.5 *<" in unknown.svg()


def test_words_that_end_in_a_time_are_marked_of_too_few_mappings():
    data = pd.DataFrame({"x": [1.0, 2.0, 3.0], "words": ["a hop\n120 ns", "165", "9 ns *"]})
    text = alt.Chart(data).mark_text(lineBreak="\n").encode(x="x:Q", text="words:N")
    drawn = Figure(text, "Words.", data, is_of_few=True).svg()
    assert all(f">{words} *<" in drawn for words in ("120 ns", "165", "9 ns"))
    named = Figure(text.encode(color="words:N"), "Names.", data, is_of_few=True).svg()
    assert ">165 *<" not in named
