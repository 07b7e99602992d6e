"""The scorecard: on machines whose verdicts are known, what it counts, shows, links and hides; and what stays where rows are lacking."""

from __future__ import annotations

import re
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from support.synthetic import Stated

from experiments.article.chapter import Chapter
from experiments.article.page import written
from experiments.article.verdicts import claims_of, statements
from experiments.front import CHAPTERS, judged, scorecard, scorecard_tables
from experiments.front.judged import Judged, Shown, Verdicts, name_of
from experiments.lab.store import Store
from experiments.words.reasons import Unavailable

A, B, LACKED = "zen-3-aaaaaaaa", "zen-5-bbbbbbbb", "code"  # the reference lacks a chapter, which the other one has
WORDS = ("holds", "fails", "cannot tell", "not testable here", "fails")
DEFAULTS = {"machine": "reference", "profile": "quick", "max_working_set": "profile", "repeats": 0, "minutes": 0.0, "engine": "auto"}
IDS = {name_of(module): [claim.id for claim in claims_of(module.claims)] for module in CHAPTERS}


def one(word: str, place: int) -> Judged:
    """Verdict number `place`: every third was decided by an interval and says so in its evidence, every third without it there."""
    effect = Shown(value=1.5, low=1.25, high=None, least=1.0, most=None)
    evidence = (f"Row {place} takes 1.5 (1.25 to 1.75) ns.", f"Row {place} takes 1.5 ns.", f"Row {place} says so & <b>more</b>.")[place % 3]
    reason, why = ("crosses", "It crosses.") if word == "cannot tell" else ("", "")
    return Judged(verdict=word, evidence=evidence, effects=() if place % 3 == 2 else (effect,), reason=reason, why=why)


