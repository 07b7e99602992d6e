"""The sentences about code: each exists on every machine, and says what its data say."""

from __future__ import annotations

import pytest
from support import told
from support.code import MACHINES, Jumps, analysis, rows

from experiments.chapters.code import figures, prose, tables

pytestmark = pytest.mark.filterwarnings("error")

@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_and_figure_exists_or_says_why_not(machine: str):
    a = analysis(MACHINES[machine]())
    told.shown(prose, (figures.jumps, figures.translation, figures.texts, figures.hot, tables.ways), a, machine == "everything")


def test_what_is_said_follows_the_machine():
    assert "runs ahead" in prose.foreseen_said(analysis())
    assert "saves nothing" in prose.foreseen_said(analysis(rows(Jumps(hidden=0.0, known_ns=7.0))))
    assert "and agrees" in prose.entries_said(analysis()) and "100%" in prose.entries_said(analysis(rows(Jumps(entries=(128, 1024)))))
    assert "base pages, so an entry" in prose.large_said(analysis(splintered=True))
    assert "saves a part" in prose.foreseen_said(analysis(rows(Jumps(hidden=0.0, known_ns=0.1))))
    assert "a linker" in prose.hot_said(analysis()) and "does not matter" in prose.hot_said(analysis(rows(Jumps(walk_ns=0.0, hit_ns=0.0))))
    assert "take it to" in prose.hot_said(analysis()) and "no less" in prose.hot_said(analysis(rows(Jumps(large_misses=1.0))))
    assert "0.88 walks a drawn jump" in prose.counted_said(analysis(rows(Jumps(walks=1.0))))
    fewer = rows(Jumps(walks=1.0))
    fewer = fewer.assign(itlb_walk_per_access=fewer["itlb_walk_per_access"].where(fewer["mode"] != "direct", 0.01))
    assert "not the walk" in prose.counted_said(analysis(rows(Jumps(walks=1.0)))) and "saves walks" in prose.counted_said(analysis(fewer))
    assert "base pages. On large pages throughout: a copy in advised memory and one in a memfd" in prose.ways_said(analysis())
    assert "lies together" in prose.text_said(analysis(rows(Jumps(walk_ns=60.0))))
