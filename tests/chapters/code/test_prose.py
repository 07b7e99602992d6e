"""The sentences about code: each exists on every machine, and says what its data say."""

from __future__ import annotations

import pytest
from support import told
from support.code import MACHINES, Jumps, analysis, rows

from experiments.chapters.code import figures, prose, tables
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

NAMES = set(prose.__all__) - {"machine"}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_and_figure_exists_or_says_why_not(machine: str):
    a = analysis(MACHINES[machine]())
    told.spoken(prose, a, NAMES)
    for make in (figures.jumps, figures.translation, figures.texts, tables.ways):
        try:
            assert make(a) is not None
        except Unavailable:
            assert machine != "everything"


def test_what_is_said_follows_the_machine():
    assert "runs ahead" in prose.foreseen_said(analysis())
    assert "saves nothing" in prose.foreseen_said(analysis(rows(Jumps(hidden=0.0, known_ns=7.0))))
    assert "and agrees" in prose.entries_said(analysis()) and "believe it" in prose.entries_said(analysis(rows(Jumps(entries=(128, 1024)))))
    assert "base pages, so an entry" in prose.large_said(analysis(splintered=True))
    assert "0.88 walks a drawn jump" in prose.counted_said(analysis(rows(Jumps(walks=1.0))))
    assert "base pages. Wholly on large pages is here a copy in advised memory and one in a memfd" in prose.ways_said(analysis())
    assert "lies together" in prose.text_said(analysis(rows(Jumps(walk_ns=60.0))))
