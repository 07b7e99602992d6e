"""The sentences about page faults: each exists on every machine, and says what its data say."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from support import told
from support.faults import MACHINES, Kernel, analysis, rows

from experiments.chapters.page_faults import figures, prose, tables
from experiments.words.prose import Prose

pytestmark = pytest.mark.filterwarnings("error")

MAKES = (figures.touches, figures.published_buckets, figures.published_profile, figures.own_profile, figures.churn, figures.again,
         tables.ways, tables.statistics, tables.levels)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_sentence_and_figure_exists_or_says_why_not(machine: str):
    told.shown(prose, MAKES, analysis(MACHINES[machine]()), machine == "everything")


@pytest.mark.parametrize("about", [{"hypervisor": "none"}, {"balloon": None}, {"report_order": None}, {"balloon": []},
                                   {"profiles": {}, "lacking": {"profiles": "no-perf", "traced": "no-tracefs"}, "traced": None},
                                   {"host": {"la57": True, "page_table_levels": 5}, "la57_flag": True, "high_mapping": True},
                                   {"host": {"arch": "aarch64", "vendor": "ARM", "la57": None}, "high_mapping": None},
                                   {"host": {"page_table_levels": None}}, {"host": {"la57": True}, "no5lvl": True}])
def test_whatever_the_kernel_says_the_sentences_are_whole(about: dict):
    told.spoken(prose, analysis(**about), set(prose.__all__) - {"machine"})


def some_dear(*columns: str) -> pd.DataFrame:
    """Rows of a machine whose host takes nothing, but of one process of each point."""
    frame = rows(Kernel(takes=(), found=0.0)).copy()
    some = (frame["kernel"] == "touch_again") & (frame["repeat"] == 0)
    frame.loc[some, list(columns)] *= 9
    return frame


def differs(sentence: str, *analyses: object) -> bool:
    """Whether a sentence is chosen otherwise for each, beyond its numbers."""
    texts = ["".join(letter for letter in getattr(prose, sentence)(a) if not letter.isdigit()) for a in analyses]
    return len(set(texts)) == len(texts) and all(isinstance(getattr(prose, sentence)(a), Prose) for a in analyses)


def test_what_is_said_follows_the_machine():
    usual = analysis()
    assert differs("brief", usual, analysis(rows(Kernel(around=1)))) and differs("file_said", usual, analysis(rows(Kernel(around=1))))
    assert differs("written_said", usual, analysis(rows(Kernel(piece=16))))
    assert differs("fresh_said", usual, analysis(hypervisor="none")) and differs("brief", usual, analysis(hypervisor="none"))
    assert differs("ready_said", usual, analysis(rows(Kernel(trap_ns=0.0))))
    assert differs("group_said", analysis(rows(Kernel(charge=1.2))), analysis(rows(Kernel(charge=1.0, noise=0.02))),
                   analysis(rows(Kernel(charge=0.8))), analysis(rows(repeats=1)))
    assert differs("churn_said", usual, analysis(rows(Kernel(shared=0.0))), analysis(rows(Kernel(cpus=1))))
    assert differs("first_said", usual, analysis(rows(Kernel(found=0.0))), analysis(some_dear("first_ns_per_access")))
    assert differs("again_said", usual, analysis(rows(Kernel(takes=()))), analysis(rows(Kernel(taken_after_ms=0.0))),
                   analysis(some_dear("ns_per_access", "mean_ns")))
    assert differs("host_said", usual, analysis(rows(Kernel(takes=()))), analysis(hypervisor="none"), analysis(balloon=None),
                   analysis(report_order=None))
    assert differs("levels_said", usual, analysis(host={"la57": True}, no5lvl=True), analysis(host={"la57": True}),
                   analysis(host={"la57": True, "page_table_levels": 5}, la57_flag=True, high_mapping=True),
                   analysis(host={"arch": "aarch64", "vendor": "ARM", "la57": None}))
    assert differs("traced_said", usual, analysis(traced=None, lacking={"traced": "no-tracefs"}))
    assert differs("profile_said", usual, analysis(profiles={}, lacking={"profiles": "perf-denied"}))


def test_the_most_that_the_published_difference_can_cost_is_its_share_of_a_fault():
    shares = [float(share) / 100 for share in re.findall(r"([0-9.]+)%", prose.matter_said(analysis()).split("\n")[0])]
    assert max(shares[1:]) == pytest.approx(0.2433 / 105.637, rel=0.01)  # a program cannot fault for longer than it runs


def test_the_statistics_are_published_and_own():
    rows_of = told.read(tables.statistics(analysis()))
    assert len(rows_of) == 2 and rows_of["p"].iloc[0] == "1.5e-06"
    assert len(told.read(tables.statistics(analysis(MACHINES["no groups"]())))) == 1
