"""Claims on several machines at once: what is shown, what is folded, and the words of a verdict."""

import re
from math import inf

import pytest
from bs4 import BeautifulSoup

from tlb.report import all_machines
from tlb.report.answers import EffectBounds, StoredAnswer, StoredEffect
from tlb.report.claims import statements
from tlb.report.verdicts import AS_WE_READ_IT, bounds_words, format_band_in_unit
from tlb.stats.intervals import Interval

ARITHMETIC = StoredAnswer(holds=True, evidence="4 times 6 are 24.")
HOLDS = StoredAnswer(effects=(StoredEffect(value=1.5, low=1.4, high=1.6, least=1),))
OPEN = StoredAnswer(effects=(StoredEffect(value=1.5, low=0.9, high=1.6, least=1),))
IDS = [one.id for one in statements().values() if one.status == "judged"][:4]
ANSWERS = {
    "Zen 3": dict(zip(IDS, [ARITHMETIC, HOLDS, OPEN], strict=False)),
    "Zen 5": dict(zip(IDS, [ARITHMETIC, OPEN, OPEN], strict=False)),
}
UNIT = next(one for one in statements().values() if one.unit == "ns" and one.status == "judged")


@pytest.fixture(autouse=True)
def known_answers(monkeypatch):
    monkeypatch.setattr(all_machines, "answers_by_machine", lambda: ANSWERS)


def test_claims_that_no_machine_decides_are_last():
    read = BeautifulSoup(all_machines.judged_on_all_machines(*reversed(IDS)).markup, "html.parser")
    found = [row["id"].removeprefix("claim-") for row in read.select("details tbody tr")]
    assert {*found[:2]} == {*IDS[:2]} and {*found[2:]} == {*IDS[2:]}
    assert "2 decided" in read.summary.text


def test_what_is_the_same_on_all_machines_has_one_cell():
    read = BeautifulSoup(all_machines.judged_on_all_machines(*IDS).markup, "html.parser")
    widths = [
        [int(cell.get("colspan", 1)) for cell in row.select("td")[1:]]
        for row in read.select("tbody tr")
    ]
    assert widths == [[2], [1, 1], [2], [2]]


def test_neighbours_with_the_same_cell_share_it_and_others_do_not(monkeypatch):
    by_machine = {"Zen 4": OPEN, "Zen 3": OPEN, "Zen 5": HOLDS}
    answers = {name: {IDS[1]: answer} for name, answer in by_machine.items()}
    monkeypatch.setattr(all_machines, "answers_by_machine", lambda: answers)
    read = BeautifulSoup(all_machines.judged_on_all_machines(IDS[1]).markup, "html.parser")
    cells = read.select("td[data-machine]")
    assert [cell["data-machine"] for cell in cells] == ["Zen 4, Zen 3", "Zen 5"]


@pytest.mark.parametrize("answer, is_marked", [(HOLDS, True), (OPEN, False)])
def test_a_decided_verdict_on_our_reading_of_the_words_is_marked(answer, is_marked):
    _, words = all_machines.verdict_cell(UNIT._replace(reading="We read it so."), answer)
    assert (AS_WE_READ_IT in words) is is_marked
    assert AS_WE_READ_IT not in all_machines.verdict_cell(UNIT._replace(reading=""), answer)[1]


def test_a_summary_has_the_number_of_each_machine():
    rows = [("first", IDS[1], "Why."), ("second", IDS[0], "So.")]
    read = BeautifulSoup(all_machines.summary_of_article(*rows).markup, "html.parser")
    shown = [row for row in read.select("tbody tr") if row.get("class") != ["tlb-why"]]
    *cells, counts, by_interval = ([cell.text for cell in row.select("td")[1:]] for row in shown)
    assert [words.partition(",")[0] for words in counts] == ["2 hold", "1 holds"]
    assert sum(map(int, re.findall(r"\d+", by_interval[0]))) <= 2  # not the one by arithmetic
    assert [len(row) for row in cells] == [2, 1]
    holds, open_ = cells[0]
    assert "1.5" in holds and "1.40" not in holds + open_


def test_a_summary_shows_what_an_article_rests_on_with_a_sentence_and_folds_the_rest():
    made = all_machines.summary_of_article(("first", IDS[1], "Why."), more=[("second", IDS[0])])
    read = BeautifulSoup(made.markup, "html.parser")
    folded = read.details.extract().text
    assert "first" in read.text and "Why." in read.text and "second" not in read.text
    assert "second" in folded and "claims judged" in folded and "1 more" in folded


def test_what_other_machines_decide_is_said_by_name_and_what_they_leave_open_is_not(monkeypatch):
    names = {"one": "Zen 3", "two": "Zen 5"}
    monkeypatch.setattr(all_machines, "published_names", lambda store: names)
    found = all_machines.decided_elsewhere("two")
    assert found.keys() == {*IDS[:2]} and found[IDS[1]].startswith("Zen 3: holds: 1.5")
    assert "Zen 5" not in " ".join(found.values())
    assert all_machines.decided_elsewhere("one").keys() == {IDS[0]}


def test_a_summary_gives_the_condition_farthest_outside_its_band(monkeypatch):
    conditions = [
        StoredEffect(value=v, low=v, high=v, least=1, what=f"size {v}", unit="ratio")
        for v in (2, 0.5, 0.8)
    ]
    answers = {"Zen 3": {UNIT.id: StoredAnswer(effects=tuple(conditions))}}
    monkeypatch.setattr(all_machines, "answers_by_machine", lambda: answers)
    text = all_machines.summary_of_article(("so", UNIT.id, "")).text.splitlines()[1]
    assert text == "so\tfails here: 0.500 times, size 0.5, predicted 1 times or more"


