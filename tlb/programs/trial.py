"""Compare a program as it is with the same program and a lever, or with another command, in
interleaved pairs, until the ratio of their times is known well enough or the time is over."""

from __future__ import annotations

import os
import random
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf, log, log1p, nan
from typing import Literal

from tlb.machine import background, pools
from tlb.programs import collapse, snapshots
from tlb.programs.children import PrintedNumber, signal_in_words
from tlb.programs.executable import reason_against_preload
from tlb.programs.guard import running_guard
from tlb.programs.levers import LEVERS, Lever, pool_limit_words
from tlb.programs.runs import ProgramRun, RunConditions, ServerDriver, run_program
from tlb.stats.effects import PAIRED_CONFIDENCE, Effect, is_interim_analysis, paired_ratio
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable
from tlb.system.units import format_ns

# Snapshots take a hundredth of the time of a run that counts, and a tenth of the first two, which
# do not count: those catch the peaks of short programs.
SNAPSHOT_TIME_SHARE, REHEARSAL_SHARE = 0.01, 0.1
# Time and CPU time have a verdict each. Seven pairs all go one way by chance once in 64 times, so one
# in twenty trials or fewer says a difference of either where there is none, as with six pairs and one
# verdict (tests/programs/test_trial.py).
MIN_RUN_PAIRS, MAX_WRONG_VERDICT_SHARE = 7, 0.05
# Of the intervals of a trial that its time ends: no narrow one was chosen among several, so less is
# needed than at an early end, and one verdict in twenty is wrong at most (tests/programs/test_trial.py).
CONFIDENCE_AT_THE_END = 0.98
# What a lever adds at most to a program's start: a library to load, a variable to read. It must not
# exceed the difference that is looked for.
STARTING_S = 1e-3
_SEED_BITS = 32
MIN_RUN_TIMEOUT_S = 0.001  # of a run that begins as the time ends, and is ended as endless
_NO_NUMBER = PrintedNumber(nan, nan)
# Of a program that its lever may have caused
_FAILURES = {"program-killed", "program-failed", "program-unfit"}


@dataclass(frozen=True)
class TrialAim:
    """What is compared, and how well. within: relative uncertainty of the ratio to reach. higher: of
    the number that the conditions' metric finds, which is compared in place of time, more is better.
    after_s: when a lever acts that acts from outside; None: once most of the memory is there.
    driver: the command is a server, and this is run against it and timed. warmup: runs before all
    others, which do not count. ignore_failure: compare runs with an exit code other than 0. against:
    the lever of the other side. versus: the second side's command, if it is another one."""

    command: list[str]
    lever: Lever
    within: float = 0.02
    minutes: float = 5.0
    higher: bool = False
    after_s: float | None = None
    driver: ServerDriver | None = None
    conditions: RunConditions = RunConditions()
    warmup: int = 0
    ignore_failure: bool = False
    against: Lever = LEVERS["none"]
    versus: tuple[str, ...] = ()

    def side(self, is_second: bool) -> tuple[list[str], Lever]:
        """Return the command and the lever of a side."""
        if is_second:
            return [*self.versus] or self.command, self.lever
        return self.command, self.against

    def values(self, runs: Sequence[ProgramRun]) -> list[float]:
        """Return what is compared: seconds, or the printed numbers, NaN if none was printed. One
        number with decimals after a comma means that commas stand before decimals in all runs."""
        if self.metric is None:
            return [run.elapsed_s for run in runs]
        numbers = [run.number or _NO_NUMBER for run in runs]
        is_decimal = any(number.is_decimal for number in numbers)
        return [number.decimal if is_decimal else number.grouped for number in numbers]

    @property
    def metric(self) -> re.Pattern[str] | None:
        return self.conditions.metric

    @property
    def quantity(self) -> str:
        """What is compared in JSON: elapsed_s, or the pattern of the printed number."""
        return "elapsed_s" if self.metric is None else self.metric.pattern

    @property
    def sides(self) -> tuple[str, str]:
        """What the two sides are called."""
        if self.versus:
            return "COMMAND", "--versus"
        is_plain = self.against.name == "none"
        first = "as it is" if is_plain else f"with {self.against.name}"
        return first, f"with {self.lever.name}"

    @property
    def value_name(self) -> str:
        return "time" if self.metric is None else "printed number"

    def format(self, value: float) -> str:
        return format_seconds(value) if self.metric is None else f"{value:g}"

    def checked(self, run: ProgramRun) -> ProgramRun:
        """Return a run that can be compared. Raises Unavailable: program-unfit, and program-killed and
        program-failed, with the end of its stderr as a note."""
        driver, failed = "the driver, " if self.driver else "", None
        if run.status < 0:
            failed = Unavailable("program-killed", f"{driver}{signal_in_words(run.status)}")
        elif run.status and not self.ignore_failure:
            failed = Unavailable("program-failed", f"{driver}exit code {run.status}")
        if failed:
            failed.add_note(run.last_lines)
            raise failed
        if not 0 < self.values([run])[0] < inf:
            raise Unavailable(
                "program-unfit",
                "it printed no number above zero where --metric looks for one",
                "Give a regular expression with one group around the number, within the first or the last MiB of an output.",
            )
        return run


