"""What a page glues it uses, and what it uses is glued: by its chapter's prose, by a figure or table that it shows, or by a cell."""

from __future__ import annotations

import importlib
import re
from functools import cache

import nbformat
import pytest
from support.common import ROOT

from experiments.article.parameters import table_of_contents

CHAPTERS = table_of_contents()
_USED = re.compile(r"\{glue(?::[a-z]+)?\}`([^`]+)`|^[`:]{3,}\{glue(?::[a-z]+)?\} *(\S+)", re.MULTILINE)


@cache
def notebook(chapter: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "book" / f"{chapter}.ipynb", as_version=4)


def used(chapter: str) -> set[str]:
    """The names that the page's text refers to; a number's format stands behind a colon."""
    text = "\n\n".join(cell.source for cell in notebook(chapter).cells if cell.cell_type == "markdown")
    return {(role or directive).split(":")[0] for role, directive in _USED.findall(text)}


def glued(chapter: str) -> set[str]:
    """The names that its committed outputs carry."""
    return {name.removeprefix("application/papermill.record/") for cell in notebook(chapter).cells if cell.cell_type == "code"
            for output in cell.outputs if (name := output.get("metadata", {}).get("scrapbook", {}).get("name"))}


def shown_in_place(chapter: str) -> set[str]:
    """What `chapter.show` shows where it stands: its cell's output is on the page."""
    hidden = {"remove-output", "remove-cell"}
    return {name for cell in notebook(chapter).cells if cell.cell_type == "code" and not hidden & set(cell.metadata.get("tags", []))
            for name in re.findall(r"chapter\.show\([\w.]+\.(\w+),", cell.source)}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_everything_that_is_glued_is_used(chapter: str):
    assert not glued(chapter) - used(chapter) - shown_in_place(chapter)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_everything_that_is_used_is_glued(chapter: str):
    assert used(chapter) and not used(chapter) - glued(chapter)


@pytest.mark.parametrize("chapter", [name for name in CHAPTERS if (ROOT / "experiments/chapters" / name).is_dir()])
def test_a_chapters_prose_says_exactly_what_its_page_glues(chapter: str):
    prose = importlib.import_module(f"experiments.chapters.{chapter}.prose")
    assert len(prose.__all__) == len(set(prose.__all__)) and set(prose.__all__) <= glued(chapter)
    source = "\n".join(cell.source for cell in notebook(chapter).cells if cell.cell_type == "code")
    shown = set(re.findall(r"chapter\.show\([\w.]+\.(\w+),", source))
    assert glued(chapter) == set(prose.__all__) | shown | set(re.findall(r"\bglue\(\"(\w+)\"", source))
