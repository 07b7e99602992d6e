"""What a chapter puts on its page: figures, tables, sentences, verdicts, and reasons in their place."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from support.chapter import CHAPTER, DEFAULTS
from support.pages import figure

from experiments.article import chapter as chapters
from experiments.article import render
from experiments.article.analysis import Analysis
from experiments.article.chapter import Chapter, begin
from experiments.article.render import Figure, Html
from experiments.article.verdicts import claims_of
from experiments.chapters.tlb_blocking import Analysis as Blocking
from experiments.chapters.tlb_blocking import claims
from experiments.lab.store import Store
from experiments.words.prose import Prose
from experiments.words.reasons import Unavailable


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is glued, by name, and whether it is displayed as well."""
    glued: dict[str, Any] = {}
    monkeypatch.setattr(chapters, "glue", lambda name, thing, display=True: glued.__setitem__(name, (thing, display)))
    return glued


@pytest.fixture
def a(committed: Store) -> tuple[Chapter, Analysis]:
    chapter = begin(CHAPTER, DEFAULTS)
    return chapter, Analysis(chapter.measure([]), chapter)


def test_a_figure_is_shown_under_the_name_of_its_function_and_a_table_too(a: tuple, page: dict):
    def the_cliff(a: Analysis) -> Figure:
        return figure("another")

    def the_table(a: Analysis) -> Html:
        return Html("<p>", "a table")

    def nothing(a: Analysis) -> Figure:
        raise Unavailable("no-pmu", "here")

    chapter, analysis = a
    for make in (the_cliff, the_table, nothing):
        chapter.show(make, analysis)
    assert {name: (type(thing), display) for name, (thing, display) in page.items()} == {
        "the_cliff": (Figure, True), "the_table": (Html, True), "nothing": (Html, True)}
    assert page["the_cliff"][0].name == "the_cliff" and str(Unavailable("no-pmu", "here")) in page["nothing"][0].text


def test_what_a_module_says_is_glued_by_kind_and_a_reason_in_full_once(a: tuple, page: dict, monkeypatch: pytest.MonkeyPatch):
    bundles: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(render, "display", lambda bundle, raw, metadata: bundles.update({metadata["scrapbook"]["name"]: bundle}))
    def lacking(a: Analysis) -> Prose:
        raise Unavailable("no-pmu")

    prose = ModuleType("prose")
    vars(prose).update(sentence=lambda a: Prose("A {term}`walk` in {doc}`code <code>`."), phrase=lambda a: "a *phrase*",
                       number=lambda a: pd.Series([2]).sum(), first=lacking, second=lacking, hidden=lambda a: "x")
    vars(prose)["__all__"] = ["sentence", "phrase", "number", "first", "second"]
    a[0].say(prose, a[1])
    assert {*page, *bundles} == set(prose.__all__) and not any(display for _, display in page.values())
    assert page["phrase"][0] == "a *phrase*" and type(page["number"][0]) is float
    said = {name: bundle["application/papermill.record/text/markdown"] for name, bundle in bundles.items()}
    assert said["sentence"] == "A {term}`walk` in {doc}`code <code>`."
    assert said["first"] == str(Unavailable("no-pmu")) and said["second"] != said["first"]
    assert bundles["sentence"]["text/markdown"] == "A *walk* in *code*."  # what JupyterLab shows below the cell


def test_the_verdicts_of_a_chapter_take_bands_by_the_names_of_predicates(a: tuple):
    table, other = (a[0].verdicts(claims, Blocking(a[1].frame, a[0]), **bands) for bands in ({}, {"fan_out_limit": {"jump": 0.5}}))
    assert table.text == other.text and table.text.count("CANNOT TELL") == len(claims_of(claims))  # of rows of another chapter
    with pytest.raises(TypeError):
        a[0].verdicts(claims, Blocking(a[1].frame, a[0]), fan_out_limit={"jumps": 0.5})


def test_what_is_assigned_to_a_derived_quantity_stands_in_its_place(a: tuple):
    analysis = Blocking(a[1].frame, a[0])
    analysis.blocks = "another definition"
    assert analysis.blocks == "another definition" and analysis.entries == [64, 1536] and not analysis.is_simulated
    assert analysis.splintering() is None and analysis.two_levels() == (64, 1536) and list(analysis.notes) == []
