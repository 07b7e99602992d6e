"""The sentences about churn: each exists on every machine, and says what its data say."""

from __future__ import annotations

import pytest
from support import told
from support.churn import MACHINES, Churn, House, analysis, rows

from experiments.chapters.churn import figures, prose, tables

pytestmark = pytest.mark.filterwarnings("error")
MAKES = (figures.calls, figures.shares, figures.joining, figures.switches, figures.passes, figures.forks, figures.load, tables.flushes,
         tables.parts, tables.sparse, figures.touches, tables.lives)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_and_figure_exists_or_says_why_not(machine: str):
    told.shown(prose, MAKES, analysis(MACHINES[machine]()), machine == "everything")


def test_what_is_said_follows_the_machine():
    kept, lost = analysis(), analysis(rows(Churn(kept=0.0, walks_kept=0.0)))
    assert "was not emptied" in prose.switch_said(kept) and "was emptied" in prose.switch_said(lost)
    assert "no difference" in prose.walks_said(kept) and "further up" in prose.walks_said(lost)
    busy = analysis(rows(Churn(told_ns=0.0, busy_ns=10_000.0)))
    assert "of asking" in prose.control_said(kept) and "as well as asking" in prose.control_said(busy)
    assert "has paid after 2.0 million hops" in prose.joined_said(kept)
    assert "never pays" in prose.joined_said(analysis(rows(Churn(gain_ns=-1.0))))
    assert "splits the large page" in prose.copy_said(kept)
    assert "strongest argument" in prose.copy_said(analysis(rows(Churn(copies_whole=True))))
    assert "put" in prose.load_said(kept) and "less than" in prose.load_said(analysis(rows(Churn(stream_ns=0.0))))


def test_fewer_flushes_than_asked_have_their_reason():
    said = prose.seen_said(analysis(rows(Churn(seen=0.9))))
    assert "deferred" in said and "offers this" in said
    assert "does not say" in prose.seen_said(analysis(rows(Churn(seen=0.9)), defers=False))
    assert "interrupts each CPU once" in prose.seen_said(analysis(rows(Churn(seen=1.0))))
    assert "other programs" in prose.seen_said(analysis(rows(Churn(seen=1.2))))
    assert "Without a hypervisor" in prose.seen_said(analysis(rows(Churn(seen=0.9)), hypervisor="none"))
    assert "by an instruction" in prose.seen_said(analysis(rows(Churn(seen=0.0)), broadcasts=True))


def test_what_keeps_entries_apart_is_as_stated():
    assert len({str(prose.kept_said(analysis(pcid=pcid, pti=pti))) for pcid in (True, False, None) for pti in (True, False, None)}) == 9


PARTS = ("touched", "lives", "merged", "swapped", "pool_taken", "pool_pageout", "idle", "pieces")


@pytest.mark.parametrize("house", [None, House(), House(splits=False, nodes=2, short_in_pieces=0.5), House(pieces_ns=1000),
                                   *(House(lacking=(part,)) for part in PARTS), House(lacking=PARTS)])
def test_housekeeping_is_told_or_has_its_reason_whatever_part_is_lacking(house: House | None):
    told.shown(prose, MAKES, analysis(house=house), house is not None and not house.lacking)


def test_what_is_said_of_housekeeping_follows_the_kernel():
    kept, other = analysis(), analysis(house=House(pieces_ns=1500, short_in_pieces=0.5, splits=False, nodes=2))
    assert "waits for" in prose.defrag_said(kept) and "no dearer" in prose.defrag_said(other)
    assert "as a spike" in prose.spikes_said(kept) and "no spikes" in prose.spikes_said(other)
    assert "regress" in prose.lives_said(kept) and "gains" in prose.lives_said(other)
    assert "splits" in prose.merged_said(kept) and "whole" in prose.merged_said(other)
    assert "as base pages" in prose.swapped_said(kept) and "comes back whole" in prose.swapped_said(other)
    assert "one node" in prose.idle_said(kept) and "was not measured" in prose.idle_said(other)
