"""What a page's cells define moves the page: delete a definition or edit it, and figures, text and verdicts follow.

`make inert` deletes each definition of the book; the tests try a drawn sample.
"""

from __future__ import annotations

import os
import random

import pytest
from support.rendered import CHAPTER_NAMES, committed, definitions, edited, render

from experiments.article.page import PageError
from experiments.article.parameters import table_of_contents

SAMPLE = 10
EVERY = [(notebook, number, what) for notebook in table_of_contents() for number, (what, _) in enumerate(definitions(notebook))]
DRAWN = EVERY if os.environ.get("TLB_INERT") == "all" else random.sample(EVERY, SAMPLE)


@pytest.mark.endurance
@pytest.mark.parametrize(("notebook", "number"), [drawn[:2] for drawn in sorted(DRAWN)],
                         ids=[f"{notebook}: {what}" for notebook, _, what in sorted(DRAWN)])
def test_no_page_is_the_same_without_one_of_its_definitions(notebook: str, number: int):
    _, cells = [*definitions(notebook)][number]
    try:
        without = render(notebook, cells=cells)
    except (NameError, KeyError, PageError):
        return
    assert without != committed(notebook)


# An edit of a chapter's main definition.
EDITS: dict[str, tuple[str, str]] = {
    "stlb_cliff": ('packed = curves.Curve.of(chase, layout="packed")', 'packed = curves.Curve.of(chase, layout="spread")'),
}


@pytest.mark.slow
@pytest.mark.parametrize("notebook", CHAPTER_NAMES)
def test_an_edited_definition_moves_figures_text_and_verdicts(notebook: str):
    moved, before = render(notebook, cells=edited(notebook, *EDITS[notebook])), committed(notebook)
    assert moved.texts != before.texts and moved.figures != before.figures and moved.verdicts != before.verdicts
