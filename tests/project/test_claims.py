"""claims.csv: each sentence has its source, its place, its band, and somewhere where it is judged
or a reason why it is not."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from math import inf

from support.common import ROOT

from tlb.report.claims import REGISTRY, Claim, PublishedStatement, source_names, statements
from tlb.report.notebooks import chapter_names_in_order
from tlb.report.verdicts import OBSTACLE_CHECKS

CHAPTERS = tuple(path.parent.name for path in sorted((ROOT / "experiments").glob("*/claims.py")))
# By status: what `where` may name.
WHERE = dict.fromkeys(("judged", "recomputed", "arithmetic", "not testable", "no claim"), CHAPTERS)
MOST_WORDS = 25
SENTENCES = list(statements().values())


def registered() -> dict[str, Claim]:
    """The claims of the book's chapters, by id."""
    modules = {import_module(f"experiments.{name}.claims").__name__ for name in CHAPTERS}
    return {id: claim for id, claim in REGISTRY.items() if claim.decide.__module__ in modules}


def band_of(row: PublishedStatement) -> tuple[float, float] | None:
    """None where one of its ends is no number."""
    try:
        return row.band
    except ValueError:
        return None


def breaches(rows: Sequence[PublishedStatement], claims: dict[str, Claim]) -> list[str]:
    """One sentence for each way in which a row, or the whole, is not as this book needs it."""
    by_id = {row.id: row for row in rows}
    found = [
        f"{id}: it stands {times} times."
        for id, times in Counter(row.id for row in rows).items()
        if times > 1
    ]
    for row in rows:
        found += [f"{row.id}: {why}." for why in _breaches(row, by_id, claims.get(row.id))]
    return found + [
        f"{id}: it has a predicate, and no row that is judged."
        for id in claims
        if id not in by_id or not by_id[id].has_verdict
    ]


def _breaches(
    row: PublishedStatement, by_id: dict[str, PublishedStatement], claim: Claim | None
) -> list[str]:
    found = (
        []
        if row.source in source_names()
        else [f"its source {row.source!r} is not in references.bib"]
    )
    found += [
        f"it has no {name}"
        for name in ("id", "place", "quote", "where")
        if not getattr(row, name).strip()
    ]
    if (words := len(row.quote.split())) > MOST_WORDS:
        found.append(f"its quote has {words} words")
    if row.status == "said again":
        first = by_id.get(row.where)
        if first is None or first.status in ("said again", "no claim"):
            found.append(f"it says {row.where!r} again, which says nothing itself")
    elif row.status not in WHERE:
        found.append(f"nobody knows the status {row.status!r}")
    elif row.where not in WHERE[row.status]:
        found.append(f"what is {row.status} does not stand in {row.where!r}")
    if (band := band_of(row)) is None or not band[0] <= band[1]:
        found.append(f"its band, {row.low!r} to {row.high!r}, is none")
    if unknown := set(row.obstacles.split()) - OBSTACLE_CHECKS.keys():
        found.append(f"nothing checks its obstacles {sorted(unknown)}")
    if not row.has_verdict or row.where not in CHAPTERS:
        return found
    if claim is None or claim.decide.__module__ != f"experiments.{row.where}.claims":
        found.append(f"no predicate in {row.where} judges it")
    elif band == (-inf, inf) and "band" in inspect.signature(claim.decide).parameters:
        found.append("its predicate takes a band, and it has none")
    return found


def test_every_sentence_has_its_source_and_somewhere_where_it_is_judged_or_a_reason_why_not():
    assert breaches(SENTENCES, registered()) == []
    assert {row.status for row in SENTENCES} == {*WHERE, "said again"} and set(CHAPTERS) <= {
        *chapter_names_in_order()
    }


def test_a_claim_of_the_book_is_said_in_its_sources_words():
    assert {id: claim.says for id, claim in registered().items()} == {
        id: f"“{statements()[id].quote}”" for id in registered()
    }


# What a quotation says in a unit, so that a claim of another unit would be about something else. Two
# numbers in one unit may be compared as a ratio.
UNIT_WORDS = {
    "ns": r"\d\+? ?ns\b",
    "cycles": r"\d\+? cycles",
    "ratio": r"\d ?[×x](?!\w)",
    "entries": r"\d\S* (?:L1 dTLB 4 KiB )?entries",
    "bytes": r"\d MB at a time|exabytes|1\.9 MB",
}


def test_a_claims_unit_is_that_of_its_quotations_number():
    wrong = []
    for row in SENTENCES:
        said = {unit: len(re.findall(words, row.quote)) for unit, words in UNIT_WORDS.items()}
        fits = said.get(row.unit, 0) > 0 or (row.unit == "ratio" and max(said.values()) > 1)
        if row.status == "judged" and any(said.values()) and not fits:
            wrong.append(f"{row.id}: {row.unit!r} of “{row.quote}”")
    assert wrong == []


def test_each_condition_of_a_published_answer_has_its_own_name():
    """So that a cell that prints several numbers says which is which."""
    for path in sorted((ROOT / "data").glob("*/claims.json")):
        for chapter in json.loads(path.read_text(encoding="utf-8")).values():
            for id, answer in chapter.items():
                names = [effect.get("what", "") for effect in answer.get("effects", ())]
                is_named = len(names) < 2 or (all(names) and len(set(names)) == len(names))
                assert is_named, f"{path.parent.name}, {id}: {names}"


def test_notes_and_readings_are_sentences():
    texts = {f"{row.id}: {text}": text for row in SENTENCES for text in (row.note, row.reading)}
    sentences = r"(?:[A-Z\d“`].*\.)?"
    assert [id for id, text in texts.items() if not re.fullmatch(sentences, text)] == []
    assert {row.status for row in SENTENCES if row.reading} == {"judged"}
