"""What cells write on a page: text with numbers, figures, reasons; and the book's own notebooks,
which keep the rules of pages."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from support.pages import run_cells
from support.rendered import CHAPTER_NAMES

from tlb.report import page, quantities
from tlb.report.article import MACHINE_COLUMNS
from tlb.report.notebooks import chapter_names_in_order
from tlb.report.page import PageError
from tlb.report.quantities import QuantityDeclaration
from tlb.system.files import ROOT

NOTEBOOKS = chapter_names_in_order()


class Numbers(quantities.Quantities):
    load_ns = QuantityDeclaration("a load", "ns", 1)
    walk_ns = QuantityDeclaration("a walk", "ns", 1)


def said(text: str) -> list[Any]:
    """What a text puts on the reference's page."""
    shown: list[Any] = []
    page.open_page(page.Page("somewhere", shown.append, cell=3))
    page.say(text)
    return shown


def test_a_text_with_a_number_that_was_not_recorded_is_an_error_that_names_notebook_and_cell():
    numbers = Numbers()
    numbers.record(pd.DataFrame(), load_ns=1.25)
    assert said(f"It takes {numbers.load_ns}.") == [page.Text("It takes 1.2 ns.")]
    with pytest.raises(PageError, match=r"^somewhere\.ipynb, cell 3: \S"):
        said(f"A walk takes {numbers.walk_ns}.")


def test_the_page_of_another_machine_has_the_committed_text(tmp_path, monkeypatch):
    output = {"data": {"text/markdown": ["It takes ", "1 ns."]}}
    source = "say('It takes 2 ns.')\nsay('Once more.')\ndescribe('On this machine: 2 ns.')"
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [output]}
    (tmp_path / "made.ipynb").write_text(json.dumps({"cells": [cell]}))
    monkeypatch.setattr(page, "BOOK_FOLDER", tmp_path)
    shown: list[Any] = []
    other = page.Page("made", shown.append, is_reference=False)
    run_cells(other, {"say": page.say, "describe": page.show_facts})
    assert shown == [page.Text("It takes 1 ns."), page.Text("On this machine: 2 ns.")]


def test_a_frame_with_a_row_of_the_own_machine_is_not_called_the_own_machine_s():
    few = "one mapping each"
    page.open_page(
        page.Page("index", is_reference=False, machine="this computer", few_mappings=few)
    )
    times = pd.DataFrame({"ns": [1.5, 2.5]}, index=["Zen 4", "this computer"])
    own, among = page._named_frame(times.iloc[:1]), page._named_frame(times)
    assert few in own and few not in among
    assert ">this computer *<" in among and "fewer than five" in among
    assert "*" not in page._named_frame(times.astype(int))  # counts


def test_a_frame_of_the_own_machine_has_no_row_and_no_column_of_dashes():
    page.open_page(page.Page("index", is_reference=False, machine="this computer"))
    nothing = float("nan")
    some = pd.DataFrame(
        {"4 KiB": [1.5, nothing], "1 GiB": [nothing] * 2}, index=["64 MiB", "4 GiB"]
    )
    shown = page._named_frame(some)
    assert "4 KiB" in shown and "64 MiB" in shown and "–" not in shown
    assert "1 GiB" not in shown and "4 GiB" not in shown
    none = page._named_frame(some[["1 GiB"]])
    assert "<table" not in none and "too little is known" in none


@pytest.mark.parametrize("few, is_shown", [("one mapping each", False), ("", True)])
def test_of_too_few_mappings_a_frame_has_no_ratio(few, is_shown):
    page.open_page(
        page.Page("index", is_reference=False, machine="this computer", few_mappings=few)
    )
    times = pd.DataFrame([[1.5] * 2], columns=["times as fast", "ns"])
    shown = page._named_frame(page.mark_ratios(times, "times as fast"))
    assert ["times as fast" in shown, "ns" in shown] == [is_shown, True]
    assert ("<table" in page._named_frame(page.mark_ratios(times))) is is_shown


