"""What cells show: a chart over the reference's, and a table of quantities beside the reference's."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import altair as alt
import pandas as pd
import pytest
from support.pages import run_cells

from tlb.report import article, charts, page, quantities
from tlb.report.overlay import DimmedFigure, OverlaidFigure
from tlb.report.quantities import QUANTITIES_DOCUMENT, QuantityDeclaration
from tlb.report.render import Figure
from tlb.stats.intervals import median_interval
from tlb.system.reasons import REASON_TEXTS

DATA = pd.DataFrame({"x": [1, 2], "median": [3.5, 4.5]})


class Quantities(quantities.Quantities):
    load_ns = QuantityDeclaration("a load", "ns", 1)


def curve(data: pd.DataFrame) -> alt.Chart:
    return alt.Chart(data).mark_line().encode(x="x:Q", y="median:Q")


def run(
    source: str,
    outputs: list[Any],
    is_reference: bool,
    tmp_path,
    monkeypatch,
    few_mappings: str = "",
    has_few_mappings: bool = False,
    **names,
) -> Any:
    """What a cell shows on a page, whose committed notebook has these outputs."""
    monkeypatch.setattr(page, "BOOK_FOLDER", tmp_path)
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": outputs}
    (tmp_path / "made.ipynb").write_text(json.dumps({"cells": [cell]}))
    shown: list[Any] = []
    names = {"show_chart": article.show_chart, "curve": curve, "put": shown.append} | names
    names["on_this_computer"] = article.on_this_computer
    few = {"few_mappings": few_mappings, "has_few_mappings": has_few_mappings}
    run_cells(page.Page("made", shown.append, is_reference=is_reference, **few), names)
    (made,) = shown
    return made


CHART = "show_chart(curve, data, 'It rises.')"


@pytest.fixture
def committed(tmp_path, monkeypatch) -> list[Any]:
    """The output of the reference's page."""
    made = run(CHART, [], True, tmp_path, monkeypatch, data=DATA)
    data, metadata = made._repr_mimebundle_()
    return [{"data": data, "metadata": metadata}]


def test_another_machine_s_chart_lies_over_the_reference_s(committed, tmp_path, monkeypatch):
    own = DATA.assign(median=[5.0, 6.0])
    made = run(CHART, committed, False, tmp_path, monkeypatch, data=own)
    assert isinstance(made, OverlaidFigure)
    assert made.data.equals(own) and made.reference.data.equals(DATA)


def test_what_another_machine_s_chart_says_of_the_reference_s_it_says_of_no_other(
    committed, tmp_path, monkeypatch
):
    own = DATA.assign(median=[5.0, 6.0])
    made = run(CHART, committed, False, tmp_path, monkeypatch, data=own)
    assert made.label in made.html()
    assert made.alt.startswith(made.label) and made.alt.endswith(": It rises.")


def test_a_chart_that_no_machine_changes_is_shown_as_on_the_reference_s_page(
    committed, tmp_path, monkeypatch
):
    made = run(CHART, committed, False, tmp_path, monkeypatch, data=DATA)
    assert type(made) is Figure and made.alt == "It rises."


def test_a_chart_of_all_machines_is_drawn_once(committed, tmp_path, monkeypatch):
    every = DATA.assign(machine="Zen 4")
    made = run(CHART, committed, False, tmp_path, monkeypatch, data=every)
    assert not isinstance(made, OverlaidFigure | DimmedFigure) and made.figure.data.equals(every)


def test_where_nothing_was_measured_the_reference_s_chart_is_dimmed(
    committed, tmp_path, monkeypatch
):
    made = run(CHART, committed, False, tmp_path, monkeypatch, data=DATA[:0])
    assert isinstance(made, DimmedFigure) and made.data.equals(DATA)
    unclear = replace(made, is_measured=True)  # of a page with rows
    assert [("not measured" in one.html()) for one in (made, unclear)] == [True, False]


