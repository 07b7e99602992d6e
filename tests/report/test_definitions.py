"""What a page's cells define moves the page: delete a definition or edit it, and figures, text and
verdicts follow.

`make inert` deletes each definition of the book; the tests try a drawn sample.
"""

import os
import random

import pytest
from support.rendered import committed, definitions, edited, render

from tlb.report import page
from tlb.report.page import PageError
from tlb.report.parameters import table_of_contents

SAMPLE = 10
EVERY = [
    (notebook, number, what)
    for notebook in table_of_contents()
    for number, (what, _) in enumerate(definitions(notebook))
]
RUN = os.environ.get(
    "PYTEST_XDIST_TESTRUNUID", ""
)  # the same in all processes of a run, which have to draw alike
DRAWN = EVERY if os.environ.get("TLB_INERT") == "all" else random.Random(RUN).sample(EVERY, SAMPLE)


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("notebook", "number"),
    [drawn[:2] for drawn in sorted(DRAWN)],
    ids=[f"{notebook}: {what}" for notebook, _, what in sorted(DRAWN)],
)
def test_no_page_is_the_same_without_one_of_its_definitions(notebook, number):
    _, cells = [*definitions(notebook)][number]
    try:
        without = render(notebook, cells=cells)
    except (NameError, KeyError, PageError):
        return
    assert without != committed(notebook)


# A definition and a band of some chapters, as a reader might change them.
EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    "stlb_cliff": (
        ("price = a.price_of(spread, packed)", "price = spread / packed"),
        ('packed = curves.Curve.of(chase, layout="packed")', "packed = spread"),
        ('{"most": claims.FLAT}', '{"most": 1.0}'),
    ),
    "graph_walk": (
        ('a.curves("p95")', 'a.curves("p50")'),
        ('{"band": claims.TWICE}', '{"band": (1.0, 2.0), "from_bytes": 1}'),
    ),
    "hugepages": (
        ("a.price_on(pages, spread[pages], packed[pages])", "spread[pages] / packed[pages]"),
        ("spread[over] / spread[pages]", "spread[pages] / spread[over]"),
        ("bands = {", 'bands = {"thp_is_like_the_pool": {"same": 0.5}, '),
    ),
    "shootdowns": (
        ("beside - calls_alone[call]", "beside"),
        ("claims, a)", 'claims, a, page_management_slows={"band": (0, 1)})'),
    ),
}


@pytest.mark.endurance
@pytest.mark.parametrize("notebook", EDITS)
def test_an_edited_definition_and_band_move_figures_text_and_verdicts(notebook):
    moved = render(notebook, cells=edited(page.cells(notebook), *EDITS[notebook]))
    before = committed(notebook)
    assert moved.figures != before.figures and moved.verdicts != before.verdicts
    assert moved.texts != before.texts