def test_a_frame_says_that_some_of_its_points_are_of_few_mappings():
    some = page.Page("index", is_reference=False, machine="this computer", has_few_mappings=True)
    assert "fewer than five" in some.output_heading


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
        [("show_chart(f, rows, 'A.')", {})],
        [("show_chart(f, rows, 'A.')", {"mystnb": {"figure": {"caption": "A."}}})],
        [("show_chart(f, rows, 'A.')", NAMED), ("show_chart(g, rows, 'A.')", NAMED)],
    ],
)
def test_a_figure_has_a_name_of_its_own_and_a_caption(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "BOOK_FOLDER", tmp_path)
    write(tmp_path, *cells)
    with pytest.raises(PageError, match=r"^made\.ipynb, cell [12]: "):
        page.check("made")


# --- the book's own


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_keeps_the_rules_of_pages(notebook):
    page.check(notebook)
    saying = [
        cell
        for cell in page.notebook_cells(notebook)
        if cell.kind == "code" and "say(" in cell.source
    ]
    assert not any(re.search(r"\{%|\{\{ ", cell.source) for cell in saying)  # no templates
    assert all("remove-input" in cell.metadata.get("tags", []) for cell in saying)


RATIO = re.compile(
    r"<th>[^<]*\btimes (as fast|the|those)|\"title\":\"[^\"]*\btimes (as fast|the|those)"
)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_table_or_a_chart_that_compares_times_is_marked(notebook):
    for cell in page.notebook_cells(notebook):
        for output in cell.outputs:
            html = "".join(output.get("data", {}).get("text/html", ""))
            columns = output.get("metadata", {}).get("tlb", {}).get("csv", "").partition("\r")[0]
            if RATIO.search(html) and not MACHINE_COLUMNS & {*columns.split(",")}:
                assert re.search(r"mark_ratios\(|is_ratio=True", cell.source), cell.number


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_committed_notebook_shows_its_text_without_being_built(notebook):
    committed = json.loads((page.BOOK_FOLDER / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in committed["cells"] for output in cell.get("outputs", ())]
    texts = ["".join(output.get("data", {}).get("text/markdown", "")) for output in outputs]
    said = sum(
        "say(" in cell.source for cell in page.notebook_cells(notebook) if cell.kind == "code"
    )
    assert sum(map(bool, texts)) >= 0.6 * said  # some say nothing, or give a reason
    assert not any(re.search(r"\{glue|\{\{|\{%|\bnan\b|\bNone\b(?! of\b)", text) for text in texts)
    bare = [output["data"] for output in outputs if {*output.get("data", ())} == {"text/plain"}]
    assert not any("".join(data["text/plain"]).strip() for data in bare)  # a repr of something


# What a reader takes for their own machine. "Here" may be a place on the page, except in a figure.
_READERS = r"\bthis (guest|machine|i?TLB|host|CPU|processor)\b"


@pytest.mark.parametrize("notebook", CHAPTER_NAMES)
def test_what_is_about_the_reference_cannot_be_read_as_about_the_reader_s_machine(notebook):
    """The same text, captions and alternative texts stand on the page of every machine."""
    for cell in page.notebook_cells(notebook):
        caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
        assert not re.search(rf"\bhere\b|{_READERS}", caption, re.I), caption
        if cell.kind == "markdown" or re.match(r"say\(", cell.source):
            assert not re.search(_READERS, cell.source, re.I), cell.source
        for output in cell.outputs:
            if "figure" in output.get("metadata", {}).get("tlb", {}):
                words = "".join(output["data"]["text/plain"])
                assert not re.search(rf"(?!\w)here\b|{_READERS}", words, re.I), words


def test_the_sidebar_calls_a_page_what_its_title_begins_with():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    for entry in (entry for part in toc["parts"] for entry in part["chapters"]):
        path = ROOT / entry["file"]
        if path.with_suffix(".ipynb").is_file():
            title = page.notebook_cells(path.name)[0].source
        else:
            title = path.with_suffix(".md").read_text(encoding="utf-8")
        assert re.search(rf"^# {re.escape(entry['title'])}(?!\w)", title, re.MULTILINE), entry
