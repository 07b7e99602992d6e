"""A grid of points, measured in interleaved repeats, each record stored before the next process starts."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tqdm import tqdm

from experiments.lab import build, kernels, perf
from experiments.lab.record import Point, Record
from experiments.lab.rig import Rig
from experiments.lab.store import record_key
from experiments.system.files import measuring_lock
from experiments.words.reasons import Unavailable

RETRIES = 3  # of a noisy process: a burst of noise passes, a computer that is noisy four times over stays so
# Of an experiment's time, what second tries may add. Where everything is noisy, four tries each would take four times as
# long and give nothing but marks.
RETRY_SHARE = 0.25


@dataclass
class Outcome:
    """What a run did. `timed_s` lies inside timed regions, `elapsed_s` is the whole; both cover this run only."""

    measured: int = 0
    cached: int = 0
    timed_s: float = 0.0
    elapsed_s: float = 0.0
    lacking: dict[Point, Unavailable] = field(default_factory=dict)
    retries: int = 0  # processes thrown back because they were noisy
    noisy: int = 0  # records stored with a mark, because their last try was noisy too

    def count(self, record: Record) -> None:
        """Adds a record that was stored."""
        self.measured += 1
        self.retries += record.tries - 1
        self.noisy += bool(record.noisy)
        self.timed_s += record.elapsed_ns / 1e9

    def __str__(self) -> str:
        share = f", {self.timed_s / self.elapsed_s:.0%} of {self.elapsed_s:.0f} s inside timed regions" if self.measured else ""
        lacking = f", {len(self.lacking)} points could not be measured" if self.lacking else ""
        noisy = f", {self.noisy} marked as noisy ({self.retries} tried again)" if self.noisy else ""
        return f"{self.measured} measured, {self.cached} already there{noisy}{lacking}{share}"


@dataclass
class _Spare:
    """Time for second tries. It grows with the run, so that no part of it uses up what belongs to the rest."""

    seconds: float

    def covers(self, cost_s: float) -> bool:
        self.seconds -= cost_s if (enough := self.seconds >= cost_s) else 0
        return enough


def _first_quiet(rig: Rig, point: Point, repeat: int, spare: _Spare) -> Record:
    """The first record without a mark, or the last. To choose by the time measured would be to pick cherries."""
    record = None
    for tries in range(1, RETRIES + 2):
        try:
            record = rig.take(point, repeat)
        except Unavailable as why:
            if record is not None:  # a noisy number is better than none
                return record
            if why.code != "cpu-gone" or rig.cpu is not None or tries > RETRIES:  # unless one was named, the kernel takes another
                raise
            continue
        record = record.model_copy(update={"tries": tries})
        if not record.noisy or not spare.covers(kernels.expected_s(point)):
            break
    return record


def _buildable(points: Sequence[Point], outcome: Outcome) -> tuple[list[Point], dict[tuple[str, str], str]]:
    """The points that their engine has a kernel for, and each kernel's digest; the others are lacking. Raises Unavailable."""
    digests: dict[tuple[str, str], str] = {}
    for kernel, engine in {(p.kernel, p.engine) for p in points}:
        try:
            digests[kernel, engine] = build.kernel(kernel, engine).digest
        except Unavailable as why:
            if why.code != "engine-lacks":
                raise
            outcome.lacking |= {p: why for p in points if (p.kernel, p.engine) == (kernel, engine)}
    return [p for p in points if p not in outcome.lacking], digests


def run(rig: Rig, name: str, points: Sequence[Point], repeats: int | Callable[[Point], int], *, quiet: bool = False, seed: int = 0,
        retry_share: float = RETRY_SHARE) -> Outcome:
    """Measure what is not yet stored: all points once in a random order, then again, so that drift hits all alike.

    repeats: how many processes a point, or a function of the point.

    A point that the machine cannot do is in `lacking` with its reason and is not tried again; the others go on. A noisy
    process is thrown back at most RETRIES times and then kept with its mark; with retry_share 0 at once.
    Ctrl-C loses the process in flight and nothing else. Raises Unavailable("measuring-already") and what the store raises.
    """
    outcome, begin = Outcome(), time.monotonic()
    points, digests = _buildable(points, outcome)
    wanted = {p: repeats(p) if callable(repeats) else repeats for p in points}
    todo = _todo(rig, name, wanted, digests, random.Random(seed), outcome)
    if not todo:
        return outcome
    costs_s = {p: kernels.expected_s(p) for p, _ in todo}
    spare = _Spare(RETRIES * max(costs_s.values()) if retry_share else 0.0)
    total_s = sum(costs_s[p] for p, _ in todo) + 1e-3  # tqdm warns of a bar that a rounding error takes past its end
    with measuring_lock(), tqdm(total=total_s, desc=name, unit="s", file=sys.stderr, disable=quiet, mininterval=1,
                                bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} gone, {remaining} left{postfix}") as bar:
        for point, repeat in todo:
            if point not in outcome.lacking:
                spare.seconds += retry_share * costs_s[point]
                try:
                    record = _first_quiet(rig, point, repeat, spare)
                except Unavailable as why:
                    outcome.lacking[point] = why
                else:
                    rig.store.append(rig.machine, name, record, digests[point.kernel, point.engine])
                    outcome.count(record)
            bar.update(costs_s[point])
            bar.set_postfix_str(f"{outcome.measured} of {len(todo)} points", refresh=False)  # the bar draws itself once a second
    outcome.elapsed_s = time.monotonic() - begin
    return outcome


def _counted(plan: perf.Plan, repeat: int) -> set[str]:
    """The quantities whose events are asked for in a repeat."""
    groups = plan.groups()
    return {event.quantity for event in groups[repeat % len(groups)]}


def _todo(rig: Rig, name: str, wanted: dict[Point, int], digests: dict[tuple[str, str], str], shuffle: random.Random,
          outcome: Outcome) -> list[tuple[Point, int]]:
    """What is not stored, round by round, each in an order of its own; what is stored is counted. A row that lacks what can be counted
    by now is measured again; of the two the store gives the one that counted."""
    have, todo = rig.store.records(rig.machine, name), []

    def is_there(point: Point, repeat: int) -> bool:
        record = have.get(record_key(point, repeat, digests[point.kernel, point.engine], rig.state))
        return record is not None and record.uncountable.isdisjoint(_counted(rig.plan, repeat))

    for repeat in range(max(wanted.values(), default=0)):
        due = [p for p, times in wanted.items() if repeat < times]
        fresh = [p for p in due if not is_there(p, repeat)]
        outcome.cached += len(due) - len(fresh)
        shuffle.shuffle(fresh)
        todo += [(p, repeat) for p in fresh]
    return todo