def format_seconds(value: float) -> str:
    return format_ns(value * 1e9)


@dataclass(frozen=True)
class ComparedQuantity:
    """A quantity of all pairs. name: as JSON has it. label: in tables. without, with_lever: one value
    a pair. higher: more is better. confidence: of the ratio's interval."""

    name: str
    label: str
    without: list[float]
    with_lever: list[float]
    format: Callable[[float], str]
    within: float
    higher: bool = False
    is_same_work: bool = True
    confidence: float = PAIRED_CONFIDENCE

    @property
    def title(self) -> str:
        """The label at the start of a sentence."""
        return self.label[0].upper() + self.label[1:]

    @property
    def ratio(self) -> Interval | None:
        """The ratio of with to without; None without a pair, or where a value is 0."""
        values = self.without + self.with_lever
        if not values or min(values) <= 0:
            return None
        return paired_ratio(self.with_lever, self.without, self.confidence)

    @property
    def verdict(self) -> TrialVerdict:
        """The verdict. Programs that exit differently did different work: times decide nothing."""
        if self.ratio is None or not self.is_same_work:
            return "cannot tell"
        return verdict(self.ratio, len(self.without), self.within, self.higher)


@dataclass
class Trial:
    """A comparison. rehearsal: the first two runs, without and with the lever, whose times do not
    count. seed: of the order of runs. pairs: (without, with). ended: why it stopped early."""

    aim: TrialAim
    rehearsal: tuple[ProgramRun, ProgramRun]
    seed: int
    pairs: list[tuple[ProgramRun, ProgramRun]] = field(default_factory=list)
    spent_s: float = 0.0
    ended: str = ""
    is_interrupted: bool = False
    throttled: int = 0  # periods in which a cgroup's CPU quota was used up

    def values(self, lever: bool) -> list[float]:
        """Return what is compared of the pairs' runs with the lever or without."""
        sides = [self.runs(False), self.runs(True)]
        values = self.aim.values([run for side in sides for run in side])
        return values[len(sides[0]) + 1 :] if lever else values[1 : len(sides[0])]

    def ratio(self) -> Interval:
        """Return the ratio of with to without."""
        return paired_ratio(self.values(True), self.values(False))

    @property
    def quantities(self) -> tuple[ComparedQuantity, ComparedQuantity]:
        """What has a verdict: time, or the printed number, and CPU time."""
        aim, without, with_lever = self.aim, self.runs(False)[1:], self.runs(True)[1:]
        is_same_work = self.statuses[0] == self.statuses[1]
        values = self.values(False), self.values(True)
        confidence = confidence_of(*values, aim.within)
        compared = ComparedQuantity(
            aim.quantity,
            aim.value_name,
            *values,
            aim.format,
            aim.within,
            aim.higher,
            is_same_work,
            confidence,
        )
        cpu_time = ComparedQuantity(
            "cpu_s",
            "CPU time",
            [run.cpu_s for run in without],
            [run.cpu_s for run in with_lever],
            format_seconds,
            aim.within,
            is_same_work=is_same_work,
            confidence=confidence,
        )
        return compared, cpu_time

    def runs(self, lever: bool) -> list[ProgramRun]:
        """Return all runs with the lever or without, the rehearsal's first."""
        return [pair[lever] for pair in (self.rehearsal, *self.pairs)]

    @property
    def minutes_needed(self) -> float:
        """About the minutes in which the rehearsal and the fewest pairs for a verdict fit, with a
        pair to spare."""
        pair_s = self.spent_s / (len(self.pairs) + 1)
        return ceil(10 * (MIN_RUN_PAIRS + 2) * pair_s / 60) / 10

    @property
    def statuses(self) -> tuple[set[int], set[int]]:
        """The exit codes without the lever, and with it."""
        return {run.status for run in self.runs(False)}, {run.status for run in self.runs(True)}

    @property
    def has_verdict(self) -> bool:
        """Whether there are as many pairs as a verdict takes."""
        return len(self.pairs) >= MIN_RUN_PAIRS

    @property
    def verdict(self) -> TrialVerdict:
        """The verdict about time, or the printed number."""
        return self.quantities[0].verdict


