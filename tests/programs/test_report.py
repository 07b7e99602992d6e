"""What is said of an experiment: nothing that differed is hidden, and a lever that did nothing is
said to have done nothing."""

from __future__ import annotations

import pytest
from support.programs import look, made, trial

from tlb.programs.report import remarks, verdict_sentence

ON_LARGE = (look(huge_mib=90, reached=1),)


def test_programs_that_exit_differently_decide_nothing():
    failing = trial(made(2.0), made(1.0, status=3, looks=ON_LARGE))
    assert failing.ratio().high < 1 and failing.verdict == "cannot tell"
    assert "3 with the lever" in remarks(failing)[0] and "0 as it is" in remarks(failing)[0]
    both = trial(made(2.0, status=3), made(1.0, status=3, looks=ON_LARGE))
    assert both.verdict == "helps" and "exit code is 3" in remarks(both)[0]
    assert not any("exit code" in remark for remark in remarks(trial(made(), made())))


@pytest.mark.parametrize(
    ("without", "with_lever", "says"),
    [
        ("same", "same", ""),
        ("at 12", "at 12", ""),
        ("at 12", "at 13", "digits alone"),
        ("one", "other", "something else with the lever"),
    ],
)
def test_what_is_written_otherwise_is_said(without: str, with_lever: str, says: str):
    for stream in ("out", "err"):
        told = [
            remark
            for remark in remarks(
                trial(made(**{stream: without}), made(**{stream: with_lever}, looks=ON_LARGE))
            )
            if "writes" in remark
        ]
        assert [f"std{stream}" in remark and says in remark for remark in told] == (
            [True] if says else []
        )


@pytest.mark.parametrize(("huge_mib", "nothing"), [(0, True), (1, True), (2, False), (90, False)])
def test_a_lever_that_moved_no_pages_made_no_difference_to_them(huge_mib: int, nothing: bool):
    told = remarks(trial(made(2.0), made(1.0, looks=(look(huge_mib=huge_mib, reached=1),))))
    assert any("no difference to its pages" in remark for remark in told) is nothing
    assert not any(
        "no difference to its pages" in remark
        for remark in remarks(trial(made(), made(), lever="none"))
    )


def test_what_ended_it_early_and_what_it_left_are_said():
    early = trial(made(left=2), made(), pairs=3)
    early.ended = "It was interrupted."
    assert remarks(early)[-1] == early.ended and any(
        "2 processes" in remark for remark in remarks(early)
    )
    assert early.verdict == "cannot tell" and verdict_sentence(trial(made(), made(), pairs=0))