@pytest.mark.parametrize(
    "is_ratio, few, kind",
    [
        (True, "one mapping each", DimmedFigure),
        (False, "one mapping each", OverlaidFigure),
        (True, "", OverlaidFigure),
    ],
)
def test_no_chart_draws_ratios_of_too_few_mappings(
    is_ratio, few, kind, committed, tmp_path, monkeypatch
):
    chart = CHART.replace(")", f", is_ratio={is_ratio})")
    own = DATA.assign(median=[5.0, 6.0])
    made = run(chart, committed, False, tmp_path, monkeypatch, data=own, few_mappings=few)
    assert type(made) is kind


def test_a_chart_names_both_kinds_of_pages_where_the_reference_s_is_of_others(
    tmp_path, monkeypatch
):
    own, theirs = (DATA.assign(pages=f"2 MiB ({kind})") for kind in ("THP", "pool"))
    made = run(CHART, [], True, tmp_path, monkeypatch, data=theirs)
    data, metadata = made._repr_mimebundle_()
    outputs = [{"data": data, "metadata": metadata}]
    made = run(CHART, outputs, False, tmp_path, monkeypatch, data=own)
    assert ["(pool)" in part for part in made.label.split(". ")[:2]] == [True, False]
    assert "(THP)" in made.label


def test_a_table_in_place_of_a_figure_says_whose_it_is_on_another_machine_s_page():
    for is_reference in (True, False):
        page.open_page(page.Page("made", is_reference=is_reference))
        assert ("Whose." in article.show_table(DATA, "Whose.").text) is not is_reference


def test_in_place_of_an_empty_table_the_reference_s_is_dimmed(tmp_path, monkeypatch):
    cell = "put(show_table(data, 'Whose.'))"
    made = run(cell, [], True, tmp_path, monkeypatch, data=DATA, show_table=article.show_table)
    outputs = [{"data": made._repr_mimebundle_()}]
    names = {"data": DATA[:0], "show_table": article.show_table}
    other = run(cell, outputs, False, tmp_path, monkeypatch, **names)
    assert made.markup in other.markup and not article.shows_its_machine(other.markup)


def test_a_figure_says_that_the_places_of_the_published_dashes_are_not_known(tmp_path, monkeypatch):
    def marked(data: pd.DataFrame) -> alt.LayerChart:
        places = [(1.5, "a level")] if data["median"].max() < 5 else []
        return curve(data) + charts.marks(places, "x") if places else alt.layer(curve(data))

    how = {"curve": marked}
    made = run(CHART, [], True, tmp_path, monkeypatch, data=DATA, **how)
    data, metadata = made._repr_mimebundle_()
    outputs = [{"data": data, "metadata": metadata}]
    own = run(CHART, outputs, False, tmp_path, monkeypatch, data=DATA.assign(median=9.0), **how)
    assert "No vertical dashes" in own.label


def test_a_shade_of_few_mappings_says_what_it_is_in_a_figure_without_grey_too(
    tmp_path, monkeypatch
):
    made = Figure(charts.shaded_sizes([4, 8], 4096) + curve(DATA), "It rises.", DATA, "shaded")
    names = {"made": made, "show_figure": article.show_figure}
    few = {"few_mappings": "one mapping each"}
    own = run("show_figure(made)", [], False, tmp_path, monkeypatch, **few, **names)
    assert "whether both lie in one cache" in own.label


def test_quantities_stand_beside_the_reference_s_and_are_kept_with_the_page(tmp_path, monkeypatch):
    own, reference = Quantities(), Quantities()
    own.record(DATA, load_ns=2.0)
    reference.record(DATA, load_ns=1.0)
    cell = "put(on_this_computer(own, reference))"
    made = run(cell, [], False, tmp_path, monkeypatch, own=own, reference=reference)
    assert made.table.text.splitlines()[1].split("\t")[1:3] == ["1.0 ns", "2.0 ns"]
    data, metadata = made._repr_mimebundle_()
    output = {"data": data, "metadata": metadata}
    notebook = {"cells": [{"outputs": [output]}]}
    assert article.recorded(notebook, QUANTITIES_DOCUMENT) == {"made": own.kept}


