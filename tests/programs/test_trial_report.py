"""What a trial reports: nothing that differed is hidden, nor a lever that did nothing."""

import random

import pytest
from support.programs import look, made, trial

from tlb.programs.runs import ProgramRun, RunPlace
from tlb.programs.trial_report import trial_remarks

ON_HUGE = (look(huge_mib=90, reached=1),)


def test_programs_that_exit_differently_decide_nothing():
    failing = trial(made(2.0), made(1.0, status=3, looks=ON_HUGE))
    assert failing.ratio().high < 1 and failing.verdict == "cannot tell"
    assert "is 0 without" in trial_remarks(failing)[0] and "3 with" in trial_remarks(failing)[0]
    both = trial(made(2.0, status=3), made(1.0, status=3, looks=ON_HUGE))
    assert both.verdict == "helps" and "exit code is 3" in trial_remarks(both)[0]
    assert not any("exit code" in remark for remark in trial_remarks(trial(made(), made())))


@pytest.mark.parametrize(
    ("without", "with_lever", "part"),
    [
        ("same", "same", ""),
        ("at 12", "at 13", "only in digits"),
        ("one", "other", "different with the lever"),
    ],
)
@pytest.mark.parametrize("stream", ["out", "err"])
def test_a_different_output_is_reported(stream, without, with_lever, part):
    with_it = made(**{stream: with_lever}, looks=ON_HUGE)
    found = [
        line for line in trial_remarks(trial(made(**{stream: without}), with_it)) if "std" in line
    ]
    assert [f"std{stream}" in line and part in line for line in found] == ([True] if part else [])


def test_two_commands_that_differ_by_where_their_stacks_begin_differ_by_layout():
    """Each is slow at half of the places; which ones differs."""
    drawn = random.Random(7)

    def run(slow: tuple[int, int]) -> ProgramRun:
        offset = 16 * drawn.randrange(256)
        seconds = (1.2 if offset % 64 in slow else 1.0) * (1 + drawn.random() / 100)
        return made(seconds)._replace(place=RunPlace(stack_offset_bytes=offset))

    pairs = [(run((0, 16)), run((32, 48))) for _ in range(24)]
    done = trial(*pairs[0], lever="none", versus=("other",))
    done.pairs = pairs
    assert done.verdict == "cannot tell" and "1.20" in trial_remarks(done)[0]
    assert all("layout, not code" in remark for remark in trial_remarks(done)[:2])
    for pair in pairs:  # the same times, whose places explain nothing
        done.pairs[done.pairs.index(pair)] = tuple(
            each._replace(place=RunPlace(stack_offset_bytes=16 * drawn.randrange(256)))
            for each in pair
        )
    assert not any("layout" in remark for remark in trial_remarks(done))


def test_a_verdict_without_free_huge_pages_is_reported():
    runs = made(2.0), made(1.0, looks=ON_HUGE)
    for free_mib, is_told in ((50, True), (5000, False)):
        given = [run._replace(place=RunPlace(free_mib << 20)) for run in runs]
        assert any("2 MiB blocks" in line for line in trial_remarks(trial(*given))) is is_told


@pytest.mark.parametrize(("left", "words"), [(0, ""), (1, "1 process "), (2, "up to 2 processes ")])
def test_processes_that_a_program_left_are_counted(left, words):
    found = trial_remarks(trial(made(), made(left=left, looks=ON_HUGE)))
    assert any(words in line for line in found if "running" in line) is bool(left)


@pytest.mark.parametrize(("huge_mib", "nothing"), [(0, True), (1, True), (2, False), (90, False)])
def test_a_lever_that_moved_no_pages_is_reported(huge_mib, nothing):
    found = trial_remarks(trial(made(2.0), made(1.0, looks=(look(huge_mib=huge_mib, reached=1),))))
    assert any("no difference to the pages" in line for line in found) is nothing
    assert trial_remarks(trial(made(), made(), lever="none")) == []


@pytest.mark.parametrize(
    ("lever", "says"), [("advise", True), ("jvm", True), ("no-thp", False), ("malloc-pool", False)]
)
def test_a_program_that_refuses_transparent_pages_is_reported(lever, says):
    looks = (look(without_thp=1, reached=1),)
    found = trial_remarks(trial(made(2.0, looks=looks), made(2.0, looks=looks), lever=lever))
    assert any("disables transparent huge pages for itself" in line for line in found) is says
