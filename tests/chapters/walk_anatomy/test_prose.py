"""The sentences about walks: each exists on every machine, and says what its data say."""

from __future__ import annotations

import pytest
from support import told
from support.tables import MACHINES, Walker, analysis, rows

from experiments.chapters.walk_anatomy import figures, prose, tables

pytestmark = pytest.mark.filterwarnings("error")

@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_and_figure_exists_or_says_why_not(machine: str):
    a = analysis(MACHINES[machine]())
    makes = (figures.staircase, figures.parts, figures.collisions, figures.strides,
             tables.found, tables.judged, tables.places, tables.policies, tables.first_policies)
    told.shown(prose, makes, a, machine == "everything")


def test_what_is_said_follows_the_machine():
    few, shared = (analysis(rows(Walker(kept=((1, entries), (2, 16), (3, 4))))) for entries in (128, 600))
    small = analysis(rows(Walker(kept=((1, 600), (2, 16), (3, 4)))), entries=(16, 300))
    assert "share it" not in prose.lowest_said(small) and "more than" in prose.lowest_said(small)
    assert "structure of its own" in prose.lowest_said(few) and "share it" in prose.lowest_said(shared)
    of_amd = analysis(rows(Walker(kept=((1, 600), (2, 16), (3, 4)))))
    of_amd.about.host = of_amd.host.model_copy(update={"vendor": "AuthenticAMD"})
    assert "wikichip_zen2" in prose.lowest_said(of_amd) and "wikichip_zen2" not in prose.lowest_said(shared)
    assert "no step" in prose.lowest_said(analysis(MACHINES["huge upper caches"]()))
    assert "That fits random" in prose.replaced_said(analysis(rows(Walker(replacement="random"))))
    assert "guest" in prose.guest_said(analysis(hypervisor="kvm")) and "No hypervisor" in prose.guest_said(analysis())
    assert "few sets" in prose.collisions_said(analysis()) and "no sets" in prose.collisions_said(analysis(rows(Walker(sets_ns=0.0))))
    modulo, xor = (analysis(rows(Walker(placement=placement))) for placement in ("modulo", "xor"))
    assert "no hash" in prose.sets_said(modulo) and "take part" in prose.sets_said(xor) and "remedy" in prose.sets_said(modulo)