def run_trial(aim: TrialAim, tell: Callable[[Trial], None] = lambda trial: None) -> Trial:
    """Make the comparison; `tell` is called after the rehearsal and after each pair. No run goes on
    after the aim's minutes, and Ctrl-C ends it early: the pairs before it stay. Without a pair,
    Ctrl-C raises KeyboardInterrupt.

    Raises Unavailable: not-linux, program-missing, no-time, program-killed,
    program-unfit, not-permitted, and what making the
    lever raises."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    with running_guard():
        return _attempt(aim, tell)


def _attempt(aim: TrialAim, tell: Callable[[Trial], None]) -> Trial:
    begin, seed, throttled = time.monotonic(), secrets.randbits(_SEED_BITS), background.throttled()
    end_s = begin + aim.minutes * 60

    take = partial(_take, aim, end_s)
    rehearsal, after_s = _rehearsed(aim, take)
    trial = Trial(aim, rehearsal, seed, spent_s=time.monotonic() - begin)
    tell(trial)
    paddings = _paddings(seed)

    def one(lever: bool) -> ProgramRun:
        return aim.checked(take(lever, SNAPSHOT_TIME_SHARE, after_s, next(paddings)))

    left_s, clock = end_s - time.monotonic(), time.monotonic
    try:
        for pair in paired(one, aim.values, aim.within, left_s, trial.seed, clock=clock):
            trial.pairs.append(pair)
            trial.spent_s = time.monotonic() - begin
            tell(trial)
    except Unavailable as why:  # the pairs before it stay, unless the program fails by itself
        if why.code == "program-failed":
            raise
        trial.ended = why.text
    except KeyboardInterrupt:
        if not trial.pairs:
            raise
        trial.ended, trial.is_interrupted = "It was interrupted.", True
    trial.spent_s = time.monotonic() - begin
    trial.throttled = background.throttled() - throttled
    return trial


def _take(
    aim: TrialAim,
    end_s: float,
    is_second: bool,
    share: float,
    after_s: float = 0.0,
    padding_bytes: int = 0,
) -> ProgramRun:
    """Run one side of an aim, until end_s of the monotonic clock at most."""
    return run_program(
        *aim.side(is_second),
        limit_s=max(end_s - time.monotonic(), MIN_RUN_TIMEOUT_S),
        share=share,
        driver=aim.driver,
        conditions=aim.conditions,
        after_s=after_s,
        padding_bytes=padding_bytes,
    )


def _rehearsed(
    aim: TrialAim, take: Callable[..., ProgramRun]
) -> tuple[tuple[ProgramRun, ProgramRun], float]:
    """Make the runs that do not count: warm-ups, one without the lever and one with it. Return
    these two, and when a lever that acts from outside is to act."""
    for _ in range(aim.warmup):
        aim.checked(take(False, share=SNAPSHOT_TIME_SHARE))
    plain = aim.checked(take(False, share=REHEARSAL_SHARE))
    _check_lever(aim, aim.against, plain)
    if aim.metric is None and plain.elapsed_s * aim.within < STARTING_S:
        took, enough = format_ns(plain.elapsed_s * 1e9), ceil(100 * STARTING_S / plain.elapsed_s)
        short = f"in {took}, of which {aim.within:.2%} would have to show"
        hint = f"; --within {enough} would do" if enough <= MAX_INTERVAL_PERCENT else ""
        raise Unavailable(
            "program-unfit",
            f"too short for a difference to be measured: {short}{hint}",
            "Give it work for a second or more, let --within be larger, or name a number that it prints with --metric.",
        )
    after_s = snapshots.filled_s(plain.snapshots) if aim.after_s is None else aim.after_s
    try:
        with_lever = aim.checked(take(True, share=REHEARSAL_SHARE, after_s=after_s))
    except Unavailable as why:
        if aim.versus:
            raise
        raise failure_with_lever(aim.lever, why) from None
    _check_lever(aim, aim.lever, with_lever)
    return (plain, with_lever), after_s


def failure_with_lever(lever: Lever, why: Unavailable) -> Unavailable:
    """Return why a program fails with a lever that runs without it: pool-empty, lever-failed, or
    what says nothing of the program."""
    if why.code not in _FAILURES:
        return why
    if limits := pool_limit_words() if lever.takes_pool else "":
        failed = pools.limited(limits)
    else:
        failed = Unavailable("lever-failed", why.detail or "it prints no number above zero")
    for note in getattr(why, "__notes__", ()):
        failed.add_note(note)
    return failed


def _paddings(seed: int) -> Iterator[int]:
    """Yield bytes for the environment of each run, the same for both of a pair. They move the stack
    within its page, on which the time of some programs depends."""
    drawn = random.Random(seed)
    while True:
        size_bytes = drawn.randrange(os.sysconf("SC_PAGESIZE"))
        yield from (size_bytes, size_bytes)


def _check_lever(aim: TrialAim, lever: Lever, run: ProgramRun) -> None:
    """Raise Unavailable if the lever did not reach the program at all."""
    seen = [snapshot for snapshot in run.snapshots if snapshot.processes]
    if lever.has_reached and run.snapshots and not any(each.reached for each in seen):
        raise Unavailable(
            "program-unfit",
            f"the lever had no effect in any of its processes: {reason_against_preload(aim.command[0])}",
            "Use a lever that needs no cooperation, such as --lever collapse.",
        )
    if run.collapsed and "EPERM" in run.collapsed.errors and not run.collapsed.bytes:
        raise collapse.not_permitted()


# --- the rule: the order of runs, when their pairs are enough, and what their ratio means

TrialVerdict = Literal[
    "helps", "hurts", "differs, by less than asked", "no difference", "cannot tell"
]
MAX_INTERVAL_PERCENT = 50  # %: a ratio that is known less well says nothing


def verdict(ratio: Interval, pairs: int, within: float, higher: bool = False) -> TrialVerdict:
    """Return what a ratio of with to without means.

    An interval inside 1 ± within is "no difference" if it contains 1, and "differs, by less than
    asked" if not. Less is better, or more where `higher`."""
    if pairs < MIN_RUN_PAIRS:
        return "cannot tell"
    is_small = Effect(ratio, 1 / (1 + within), 1 + within).decided() is True
    contains_one = Effect(ratio, 1, 1).decided() is not False
    if contains_one:
        return "no difference" if is_small else "cannot tell"
    if is_small:
        return "differs, by less than asked"
    return "helps" if (ratio.value > 1) is higher else "hurts"