def test_a_stated_number_is_no_verdict_by_an_interval(monkeypatch):
    stated = StoredEffect(value=2048, low=2048, high=2048, least=2048, most=2048)
    answers = {"Zen 3": {UNIT.id: StoredAnswer(effects=(stated,))}}
    monkeypatch.setattr(all_machines, "answers_by_machine", lambda: answers)
    made = all_machines.summary_of_article(("so", UNIT.id, ""))
    assert made.text.splitlines()[-1].rpartition("\t")[2].startswith("1 holds")
    assert "by an interval" not in made.markup  # nor a row of dashes


def test_a_claim_that_repeats_another_is_not_shown_with_its_number():
    again = next(one.id for one in statements().values() if one.status == "said again")
    with pytest.raises(ValueError, match=again):
        all_machines.judged_on_all_machines(again)


def printed(statement, *effects):
    answer = StoredAnswer(effects=effects)
    return all_machines.number_words(statement, answer.decide())


def test_of_two_conditions_a_claim_that_holds_prints_both_and_one_that_fails_what_fails():
    least, most = UNIT.band
    low, high = max(least, 0) + 1, most - 1
    own = StoredEffect(value=low, low=low, high=high, least=max(least, 0), most=most, what="here")
    band = {"most": 1.25, "what": "there", "unit": "ratio"}
    within = StoredEffect(value=1, low=1, high=1.1, **band)
    beyond = StoredEffect(value=2.5, low=2, high=3, **band)
    both = printed(UNIT, own, within)
    assert ", here; " in both and ", predicted 1.25 times or less" in both
    words = "2.5 (2.0 to 3.0) times, there, predicted 1.25 times or less"
    assert printed(UNIT, own, beyond) == words


def test_of_too_few_mappings_a_cell_has_no_number():
    effect = StoredEffect(value=1.5, low=1.5, high=1.5, coverage=0.5, least=1)
    title, words = all_machines.verdict_cell(UNIT, StoredAnswer(effects=(effect,)))
    assert not title and "few mappings" in words and "1.5" not in words


def test_an_end_beside_its_bands_is_not_printed_with_more_digits():
    close = StoredEffect(value=123, low=121, high=125.001, least=75, most=125)
    assert printed(UNIT, close) == "123 (121 to just above 125) ns"


@pytest.mark.parametrize(
    "value, low, high, words",
    [
        (1.53, 1.51, 1.55, "1.53 (1.51 to 1.55) times"),
        (1.53, 1.31, 1.72, "1.5 (1.3 to 1.7) times"),
        (347, 307, 369, "350 (310 to 370) times"),
        (1.12, 1.03, 1.21, "1.12 (1.03 to 1.21) times"),  # more where the band's end would be met
    ],
)
def test_a_wide_interval_has_two_digits_and_none_touches_its_band(value, low, high, words):
    effect = StoredEffect(value=value, low=low, high=high, least=1, unit="ratio", what=".")
    assert printed(UNIT, effect).startswith(words)
    assert f"{Interval(value, low, high):rounded} times" == words
    assert words.startswith(f"{Interval(value, low, high):median} (")
    ends = words.partition("(")[2].partition(")")[0]
    assert f"Interval {ends};" in bounds_words([EffectBounds(low, high, 1, inf)]).striptags()


@pytest.mark.parametrize(
    "unit, low, high, is_one",
    [("ratio", "1", "", True), ("ns", "", "0", True), ("ns", "1", "", False)],
)
def test_a_claim_that_any_difference_supports_is_marked(unit, low, high, is_one):
    one = UNIT._replace(unit=unit, low=low, high=high)
    assert ("direction only" in all_machines.prediction_in_words(one)) is is_one


def test_of_many_conditions_the_one_that_decides_is_printed():
    good = [
        StoredEffect(value=v, low=v, high=v, least=1, what=f"size {v}", unit="ratio")
        for v in (2, 3, 4)
    ]
    bad = StoredEffect(value=0.5, low=0.4, high=0.6, least=1, what="size 0", unit="ratio")
    words = printed(UNIT, *good, bad)
    assert words.startswith("in 1 of 4: 0.50 (0.40 to 0.60) times, size 0")
    assert printed(UNIT, *good, good[0]).startswith("in 4 of 4: 2.00 times, size 2, ")


@pytest.mark.parametrize(
    "value, unit, words",
    [
        (2 << 20, "bytes", "2 MiB"),
        (1_994_752, "bytes", "1.99 MB"),
        (2**55, "bytes", "36 PB"),
        (0, "bytes", "0 bytes"),
        (0.75, "share", "75%"),
        (512, "ratio", "512 times"),
        (24, "references", "24 references"),
    ],
)
def test_a_fact_is_printed_with_its_number_in_the_claims_unit(value, unit, words):
    answer = StoredAnswer.of(True, "So.", float(value))
    assert all_machines.number_words(UNIT._replace(unit=unit), answer.decide()) == words


@pytest.mark.parametrize(
    ("band", "words"),
    [((1.0014, 1.0032), "1.001 to 1.003 times"), ((0.75, 1.25), "0.75 to 1.25 times")],
)
def test_a_band_near_one_is_told_from_one(band, words):
    assert format_band_in_unit(*band, "ratio") == words
