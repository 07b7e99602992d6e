"""Claims by id, judged by their predicates, in a table with source and predicate."""

from __future__ import annotations

import re
from types import ModuleType

import pandas as pd
import pytest
from support.common import ROOT, About
from support.pages import Elements
from support.synthetic import Stated

import experiments.article.verdicts as room
from experiments.article.analysis import Analysis
from experiments.article.verdicts import Answer, Claim, Verdict, claim, claims_of, judge, sources, verdict_table, verdicts
from experiments.inference.intervals import Interval
from experiments.words.reasons import Unavailable

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&`"
CSS = (ROOT / "book/assets/figures.css").read_text(encoding="utf-8")


@pytest.fixture
def a() -> Analysis:
    return Analysis(pd.DataFrame({"ns": [1.0, 2.0, 3.0]}), About(Stated().host()))


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of three claims, in a registry that the test may fill."""
    monkeypatch.setattr(room, "REGISTRY", dict(room.REGISTRY))
    made = ModuleType("a_chapter")

    def largest_is_small(a: Analysis, most: float = 5.0) -> Answer:
        return bool(a.frame["ns"].max() < most), f"The largest is {a.frame['ns'].max():.0f}, of {most:.0f} `at most`."

    def nobody_knows(a: Analysis) -> Answer:
        return None, "The interval spans the line."

    def lacking(a: Analysis) -> Answer:
        raise Unavailable("no-pmu", "in a test")

    for n, decide in enumerate((largest_is_small, nobody_knows, lacking)):
        decide.__module__ = made.__name__
        claim(f"made-{n}", source="boncz1999", says=f"Claim {n} < 8.")(decide)
    return made


def test_claims_are_those_of_their_module_in_the_order_of_their_definition(claims: ModuleType):
    assert [found.id for found in claims_of(claims)] == ["made-0", "made-1", "made-2"]
    assert claims_of(ModuleType("another")) == []


def test_a_predicate_is_a_verdict_and_what_is_lacking_cannot_be_told(claims: ModuleType, a: Analysis):
    found = verdicts(claims, a)
    assert [verdict.verdict for verdict in found] == ["holds", "cannot tell", "cannot tell"]
    assert found[0].evidence == "The largest is 3, of 5 `at most`." and "in a test" in found[2].evidence


def test_a_band_in_place_of_the_default_goes_to_the_predicate_that_is_named_and_to_no_other(claims: ModuleType, a: Analysis):
    found = verdicts(claims, a, largest_is_small={"most": 2.0})
    assert [verdict.verdict for verdict in found] == ["fails", "cannot tell", "cannot tell"]
    assert judge(claims_of(claims)[0], a, most=3.5).verdict == "holds"
    with pytest.raises(TypeError):
        verdicts(claims, a, largest_is_small={"mots": 2.0})


def test_an_id_of_another_function_is_refused_with_both_files(claims: ModuleType):
    def another(a: Analysis) -> Answer:
        return True, "Evidence."

    with pytest.raises(ValueError, match=rf"{__name__}.*'made-0'.*a_chapter"):
        claim("made-0", source="boncz1999", says="Another.")(another)
    claim("its-own", source="boncz1999", says="Another.")(another)
    claim("its-own", source="boncz1999", says="Another, as a notebook has changed it.")(another)  # the same function may be defined anew
    assert room.REGISTRY["its-own"].says.endswith("changed it.")


def test_the_place_of_a_predicate_is_the_line_of_its_decorator(claims: ModuleType):
    text, (first, *_) = (ROOT / "tests/article/test_verdicts.py").read_text().splitlines(), claims_of(claims)
    file, line = first.place.split(":")
    assert file == "tests/article/test_verdicts.py" and "def largest_is_small" in text[int(line) - 1]


# --- the table


def table_of(*rows: tuple[str, str, str]) -> room.Html:
    return verdict_table([Verdict(Claim("made-up", "boncz1999", says, test_there_is_no_fourth_verdict, None), verdict, evidence)
                          for says, verdict, evidence in rows])  # type: ignore[arg-type]


@pytest.mark.parametrize(("bounds", "band", "truth"), [
    ((2, 3), (1, 4), True), ((2, 3), (2, 3), True), ((0, 2), (1, 4), None), ((3, 5), (1, 4), None), ((0, 5), (1, 4), None),
    ((5, 6), (1, 4), False), ((0, 0.5), (1, 4), False), ((2, 3), (1,), True), ((0, 0.5), (1,), False), ((0, 2), (1,), None)])
def test_an_interval_is_inside_a_band_outside_it_or_spans_an_end(bounds: tuple, band: tuple, truth: bool | None):
    assert room.inside(Interval(sum(bounds) / 2, *bounds), *band) is truth


def test_a_verdict_table_escapes_and_has_a_twin_in_words():
    table = table_of(("flat < 8 MiB", "holds", "slope `0.02`"), (HOSTILE, "cannot tell", "no counters"))
    seen = Elements(table.markup)
    assert not {"script", "img"} & set(seen.tags)
    assert HOSTILE.replace("`", "") in "".join(seen.text).replace("`", "")
    assert seen.tags.count("tr") == 1 + 2 * 2 and "code" in seen.tags
    assert {value for name, value in seen.attributes if name == "class"} >= {
        "tlb-verdict tlb-verdict-holds", "tlb-verdict tlb-verdict-unknown"}
    assert table.text.splitlines()[0] == "HOLDS: flat < 8 MiB [slope `0.02`]"
    assert table._repr_mimebundle_()["text/plain"] == table.text


def test_each_claim_has_its_source_and_unfolds_its_predicate_with_its_place(claims: ModuleType, a: Analysis):
    found = verdicts(claims, a)
    seen = Elements(verdict_table(found).markup)
    assert seen.tags.count("details") == seen.tags.count("summary") == 3 and ("open", None) not in seen.attributes
    assert [value for name, value in seen.attributes if name == "href"] == ["references.html"] * 3
    text = "".join(seen.text)
    assert text.count("Boncz (1999)") == 3 and all(verdict.claim.place in text for verdict in found)
    assert 'return bool(a.frame["ns"].max() < most)' in text


def test_every_verdict_has_its_colour():
    table = table_of(*(("c", verdict, "e") for verdict in ("holds", "fails", "cannot tell")))
    classes = re.findall(r"tlb-verdict-\w+", table.markup)
    assert len(classes) == 3 and all(f".{name} " in CSS for name in classes)


def test_there_is_no_fourth_verdict():
    with pytest.raises(KeyError):
        table_of(("c", "probably", "e"))


def test_every_claim_of_the_book_has_a_source_in_the_bibliography_named_by_author_and_year():
    import experiments.chapters.tlb_blocking  # noqa: F401  # whose claims are registered

    known = sources()
    assert all(re.search(r"\((\d{4}|undated)\)$", name) for name in known.values()) and known["boncz1999"] == "Boncz (1999)"
    assert not [found.id for found in room.REGISTRY.values() if found.source not in known]