def is_narrow(ratio: Interval, within: float) -> bool:
    """Return whether more pairs would add nothing: the interval is within 1 ± `within`, or it
    excludes 1 and is within `within` of its own value, or within a tenth of a large effect."""
    middle, low, high = (log(bound) for bound in ratio.value_and_bounds)
    wanted = max(log1p(within), abs(middle) / 10)
    is_decided = (low > 0 or high < 0) and max(high - middle, middle - low) <= wanted
    return is_decided or max(high, -low) <= log1p(within)


def are_enough(without: Sequence[float], with_lever: Sequence[float], within: float) -> bool:
    """Return whether no more pairs are made: their ratio is looked at now, and narrow."""
    is_looked_at = is_interim_analysis(len(without), MIN_RUN_PAIRS)
    return is_looked_at and is_narrow(paired_ratio(with_lever, without), within)


def confidence_of(without: Sequence[float], with_lever: Sequence[float], within: float) -> float:
    """Return the confidence of the interval that decides."""
    is_early = are_enough(without, with_lever, within)
    return PAIRED_CONFIDENCE if is_early else CONFIDENCE_AT_THE_END


def random_run_orders(seed: int) -> Iterator[bool]:
    """Yield for each pair whether the lever runs first: in one of every two pairs, which one is
    random. So the cost of running second is added to both sides alike."""
    drawn = random.Random(seed)
    while True:
        first = drawn.random() < 0.5
        yield from (first, not first)


def paired(
    take: Callable[[bool], object],
    values: Callable[[list], list[float]],
    within: float,
    limit_s: float,
    seed: int,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple]:
    """Yield pairs of what `take` returns without and with a lever, until MIN_RUN_PAIRS or more have a
    ratio that is narrow enough, or the next pair would end after limit_s. seed: of `orders`."""
    start, pairs = clock(), []
    for first in random_run_orders(seed):
        begin = clock()
        taken = {lever: take(lever) for lever in (first, not first)}
        pairs.append((taken[False], taken[True]))
        yield pairs[-1]
        compared = values([run for pair in pairs for run in pair])
        if are_enough(compared[::2], compared[1::2], within):
            return
        if 2 * clock() - begin - start > limit_s:
            return


def smallest_detectable_difference(ratio: Interval) -> float:
    """Return the smallest relative difference that the interval rules out; inf if it is unknown."""
    return max(ratio.high - 1, 1 / ratio.low - 1) if ratio.low > 0 else inf
