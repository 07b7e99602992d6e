"""The rule of the experiment, on times whose truth is known: how often it is wrong, what it finds,
when it ends."""

import time
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
from support.programs import look, made

from tlb.programs import trial
from tlb.programs.levers import LEVERS
from tlb.programs.runs import ProgramRun
from tlb.programs.trial import (
    Trial,
    TrialAim,
    confidence_of,
    paired,
    random_run_orders,
    run_trial,
    smallest_detectable_difference,
    verdict,
)
from tlb.programs.trial_report import document, trial_remarks, verdict_sentences
from tlb.stats.effects import paired_ratio
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable

WITHIN, RUNS = 0.02, 400
SECOND = 1.04  # times as long, where the second run of a pair is slower
Random = np.random.Generator
Times = Callable[[Random], np.ndarray]


def quiet(random: Random) -> np.ndarray:
    return np.exp(0.004 * random.standard_normal(RUNS))


def noisy(random: Random) -> np.ndarray:
    return np.exp(0.02 * random.standard_normal(RUNS))


def at_two_places(random: Random) -> np.ndarray:
    return np.where(random.random(RUNS) < 0.3, 1.08, 1.0) * quiet(random)


def drifting(random: Random) -> np.ndarray:
    """A tenth slower in 60 runs."""
    return quiet(random) * np.exp(np.arange(RUNS) / 600)


def following(random: Random) -> np.ndarray:
    """Each run nine tenths of the one before and a tenth its own."""
    logs = 0.02 * np.sqrt(1 - 0.9**2) * random.standard_normal(RUNS)
    for n in range(1, RUNS):
        logs[n] += 0.9 * logs[n - 1]
    return np.exp(logs)


def staying_at_two_places(random: Random) -> np.ndarray:
    """Ten runs at one on average."""
    return np.where(np.cumsum(random.random(RUNS) < 0.1) % 2, 1.08, 1.0) * quiet(random)


# Times of runs as they follow each other: each alone, and each related to those before.
MEASURED: list[Times] = [quiet, noisy, at_two_places]
RELATED: list[Times] = [drifting, following, staying_at_two_places]


def outcome(
    times: Times, ratio: float, seed: int, limit_s: float = 60.0, second: float = 1.0
) -> tuple[str, int, Interval]:
    """The verdict of an experiment on a program whose runs take such times, with a lever `ratio`
    times as long and as the second of a pair `second` times."""
    series, taken, now = times(np.random.default_rng(seed)), list[float](), [0.0]

    def take(lever: bool) -> float:
        n = len(taken)
        taken.append(float(series[n]) * (ratio if lever else 1.0) * (second if n % 2 else 1.0))
        now[0] += taken[-1]
        return taken[-1]

    pairs = list(paired(take, list, WITHIN, limit_s, seed, clock=lambda: now[0]))
    without, with_lever = [p for p, _ in pairs], [w for _, w in pairs]
    confidence = confidence_of(without, with_lever, WITHIN)
    interval = paired_ratio(with_lever, without, confidence)
    return verdict(interval, len(pairs), WITHIN), len(pairs), interval


def wrong(times: Times, second: float, experiments: int) -> float:
    """How many of so many experiments without a lever find a difference."""
    words = [outcome(times, 1.0, seed, 30.0, second)[0] for seed in range(experiments)]
    return sum(word not in ("no difference", "cannot tell") for word in words) / experiments


def test_without_a_lever_one_experiment_in_twenty_finds_a_difference_at_most():
    for second in (1.0, SECOND):
        assert np.mean([wrong(times, second, 100) for times in MEASURED]) <= 0.05


@pytest.mark.endurance
@pytest.mark.parametrize("second", [1.0, SECOND])
@pytest.mark.parametrize("times", [*MEASURED, *RELATED])
def test_one_in_twenty_at_most_also_where_runs_are_related(times, second):
    experiments = 400
    assert wrong(times, second, experiments) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / experiments)


