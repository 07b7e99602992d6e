"""Claims that need no measurement: each way they can come out."""

from __future__ import annotations

import pytest
from support.synthetic import fit_to_be_shown, tlbs
from support.your_machine import ARM, KINDS, host, kind, stating

from experiments.article.verdicts import REGISTRY, judge, verdicts
from experiments.chapters.your_machine import Analysis, claims


def verdict(a: Analysis, name: str, **bands: object) -> str:
    return judge(REGISTRY[name], a, **bands).verdict


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_machine_has_every_verdict(name: str):
    for found in fit_to_be_shown(verdicts(claims, kind(name)), 3):
        assert found.claim.points is None and found.claim.source == "padho_tlb"


@pytest.mark.parametrize(("ways", "truth"), [((0, 12), "fails"), ((0, 0), "holds"), ((0, None), "cannot tell"), ((None, 4), "fails")])
def test_full_associativity_is_judged_by_what_each_level_states(ways, truth: str):
    assert verdict(stating(host(tlb=tlbs(ways=ways))), "fully-associative") == truth


def test_a_range_of_ways_is_not_full_associativity_and_silence_is_nothing():
    first, second = tlbs(ways=(0, None))
    of = host(tlb=(first, second.model_copy(update={"ways_between": (8, 15)})))
    found = judge(REGISTRY["fully-associative"], stating(of))
    assert found.verdict == "fails" and "8 to 15 ways" in found.evidence
    assert verdict(stating(host(**ARM)), "fully-associative") == "cannot tell"


def test_a_hit_costs_what_was_published_and_the_band_is_the_readers():
    assert [verdict(kind("guest"), "hit-costs-one-cycle", most=most) for most in (1, 7, 8)] == ["fails", "fails", "holds"]
    found = judge(REGISTRY["hit-costs-one-cycle"], kind("guest"))
    assert "5 to 8 cycles on 5" in found.evidence


def test_entries_cover_what_they_are_multiplied_by():
    found = judge(REGISTRY["entries-cover-a-pool"], kind("guest"))
    assert found.verdict == "fails" and "64 MiB" in found.evidence and "2,200" in found.evidence
    assert verdict(kind("guest"), "entries-cover-a-pool", entries=2200) == "holds"
