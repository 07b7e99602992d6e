"""Nine machines that never were, each a whole book: its cells run to their end, with the text of
the reference, whatever the machine lacks."""

import re
from copy import copy
from functools import cache

import pandas as pd
import pytest
from support.books import BOOKS, Page
from support.common import About
from support.rendered import CHAPTER_NAMES

from tlb.report.page import notebook_cells

pytestmark = pytest.mark.slow

WHOLE = "bare metal with whole pages"


@cache
def whole_book() -> dict[str, Page]:
    return {page.name: page for page in BOOKS[WHOLE].pages()}


@pytest.fixture
def page(name) -> Page:
    """A chapter of the whole book, whose rows a test may take away."""
    own = copy(whole_book()[name])
    own.said, own.notes = [], []
    return own


def _slower(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a reference that takes twice as long, for the curves in grey."""
    return rows.assign(ns_per_access=2 * rows["ns_per_access"]) if len(rows) else rows


@pytest.mark.parametrize(
    "name",
    [  # a book takes eight seconds
        name if name == WHOLE else pytest.param(name, marks=pytest.mark.endurance) for name in BOOKS
    ],
)
def test_each_book_runs_to_its_end_and_shows_no_number_that_is_none(name):
    for page in BOOKS[name].pages():
        slower = {chapter: _slower(rows) for chapter, rows in page.rows.items()}
        page.other = About(page.host, "another", rows=slower, documents=page.documents)
        for where, text in page.execute().said:
            none = r"\bnan\b|\bNone\b(?! of \d)|\de[+-]\d\d"  # or a number as a machine writes it
            assert not re.search(none, text), (page.name, where, text)


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("hugepages", "virtualization")
        else pytest.param(name, marks=pytest.mark.endurance)
        for name in CHAPTER_NAMES
    ],
)
def test_a_notebook_runs_to_its_end_and_has_each_figure_where_nothing_was_measured(page):
    """As committed: show_chart dims the reference's."""
    page.rows, page.documents, page.frame = {}, {}, page.frame[:0]
    shown = dict(page.execute().said)
    sources = "\n".join(cell.source for cell in notebook_cells(page.name))
    drawn = re.findall(r"^show_chart\(\s*(?:\w+\.)?(\w+)", sources, re.M)
    assert drawn and {*drawn} <= {*shown}


@pytest.mark.endurance
@pytest.mark.parametrize("name", [name for name in CHAPTER_NAMES if name != "your_program"])
def test_a_notebook_runs_to_its_end_whatever_a_short_run_left_out(page):
    """A kernel's mode, or a page size, is what a campaign leaves out as a whole."""
    whole = page.frame
    mode = whole["kernel"] + " " + whole.get("mode", pd.Series("", whole.index)).fillna("")
    for kinds in (mode, whole["pages"]):
        for kind in kinds.unique():
            for page.frame in (whole[kinds == kind], whole[kinds != kind]):
                page.said.clear()
                assert page.execute().said, kind