def two_quantities(seed: int, change: float) -> list[str]:
    """The verdicts about time and CPU time of a trial whose second side takes `change` times both:
    times are noisy, CPU times less so."""
    drawn = np.random.default_rng(seed)

    def take(is_second: bool) -> ProgramRun:
        noise = np.exp([0.08, 0.01] * drawn.standard_normal(2)) * (change if is_second else 1.0)
        return made(float(noise[0]), cpu_s=float(noise[1]))

    aim, now = TrialAim(["program"], LEVERS["none"]), [0.0]
    done = Trial(aim, (take(False), take(False)), seed)

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    done.pairs += paired(take, aim.values, WITHIN, 30.0, seed, clock=clock)
    return [quantity.verdict for quantity in done.quantities]


def test_of_two_verdicts_one_is_wrong_in_one_trial_of_twenty_at_most():
    found = [two_quantities(seed, 1.0) for seed in range(100)]
    wrong = [any(word not in ("no difference", "cannot tell") for word in each) for each in found]
    assert sum(wrong) <= 100 * trial.MAX_WRONG_VERDICT_SHARE


def test_cpu_time_decides_what_noisy_times_leave_open():
    found = [two_quantities(seed, 1.05) for seed in range(100)]
    assert sum(cpu == "hurts" for _, cpu in found) >= 90 > sum(time == "hurts" for time, _ in found)


def test_no_difference_is_said_where_there_is_none_and_the_program_is_quiet():
    outcomes = [outcome(quiet, 1.0, seed) for seed in range(100)]
    assert (
        sum(
            word == "no difference" and smallest_detectable_difference(interval) <= WITHIN
            for word, _, interval in outcomes
        )
        >= 0.9 * 100
    )


@pytest.mark.parametrize("times", MEASURED)
@pytest.mark.parametrize(("ratio", "word"), [(0.9, "helps"), (1.1, "hurts")])
def test_an_effect_of_a_tenth_is_found_and_is_as_large_as_it_is(times, ratio, word):
    outcomes = [outcome(times, ratio, seed) for seed in range(100)]
    assert [found for found, _, _ in outcomes].count(word) >= 95
    assert sum(interval.low <= ratio <= interval.high for _, _, interval in outcomes) >= 90


def test_of_every_two_pairs_the_lever_comes_first_in_one_which_one_is_drawn():
    drawn = list(islice(random_run_orders(3), 40))
    assert drawn == list(islice(random_run_orders(3), 40)) != list(islice(random_run_orders(4), 40))
    assert all(first is not second for first, second in zip(drawn[::2], drawn[1::2], strict=True))
    assert 4 < sum(drawn[::2]) < 16


def test_no_pair_begins_that_would_end_after_the_limit():
    now, drawn = [0.0], np.random.default_rng(1)

    def take(lever: bool) -> float:
        now[0] += 5.0
        return float(np.exp(drawn.standard_normal()))

    for limit_s, pairs in ((99.0, 9), (39.0, 3), (1.0, 1)):
        now[0] = 0.0
        assert len(list(paired(take, list, WITHIN, limit_s, 1, clock=lambda: now[0]))) == pairs


def known(value: float, low: float, high: float) -> Interval:
    return Interval(value, low, high, 0.99)


@pytest.mark.parametrize(
    ("interval", "higher", "word"),
    [
        (known(0.8, 0.7, 0.9), False, "helps"),
        (known(1.2, 1.1, 1.3), False, "hurts"),
        (known(1.2, 1.1, 1.3), True, "helps"),
        (known(1.0, 0.99, 1.01), False, "no difference"),
        (known(1.0, 0.9, 1.1), False, "cannot tell"),
        (known(1.01, 1.005, 1.015), False, "differs, by less than asked"),
        (known(1.02, 1.01, 1.03), False, "hurts"),
    ],
)
def test_a_verdict_is_of_the_interval_and_of_what_is_better(interval, higher, word):
    assert verdict(interval, 7, WITHIN, higher) == word
    assert verdict(interval, 6, WITHIN, higher) == "cannot tell"


