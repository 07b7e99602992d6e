"""The page of all claims: on machines whose answers are known, what it shows, links and counts."""

import pytest
from bs4 import BeautifulSoup

from experiments.overview import scorecard
from experiments.overview.scorecard import Scorecard
from tlb.report import all_machines, page
from tlb.report.answers import StoredAnswer, StoredEffect
from tlb.report.claims import statements

HOLDS = StoredAnswer(
    evidence="It is <b>1.5</b>.", effects=(StoredEffect(value=1.5, low=1.4, high=1.6, least=1),)
)
FAILS = StoredAnswer(holds=False, evidence="No.")
OPEN = StoredAnswer(evidence="So.", effects=(StoredEffect(value=1.5, low=0.9, high=1.6, least=1),))
UNTESTABLE = StoredAnswer(reason="no-pmu")
LACKING = StoredAnswer(reason="too-few-points")
A, B = "Zen 3", "Zen 5"
JUDGED = [one for one in statements().values() if one.status == "judged"]
# Those whose number is a ratio first: the tests print the first of them.
IDS = [one.id for one in sorted(JUDGED, key=lambda one: one.unit != "ratio")]
ANSWERS = {
    A: dict(zip(IDS, [HOLDS, FAILS, OPEN, UNTESTABLE, UNTESTABLE, HOLDS], strict=False)),
    B: dict(zip(IDS, [FAILS, FAILS, HOLDS, LACKING, OPEN], strict=False)),
}


@pytest.fixture
def card(monkeypatch) -> Scorecard:
    monkeypatch.setattr(all_machines, "answers_by_machine", lambda: ANSWERS)
    page.open_page(page.Page("scorecard"))
    made = Scorecard()
    made.ids = {A: "zen-3-aaaaaaaa", B: "zen-5-bbbbbbbb"}
    return made


def test_what_a_machine_did_not_measure_is_no_verdict_and_two_machines_can_disagree(card):
    counts = card.counts()
    assert (counts["claims"], counts["testable"], counts["decided"]) == (len(IDS), 5, 4)
    assert [counts[name] for name in ("hold", "fail", "undecided", "untestable")] == [2, 1, 1, 2]
    assert (counts["several"], counts["disagree"], counts["by_interval"]) == (2, 1, 3)


def test_each_claim_is_a_row_with_the_verdict_and_the_number_of_every_machine(card):
    read = BeautifulSoup(scorecard.claims_by_machine(card).markup, "html.parser")
    found = {row.a["href"].partition("#claim-")[2]: row for row in read.select("tr[data-is]")}
    assert found.keys() == {one.id for one in statements().values() if one.has_verdict}
    assert not read.select("b")
    cells = [cell.text for cell in found[IDS[0]].select("td")[1:]]
    assert cells[0].startswith("holds: 1.5 (1.4 to 1.6) times") and cells[1] == "fails"
    assert found[IDS[0]]["data-is"] == ["holds", "apart"] or "apart" in found[IDS[0]]["data-is"]
    assert "no counters" in found[IDS[3]].text and "not enough measured" in found[IDS[3]].text
    assert "crosses the band" in found[IDS[2]].text
    assert {option["value"] for option in read.select("option")} >= {
        "holds",
        "unknown",
        "apart",
        "",
    }


def test_the_counts_are_those_of_the_rows(card):
    rows = BeautifulSoup(scorecard.verdict_counts(card).markup, "html.parser").select("tbody tr")
    numbers = {row["id"]: [int(cell.text) for cell in row.select("td")] for row in rows}
    assert numbers["verdicts-zen-3-aaaaaaaa"] == [2, 1, 0, 1, 2, len(IDS) - 6]
    assert all(sum(row) == len(IDS) for row in numbers.values())


def test_a_column_of_what_was_not_measured_is_there_if_a_machine_lacks_an_answer(card):
    assert "not measured" in scorecard.verdict_counts(card).text
    card.judged = [claim for claim in card.judged if len(claim.answers) == len(card.machines)]
    assert "not measured" not in scorecard.verdict_counts(card).text


def test_a_card_says_why_and_what_other_machines_show(card):
    made = scorecard.headline_claims(card, {IDS[0]: {"holds": "So it is."}}).markup
    assert "So it is." in made and "Zen 5: fails" in made