@pytest.mark.parametrize("found", [2.0, median_interval([1.0, 2.0])])
def test_a_table_has_no_column_of_blanks(found, tmp_path, monkeypatch):
    own, reference = Quantities(), Quantities()
    for one in (own, reference):
        one.record(DATA.assign(repeat=range(len(DATA))), load_ns=found)
    own._found["load_ns"] = replace(own.load_ns, mappings=0 if found == 2.0 else 2)
    names = {"own": own, "reference": reference}
    cell = "put(on_this_computer(own, reference))"
    made = run(cell, [], False, tmp_path, monkeypatch, **names).table
    cells = [line.split("\t") for line in made.text.splitlines()[:2]]
    assert all(any(column) for column in cells[1:]) and len({*map(len, cells)}) == 1
    assert ("Mappings" in made.markup) is (found != 2.0)


@pytest.mark.parametrize("code", ["too-few-points", "pool-empty", "no-pmu", "no-perf"])
def test_a_reason_for_dashes_takes_a_line_and_a_short_one_says_what_to_do(code):
    sentence, remedy = REASON_TEXTS[code]
    note = article._in_a_line(f"{sentence} {remedy}")
    assert note.startswith(sentence) and len(note.replace("`", "")) <= article._LINE_LETTERS
    assert (remedy in note) is (code in ("too-few-points", "pool-empty"))


def test_the_remedy_of_an_empty_pool_names_no_size_that_another_machine_lacks():
    assert not re.search(r"\d+[mg]\b", REASON_TEXTS["pool-empty"].remedy)


@pytest.mark.parametrize("is_shaded", [False, True])
def test_beside_a_shade_a_dotted_curve_is_not_called_comparable(is_shaded, tmp_path, monkeypatch):
    far = pd.DataFrame({"x": [1.0, 2.0, 64.0], "median": [3.5, 4.5, 9.0]})
    x = alt.X("x:Q", scale=alt.Scale(type="log"))
    line = alt.Chart(far).mark_line().encode(x=x, y="median:Q")
    chart = charts.shaded_sizes([4, 8], 1) + line if is_shaded else alt.layer(line)
    names = {"made": Figure(chart, "It rises.", far), "show_figure": article.show_figure}
    label = run("show_figure(made)", [], False, tmp_path, monkeypatch, **names).label
    assert ("Dotted" in label, article._NOT_COMPARED in label) == (True, is_shaded)


def test_a_quantity_that_no_cell_recorded_is_a_mistake(tmp_path, monkeypatch):
    with pytest.raises(page.PageError, match="load_ns"):
        cell = "put(on_this_computer(own, own))"
        run(cell, [], True, tmp_path, monkeypatch, own=Quantities())


@pytest.mark.parametrize("mappings, is_said", [(None, True), ([9, 9], False)])
def test_a_figure_that_does_not_say_of_how_many_mappings_may_be_of_few(
    mappings, is_said, tmp_path, monkeypatch
):
    data = DATA if mappings is None else DATA.assign(n=mappings)
    names = {"made": Figure(curve(data), "It rises.", data), "show_figure": article.show_figure}
    cell = "show_figure(made)"
    own = run(cell, [], False, tmp_path, monkeypatch, has_few_mappings=True, **names)
    assert (article._MAY_BE_OF_FEW in own.label) is is_said


def test_a_second_run_counts_only_the_verdicts_that_an_interval_decided(tmp_path):
    rows = {
        "claim": ["same", "other", "fact", None],
        "second_verdict": ["holds", "fails", "holds", None],
    }
    (tmp_path / "second_run").mkdir()
    pd.DataFrame(rows).to_parquet(tmp_path / "second_run" / "one.parquet")
    about = SimpleNamespace(store=SimpleNamespace(root=tmp_path), machine="one")
    found = [
        SimpleNamespace(
            claim=SimpleNamespace(id=id), verdict="holds", effects=effects, is_decided=True
        )
        for id, effects in {"same": (1,), "other": (1,), "open again": (1,), "fact": ()}.items()
    ]
    words = article._second_run(found, SimpleNamespace(about=about)).text
    assert "Of the 3" in words and "1 alike, 1 otherwise, and leaves 1 open" in words
    about.machine = "none"
    assert article._second_run(found, SimpleNamespace(about=about)).text == ""
