"""The experiment: a program as it is and with a lever, in interleaved pairs, until their ratio is
known well enough or the time is over."""

from __future__ import annotations

import random
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf, log, log1p
from typing import Literal

from tlb.inference.effects import Effect
from tlb.inference.intervals import Interval
from tlb.inference.pairs import LEAST_PAIRS, is_look, paired_ratio
from tlb.programs import looks
from tlb.programs.executable import unreached
from tlb.programs.guard import guarded
from tlb.programs.levers import LEVERS, Lever
from tlb.programs.runs import Run, run
from tlb.programs.served import Driver, serve
from tlb.reasons import Unavailable
from tlb.units import format_ns

Verdict = Literal["helps", "hurts", "differs, by less than asked", "no difference", "cannot tell"]
# Looks take a hundredth of the time of a run that counts. Of the first two, which do not count, a
# tenth: those see short programs' peaks.
LOOKS_SHARE, REHEARSAL_SHARE = 0.01, 0.1
# What a lever itself adds to a program's start, at most: a library to load, a variable to read. It
# may be no more than the difference that is looked for.
STARTING_S = 1e-3
_SEED_BITS = 32


@dataclass(frozen=True)
class Aim:
    """What is compared, and how well. within: the part of the time by which the ratio may be
    uncertain. metric: what to look for in what the program prints, in place of its time; higher:
    whether more of it is better. after_s: when a lever that acts from outside acts; None once most
    of the memory is there. driver: where the command is a server, what is run against it and
    measured."""

    command: list[str]
    lever: Lever
    within: float = 0.02
    minutes: float = 5.0
    metric: re.Pattern[str] | None = None
    higher: bool = False
    after_s: float | None = None
    driver: Driver | None = None

    def value(self, run: Run) -> float:
        """What is compared: seconds, or what the program printed; NaN where it printed no number."""
        return (
            run.elapsed_s
            if self.metric is None
            else float("nan")
            if run.value is None
            else run.value
        )

    def problem(self, run: Run) -> Unavailable | None:
        """Why a run says nothing, if it does not."""
        if run.status < 0:
            detail = signal.strsignal(-run.status) or f"signal {-run.status}"
            return Unavailable("program-killed", f"the driver, {detail}" if self.driver else detail)
        return None if self.value(run) > 0 else Unavailable("no-metric")


@dataclass
class Trial:
    """What came of it. rehearsal: the first two runs, as it is and with the lever, whose times do
    not count. seed: of the order of runs. pairs: those that count, in the same order. ended: why it
    ended before its aim, if it did."""

    aim: Aim
    rehearsal: tuple[Run, Run]
    seed: int
    pairs: list[tuple[Run, Run]] = field(default_factory=list)
    spent_s: float = 0.0
    ended: str = ""

    def ratio(self, value: Callable[[Run], float] | None = None) -> Interval:
        """What it is with the lever over what it is without."""
        value = value or self.aim.value
        return paired_ratio(
            [value(run) for _, run in self.pairs], [value(run) for run, _ in self.pairs]
        )

    def runs(self, lever: bool) -> list[Run]:
        """All runs with the lever or without, the rehearsal's first."""
        return [pair[lever] for pair in (self.rehearsal, *self.pairs)]

    @property
    def statuses(self) -> tuple[set[int], set[int]]:
        """The exit codes without the lever, and with it."""
        return {run.status for run in self.runs(False)}, {run.status for run in self.runs(True)}

    @property
    def verdict(self) -> Verdict:
        """By the book's rule. Programs that exit differently did not do the same, so their times
        decide nothing."""
        same = self.statuses[0] == self.statuses[1]
        return (
            verdict(self.ratio(), len(self.pairs), self.aim.within, self.aim.higher)
            if same
            else "cannot tell"
        )


def verdict(ratio: Interval, pairs: int, within: float, higher: bool = False) -> Verdict:
    """Return what a ratio of with to without says. `within` is the difference that was asked for:
    an interval that lies within it says "no difference" where it contains 1 and "differs, by less
    than asked" where it does not. Less is better, or more where `higher`."""
    if pairs < LEAST_PAIRS:
        return "cannot tell"
    is_small = Effect(ratio, 1 / (1 + within), 1 + within).decided() is True
    if Effect(ratio, 1, 1).decided() is not False:  # it contains 1
        return "no difference" if is_small else "cannot tell"
    return (
        "differs, by less than asked"
        if is_small
        else "helps"
        if (ratio.value > 1) is higher
        else "hurts"
    )


def is_narrow(ratio: Interval, within: float) -> bool:
    """Whether more pairs would say no more: the interval is within so much of 1; or beside it and
    within so much of its own value, or within a tenth of a large effect."""
    middle, low, high = (log(bound) for bound in ratio[:3])
    beside = (low > 0 or high < 0) and max(high - middle, middle - low) <= max(
        log1p(within), abs(middle) / 10
    )
    return beside or max(high, -low) <= log1p(within)


