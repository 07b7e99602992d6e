"""Nine machines that never were, each a whole book: what is said of one kind of machine is not said
of another."""

import re

import pandas as pd
import pytest
from support.books import BOOKS, said
from support.common import About

from tlb.report.page import cells

pytestmark = pytest.mark.slow

WHOLE = "bare metal with whole pages"
# By what a machine is: what no sentence about it may say.
ARM = r"\bPML|\bCR3\b|AMD's cores"
BARE = r"your provider|\bthe hypervisor lets|host splinters|host's table of the same"
FALSE: dict[str, str] = {
    "an Oryon-like core": f"{ARM}|{BARE}",
    "a Cortex-A53-like core": f"{ARM}|{BARE}|ways in the first level",
    "base pages of 64 KiB": f"{ARM}|{BARE}|walks four levels|in pages of 4 KiB with",
    "bare metal with whole pages": BARE,
    "a Zen that joins neighbours": "bare metal: a translation is one walk",
    "an emulator": r"walk here has two dimensions|is the processor's own|spans a piece: the host",
    "a filtered PMU": r"counters answer|walks are counted where",
    "one level": r"\bSTLB\b: ",
    "sweeps that end in the caches": r"trips? to memory",
}


@pytest.mark.parametrize(
    "name",
    [  # a book takes eight seconds
        name if name == WHOLE else pytest.param(name, marks=pytest.mark.endurance) for name in BOOKS
    ],
)
def test_each_book_says_nothing_that_is_false_of_its_machine(name):
    texts = said(name)
    assert len(texts) > 200
    for chapter, where, text in texts:
        assert not re.search(FALSE[name], text), (chapter, where, text)
        assert not re.search(r"\bnan\b|\bNone\b(?! of \d)", text), (chapter, where, text)


@pytest.mark.parametrize(
    "page",
    [
        page
        if page.name in ("stlb_cliff", "hugepages")
        else pytest.param(page, marks=pytest.mark.endurance)
        for page in BOOKS[WHOLE].pages()
    ],
    ids=lambda page: page.name,
)
def test_a_notebook_runs_to_its_end_where_nothing_was_measured(page):
    page.frame, page.documents = page.frame[:0], {}
    assert any("lacking" in where for where, _ in page.execute().said)


# Those drawn of what a machine states, and of guests, which the page's text says are another's.
NEVER_BORROWED = {"address_bits", "misses", "one_test", "first_touches"}


@pytest.mark.parametrize(
    "page",
    [
        page
        if page.name in ("your_machine", "virtualization")
        else pytest.param(page, marks=pytest.mark.endurance)
        for page in BOOKS[WHOLE].pages()
    ],
    ids=lambda page: page.name,
)
def test_each_figure_is_another_machine_s_where_nothing_was_measured(page):
    page.other = About(page.host, "another", rows=page.rows, documents=page.documents)
    page.rows, page.documents, page.frame = {}, {}, page.frame[:0]
    shown = dict(page.execute().said)
    sources = "\n".join(cell.source for cell in cells(page.name))
    wanted = re.findall(r"^figure\([\w.]*?(\w+), \w+\)", sources, re.M)
    assert wanted and set(wanted) <= set(shown)
    borrowed = {name for name in wanted if shown[name].startswith("The machine another: ")}
    assert set(wanted) - borrowed <= NEVER_BORROWED


@pytest.mark.endurance
@pytest.mark.parametrize(
    "page", [page for page in BOOKS[WHOLE].pages() if len(page.frame)], ids=lambda page: page.name
)
def test_a_notebook_runs_to_its_end_whatever_a_short_run_left_out(page):
    """A kernel's mode, or a page size, is what a campaign leaves out as a whole."""
    whole = page.frame
    mode = whole["kernel"] + " " + whole.get("mode", pd.Series("", whole.index)).fillna("")
    for kinds in (mode, whole["pages"]):
        for kind in kinds.unique():
            for page.frame in (whole[kinds == kind], whole[kinds != kind]):
                page.said.clear()
                assert page.execute().said, kind
