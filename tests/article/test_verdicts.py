"""Claims by id, judged by their predicates, in a table with source and predicate."""

from __future__ import annotations

import re
from math import inf
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import ROOT, About
from support.pages import Elements
from support.synthetic import Paged, Stated

import experiments.article.obstacles as obstacles
import experiments.article.verdicts as room
from experiments.article.analysis import Analysis
from experiments.article.bibliography import sources
from experiments.article.verdicts import (
    WRONG_BY_CHANCE,
    Answer,
    Band,
    Claim,
    Effect,
    Verdict,
    claim,
    claims_of,
    decided,
    elsewhere,
    inside,
    judge,
    statements,
    verdict_table,
    verdicts,
    why_undecided,
)
from experiments.inference.intervals import Interval, median_interval
from experiments.lab.grid import octaves
from experiments.lab.record import Point
from experiments.words.reasons import REASONS, UNDECIDED, Unavailable, Undecided

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&`"
CSS = (ROOT / "book/assets/figures.css").read_text(encoding="utf-8")


@pytest.fixture
def a() -> Analysis:
    return Analysis(pd.DataFrame({"ns": [1.0, 2.0, 3.0]}), About(Stated().host()))


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of four claims, in a registry that the test may fill."""
    monkeypatch.setattr(room, "REGISTRY", dict(room.REGISTRY))
    made = ModuleType("a_chapter")

    def largest_is_small(a: Analysis, most: float = 5.0) -> Answer:
        return bool(a.frame["ns"].max() < most), f"The largest is {a.frame['ns'].max():.0f}, of {most:.0f} `at most`."

    def nobody_knows(a: Analysis) -> Answer:
        return Undecided("ambiguous"), "The interval spans the line."

    def beyond(a: Analysis) -> Answer:
        raise Unavailable("no-pmu", "in a test")

    def lacking(a: Analysis) -> Answer:
        raise Unavailable("too-few-points", "in a test")

    for n, decide in enumerate((largest_is_small, nobody_knows, beyond, lacking)):
        decide.__module__ = made.__name__
        claim(f"made-{n}", source="boncz1999", says=f"Claim {n} < 8.")(decide)
    return made


def test_claims_are_those_of_their_module_in_the_order_of_their_definition(claims: ModuleType):
    assert [found.id for found in claims_of(claims)] == ["made-0", "made-1", "made-2", "made-3"]
    assert claims_of(ModuleType("another")) == []


def test_a_predicate_is_a_verdict_and_what_is_lacking_cannot_be_told_or_tested(claims: ModuleType, a: Analysis):
    found = verdicts(claims, a)
    assert [verdict.verdict for verdict in found] == ["holds", "cannot tell", "not testable here", "cannot tell"]
    assert [verdict.reason for verdict in found] == ["", "ambiguous", "", "too-few-points"] and found[1].why == UNDECIDED["ambiguous"]
    assert found[0].evidence == "The largest is 3, of 5 `at most`." and all("in a test" in one.evidence for one in found[2:])


def test_what_this_computer_cannot_have_is_a_reason_of_the_book_and_what_time_may_give_is_none():
    assert set(REASONS) >= obstacles.OBSTACLES
    assert not obstacles.OBSTACLES & {"too-few-points", "no-step", "unstable", "pool-empty", "no-data", "no-time", "no-toolchain"}


# --- a sentence of claims.csv

QUOTED = "walk-60-to-250-cycles"


def of_a_sentence(module: ModuleType, low: float, high: float, coverage: float = 1.0) -> Claim:
    """The claim on a sentence whose band is 60 to 250, as a module's predicate judges such an interval."""
    def costs(a: Analysis, band: Band) -> Answer:
        return inside(Interval((low + high) / 2, low, high, coverage), *band), f"Of {band}."

    costs.__module__ = module.__name__
    room.REGISTRY.pop(QUOTED, None)
    claim(QUOTED)(costs)
    return room.REGISTRY[QUOTED]


def test_a_sentence_of_the_file_brings_its_source_its_words_and_its_band(claims: ModuleType, a: Analysis):
    found, row = of_a_sentence(claims, 100, 200), statements()[QUOTED]
    assert (found.source, found.says) == (row.source, f"“{row.quote}”") and row.band == (60, 250)
    assert [judge(of_a_sentence(claims, *bounds), a).verdict for bounds in ((100, 200), (300, 400), (200, 300))] == [
        "holds", "fails", "cannot tell"]
    assert judge(found, a, band=(0, 100)).verdict == "cannot tell" and judge(found, a, band=(0, 99)).verdict == "fails"
    assert verdicts(claims, a, costs={"band": (0, 99)})[-1].verdict == "fails"


def test_an_effect_is_kept_beside_the_verdict_that_it_gave(claims: ModuleType, a: Analysis):
    assert judge(of_a_sentence(claims, 100, 200), a).effects == (inside(Interval(150, 100, 200), 60, 250),)
    assert judge(of_a_sentence(claims, 100, 200, coverage=0.875), a).verdict == "cannot tell"
    assert verdicts(claims, a)[0].effects == ()


def test_what_was_timed_on_an_emulator_is_no_processors_and_what_was_not_timed_stays(claims: ModuleType):
    emulated = Analysis(pd.DataFrame({"ns": [1.0, 2.0, 3.0]}), About(Stated(hypervisor="qemu-tcg").host()))
    told = judge(of_a_sentence(claims, 100, 200), emulated)
    assert (told.verdict, told.effects) == ("not testable here", ())
    assert REASONS["emulated"].sentence.removesuffix(".") in told.evidence
    assert verdicts(claims, emulated)[0].verdict == "holds"


def splintering_host(splintered: bool, noise: float = 0.0) -> About:
    guest = Paged(splintered=splintered, noise=noise)
    points = [Point(kernel="page_chase", pages=pages, layout=layout, lines=lines)
              for pages in ("4k", "2m") for layout in ("spread", "packed") for lines in octaves(16, 1 << 14, 2)]
    return About(Stated(hypervisor="kvm").host(), rows={"hugepages": guest.frame(points, repeats=5)})


COUNTS = {"walk_per_access": [0.5], "walk_reason": [""], "minor_faults_per_access": [1.0], "minor_faults_reason": [""]}
NO_COUNTS = COUNTS | {"walk_per_access": [np.nan], "walk_reason": ["no-pmu"]}


@pytest.mark.parametrize(("code", "frame", "about", "applies"), [
    ("splintered", {}, splintering_host(True), True), ("splintered", {}, splintering_host(False), False),
    ("splintered", {}, splintering_host(True, noise=0.9), False), ("splintered", {}, About(Stated(hypervisor="kvm").host()), False),
    ("two-dimensions", {}, About(Stated().host()), False), ("two-dimensions", {}, About(Stated(hypervisor="kvm").host()), True),
    ("two-dimensions", {}, About(Stated(hypervisor="xen", changes={"xen_guest": "PV"}).host()), False),
    ("bare-metal", {}, About(Stated().host()), False), ("bare-metal", {}, About(Stated(hypervisor="kvm").host()), True),
    ("no-pmu", COUNTS, About(Stated().host()), False), ("no-pmu", NO_COUNTS, About(Stated().host()), True),
    ("no-pmu", {}, About(Stated().host()), True)])
def test_an_obstacle_makes_a_claim_untestable_before_its_predicate_runs(
        claims: ModuleType, monkeypatch: pytest.MonkeyPatch, code: str, frame: dict, about: About, applies: bool):
    found, row = of_a_sentence(claims, 100, 200), statements()[QUOTED]
    monkeypatch.setattr(room, "statements", lambda: {QUOTED: row._replace(obstacles=code)})
    told = judge(found, Analysis(pd.DataFrame(frame), about))
    assert told.verdict == ("not testable here" if applies else "holds")
    assert (REASONS[code].sentence in told.evidence) is applies


def test_an_id_of_which_nothing_is_known_is_refused_and_named(claims: ModuleType):
    for words in ({}, {"source": "boncz1999"}, {"says": "Something."}):
        with pytest.raises(ValueError, match="'no-such-id'"):
            claim("no-such-id", **words)(lambda a: (True, "Evidence."))
    assert "no-such-id" not in room.REGISTRY


def test_the_ends_of_a_band_may_be_open():
    row = statements()[QUOTED]
    assert row._replace(low="").band == (-inf, 250) and row._replace(high="").band == (60, inf)


def test_what_no_measurement_decides_stands_in_its_chapter():
    found = elsewhere("virtualization")
    assert found and {(row.status, row.where) for row in found} == {("not testable", "virtualization")}
    assert elsewhere("no-such-chapter") == []


def test_a_band_in_place_of_the_default_goes_to_the_predicate_that_is_named_and_to_no_other(claims: ModuleType, a: Analysis):
    found = verdicts(claims, a, largest_is_small={"most": 2.0})
    assert [verdict.verdict for verdict in found] == ["fails", "cannot tell", "not testable here", "cannot tell"]
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
    return verdict_table([Verdict(Claim("made-up", "boncz1999", says, test_there_is_no_fifth_verdict, None), verdict, evidence)
                          for says, verdict, evidence in rows])  # type: ignore[arg-type]


@pytest.mark.parametrize(("bounds", "band", "truth"), [
    ((2, 3), (1, 4), True), ((2, 3), (2, 3), True), ((0, 2), (1, 4), None), ((3, 5), (1, 4), None), ((0, 5), (1, 4), None),
    ((5, 6), (1, 4), False), ((0, 0.5), (1, 4), False), ((2, 3), (1,), True), ((0, 0.5), (1,), False), ((0, 2), (1,), None)])
def test_an_interval_is_inside_a_band_outside_it_or_spans_an_end(bounds: tuple, band: tuple, truth: bool | None):
    assert decided(inside(Interval(sum(bounds) / 2, *bounds), *band)) is truth


def test_what_was_chosen_from_several_is_held_to_more_before_it_is_believed():
    gain = Interval(1.2, 1.02, 1.4)
    assert decided(inside(gain, 1.0)) is True and decided(inside(gain, 1.0, among=10)) is None
    assert decided(inside(Interval(0.8, 0.6, 0.98), 1.0, among=10)) is None
    assert decided(inside(Interval(0.5, 0.4, 0.6), 1.0, among=10)) is False


def test_of_several_that_hold_together_only_what_refutes_is_held_to_more():
    """A tenth of a tenth beyond the line: one alone is refuted by it, one of ten is not."""
    well, badly = inside(Interval(1.2, 1.02, 1.4), 1.0), inside(Interval(0.8, 0.6, 0.98), 1.0)
    assert decided([well] * 10) is True and decided([badly]) is False and decided([well] * 9 + [badly]) is None


def reason(*effects: Effect) -> str:
    return why_undecided(effects).code


@pytest.mark.parametrize(("values", "code", "number"), [
    ((9.0,), "few", "5"), ((9.0, 9.1, 9.2), "few", "3"), ((1.5, 1.5, 1.6, 1.6), "few", "4"), ((1.8, 1.9, 2.0, 2.1, 2.2), "crosses", ""),
    ((1.1, 1.1, 1.2, 2.3, 2.4, 2.5), "bistable", "")])
def test_an_undecided_effect_says_why_and_how_many_processes_are_lacking(values: tuple, code: str, number: str):
    why = inside(median_interval(values), 1.0, 2.0).why_undecided()
    assert why is not None and why.code == code and number in why.text
    assert inside(median_interval([1.4, 1.5, 1.6, 1.5, 1.5]), 1.0, 2.0).why_undecided() is None


def test_the_gravest_reason_of_several_comes_first_and_all_are_told():
    few, crosses = inside(Interval(9, 8, 10, 0.75), 1, 2), inside(Interval(2, 1.9, 2.1), 1, 2)
    outside = inside(Interval(2.2, 2.02, 2.35), 1, 2)  # as printed; of two, its interval reaches 2
    assert [reason(crosses, few), reason(crosses, outside), reason(crosses, crosses)] == ["few", "widened", "crosses"]
    assert {why_undecided([crosses, few]).text} == {f"{few.why_undecided().text} {UNDECIDED['crosses']}"}  # type: ignore[union-attr]
    assert why_undecided([outside, outside]).text.count("one of 2 compared") == 1


@given(effects=st.lists(st.builds(
    lambda value, below, above, coverage, modes, among: inside(
        Interval(value, value - below, value + above, coverage, modes), 1.0, 2.0, among),
    st.floats(0, 3), st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.0, 0.75, 0.9375, 1.0]), st.sampled_from([1, 2]),
    st.sampled_from([1, 9])), min_size=1, max_size=4))
def test_what_looks_decided_as_printed_and_is_not_says_so(effects: list[Effect]):
    """Too few processes, or an interval that had to be wider: no other reason may stand beside such bounds."""
    answer = decided(effects)
    seen = [(one.interval.low >= 1 and one.interval.high <= 2, one.interval.high < 1 or one.interval.low > 2) for one in effects]
    all_inside, any_outside = all(within for within, _ in seen), any(outside for _, outside in seen)
    if answer is None:
        assert reason(*effects) in {"few", "widened"} or not (all_inside or any_outside)
    else:
        assert all_inside if answer else any_outside


def test_a_predicate_that_leaves_a_claim_open_says_why(claims: ModuleType, a: Analysis):
    for truth, error in ((None, TypeError), ([None], TypeError)):
        found = Claim("made-up", "boncz1999", "Says.", lambda a, truth=truth: (truth, "Evidence."), None)
        with pytest.raises(error):
            judge(found, a)
    nothing = judge(Claim("made-up", "boncz1999", "Says.", lambda a: ([], "Evidence."), None), a)
    assert (nothing.verdict, nothing.reason) == ("cannot tell", "too-few-points")
    with pytest.raises(KeyError):
        Undecided("somehow")


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
    assert seen.tags.count("details") == seen.tags.count("summary") == 4 and ("open", None) not in seen.attributes
    assert [value for name, value in seen.attributes if name == "href"] == ["references.html"] * 4
    text = "".join(seen.text)
    assert text.count("Boncz (1999)") == 4 and all(verdict.claim.place in text for verdict in found)
    assert 'return bool(a.frame["ns"].max() < most)' in text


def test_every_verdict_has_its_colour():
    table = table_of(*(("c", verdict, "e") for verdict in ("holds", "fails", "cannot tell", "not testable here")))
    classes = re.findall(r"tlb-verdict-\w+", table.markup)
    assert len(set(classes)) == 4 and all(f".{name} " in CSS for name in classes)


def test_there_is_no_fifth_verdict():
    with pytest.raises(KeyError):
        table_of(("c", "probably", "e"))


def test_below_the_table_stands_how_many_of_those_tested_by_an_interval_may_be_wrong(claims: ModuleType, a: Analysis):
    """Of those left open too, since each of them could have been decided wrongly; not of those that a bool decided."""
    none = verdict_table(verdicts(claims, a))
    tested = [judge(of_a_sentence(claims, *bounds), a) for bounds in ((100, 200), (300, 400), (200, 300))]
    some = verdict_table([*verdicts(claims, a)[:4], *tested])
    (said,) = re.findall(r'<p class="tlb-chance">(.*?)</p>', some.markup)
    assert "tlb-chance" not in none.markup and said in some.text
    assert re.findall(r"\d+\.\d+|\d+", said) == ["3", "7", "5", f"{3 * WRONG_BY_CHANCE:.1f}", "3"]


def test_what_is_beyond_any_measurement_here_can_be_unfolded_with_what_would_decide_it():
    beyond = elsewhere("virtualization")
    hostile = beyond[0]._replace(quote=HOSTILE, note=HOSTILE)
    table = verdict_table([], [hostile, *beyond[1:]])
    seen = Elements(table.markup)
    text = "".join(seen.text)
    assert seen.tags.count("li") == len(beyond) and not {"script", "img"} & set(seen.tags) and str(len(beyond)) in text
    assert all(row.quote in text and row.note.replace("`", "") in text and row.note in table.text for row in beyond[1:])
    assert "tlb-beyond" not in verdict_table([]).markup


def test_every_claim_of_the_book_has_a_source_in_the_bibliography_named_by_author_and_year():
    import experiments.chapters.tlb_blocking  # noqa: F401  # whose claims are registered

    known = sources()
    assert all(re.search(r"\((\d{4}[a-z]?|undated(-[a-z])?)\)$", name) for name in known.values()) and known["boncz1999"] == "Boncz (1999)"
    assert not [found.id for found in room.REGISTRY.values() if found.source not in known]