@pytest.fixture
def after(monkeypatch):
    """Puts made-up runs in the place of a program's: alike, until so many were made; then one of
    another kind, or an exception."""

    def fake(count: int, then: ProgramRun | BaseException) -> TrialAim:
        taken: list[ProgramRun] = []

        def run(*_: object, **__: object) -> ProgramRun:
            taken.append(
                made(elapsed_s=1.0 + len(taken) % 7 / 10, looks=(look(huge_mib=9, reached=1),))
            )  # too far apart to end
            if len(taken) <= count:
                return taken[-1]
            if isinstance(then, BaseException):
                raise then
            return then

        monkeypatch.setattr(trial, "run_program", run)
        return TrialAim(["program"], LEVERS["advise"])

    return fake


@pytest.mark.parametrize(
    ("then", "says"),
    [
        (made(status=-9), "(Killed)"),
        (KeyboardInterrupt(), "interrupted"),
        (Unavailable("no-time"), "not enough time"),
    ],
    ids=["killed", "Ctrl-C", "endless"],
)
def test_what_ends_it_early_leaves_the_pairs_before(after, then, says):
    done = run_trial(after(2 + 14 + 1, then))
    assert (len(done.pairs), says in done.ended) == (7, True)
    assert document(done)["pairs"] == 7 and done.ended in trial_remarks(done)
    assert (
        document(done)["seed"] == done.seed != run_trial(after(2 + 14 + 1, then)).seed
    )  # drawn by the system for each


def test_the_minutes_bound_the_whole(monkeypatch):
    """Each run may take what is left, a run of 20 s: two rehearsals, four pairs, and none more."""
    now, limits = [1000.0], list[float]()

    def run(*_: object, limit_s: float, **__: object) -> ProgramRun:
        limits.append(limit_s)
        now[0] += 20.0
        return made(20.0, looks=(look(reached=1),))

    monkeypatch.setattr(trial, "run_program", run)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    done = run_trial(TrialAim(["program"], LEVERS["advise"], minutes=3.5))
    assert limits == [210.0 - 20.0 * n for n in range(10)] and len(done.pairs) == 4
    assert done.verdict == "cannot tell" and done.spent_s == 200.0
    needed = verdict_sentences(done)[0].partition("about ")[2].split()[0]
    assert 16 * 20 / 60 <= float(needed) <= 6


@pytest.mark.parametrize(
    ("lever", "limits", "failing", "code"),
    [
        ("advise", "", made(status=1), "lever-failed"),
        ("advise", "", made(status=-9), "lever-failed"),
        ("advise", "", Unavailable("program-killed"), "lever-failed"),
        ("advise", "", Unavailable("no-time"), "no-time"),
        ("malloc-pool", "", made(status=-7), "lever-failed"),
        ("malloc-pool", "hugetlb.2MB.max is 16 MiB", made(status=-7), "pool-empty"),
        ("jvm-pool", "hugetlb.2MB.max is 16 MiB", made(status=134), "pool-empty"),
        ("none", "hugetlb.2MB.max is 16 MiB", made(status=-7), "lever-failed"),
    ],
)
def test_a_failure_with_the_lever_alone_is_not_the_program_s(
    lever, limits, failing, code, monkeypatch
):
    """The first run, without the lever, has succeeded."""
    runs = iter([made(), failing])

    def run(*_: object, **__: object) -> ProgramRun:
        if isinstance(this := next(runs), BaseException):
            raise this
        return this

    monkeypatch.setattr(trial, "run_program", run)
    monkeypatch.setattr(trial, "pool_limit_words", lambda: limits)
    with pytest.raises(Unavailable) as why:
        run_trial(TrialAim(["program"], LEVERS[lever]))
    assert why.value.code == code and (code != "pool-empty" or limits in why.value.detail)
