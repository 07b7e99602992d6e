"""Claims on several machines at once: what is shown, what is folded, and the words of a verdict."""

import pytest
from bs4 import BeautifulSoup

from tlb.report import all_machines
from tlb.report.answers import StoredAnswer, StoredEffect
from tlb.report.claims import statements

ARITHMETIC = StoredAnswer(holds=True, evidence="4 times 6 are 24.")
HOLDS = StoredAnswer(effects=(StoredEffect(value=1.5, low=1.4, high=1.6, least=1),))
OPEN = StoredAnswer(effects=(StoredEffect(value=1.5, low=0.9, high=1.6, least=1),))
IDS = [one.id for one in statements().values() if one.status == "judged"][:4]
ANSWERS = {
    "Zen 3": dict(zip(IDS, [ARITHMETIC, HOLDS, OPEN], strict=False)),
    "Zen 5": dict(zip(IDS, [ARITHMETIC, OPEN, OPEN], strict=False)),
}


@pytest.fixture(autouse=True)
def known_answers(monkeypatch):
    monkeypatch.setattr(all_machines, "answers_by_machine", lambda: ANSWERS)


def test_claims_that_no_machine_decides_are_folded():
    read = BeautifulSoup(all_machines.judged_on_all_machines(*IDS).markup, "html.parser")
    folded = {row["id"] for row in read.select("details tbody tr")}
    assert folded == {f"claim-{id}" for id in IDS[2:]}
    assert {row["id"] for row in read.select("tbody tr")} == {f"claim-{id}" for id in IDS}


def test_arithmetic_that_is_the_same_on_all_machines_has_one_cell():
    read = BeautifulSoup(all_machines.judged_on_all_machines(*IDS).markup, "html.parser")
    widths = [
        [int(cell.get("colspan", 1)) for cell in row.select("td")[1:]]
        for row in read.select("tbody tr")
    ]
    assert widths == [[2], [1, 1], [1, 1], [1, 1]]


def test_a_verdict_names_the_machines_unless_all_agree():
    found = [all_machines.verdict_by_machine(statements()[id], ANSWERS) for id in IDS]
    assert found[0] == "holds on all" and found[1] == "holds: Zen 3; cannot tell: Zen 5"
    assert found[3].startswith(all_machines.NOT_TESTABLE)
