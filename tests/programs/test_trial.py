"""The rule of the experiment, on times whose truth is known: how often it is wrong, what it finds, when it ends."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.programs import look, made

from experiments.inference.intervals import Interval
from experiments.inference.pairs import LEAST_PAIRS, paired_ratio
from experiments.programs import trial
from experiments.programs.levers import LEVERS
from experiments.programs.report import document, remarks
from experiments.programs.runs import Run
from experiments.programs.trial import Aim, attempt, is_narrow, paired, verdict, would_have_shown
from experiments.words.reasons import Unavailable

WITHIN = 0.02
RANDOM = np.random.default_rng(7)
# Times of one program, as they might have been measured: quiet, noisy, with a tail of interruptions, at two places.
MEASURED = {
    "quiet": 1 + 0.004 * RANDOM.standard_normal(200),
    "noisy": np.exp(0.02 * RANDOM.standard_normal(200)),
    "tailed": 1 + 0.03 * RANDOM.exponential(size=200),
    "two places": np.where(RANDOM.random(200) < 0.3, 1.08, 1.0) * np.exp(0.004 * RANDOM.standard_normal(200)),
}


def outcome(times: np.ndarray, ratio: float, seed: int, limit_s: float = 60.0) -> tuple[str, int, Interval]:
    """The verdict of an experiment on a program whose runs take such times, drawn with return, and with a lever `ratio` times as long."""
    random, now = np.random.default_rng(seed), [0.0]

    def take(lever: bool) -> float:
        took = float(random.choice(times)) * (ratio if lever else 1.0)
        now[0] += took
        return took

    pairs = list(paired(take, float, WITHIN, limit_s, clock=lambda: now[0], seed=seed))
    interval = paired_ratio([w for _, w in pairs], [p for p, _ in pairs])
    return verdict(interval, len(pairs), WITHIN), len(pairs), interval


def test_without_a_lever_one_experiment_in_twenty_says_that_there_is_a_difference_at_most():
    verdicts = [outcome(times, 1.0, seed)[0] for times in MEASURED.values() for seed in range(150)]
    assert sum(word in ("helps", "hurts") for word in verdicts) <= 0.05 * len(verdicts)


def test_no_difference_is_said_where_there_is_none_and_the_program_is_quiet():
    outcomes = [outcome(MEASURED["quiet"], 1.0, seed) for seed in range(200)]
    assert sum(word == "no difference" and would_have_shown(interval) <= WITHIN for word, _, interval in outcomes) >= 0.9 * 200


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize(("ratio", "word"), [(0.9, "helps"), (1.1, "hurts")])
def test_an_effect_of_a_tenth_is_found_and_is_as_large_as_it_is(name: str, ratio: float, word: str):
    outcomes = [outcome(MEASURED[name], ratio, seed) for seed in range(100)]
    assert [found for found, _, _ in outcomes].count(word) >= 95
    assert sum(interval.low <= ratio <= interval.high for _, _, interval in outcomes) >= 90


def test_it_ends_when_the_ratio_is_known_and_not_before_six_pairs():
    assert outcome(np.ones(3), 1.0, 1)[:2] == ("no difference", LEAST_PAIRS)
    assert outcome(np.ones(3), 0.5, 1)[:2] == ("helps", LEAST_PAIRS)


def test_it_ends_with_the_time_also_between_two_looks_but_never_before_six_pairs():
    loud = np.array([1.0, 2.0])
    assert outcome(loud, 1.0, 1, limit_s=0.0)[1] == LEAST_PAIRS
    word, pairs, _ = outcome(loud, 1.0, 2, limit_s=23.0)
    assert LEAST_PAIRS <= pairs <= 11 and word == "cannot tell"


def test_the_order_within_pairs_is_drawn_and_the_same_for_a_seed():
    def orders(seed: int) -> list[bool]:
        taken: list[bool] = []
        random = np.random.default_rng(1)

        def take(lever: bool) -> float:
            taken.append(lever)
            return float(random.choice([1.0, 2.0]))

        pairs = paired(take, float, WITHIN, 1e9, seed=seed)
        for _ in range(40):
            next(pairs)
        return taken

    drawn = orders(3)
    first = drawn[::2]
    assert drawn == orders(3) != orders(4)
    assert [not lever for lever in first] == drawn[1::2]  # each pair has both
    assert 8 < sum(first) < 32 and any(a == b for a, b in pairwise(first))


def test_what_is_taken_with_the_lever_stands_second_whatever_came_first():
    pairs = paired(lambda lever: 2.0 if lever else 1.0, float, WITHIN, 1.0)
    assert set(pairs) == {(1.0, 2.0)}


def known(value: float, low: float, high: float) -> Interval:
    return Interval(value, low, high, 0.99)


@pytest.mark.parametrize(("interval", "higher", "word"), [
    (known(0.8, 0.7, 0.9), False, "helps"), (known(0.8, 0.7, 0.9), True, "hurts"), (known(1.2, 1.1, 1.3), False, "hurts"),
    (known(1.2, 1.1, 1.3), True, "helps"), (known(1.0, 0.99, 1.01), False, "no difference"), (known(1.0, 0.9, 1.1), False, "cannot tell"),
    (known(1.0, 1.0, 1.0), False, "no difference"), (known(1.01, 1.005, 1.015), False, "no difference"),
    (known(1.02, 1.01, 1.03), False, "hurts")])
def test_a_verdict_is_of_the_interval_and_of_what_is_better(interval: Interval, higher: bool, word: str):
    assert verdict(interval, 6, WITHIN, higher) == word
    assert verdict(interval, 5, WITHIN, higher) == "cannot tell"


@pytest.mark.parametrize(("interval", "narrow"), [
    (known(1.0, 0.981, 1.019), True), (known(1.01, 0.99, 1.03), False), (known(0.9, 0.885, 0.915), True), (known(0.9, 0.86, 0.94), False),
    (known(0.5, 0.48, 0.52), True), (known(0.5, 0.4, 0.6), False)])
def test_an_interval_is_narrow_about_1_or_about_an_effect(interval: Interval, narrow: bool):
    assert is_narrow(interval, WITHIN) is narrow


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch):
    """Puts made-up runs in the place of a program's: alike, until so many were made; then one of another kind, or an exception."""
    def fake(count: int, then: Run | BaseException) -> Aim:
        taken: list[Run] = []

        def run(*_: object, **__: object) -> Run:
            taken.append(made(elapsed_s=1.0 + len(taken) % 7 / 10, looks=(look(huge_mib=9, reached=1),)))  # too far apart to end
            if len(taken) <= count:
                return taken[-1]
            if isinstance(then, BaseException):
                raise then
            return then

        monkeypatch.setattr(trial, "run", run)
        return Aim(["program"], LEVERS["advise"])

    return fake


@pytest.mark.parametrize(("then", "says"), [
    (made(status=-9), "ended by a signal (Killed)"), (made(status=-40), "ended by a signal ("), (KeyboardInterrupt(), "interrupted"),
    (Unavailable("program-endless"), "did not end")], ids=["killed", "by another signal", "Ctrl-C", "endless"])
def test_what_ends_it_early_leaves_the_pairs_before(after, then, says: str):
    done = attempt(after(2 + 14 + 1, then))
    assert (len(done.pairs), says in done.ended) == (7, True)
    assert document(done)["pairs"] == 7 and done.ended in remarks(done)


def test_ctrl_c_before_six_pairs_is_an_end_without_a_result(after):
    with pytest.raises(KeyboardInterrupt):
        attempt(after(2 + 10, KeyboardInterrupt()))


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trial.sys, "platform", "darwin")
    with pytest.raises(Unavailable) as why:
        attempt(Aim(["program"], LEVERS["none"]))
    assert why.value.code == "not-linux"


def test_each_hears_of_it_after_the_rehearsal_and_after_each_pair(after):
    heard: list[int] = []
    attempt(after(2 + 12, KeyboardInterrupt()), lambda so_far: heard.append(len(so_far.pairs)))
    assert heard == list(range(7))
