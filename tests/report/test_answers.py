"""The answers that are kept of the published machines: every verdict against a second reading of the
rule, from the numbers alone."""

import json
from math import inf

import pytest
from support.common import ROOT

from tlb.report.answers import ANSWERS_DOCUMENT, StoredAnswer, StoredEffect
from tlb.report.claims import statements
from tlb.stats.effects import effect_inside_band
from tlb.stats.intervals import Interval
from tlb.system.reasons import REASON_TEXTS, UNDECIDED_TEXTS

KEPT = {
    path.parent.name: {
        id: StoredAnswer.model_validate(answer)
        for answers in json.loads(path.read_text()).values()
        for id, answer in answers.items()
    }
    for path in sorted((ROOT / "data").glob(f"*/{ANSWERS_DOCUMENT}.json"))
}


def place(one: StoredEffect) -> str:
    """Where an interval lies: "inside" its band, "outside", or across an end."""
    low, least = (-inf if end is None else end for end in (one.low, one.least))
    high, most = (inf if end is None else end for end in (one.high, one.most))
    if least <= low and high <= most:
        return "inside"
    return "outside" if high < least or low > most else "across"


@pytest.mark.parametrize("machine", KEPT)
def test_a_claim_holds_inside_its_band_fails_outside_and_else_says_why_it_is_open(machine):
    wrong = []
    for id, answer in KEPT[machine].items():
        found, places = answer.decide(), [place(one) for one in answer.effects]
        by_rule = {
            "holds": answer.holds is True or (places and {*places} == {"inside"}),
            "fails": answer.holds is False or "outside" in places,
            "cannot tell": found.reason in UNDECIDED_TEXTS or found.reason in REASON_TEXTS,
            "not testable here": found.reason in REASON_TEXTS,
        }
        is_plain = found.reason not in ("few", "widened", "")
        decides = places and ({*places} == {"inside"} or "outside" in places)
        if not by_rule[found.verdict] or (is_plain and decides):
            wrong.append((id, found.verdict, found.reason, places))
    assert not wrong


def test_a_decision_has_all_of_what_was_compared():
    effect = effect_inside_band(Interval(1.5, 1.4, 1.6, 1 / 3), 1.0, 2.0, 7, "a size", "ns")
    kept = StoredEffect.of(effect)
    assert kept.model_dump() == {
        **{"value": 1.5, "low": 1.4, "high": 1.6, "coverage": 0.333333, "modes": 1},
        **{"least": 1.0, "most": 2.0, "among": 7, "what": "a size", "unit": "ns"},
    }
    left_open = StoredAnswer(effects=(kept,), evidence="So.", reason="ambiguous").decide()
    assert [one.unit for one in left_open.effects] == ["ns"]
    fact = StoredAnswer.of(True, "So.", 10 / 3)
    assert (fact.value, fact.decide().value) == (3.33333, 3.33333)


def test_every_judged_claim_of_a_chapter_has_an_answer_on_every_machine():
    judged = {one.id for one in statements().values() if one.has_verdict}
    assert len(KEPT) >= 4
    assert {machine: judged - found.keys() for machine, found in KEPT.items()} == dict.fromkeys(
        KEPT, set()
    )
    assert {machine: found.keys() - judged for machine, found in KEPT.items()} == dict.fromkeys(
        KEPT, set()
    )