def orders(seed: int) -> Iterator[bool]:
    """Yield for each pair whether the lever comes first. Of every two pairs it does in one, which
    one is drawn: so what being the second costs adds to either side alike. Only of an odd number of
    pairs it adds to one side once more."""
    drawn = random.Random(seed)
    while True:
        first = drawn.random() < 0.5
        yield from (first, not first)


def paired(
    take: Callable[[bool], object],
    value: Callable[..., float],
    within: float,
    limit_s: float,
    seed: int,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple]:
    """Yield pairs of what `take` gives without and with a lever until their ratio is narrow enough
    at a look, or the next pair would end after limit_s; six at least. seed: of `orders`."""
    start, pairs = clock(), []
    for first in orders(seed):
        begin = clock()
        taken = {lever: take(lever) for lever in (first, not first)}
        pairs.append((taken[False], taken[True]))
        yield pairs[-1]
        values = [[value(run) for run in side] for side in zip(*pairs, strict=True)]
        if is_look(len(pairs)) and is_narrow(paired_ratio(values[1], values[0]), within):
            return
        if len(pairs) >= LEAST_PAIRS and 2 * clock() - begin - start > limit_s:
            return


def attempt(aim: Aim, tell: Callable[[Trial], None] = lambda trial: None) -> Trial:
    """Make the experiment; `tell` hears of it after the rehearsal and after each pair. Ctrl-C ends
    it where there are six pairs.

    Raises Unavailable: not-linux, program-missing, program-endless, server-ended, server-silent,
    program-killed, program-short, no-metric, lever-absent, collapse-denied, and what making the
    lever raises. KeyboardInterrupt with fewer pairs."""
    if sys.platform != "linux":
        raise Unavailable("not-linux")
    with guarded():
        return _attempt(aim, tell)


def _attempt(aim: Aim, tell: Callable[[Trial], None]) -> Trial:
    begin = time.monotonic()
    # Of one run the whole time, so that a program that never ends is found out.
    one = partial(serve, aim.command, aim.driver) if aim.driver else partial(run, aim.command)
    take = partial(one, limit_s=aim.minutes * 60, metric=aim.metric)
    plain = take(LEVERS["none"], share=REHEARSAL_SHARE)
    _check(aim, plain)
    after_s = looks.settled_s(list(plain.looks)) if aim.after_s is None else aim.after_s
    trial = Trial(
        aim,
        (plain, take(aim.lever, share=REHEARSAL_SHARE, after_s=after_s)),
        secrets.randbits(_SEED_BITS),
    )
    _check_lever(trial)
    tell(trial)
    lever = {False: LEVERS["none"], True: aim.lever}
    try:
        for pair in paired(
            lambda on: _sound(aim, take(lever[on], share=LOOKS_SHARE, after_s=after_s)),
            aim.value,
            aim.within,
            aim.minutes * 60 - (time.monotonic() - begin),
            trial.seed,
        ):
            trial.pairs.append(pair)
            trial.spent_s = time.monotonic() - begin
            tell(trial)
    except Unavailable as why:  # what was measured before stays
        trial.ended = why.text
    except KeyboardInterrupt:
        if len(trial.pairs) < LEAST_PAIRS:
            raise
        trial.ended = "It was interrupted."
    trial.spent_s = time.monotonic() - begin
    return trial


def _sound(aim: Aim, run: Run) -> Run:
    if problem := aim.problem(run):
        raise problem
    return run


def _check(aim: Aim, run: Run) -> None:
    """Raises Unavailable where the program as it is cannot be compared with anything."""
    _sound(aim, run)
    if aim.metric is None and run.elapsed_s * aim.within < STARTING_S:
        raise Unavailable(
            "program-short",
            f"in {format_ns(run.elapsed_s * 1e9)}, of which {aim.within:.2%} would have to show",
        )


def _check_lever(trial: Trial) -> None:
    """Raises Unavailable where the lever ended the program, or is not seen in it at all."""
    aim, run = trial.aim, trial.rehearsal[True]
    if problem := aim.problem(run):
        raise Unavailable(
            problem.code, f"{problem.detail}, with the lever and not without".removeprefix(", ")
        )
    if (
        aim.lever.seen
        and run.looks
        and not any(look.reached for look in run.looks if look.processes)
    ):
        raise Unavailable("lever-absent", unreached(aim.command[0]))
    if run.joined and "EPERM" in run.joined.errors and not run.joined.bytes:
        raise Unavailable("collapse-denied")


def would_have_shown(ratio: Interval) -> float:
    """The least difference that the interval rules out, as a part of what it is without the lever;
    infinite for an unknown one."""
    return max(ratio.high - 1, 1 / ratio.low - 1) if ratio.low > 0 else inf
