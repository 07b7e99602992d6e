"""The first page: whose results it shows, each chapter's findings from its own rows, and what stays where rows are lacking."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from support.common import About
from support.synthetic import GIB, Truth, frame, grid, scope
from support.your_machine import ARM, host

from experiments.article import analysis
from experiments.article.parameters import table_of_contents
from experiments.chapters import stlb_cliff, your_machine
from experiments.front import CHAPTERS, index
from experiments.lab.record import Point
from experiments.machine.host import Host
from experiments.system.files import ROOT
from experiments.words.reasons import REASONS, Unavailable

CLIFF = frame(Truth(entries=(64, 1536), hit_ns=2.0, walk_ns=9.0), grid(GIB))


@dataclass
class Measured(About):
    """A chapter of which `rows` are all that can be had; why: the code of what the others lack."""

    parameters: dict[str, Any] = field(default_factory=dict)
    why: str = "no-data"
    asked: dict[str, list[Point]] = field(default_factory=dict)

    scope = scope()

    def measure(self, points: list[Point], name: str) -> pd.DataFrame:
        self.asked[name] = points
        if name not in self.rows:
            raise Unavailable(self.why, name)
        return self.rows[name]


def page(rows: Mapping[str, pd.DataFrame], of: Host | None = None, chapters: tuple[ModuleType, ...] = CHAPTERS, why: str = "no-data",
         **parameters: str) -> index.Analysis:
    given = {"machine": "reference", "profile": "full"} | parameters
    return index.Analysis(Measured(of or host(), rows=dict(rows), why=why, parameters=given), chapters)


def made_up(name: str, said: str = "", doc: str = "") -> ModuleType:
    """A chapter whose brief is of its rows."""

    def brief(a: analysis.Analysis) -> str:
        if a.frame.empty:
            raise Unavailable("too-few-points", "no row")
        return said.format(len(a.frame))

    module = ModuleType(f"experiments.chapters.{name}", doc)
    module.Analysis = analysis.Analysis
    module.prose = SimpleNamespace(brief=brief) if said else SimpleNamespace()
    module.grid = SimpleNamespace(points=lambda scope: [scope.point("page_chase", lines=64)])
    return module


def test_the_chapters_are_those_of_the_book_in_its_order():
    names = [module.__name__.rpartition(".")[2] for module in CHAPTERS]
    assert names == [name for name in table_of_contents() if name in names] and names[:2] == ["your_machine", "stlb_cliff"]
    folders = {path.parent.name for path in (ROOT / "experiments" / "chapters").glob("*/__init__.py")}
    assert set(names) == folders & set(table_of_contents())
    assert all(module in index.LEADS or callable(module.prose.brief) for module in CHAPTERS)


def test_the_results_in_brief_are_those_of_the_rows():
    said = index.results(page({"stlb_cliff": CLIFF}))
    assert "64 entries at level 1" in said
    assert float(re.search(r"costs\.\*\* ([\d.]+) ns", said)[1]) == pytest.approx(2, rel=0.02)
    assert float(re.search(r"What a walk costs\.\*\* ([\d.]+)", said)[1]) == pytest.approx(11, rel=0.02)
    assert re.search(r"From 1,536 pages to twice as many, \D+4\.\d", said)
    assert said.count("- **") == 5


def test_every_chapters_grid_is_measured_and_no_survey_is_asked_for():
    a = page({"stlb_cliff": CLIFF})
    assert set(a.about.asked) == {module.__name__.rpartition(".")[2] for module in CHAPTERS} - {"your_machine", "your_program"}
    assert a.about.asked["stlb_cliff"] == stlb_cliff.grid.points(scope())
    assert a.of(your_machine).frame.empty


def test_the_chapters_findings_stand_in_their_order_and_only_those_that_their_rows_give():
    chapters = (made_up("a", "{} rows.", "One: what it is."), made_up("b", "{} rows.", "Two: no row."),
                made_up("c", "{} rows.", "Three: none."), made_up("d", "{} of them.", "Four: the last one.\n\nMore."),
                made_up("e"), made_up("f", "{} rows.", "No question."))
    a = page({"a": CLIFF.head(3), "b": CLIFF.head(0), "d": CLIFF.head(2), "e": CLIFF, "f": CLIFF.head(1)}, chapters=chapters)
    assert index.results(a).splitlines() == ["- **What it is.** 3 rows.", "- **The last one.** 2 of them.", "- **No question.** 1 rows."]


def test_without_geometry_the_results_keep_to_what_was_measured():
    said = index.results(page({"stlb_cliff": CLIFF}, host(tlb=(), tlb_reason="no-geometry")))
    assert "What translation costs" in said and "What a walk costs" not in said and "How sharp" not in said
    assert "What translation costs" not in index.results(page({"stlb_cliff": CLIFF}))
    assert not re.search(r"\b(nan|None)\b", said)


def test_without_the_independent_loop_nothing_is_said_of_it():
    assert "published loops" in index.results(page({"stlb_cliff": CLIFF}))
    assert "published loops" not in index.results(page({"stlb_cliff": CLIFF[CLIFF["kernel"] == "page_chase"]}))


def test_the_first_page_says_whose_results_it_shows_and_when_they_were_measured():
    assert "the reference machine, measured on 2025-01-31" in index.scope(page({"stlb_cliff": CLIFF}))
    assert "the machine `zen-4-00112233`" in index.scope(page({"stlb_cliff": CLIFF}, machine="zen-4-00112233"))
    this = index.scope(page({"stlb_cliff": CLIFF}, machine="this", profile="smoke"))
    assert "the computer that built this page" in this and "too few" in this
    assert "too few" not in index.scope(page({"stlb_cliff": CLIFF}, machine="this"))
    later = pd.concat([CLIFF, CLIFF.head(1).assign(started_at="2025-02-03T01:00:00Z")])
    assert "from 2025-01-31 to 2025-02-03" in index.scope(page({"stlb_cliff": later}))


def test_every_chapter_is_on_the_way_of_whoever_reads_in_order():
    told = index.reading(page({}))
    assert re.findall(r"{doc}`(\w+)`: \w", told) == [module.__name__.rpartition(".")[2] for module in CHAPTERS]


def test_how_far_the_hours_lie_apart_is_told_of_rows_of_several_runs():
    later = CLIFF.assign(ns_per_access=CLIFF["ns_per_access"] * 1.25, started_at="2026-01-31T23:00:00Z")
    once = CLIFF.assign(started_at="2026-01-31T03:00:00Z")
    assert "1.25" in index.hours(page({"stlb_cliff": pd.concat([once, later])}))
    assert "1.25" not in index.hours(page({"stlb_cliff": once}))
    assert "a factor of" not in index.hours(page({"stlb_cliff": once}))


def test_the_page_opens_with_one_pointer_near_and_far():
    a = page({"stlb_cliff": CLIFF})
    cliff = a.of(stlb_cliff)
    told = index.opening(a)
    assert f"{cliff.spread.get(cliff.largest).value:.0f} ns" in told and f" {cliff.packed.get(cliff.largest).value:.0f}." in told
    assert index.bullets(a).count("- ") == 1 and "1,536" in index.bullets(a)  # of what has rows
    with pytest.raises(Unavailable):
        index.opening(page({}))
    assert index.bullets(page({})) == ""


def test_the_figure_is_the_cliff_of_its_chapter():
    a = page({"stlb_cliff": CLIFF})
    figure, theirs = index.index_cliff(a), stlb_cliff.figures.cliff(a.of(stlb_cliff))
    pd.testing.assert_frame_equal(figure.data, theirs.data)
    assert figure.alt == theirs.alt


@pytest.mark.parametrize("why", ["no-data", "not-linux", "arch-unsupported"])
def test_a_machine_without_rows_has_a_first_page_all_the_same(why: str):
    a = page({}, host(**ARM), why=why)
    assert index.results(a) == f"- **How far the TLB reaches.** {your_machine.prose.brief(a)}"
    assert a.about.machine not in index.machine(a) and index.machine(a)
    for lacking in (index.scope, index.stable, index.index_cliff):
        with pytest.raises(Unavailable, match=REASONS[why].sentence.removesuffix(".")):
            lacking(a)


def test_what_is_wrong_and_not_lacking_stays_an_error():
    with pytest.raises(Unavailable, match="stlb_cliff"):
        page({}, why="bad-parameter")


def test_the_page_shows_what_is_said_and_nothing_is_said_in_vain():
    cells = json.loads((ROOT / "book" / "index.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    inline = re.findall(r"\{glue:(?:text|md)\}`(\w+)[:`]", text)
    assert set(inline) | set(re.findall(r"```\{glue:md\} (\w+)\n", text)) == set(index.__all__)
