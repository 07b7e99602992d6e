"""Claims by id, judged by their predicates, in a table with source and predicate."""

from dataclasses import replace
from types import ModuleType

import pandas as pd
import pytest
from support.common import About
from support.pages import Elements
from support.synthetic import Stated, scope, tlbs

import tlb.report.verdicts as room
from tlb.report import claims as claims_module
from tlb.report.analysis import Analysis
from tlb.report.answers import StoredAnswer
from tlb.report.claims import Answer, Band, Claim, Fact, claim, count_inside_band, points_where
from tlb.report.render import Html
from tlb.report.verdicts import (
    FAILS_HERE,
    Verdict,
    chapter_verdicts,
    does_answer_hold,
    judge,
    shown_verdict,
    statements,
    table_of_answered_verdicts,
    verdict_table,
)
from tlb.stats.effects import effect_inside_band, why_effects_are_undecided
from tlb.stats.intervals import Interval, median_interval
from tlb.system.reasons import REASON_TEXTS, UNDECIDED_TEXTS, Unavailable, Undecided

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&`"


@pytest.fixture
def a() -> Analysis:
    return Analysis(pd.DataFrame({"ns": [1.0, 2.0, 3.0]}), About(Stated().host()))


@pytest.fixture
def claims(monkeypatch) -> ModuleType:
    """A module of four claims, in a registry that the test may fill."""
    monkeypatch.setattr(claims_module, "REGISTRY", dict(claims_module.REGISTRY))
    made = ModuleType("a_chapter")

    def largest_is_small(a: Analysis, most: float = 5.0) -> Answer:
        largest = a.frame["ns"].max()
        return count_inside_band(
            largest, (0.0, most), f"The largest is {largest:.0f}, of {most:.0f} `at most`."
        )

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


def test_a_predicate_is_a_verdict_and_what_is_lacking_cannot_be_told_or_tested(claims, a):
    found = chapter_verdicts(claims, a)
    assert [(one.verdict, one.reason) for one in found] == [
        ("holds", ""),
        ("cannot tell", "ambiguous"),
        ("not testable here", "no-pmu"),
        ("cannot tell", "too-few-points"),
    ]
    assert found[1].why == UNDECIDED_TEXTS["ambiguous"] and found[0].effects == ()
    assert found[0].evidence == "The largest is 3, of 5 `at most`."
    assert all("in a test" in one.evidence for one in found[2:])


NO_THP = {"enabled": "absent", "defrag": "absent"}


@pytest.mark.parametrize(
    "pages, pools, expected",
    [
        ("thp", (), "page-size-unsupported"),
        ("4k/thp", (), "page-size-unsupported"),
        ("thp/2m", ("2m",), "too-few-points"),
        ("4k", (), "too-few-points"),
    ],
)
def test_a_claim_about_pages_that_this_linux_does_not_offer_is_not_testable_here(
    claims, monkeypatch, pages, pools, expected
):
    row = next(iter(statements().values()))._replace(pages=pages, obstacles="")
    monkeypatch.setattr(room, "statements", lambda: {"made-3": row})
    empty = {"total": 0, "free": 0, "reserved": 0, "surplus": 0}
    filled = tuple(empty | {"page": page} for page in pools)
    host = Stated(changes={"thp": NO_THP, "mthp": {}, "pools": filled}).host()
    found = chapter_verdicts(claims, Analysis(pd.DataFrame({"ns": [1.0]}), About(host)))[3]
    is_offered = expected == "too-few-points"
    assert found.reason == expected
    assert found.verdict == ("cannot tell" if is_offered else "not testable here")


# --- a sentence of claims.csv

QUOTED = "walk-60-to-250-cycles"


def of_a_sentence(module: ModuleType, low: float, high: float, coverage: float = 1.0) -> Claim:
    """The claim on a sentence whose band is 60 to 250, as a module's predicate judges such an
    interval."""

    def costs(a: Analysis, band: Band) -> Answer:
        return effect_inside_band(
            Interval((low + high) / 2, low, high, coverage), *band
        ), f"Of {band}."

    costs.__module__ = module.__name__
    claims_module.REGISTRY.pop(QUOTED, None)
    claim(QUOTED)(costs)
    return claims_module.REGISTRY[QUOTED]


def test_a_sentence_of_the_file_brings_its_source_its_words_and_its_band(claims, a):
    found, row = of_a_sentence(claims, 100, 200), statements()[QUOTED]
    assert (found.source, found.says) == (row.source, f"“{row.quote}”") and row.band == (60, 250)
    assert [
        judge(of_a_sentence(claims, *bounds), a).verdict
        for bounds in ((100, 200), (300, 400), (200, 300))
    ] == ["holds", "fails", "cannot tell"]
    assert (
        judge(found, a, band=(0, 100)).verdict == "cannot tell"
        and judge(found, a, band=(0, 99)).verdict == "fails"
    )
    assert chapter_verdicts(claims, a, costs={"band": (0, 99)})[-1].verdict == "fails"


def test_what_was_timed_on_an_emulator_is_no_processors_and_what_was_not_timed_stays(claims):
    emulated = Analysis(
        pd.DataFrame({"ns": [1.0, 2.0, 3.0]}), About(Stated(hypervisor="qemu-tcg").host())
    )
    told = judge(of_a_sentence(claims, 100, 200), emulated)
    assert (told.verdict, told.effects) == ("not testable here", ())
    assert REASON_TEXTS["emulated"].sentence.removesuffix(".") in told.evidence
    assert chapter_verdicts(claims, emulated)[0].verdict == "holds"


@pytest.mark.parametrize(
    ("code", "stated", "applies"),
    [
        ("two-dimensions", {"hypervisor": "kvm"}, True),
        ("bare-metal", {}, False),
        ("no-pmu", {}, True),
        ("reach-in-cache", {"tlb": tlbs([64, 4096], [0, 0])}, False),
        ("reach-in-cache", {"tlb": tlbs([64, 256], [0, 0])}, True),
    ],
)
def test_an_obstacle_makes_a_claim_untestable_before_its_predicate_runs(
    claims, monkeypatch, code, stated, applies
):
    found, row = of_a_sentence(claims, 100, 200), statements()[QUOTED]
    monkeypatch.setattr(room, "statements", lambda: {QUOTED: row._replace(obstacles=code)})
    told = judge(found, Analysis(pd.DataFrame(), About(Stated(**stated).host())))
    assert told.verdict == ("not testable here" if applies else "holds")
    assert (REASON_TEXTS[code].sentence in told.evidence) is applies


@pytest.mark.parametrize(("mappings", "reason"), [(1, "few"), (4, "few"), (5, "sweep-short")])
def test_a_reason_that_more_mappings_may_remove_is_given_only_of_enough(claims, mappings, reason):
    def is_far(a: Analysis) -> Answer:
        raise Unavailable("sweep-short", "it ends at 12 ns")

    claim("far", source="x", says="Far.")(is_far)
    rows = pd.DataFrame({"kernel": "made_up", "lines": 1, "repeat": range(mappings)})
    told = judge(claims_module.REGISTRY["far"], Analysis(rows, About(Stated().host())))
    assert (told.verdict, told.reason) == ("cannot tell", reason)
    assert ("12 ns" in told.evidence) is (reason != "few")


@pytest.mark.parametrize(
    ("id", "changed", "word"),
    [
        (QUOTED, {}, FAILS_HERE),
        ("gather-ninefold-at-4gib", {}, FAILS_HERE),  # a ratio of two times
        ("gather-ninefold-at-4gib", {"status": "recomputed"}, "fails"),
        ("any-large-workload-leaves-eightfold", {}, "fails"),  # of any machine: no end
        ("page-walkers-as-stated", {}, "fails"),
    ],
)
def test_a_time_or_a_ratio_of_two_that_fails_fails_here_and_all_else_everywhere(
    claims, a, id, changed, word
):
    found = judge(of_a_sentence(claims, 300, 400), a)
    assert shown_verdict(found, statements()[id]._replace(**changed)) == word
    assert shown_verdict(found, None) == "fails"


def test_a_time_that_holds_holds(claims, a):
    time = statements()[QUOTED]
    held = judge(of_a_sentence(claims, 100, 200), a)
    assert shown_verdict(held, time) == "holds"


# --- the table


def table_of(*rows: tuple[str, str, str]) -> Html:
    return verdict_table(
        [
            Verdict(verdict, evidence, claim=Claim("made-up", "boncz1999", says, table_of, None))
            for says, verdict, evidence in rows
        ]
    )


@pytest.mark.parametrize(
    ("bounds", "band", "truth"),
    [
        ((2, 3), (1, 4), True),
        ((1, 4), (1, 4), True),
        ((0, 2), (1, 4), None),
        ((5, 6), (1, 4), False),
        ((2, 3), (1,), True),
    ],
)
def test_an_interval_is_inside_a_band_outside_it_or_spans_an_end(bounds, band, truth):
    assert does_answer_hold(effect_inside_band(Interval(sum(bounds) / 2, *bounds), *band)) is truth


@pytest.mark.parametrize(
    ("values", "code", "number"),
    [
        ((9.0, 9.1, 9.2), "few", "3"),
        ((1.8, 1.9, 2.0, 2.1, 2.2), "crosses", ""),
        ((1.1, 1.1, 1.2, 2.3, 2.4, 2.5), "bistable", ""),
    ],
)
def test_an_undecided_effect_says_why_and_how_many_processes_are_lacking(values, code, number):
    why = effect_inside_band(median_interval(values), 1.0, 2.0).why_undecided()
    assert why is not None and why.code == code and number in why.text
    assert (
        effect_inside_band(median_interval([1.4, 1.5, 1.6, 1.5, 1.5]), 1.0, 2.0).why_undecided()
        is None
    )


def test_of_several_reasons_too_few_processes_come_first_then_what_seems_refuted():
    bistable = effect_inside_band(median_interval([1.1, 1.1, 1.2, 2.3, 2.4, 2.5]), 1.0, 2.0)
    few = effect_inside_band(median_interval([9.0, 9.1, 9.2]), 1.0, 2.0)
    widened = effect_inside_band(Interval(2.2, 2.05, 2.4), 1.0, 2.0, among=10)
    alone = effect_inside_band(Interval(2.2, 2.05, 2.4), 1.0, 2.0)
    assert [one.why_undecided().code for one in (few, widened)] == ["few", "widened"]
    assert alone.why_undecided() is None and "one of 10" in alone.why_undecided(10).text
    assert why_effects_are_undecided([widened, few]).code == "few"
    assert why_effects_are_undecided([bistable, widened]).code == "widened"


def test_a_predicate_gives_effects_or_a_fact_and_no_bool(a):
    def judged(truth: object) -> Verdict:
        return judge(Claim("made-up", "boncz1999", "Says.", lambda a: (truth, "So."), None), a)

    for truth in (None, [None], True, Fact(True, "So."), Interval(1, 1, 1)):
        with pytest.raises(TypeError):
            judged(truth)
    for answer in (True, None):
        with pytest.raises(TypeError):
            judge(Claim("made-up", "boncz1999", "Says.", lambda a, it=answer: it, None), a)
    nothing = judged([])
    assert (nothing.verdict, nothing.reason) == ("cannot tell", "too-few-points")


def test_a_verdict_table_escapes_and_has_a_twin_in_words():
    table = table_of(
        ("flat < 8 MiB", "holds", "slope `0.02`"), (HOSTILE, "cannot tell", "no counters")
    )
    seen = Elements(table.markup)
    assert not {"script", "img"} & set(seen.tags)
    assert HOSTILE.replace("`", "") in "".join(seen.text).replace("`", "")
    assert seen.tags.count("tr") == 1 + 2 * 2 and "code" in seen.tags
    assert {value for name, value in seen.attributes if name == "class"} >= {
        "tlb-verdict tlb-verdict-holds",
        "tlb-verdict tlb-verdict-unknown",
    }
    assert table.text.splitlines()[0] == "HOLDS: flat < 8 MiB [slope `0.02`]"
    assert table._repr_mimebundle_()["text/plain"] == table.text


def verdict_of(word: str, evidence: str, *, effects: int = 0, reason: str = "") -> Verdict:
    effect = effect_inside_band(median_interval([1.0, 2.0, 3.0, 4.0, 5.0]), 0.0, 9.0)
    made = Claim("made-up", "boncz1999", "It is.", first_value, None)
    return Verdict(word, evidence, (effect,) * effects, reason, claim=made)


def test_what_a_machine_cannot_test_for_one_reason_is_folded_and_names_who_can():
    here, reason = "not testable here", "It has no counters"
    alone = verdict_of(here, "It is a guest.")
    claims = [Claim(id, "boncz1999", f"{id} it is.", first_value, None) for id in ("a", "b")]
    same = [replace(verdict_of(here, reason), claim=each) for each in claims]
    table = verdict_table([alone, *same], (), {"a": "Zen 3: holds.", "made-up": "Zen 5: fails."})
    assert table.markup.count(reason) == 1 and f"2 claims are {here}" in table.text
    assert table.markup.count("Zen 3: holds.") == 1
    assert "It is a guest. Zen 5: fails." in table.text
    assert verdict_table([alone, same[0]]).markup.count("<table") == 1


def test_what_lacks_results_shows_who_decides_it_and_no_command():
    empty = StoredAnswer(reason="pool-empty").decide()
    lacking = verdict_of("cannot tell", empty.evidence, reason=empty.reason)
    table = verdict_table([lacking], (), {"made-up": "Zen 5: holds."})
    assert "Zen 5: holds." in table.text and "tlb pool" not in table.text
    crossing = verdict_of("cannot tell", "1 to 3", effects=1, reason="crosses")
    assert "Zen 5" not in verdict_table([crossing], (), {"made-up": "Zen 5: holds."}).text


def test_of_a_machine_of_which_little_was_measured_only_what_it_answers_is_shown():
    answered = [
        verdict_of("fails", "4 ns", effects=1),
        verdict_of("holds", "2 pages"),
        verdict_of("cannot tell", "1 to 3 ns", effects=1, reason="crosses"),
    ]
    others = [
        verdict_of("cannot tell", "about 2 ns", effects=1, reason="few"),
        verdict_of("cannot tell", "no rows", reason="no-data"),
        verdict_of("not testable here", "no counters"),
    ]
    text = table_of_answered_verdicts([*answered, *others]).text
    assert text.startswith("3 claims")
    assert all(one.evidence in text for one in answered)
    assert not any(one.evidence in text for one in others)
    assert "Within one run" in text
    assert "Within one run" not in table_of_answered_verdicts(answered[2:]).text
    assert table_of_answered_verdicts(answered).text == verdict_table(answered).text
    assert 'data-claims="6"' in table_of_answered_verdicts([*answered, *others]).markup


def test_sentences_that_differ_in_a_number_share_a_predicate(claims, a):
    decide = claim("made-first", source="boncz1999", says="It is 1.", place=0)(first_value)
    claim("made-last", source="boncz1999", says="It is 3.", place=-1)(decide)
    found = [
        judge(claims_module.REGISTRY[id], a, value=3.0).verdict
        for id in ("made-first", "made-last")
    ]
    assert found == ["fails", "holds"]
    other = judge(claims_module.REGISTRY["made-last"], a, value=1.0, place=0)
    assert other.verdict == "holds"  # a chapter's own number comes before the claim's


def first_value(a: Analysis, place: int, value: float) -> Answer:
    return Fact(bool(a.frame["ns"].iloc[place] == value), "A value.")


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        ({}, {16, 64, 512}),
        ({"low": 17, "high": 512}, {64, 512}),
        ({"low": 64, "high": lambda scope: scope.lines(64 * scope.base_page_bytes)}, {64}),
        ({"layout": "packed"}, {512}),
        ({"layout": ("spread", "packed"), "hops": None}, {16, 512}),
        ({"hops": (8, 9)}, {64}),
        ({"lines": lambda scope: (scope.lines(16 * scope.base_page_bytes), 3)}, {16}),
        ({"hops": 7}, set()),
    ],
)
def test_a_claim_selects_points_by_their_fields_options_and_lines(where, selected):
    of = scope()
    points = [
        of.point("page_chase", lines=16, layout="spread"),
        of.point("page_chase", lines=64, layout="spread", hops=8),
        of.point("page_chase", lines=512, layout="packed"),
    ]
    compares = points_where("page_chase", **where)
    assert {point.lines for point in points if compares(point, of)} == selected
    assert not any(points_where(("other", "third"), **where)(point, of) for point in points)


def test_rows_of_a_kernel_that_measured_something_else_judge_no_claim(claims, monkeypatch):
    kernel, least = "made_up", 2
    monkeypatch.setattr(room, "SUPERSEDED", {kernel: least})
    rows = pd.DataFrame({"kernel": kernel, "ns": [1.0] * 6})

    def is_fast(a: Analysis) -> Answer:
        return effect_inside_band(median_interval(a.frame["ns"]), most=2.0), "It is."

    claim("fast", source="x", says="Fast.", points=points_where(kernel))(is_fast)
    old, new = (
        judge(
            claims_module.REGISTRY["fast"],
            Analysis(rows.assign(measures=version), About(Stated().host())),
        )
        for version in (1, least)
    )
    assert (old.verdict, old.reason, new.verdict) == ("cannot tell", "no-data", "holds")
