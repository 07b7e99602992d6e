"""The scorecard: on machines whose verdicts are known, what it shows, links and compares."""

from dataclasses import replace
from itertools import count

import pytest
from bs4 import BeautifulSoup
from support import chapter
from support.synthetic import Stated
from support.verdict_rows import rows

from experiments.overview import (
    CHAPTERS,
    ClaimVerdict,
    MachineVerdicts,
    RoundedEffect,
    chapter_name,
    scorecard,
    scorecard_tables,
)
from tlb.measure.record import Point
from tlb.measure.store import Store
from tlb.report.chapter import Chapter
from tlb.report.verdicts import claims_of
from tlb.system.reasons import explain

A, B = "zen-3-aaaaaaaa", "zen-5-bbbbbbbb"
LACKED = "code"  # a chapter that the reference lacks and the other one has
WORDS = ("holds", "fails", "cannot tell", "not testable here", "fails")
DEFAULTS = chapter.DEFAULTS | {"minutes": 0.0}
IDS = {
    chapter_name(module): [claim.id for claim in claims_of(module.claims)] for module in CHAPTERS
}


def one(word: str, place: int) -> ClaimVerdict:
    """Verdict number `place`: every third was decided by an interval and says so in its evidence,
    every third without it there."""
    effect = RoundedEffect(value=1.5, low=1.25, high=None, least=1.0, most=None)
    evidence = (
        f"Row {place} takes 1.5 (1.25 to 1.75) ns.",
        f"Row {place} takes 1.5 ns.",
        f"Row {place} says so & <b>more</b>.",
    )[place % 3]
    reason, why = ("crosses", "It crosses.") if word == "cannot tell" else ("", "")
    effects = () if place % 3 == 2 else (effect,)
    return ClaimVerdict(verdict=word, evidence=evidence, effects=effects, reason=reason, why=why)


def known(shift: int, lacking: tuple[str, ...] = ()) -> MachineVerdicts:
    """Claim number k has the word number k + k//5·shift: two machines agree on some, and not on
    others."""
    number = count()
    chapters = {
        name: {id: one(WORDS[(k + k // 5 * shift) % 5], k) for id in ids for k in [next(number)]}
        for name, ids in IDS.items()
    }
    kept = {name: told for name, told in chapters.items() if name not in lacking}
    why = dict.fromkeys(lacking, "There are no results.")
    return MachineVerdicts(kept, why)


MACHINES = {A: known(0, (LACKED,)), B: known(1)}


@pytest.fixture
def data(tmp_path, monkeypatch) -> Store:
    """A data/ of two machines."""
    store = Store(tmp_path / "data")
    for machine, core in ((A, "Zen 3"), (B, "Zen 5")):
        store.write_machine(
            machine, Stated(changes={"microarchitecture": core}).host().model_dump(mode="json")
        )
    store.ask(B, LACKED, [Point(kernel="page_chase", lines=64)])
    (store.root / "reference").write_text(f"{A}\n{B}\n")
    monkeypatch.setattr(scorecard, "judge_claims", lambda chapter: MACHINES[chapter.machine])
    return store


def page(data: Store, machine: str = "reference") -> scorecard.Analysis:
    return scorecard.Analysis(about(data, machine))


def about(data: Store, machine: str) -> Chapter:
    return Chapter("scorecard", DEFAULTS | {"machine": machine}, data)


def expected(machine: str) -> list[tuple[str, str]]:
    return [
        (id, told.verdict)
        for chapter in IDS
        for id, told in MACHINES[machine].chapters.get(chapter, {}).items()
    ]


def test_each_claim_stands_once_with_the_verdict_of_the_machine_whose_page_its_chapter_shows(data):
    rows = page(data).rows
    assert rows["id"].tolist() == [id for ids in IDS.values() for id in ids] and len(rows) > 150
    whole = dict(expected(A)) | {id: MACHINES[B].chapters[LACKED][id].verdict for id in IDS[LACKED]}
    assert dict(zip(rows["id"], rows["verdict"], strict=True)) == whole
    assert [*zip(rows["id"], rows[B], strict=True)] == expected(B)


@pytest.mark.parametrize(
    ("mine", "theirs", "is_compared"),
    [
        ({}, {}, True),
        ({"page_chase": 2}, {}, False),
        ({}, {"page_chase": 2}, False),
        ({"page_chase": 2, "page_gather": 1}, {"page_chase": 2, "stride_sum": 3}, True),
        ({"page_chase": 2, "page_gather": 1}, {"page_chase": 2, "page_gather": 2}, False),
    ],
)
def test_verdicts_by_other_versions_of_the_kernels_are_neither_shown_nor_compared(
    data, monkeypatch, mine, theirs, is_compared
):
    chapter = next(name for name in IDS if name != LACKED)
    versions = {A: {chapter: mine} if mine else {}, B: {chapter: theirs} if theirs else {}}
    monkeypatch.setattr(
        scorecard,
        "judge_claims",
        lambda about: replace(MACHINES[about.machine], measures=versions[about.machine]),
    )
    a = page(data, A)
    of = a.rows["chapter"] == chapter
    words = MACHINES[B].chapters[chapter]
    assert a.rows.loc[of, B].tolist() == [
        words[id].verdict if is_compared else scorecard.MEASURED_DIFFERENTLY for id in IDS[chapter]
    ]
    assert a.rows.loc[of, "deciding"].max() == (2 if is_compared else 1) and (
        a.rows.loc[of, "apart"].any() <= is_compared
    )
    assert (
        dict(zip(a.rows["id"], a.rows[B], strict=True)).items() >= dict(expected(B)[-3:]).items()
    )  # the other chapters' as ever


def test_where_machines_disagree_they_are_two(data):
    a = page(data)
    both = {
        id: {dict(expected(A)).get(id), dict(expected(B)).get(id)}
        for ids in IDS.values()
        for id in ids
    }
    apart = {id for id, words in both.items() if words >= {"holds", "fails"}}
    assert {*a.rows["id"][a.rows["apart"]]} == apart and len(
        apart
    ) > 5  # a chapter that B stands in for is decided by B alone
    several = sum(
        words <= {"holds", "fails"}
        and len([w for m in (A, B) if (w := dict(expected(m)).get(id))]) == 2
        for id, words in both.items()
    )
    assert (a.rows["deciding"] > 1).sum() == several


def test_each_claim_is_a_card_or_a_line_and_says_why_it_is_open(data):
    a = page(data)
    ids = a.rows["id"].tolist()
    explained = {id: {a.rows["verdict"][k]: "So it is."} for k, id in enumerate(ids[:9])}
    cards, claims = (
        scorecard_tables.cards(a, explained).markup,
        scorecard_tables.claims(a, explained).markup,
    )
    read = BeautifulSoup(cards + claims, "html.parser")
    found = rows(read)
    assert [row.claim for row in found] == ids and not read.select("b")
    assert all("So it is." in row.text for row in found[:9])
    undecided = [row for row in found if row.verdict == "cannot tell"]
    assert undecided and all("crosses the band" in row.text for row in undecided)
    assert {option["value"] for option in read.select("option")} >= {*IDS, "holds", "unknown", ""}


def test_the_reason_of_an_obstacle_is_read_from_its_sentence():
    sentence = explain("splintered", "of 2 MiB")
    assert scorecard_tables.short("", sentence) == "splintered pages"
    assert scorecard_tables.short("one-level", "") == "one level"
    assert scorecard_tables.short("", "The walks were counted.") == ""