def known(shift: int, lacking: tuple[str, ...] = ()) -> Verdicts:
    """Claim number k has the word number k + k//5·shift: two machines agree on some, and not on others."""
    number = count()
    chapters = {name: {id: one(WORDS[(k + k // 5 * shift) % 5], k) for id in ids for k in [next(number)]} for name, ids in IDS.items()}
    return Verdicts(data="", code="", chapters={name: told for name, told in chapters.items() if name not in lacking},
                    lacking=dict.fromkeys(lacking, "There are no results."))


MACHINES = {A: known(0, (LACKED,)), B: known(1)}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A data/ of two machines."""
    store = Store(tmp_path / "data")
    for machine, core in ((A, "Zen 3"), (B, "Zen 5")):
        store.write_machine(machine, Stated(changes={"microarchitecture": core}).host().model_dump(mode="json"))
    store._rewrite(B, "grids", lambda: {LACKED: {}})
    (store.root / "reference").write_text(f"{A}\n{B}\n")
    monkeypatch.setattr(scorecard, "judged", lambda chapter: MACHINES[chapter.machine])
    return store


def page(data: Store, machine: str = "reference") -> scorecard.Analysis:
    return scorecard.Analysis(about(data, machine))


def about(data: Store, machine: str) -> Chapter:
    return Chapter(judged.PAGE, DEFAULTS | {"machine": machine}, data)


def expected(machine: str) -> list[tuple[str, str]]:
    return [(id, told.verdict) for chapter in IDS for id, told in MACHINES[machine].chapters.get(chapter, {}).items()]


def test_each_claim_stands_once_with_the_verdict_of_the_machine_whose_page_its_chapter_shows(data: Store):
    rows = page(data).rows
    assert rows["id"].tolist() == [id for ids in IDS.values() for id in ids] and len(rows) > 150
    whole = dict(expected(A)) | {id: MACHINES[B].chapters[LACKED][id].verdict for id in IDS[LACKED]}
    assert dict(zip(rows["id"], rows["verdict"], strict=True)) == whole
    assert [*zip(rows["id"], rows[B], strict=True)] == expected(B)


def test_a_page_about_one_machine_has_no_other_s_verdict_in_its_place(data: Store):
    rows = page(data, A).rows.set_index("id")
    lacking = rows.loc[IDS[LACKED]]
    assert {*lacking["verdict"]} == {scorecard.UNMEASURED} and {*lacking["evidence"]} == {"There are no results."}
    assert page(data, B).machine_of(LACKED) == B and list(page(data, B).others) == [A]


@pytest.mark.parametrize(("mine", "theirs", "is_compared"), [
    ({}, {}, True), ({"page_chase": 2}, {}, False), ({}, {"page_chase": 2}, False),
    ({"page_chase": 2, "page_gather": 1}, {"page_chase": 2, "stride_sum": 3}, True),
    ({"page_chase": 2, "page_gather": 1}, {"page_chase": 2, "page_gather": 2}, False)])
def test_verdicts_by_other_versions_of_the_kernels_are_neither_shown_nor_compared(
        data: Store, monkeypatch, mine: dict[str, int], theirs: dict[str, int], is_compared: bool):
    chapter = next(name for name in IDS if name != LACKED)
    versions = {A: {chapter: mine} if mine else {}, B: {chapter: theirs} if theirs else {}}
    monkeypatch.setattr(scorecard, "judged", lambda about: MACHINES[about.machine].model_copy(update={"measures": versions[about.machine]}))
    a = page(data, A)
    of = a.rows["chapter"] == chapter
    words = MACHINES[B].chapters[chapter]
    assert a.rows.loc[of, B].tolist() == [words[id].verdict if is_compared else scorecard.OTHERWISE for id in IDS[chapter]]
    assert a.rows.loc[of, "deciding"].max() == (2 if is_compared else 1) and (a.rows.loc[of, "apart"].any() <= is_compared)
    assert dict(zip(a.rows["id"], a.rows[B], strict=True)).items() >= dict(expected(B)[-3:]).items()  # the other chapters' as ever
    assert is_compared == (B not in a.measured_otherwise)


def text(data: Store, machine: str) -> str:
    """The page, as text."""
    return " ".join(written("scorecard", lambda names: scorecard.Analysis(about(data, machine), names)).split())


def test_the_text_counts_what_the_rows_hold(data: Store):
    told = text(data, B)
    every = [told for ids in MACHINES[B].chapters.values() for told in ids.values()]
    tested = [one for one in every if one.effects]
    decided = sum(one.verdict in ("holds", "fails") for one in tested)
    assert f"{len(tested)} claims were tested with an interval, which decides {decided} of them" in told
    assert f"at most {len(tested) / 20:.1f} of these" in told
    counts = [int(number) for number in re.findall(r"(\d+) (?:hold|fail|are undecided|need hardware)\b", told)[:4]]
    assert sum(counts) == len(every) and f"We tested {len(every)} published" in told


def test_where_machines_disagree_they_are_two(data: Store):
    a = page(data)
    both = {id: {dict(expected(A)).get(id), dict(expected(B)).get(id)} for ids in IDS.values() for id in ids}
    apart = {id for id, words in both.items() if words >= {"holds", "fails"}}
    assert {*a.rows["id"][a.rows["apart"]]} == apart and len(apart) > 5  # a chapter that B stands in for is decided by B alone
    several = sum(words <= {"holds", "fails"} and len([w for m in (A, B) if (w := dict(expected(m)).get(id))]) == 2
                  for id, words in both.items())
    assert (a.rows["deciding"] > 1).sum() == several
    assert a.stand_ins == {B: [f"{{doc}}`{LACKED}`"]}


def test_the_counts_are_those_of_the_verdicts(data: Store):
    table = BeautifulSoup(scorecard_tables.counts(page(data, B)).markup, "html.parser")
    head, here, other = ([cell.text for cell in row.select("th, td")] for row in table.select("tr"))
    for row, machine in ((here, B), (other, A)):
        words = Counter(word for _, word in expected(machine))
        assert {word: int(number) for word, number in zip(head[1:-1], row[1:], strict=False)} == {word: words[word] for word in head[1:-1]}
    assert (head[-1], here[-1], other[-1]) == (scorecard.UNMEASURED, "0", str(len(IDS[LACKED])))


@pytest.fixture
def table(data: Store) -> BeautifulSoup:
    return BeautifulSoup(scorecard_tables.claims(page(data)).markup, "html.parser")


def test_each_row_has_quote_source_prediction_evidence_interval_and_link(table: BeautifulSoup):
    lines = {line.select_one("a")["href"].partition("#")[2]: line for line in table.select("tr[data-is]")}
    assert len(lines) == sum(map(len, IDS.values()))
    for chapter, ids in IDS.items():
        for id in ids:
            line, row = lines[f"claim-{id}"], statements()[id]
            cells = line.select("td")
            assert line.select_one("a")["href"] == f"{chapter}.html#claim-{id}"
            assert re.sub(r"`", "", f"“{row.quote}”") in cells[0].text and row.place in cells[0].text and row.quantity in cells[0].text
            assert "1.25" in cells[1].text or "says so & <b>more</b>" in cells[1].text  # an interval, or none was measured
            assert cells[2].text in WORDS and cells[3].text in WORDS and len(cells) == 4


@pytest.mark.parametrize(("low", "high", "unit", "words"), [
    ("3", "5", "ns", ": 3 to 5 ns"), ("", "0.1", "share", ": up to 0.1"), ("1200", "", "entries", ": 1,200 or more entries"),
    ("2", "2", "sizes", ": 2 sizes"), ("", "", "ns", "")])
def test_what_a_claim_predicts_is_its_quantity_in_its_band(low: str, high: str, unit: str, words: str):
    row = next(iter(statements().values()))._replace(quantity="a load", low=low, high=high, unit=unit)
    assert scorecard_tables._predicts(row) == f"a load{words}"


def visible(table: BeautifulSoup, chapter: str = "", verdict: str = "") -> list[str]:
    """The rows that the page's own rules leave where these are chosen, as a browser would apply them."""
    page = BeautifulSoup(str(table), "html.parser")
    for choice, value in zip(page.select("select"), (chapter, verdict), strict=True):
        choice.select_one(f"option[value='{value}']")["selected"] = ""
    rules = re.findall(r"([^{}]+)\{display:none\}", page.select_one("style").text)
    chosen = [rule for rule in rules if any(value and f"'{value}']:checked" in rule for value in (chapter, verdict, "holds"))]
    assert len(rules) > len(chosen)  # those of what is not chosen hide nothing: one of them is tried, for they take long
    for hidden in [found for rule in chosen for found in page.select(rule)]:
        hidden.extract()
    return [line.select_one("a")["href"] for line in page.select("tr[data-is]")]


def test_the_filter_shows_a_chapter_a_verdict_both_or_all(table: BeautifulSoup, data: Store):
    rows = page(data).rows
    links = dict(zip(rows["id"], rows["chapter"] + ".html#claim-" + rows["id"], strict=True))
    assert visible(table) == [*links.values()]
    options = [[option["value"] for option in choice.select("option")] for choice in table.select("select")]
    assert options == [["", *IDS], ["", "holds", "fails", "unknown", "untestable", "apart"]]
    assert visible(table, chapter="code") == [links[id] for id in IDS["code"]]
    fails = rows["id"][rows["verdict"] == "fails"]
    assert visible(table, verdict="fails") == [links[id] for id in fails]
    assert visible(table, "strides", "fails") == [links[id] for id in fails if id in IDS["strides"]]
    assert visible(table, verdict="apart") == [links[id] for id in rows["id"][rows["apart"]]]


def test_each_list_of_the_filter_has_its_label_and_no_script_is_needed(table: BeautifulSoup):
    assert [label.contents[0].strip() for label in table.select("label:has(select)")] == ["Chapter", "Verdict"]
    assert not table.select("script, [onchange]") and all(head["scope"] for head in table.select("th"))


def test_what_is_not_judged_is_there_to_unfold_with_what_would_decide_it(data: Store):
    made = BeautifulSoup(scorecard_tables.not_judged(page(data)).markup, "html.parser")
    every = [row for row in statements().values() if row.status != "judged"]
    assert len(made.select("li")) == len(every) and len(made.select("details > summary")) == 3
    texts = " ".join(" ".join(made.text.split()).split("`"))
    assert all(" ".join(row.note.replace("`", " ").split())[:40] in texts for row in every if row.status == "not testable")
    assert page(data).statement_kinds.total() == len(statements())


def test_a_data_folder_without_a_reference_is_one_reason(tmp_path: Path):
    with pytest.raises(Unavailable, match="names no machine"):
        page(Store(tmp_path)).rows  # noqa: B018
