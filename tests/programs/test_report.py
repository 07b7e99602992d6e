"""What is said of an experiment: nothing that differed is hidden, and a lever that did nothing is said to have done nothing."""

from __future__ import annotations

import json
import re

import pytest
from support.programs import look, made, trial

from experiments.programs import report
from experiments.programs.levers import Joined
from experiments.programs.looks import peak, settled_s, typical
from experiments.programs.report import document, remarks, rows, verdict_sentence
from experiments.programs.trial import would_have_shown

ON_LARGE = (look(huge_mib=90, reached=1),)


def test_programs_that_exit_differently_decide_nothing():
    failing = trial(made(2.0), made(1.0, status=3, looks=ON_LARGE))
    assert failing.ratio().high < 1 and failing.verdict == "cannot tell"
    assert "3 with the lever" in remarks(failing)[0] and "0 as it is" in remarks(failing)[0]
    both = trial(made(2.0, status=3), made(1.0, status=3, looks=ON_LARGE))
    assert both.verdict == "helps" and "exit code is 3" in remarks(both)[0]
    assert not any("exit code" in remark for remark in remarks(trial(made(), made())))


@pytest.mark.parametrize(("without", "with_lever", "says"), [
    ("same", "same", ""), ("at 12", "at 12", ""), ("at 12", "at 13", "digits alone"), ("one", "other", "something else with the lever")])
def test_what_is_written_otherwise_is_said(without: str, with_lever: str, says: str):
    for stream in ("out", "err"):
        told = [remark for remark in remarks(trial(made(**{stream: without}), made(**{stream: with_lever}, looks=ON_LARGE)))
                if "writes" in remark]
        assert [f"std{stream}" in remark and says in remark for remark in told] == ([True] if says else [])


def test_what_differs_from_run_to_run_is_not_laid_on_the_lever():
    varied = trial(made(out="a"), made(out="b", looks=ON_LARGE))
    varied.pairs[2] = (made(out="c"), made(out="d", looks=ON_LARGE))
    assert ["as it is too" in remark for remark in remarks(varied) if "writes" in remark] == [True]
    only = trial(made(out="a"), made(out="a", looks=ON_LARGE))
    only.pairs[2] = (made(out="a"), made(out="b", looks=ON_LARGE))
    assert ["with the lever" in remark for remark in remarks(only) if "writes" in remark] == [True]


@pytest.mark.parametrize(("huge_mib", "nothing"), [(0, True), (1, True), (2, False), (90, False)])
def test_a_lever_that_moved_no_pages_made_no_difference_to_them(huge_mib: int, nothing: bool):
    told = remarks(trial(made(2.0), made(1.0, looks=(look(huge_mib=huge_mib, reached=1),))))
    assert any("no difference to its pages" in remark for remark in told) is nothing
    assert not any("no difference to its pages" in remark for remark in remarks(trial(made(), made(), lever="none")))


def test_memory_that_was_collapsed_after_the_peak_is_no_lever_that_did_nothing():
    late = made(1.0, looks=(look(huge_mib=0),), joined=Joined(1.0, 0.1, 4 << 20, ()))
    told = remarks(trial(made(1.0), late, lever="collapse"))
    assert any("4 MiB" in remark for remark in told) and not any("no difference to its pages" in remark for remark in told)


def test_a_lever_seen_in_some_of_the_processes_and_a_program_never_seen_are_said():
    assert any("2 of its 5 processes" in remark for remark in remarks(
        trial(made(), made(looks=(look(huge_mib=90, reached=2, processes=5),)))))
    blind = trial(made(looks=()), made(looks=()))
    assert any("before its memory could be looked at" in remark for remark in remarks(blind))
    assert json.loads(json.dumps(document(blind)))["with"]["peak"] is None and rows(blind)[2][1:] == ("ended before a look",) * 2


def test_the_seconds_of_joining_are_told_and_so_is_the_ratio_without_them():
    joined = trial(made(10.0), made(9.0, looks=ON_LARGE, joined=Joined(1.0, 3.0, 1 << 30, ("EINVAL",))), lever="collapse")
    assert joined.ratio().value == pytest.approx(0.9)
    told = " ".join(remarks(joined))
    assert "1 GiB into huge pages took 3 s" in told and "0.600" in told and "EINVAL" in told
    assert joined.verdict == "helps"


@pytest.mark.parametrize(("elapsed_s", "word"), [(0.8, "Helps"), (1.25, "Hurts"), (1.0, "No difference"),
                                                  (1.01, "It differs, by less than the 2 %")])
def test_the_verdict_stands_first_and_has_its_ratio(elapsed_s: float, word: str):
    told = verdict_sentence(trial(made(1.0), made(elapsed_s)))
    assert told.startswith(word) and f"{elapsed_s:.3f}" in told and "6 pairs" in told


def test_no_difference_says_which_one_would_have_shown():
    quiet = trial(made(1.0), made(1.0))
    quiet.pairs[:] = [(made(1.0), made(value)) for value in (0.99, 1.0, 1.012, 1.001, 0.995, 1.004)]
    assert would_have_shown(quiet.ratio()) == pytest.approx(0.012) and "one over 1.2 %" in verdict_sentence(quiet)
    assert document(quiet)["would_have_shown"] == pytest.approx(0.012)


def test_a_number_that_is_better_higher_turns_the_verdict():
    higher = trial(made(value=100.0), made(value=130.0, elapsed_s=9.0), metric=re.compile("(.)"), higher=True)
    assert (higher.verdict, higher.ratio().value) == ("helps", pytest.approx(1.3))
    assert (document(higher)["quantity"], document(higher)["better"]) == ("(.)", "higher")


def test_what_ended_it_early_and_what_it_left_are_said():
    early = trial(made(left=2), made(), pairs=3)
    early.ended = "It was interrupted."
    assert remarks(early)[-1] == early.ended and any("2 processes" in remark for remark in remarks(early))
    assert early.verdict == "cannot tell" and verdict_sentence(trial(made(), made(), pairs=0))


def test_a_document_has_all_that_was_measured():
    whole = json.loads(json.dumps(document(trial(made(2.0), made(1.0, looks=ON_LARGE)))))
    assert (whole["verdict"], whole["pairs"], whole["values"][0], whole["lever"]) == ("helps", 6, [2.0, 1.0], "advise")
    assert whole["ratio"]["value"] == 0.5 and whole["with"]["peak"]["huge_bytes"] == 90 << 20 and whole["with"]["peak"]["reached"] == 1
    assert whole["without"]["exit_codes"] == [0] and report.side(trial(made(2.0), made(1.0)), False).value.value == 2.0


def test_the_peak_is_the_last_look_at_nearly_the_most():
    looks = [look(1, 0, 50), look(2, 0, 100), look(3, 60, 97), look(4, 60, 20)]
    assert peak(looks) == looks[2] and peak([]) is None and peak([look(1, 0, 0)]) is None
    assert (settled_s(looks), settled_s([])) == (2, 0.0)


def test_of_several_runs_the_one_in_the_middle_of_those_that_were_seen_whole_is_shown():
    peaks = [look(1, 90, 100), look(1, 10, 100), look(1, 60, 98), look(1, 95, 40)]
    assert typical(peaks) == peaks[2] and typical([]) is None and typical(peaks[:1]) == peaks[0]
