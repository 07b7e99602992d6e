"""The sentences about strides: each exists on every machine, and says what its data say."""

from __future__ import annotations

import pytest
from support import told
from support.strides import MACHINES, Machine, analysis, rows

from experiments.chapters.strides import figures, prose, tables

pytestmark = pytest.mark.filterwarnings("error")

@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_and_figure_exists_or_says_why_not(machine: str):
    a = analysis(MACHINES[machine](), splintered=machine == "splintered")
    told.shown(prose, (figures.strides, figures.waterfall, figures.orders, tables.published), a, machine == "everything")


def test_what_is_said_follows_the_machine():
    gained, waited = analysis(rows(Machine(shuffled_ns=50.0))), analysis(rows(Machine(shuffled_ns=0.0, apart_ns=0.0)))
    assert "gain by order themselves" in prose.order_said(gained) and "no order helps" in prose.order_said(waited)
    assert "no translation" in prose.sets_said(analysis())
    assert "No difference" in prose.sets_said(analysis(rows(Machine(sets_ns=0.0))))
    assert "no large page of this guest" in prose.translation_said(analysis(rows(Machine(splintered=True)), splintered=True))
    assert "0.99 walks a load" in prose.walks_said(analysis(rows(Machine(walks=0.99))))
