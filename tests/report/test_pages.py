"""What cells write on a page: text with numbers, figures, reasons; and the book's own notebooks,
which keep the rules of pages."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.common import About
from support.pages import figure as drawn
from support.stlb_cliff import cliff_figure
from support.synthetic import Stated, Truth, frame, grid

from experiments import stlb_cliff
from tlb.report import notebook, page
from tlb.report.analysis import Analysis
from tlb.report.page import PageError
from tlb.report.parameters import table_of_contents
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable

NOTEBOOKS = table_of_contents()
CONDITIONS = 5  # on the paragraphs of a chapter


def run(source: str, **names: Any) -> list[Any]:
    """What a cell puts on its page."""
    shown: list[Any] = []
    names |= {
        "say": page.say,
        "figure": notebook.figure,
        "table": notebook.table,
        page.PAGE: page.Page("somewhere", shown.append, cell=3),
    }
    exec(source, names)
    return shown


def text(template: str, **names: Any) -> str:
    (shown,) = run(f"say({template!r})", **names)
    return shown.markdown


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ x | ns(1) }}", "1,234.5 ns"),
        ("{{ share | share(1) }}", "12.3%"),
        ("{{ i | ns(1) }}", "1.5 (1.4 to 1.6) ns"),
        ("{{ '<b>' | plain }}", r"\<b\>"),
        ("{{ -0.0001 | num(1) }}", "0.0"),
    ],
)
def test_a_template_takes_the_names_of_its_page(template, told):
    assert text(template, x=1234.5, share=0.1234, i=Interval(1.5, 1.4, 1.6)) == told


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("{{ nothing | ns }}", {}),
        ("{{ x | share }}", {"x": Unavailable("no-pmu")}),
        ("{{ x.y }}", {"x": 1}),
    ],
)
def test_a_mistake_in_a_template_is_an_error_that_names_notebook_and_cell(template, names):
    with pytest.raises(PageError, match=r"^somewhere\.ipynb, cell 3: \S"):
        text(template, **names)


def test_a_number_that_is_lacking_shows_its_reason_in_the_place_of_the_text_once_a_page():
    def lacking() -> float:
        raise Unavailable("no-pmu", "here")

    texts = ("It takes {{ lacking() | ns }}.", "Or {{ lacking() | ns }}.", "{{ 1 | ns }}")
    cell = "\n".join(f"say({text!r})" for text in texts)
    reason, other = run(cell, lacking=lacking)
    assert reason.text.endswith(str(Unavailable("no-pmu", "here"))) and other.markdown == "1 ns"


def test_a_figure_is_named_by_its_function_and_a_reason_takes_its_place():
    def the_cliff(a: None) -> Any:
        return drawn("another")

    def nothing(a: None) -> Any:
        raise Unavailable("no-pmu", "here")

    a = Analysis(pd.DataFrame(), About(Stated().host()))
    shown, reason, again = run(
        "figure(the_cliff, a)\n" + "figure(nothing, a)\n" * 2,
        the_cliff=the_cliff,
        nothing=nothing,
        a=a,
    )
    assert len(again.text) < len(reason.text)
    assert shown.name == "the_cliff" and str(Unavailable("no-pmu", "here")) in reason.text


def test_the_page_of_another_machine_has_the_committed_text_and_a_dash_for_what_it_lacks(
    tmp_path, monkeypatch
):
    def lacking(a: None) -> Any:
        raise Unavailable("no-pmu")

    output = {"data": {"text/markdown": ["It takes ", "1 ns."]}}
    source = "say('It takes {{ ns | ns }}.')\nsay('Once more.')\ntable(lacking, None)"
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [output]}
    (tmp_path / "made.ipynb").write_text(json.dumps({"cells": [cell]}))
    monkeypatch.setattr(page, "BOOK", tmp_path)
    shown: list[Any] = []
    other = page.Page("made", shown.append, is_reference=False)
    names = {"say": page.say, "table": notebook.table, "lacking": lacking, "ns": 2}
    page.run(other, names)
    assert shown == [page.Text("It takes 1 ns."), page.ABSENT]


def test_a_figure_that_a_machine_lacks_is_the_reference_s_dimmed_and_labelled():
    reference = stlb_cliff.Analysis(rows := frame(Truth(), grid(64 << 20)), About(Stated().host()))
    other = About(Stated().host(), "another", rows={"stlb_cliff": rows})
    mine = stlb_cliff.Analysis(rows[:0], About(Stated().host(), "mine", other=other))
    (shown,) = run("figure(cliff, a)", cliff=cliff_figure, a=mine)
    assert shown.data.equals(cliff_figure(reference).data)
    assert shown.alt.startswith("The machine another") and "tlb-borrowed" in shown.html()


def write(folder: Path, *cells: tuple[str, dict]) -> None:
    made = [
        {"cell_type": "code", "source": source, "metadata": metadata, "outputs": []}
        for source, metadata in cells
    ]
    (folder / "made.ipynb").write_text(json.dumps({"cells": made}))


NAMED = {"mystnb": {"figure": {"name": "fig-a", "caption": "A."}}}


@pytest.mark.parametrize(
    "cells",
    [
        [("figure(f, a)", {})],
        [("figure(f, a)", {"mystnb": {"figure": {"caption": "A."}}})],
        [("figure(f, a)", NAMED), ("figure(g, a)", NAMED)],
    ],
)
def test_a_figure_has_a_name_of_its_own_and_a_caption(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "BOOK", tmp_path)
    write(tmp_path, *cells)
    with pytest.raises(PageError, match=r"^made\.ipynb, cell [12]: "):
        page.check("made")


# --- the book's own


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_keeps_the_rules_of_pages(notebook):
    page.check(notebook)
    saying = [
        cell for cell in page.cells(notebook) if cell.kind == "code" and "say(" in cell.source
    ]
    conditions = sum(len(re.findall(r"(?m)^\{% if", cell.source)) for cell in saying)
    assert conditions <= CONDITIONS
    assert all("remove-input" in cell.metadata.get("tags", []) for cell in saying)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_committed_notebook_shows_its_text_without_being_built(notebook):
    committed = json.loads((page.BOOK / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in committed["cells"] for output in cell.get("outputs", ())]
    texts = ["".join(output.get("data", {}).get("text/markdown", "")) for output in outputs]
    said = sum("say(" in cell.source for cell in page.cells(notebook) if cell.kind == "code")
    assert sum(map(bool, texts)) >= 0.6 * said  # some say nothing, or give a reason
    assert not any(re.search(r"\{glue|\{\{|\{%|\bnan\b|\bNone\b", text) for text in texts)
    bare = [output["data"] for output in outputs if {*output.get("data", ())} == {"text/plain"}]
    assert not any("".join(data["text/plain"]).strip() for data in bare)  # a repr of something
