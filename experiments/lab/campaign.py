"""The union of several grids, measured in rounds, each record stored before the next process starts.

A point that two grids ask for is measured once. Round by round, each in a random order of its own but for its large points, which
stand together, so that drift hits the points of a size alike. lab.order says which come first, and with that what is left out for
lack of time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from experiments.lab import build, kernels, perf
from experiments.lab.lines import record_key
from experiments.lab.order import Order, Process
from experiments.lab.progress import Progress
from experiments.lab.record import Point, Record
from experiments.lab.rig import Rig
from experiments.lab.store import LACKS
from experiments.system.files import measuring_lock
from experiments.words.reasons import Unavailable

RETRIES = 3  # of a noisy process: a burst of noise passes, a computer that is noisy four times over stays so
# Of an experiment's time, what second tries may add. They come out of the same minutes as all else, and a median of five bears a
# process that was disturbed better than it bears to be of four.
RETRY_SHARE = 0.1


@dataclass
class Outcome:
    """What a run did. `timed_s` lies inside timed regions, `elapsed_s` is the whole; both cover this run only."""

    measured: int = 0
    cached: int = 0
    timed_s: float = 0.0
    elapsed_s: float = 0.0
    expected_s: float = 0.0  # of what was measured, without second tries
    lacking: dict[Point, Unavailable] = field(default_factory=dict)
    retries: int = 0  # processes thrown back because they were noisy
    noisy: int = 0  # records stored with a mark, because their last try was noisy too
    left: Counter[Point] = field(default_factory=Counter)  # how many processes of a point there was no time for

    @property
    def pace(self) -> float:
        """Seconds for one that was expected, second tries and all; of a run that measured nothing, the share that these may have."""
        return self.elapsed_s / self.expected_s if self.expected_s else 1 + RETRY_SHARE

    @property
    def skipped(self) -> int:
        return self.left.total()

    def count(self, record: Record) -> None:
        """Adds a record that was stored."""
        self.measured += 1
        self.retries += record.tries - 1
        self.noisy += bool(record.noisy)
        self.timed_s += record.elapsed_ns / 1e9
        self.expected_s += kernels.expected_s(record.point)

    def __str__(self) -> str:
        share = f", {self.timed_s / self.elapsed_s:.0%} of {self.elapsed_s:.0f} s inside timed regions" if self.measured else ""
        lacking = f", {len(self.lacking)} points could not be measured" if self.lacking else ""
        noisy = f", {self.noisy} marked as noisy ({self.retries} tried again)" if self.noisy else ""
        skipped = f", {self.skipped} left out for lack of time" if self.skipped else ""
        return f"{self.measured} measured, {self.cached} already there{noisy}{lacking}{skipped}{share}"


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
            if record is not None and why.code != "state-changed":  # a noisy number is better than none
                return record
            if why.code != "cpu-gone" or rig.cpu is not None or tries > RETRIES:  # unless one was named, the kernel takes another
                raise
            continue
        record = record.model_copy(update={"tries": tries})
        if not record.noisy or not spare.covers(kernels.expected_s(point)):
            break
    return record


Values = dict[Point, list[float]]  # ns per access, of each process that there is
Digests = dict[tuple[str, str], str]  # of a kernel in an engine


def _buildable(points: Collection[Point], outcome: Outcome) -> tuple[list[Point], Digests]:
    """The points that their engine has a kernel for, and each kernel's digest; the others are lacking. Raises Unavailable."""
    digests: Digests = {}
    for kernel, engine in {(p.kernel, p.engine) for p in points}:
        try:
            digests[kernel, engine] = build.kernel(kernel, engine).digest
        except Unavailable as why:
            if why.code != "engine-lacks":
                raise
            outcome.lacking |= {p: why for p in points if (p.kernel, p.engine) == (kernel, engine)}
    return [p for p in points if p not in outcome.lacking], digests


def run(rig: Rig, grids: Mapping[str, Collection[Point]], repeats: int | Callable[[Point], int], *, most: int = 0,
        seconds: float = inf, compared: Callable[[Point], bool] = lambda point: True, quiet: bool = False, seed: int = 0,
        retry_share: float = RETRY_SHARE) -> Outcome:
    """Measure what is not yet stored of the points that each grid asks for, by its name.

    repeats: how many processes a point, or a function of the point. most: how many where a point's interval stays wide. seconds: no
    process is begun that would end later. compared: the points that come first from the second process on.

    A point that the machine cannot do is in `lacking` with its reason and is not tried again; the others go on. So is one for which
    there was no time and which could not be done the last time. A noisy process is thrown back at most RETRIES times and then kept
    with its mark; with retry_share 0 at once. Ctrl-C loses the process in flight and nothing else. Raises
    Unavailable, measuring-already, state-changed, cpu-gone of the rig's own CPU, and what the store raises.
    """
    outcome, begin = Outcome(), time.monotonic()
    for name, points in grids.items():
        rig.store.ask(rig.machine, name, points)
    buildable, digests = _buildable(dict.fromkeys(chain.from_iterable(grids.values())), outcome)
    wanted = {p: repeats(p) if callable(repeats) else repeats for p in buildable}
    values: Values = {p: [] for p in buildable}
    missing = _missing(rig, {p: max(times, most) for p, times in wanted.items()}, digests, outcome, values)
    order, tried = Order(missing, values, wanted, compared, random.Random(seed)), set[Process]()
    if order.open and seconds > 0:
        with measuring_lock(), Progress(" ".join(grids), sum(kernels.expected_s(p) for p, _ in order.due), seconds, quiet) as progress:
            for record in _records(rig, order, outcome, tried, progress, retry_share):
                rig.store.append(rig.machine, record, digests[record.kernel, record.engine])
                values[record.point].append(record.ns_per_access)
    _remember_lacks(rig, {p for p, _ in order.due}, {p for p, _ in tried}, outcome)
    outcome.left = Counter(point for point, repeat in order.due if (point, repeat) not in tried and point not in outcome.lacking)
    outcome.elapsed_s = time.monotonic() - begin
    return outcome


def _records(rig: Rig, order: Order, outcome: Outcome, tried: set[Process], progress: Progress,
             retry_share: float) -> Iterator[Record]:
    """What each process measured that there is time for. What it lacks goes into `outcome`; each is counted there once it is stored."""
    spare = _Spare(max(map(kernels.expected_s, order.open)) if retry_share else 0.0)

    def fits(point: Point) -> bool:
        return point not in outcome.lacking and progress.has_time_for(kernels.expected_s(point))

    for point, repeat in order.processes(fits):
        expected_s = kernels.expected_s(point)
        if not fits(point):
            progress.leave_out(expected_s)
            continue
        if not order.is_due((point, repeat)):
            progress.expect_all_the_time()
        tried.add((point, repeat))
        spare.seconds += retry_share * expected_s
        try:
            record = _first_quiet(rig, point, repeat, spare)
        except Unavailable as why:
            if why.code == "state-changed" or (why.code == "cpu-gone" and rig.cpu is not None):  # no lack of the point
                raise
            outcome.lacking[point] = why
        else:
            yield record
            outcome.count(record)
        progress.advance(expected_s, f"{outcome.measured} of {max(outcome.measured, len(order.due))} processes")


def _counted(plan: perf.Plan, repeat: int) -> set[str]:
    """The quantities whose events are asked for in a repeat."""
    groups = plan.groups()
    return {event.quantity for event in groups[repeat % len(groups)]}


def _missing(rig: Rig, wanted: Mapping[Point, int], digests: Digests, outcome: Outcome, values: Values) -> Iterator[Process]:
    """What is not stored, whoever asked for it, `values` being of what is. A row that lacks what can be counted by now is measured again;
    of the two the store gives the one that counted."""
    have = rig.store.records(rig.machine, {point.kernel for point in wanted})
    for point, times in wanted.items():
        for repeat in range(times):
            row = have.get(record_key(point, repeat, digests[point.kernel, point.engine], rig.state))
            if row is None or not row.uncountable.isdisjoint(_counted(rig.plan, repeat)):
                yield point, repeat
            else:
                outcome.cached += 1
                values[point].append(row.ns_per_access)


def _remember_lacks(rig: Rig, due: set[Point], tried: set[Point], outcome: Outcome) -> None:
    """Tells again what was lacking of points that were not tried, and writes down what is lacking now, beside the rows."""
    try:
        document = rig.store.read_document(rig.machine, LACKS)
    except Unavailable:
        document = {}
    lines = document["points"] if document.get("state") == rig.state else []
    known = {Point.model_validate(line["point"]): Unavailable(line["code"], line["detail"]) for line in lines}
    outcome.lacking |= {p: why for p, why in known.items() if p in due - tried}
    now = {p: why for p, why in known.items() if p not in tried} | {p: why for p, why in outcome.lacking.items() if p in tried}
    if now or document:
        lines = [{"point": p.model_dump(mode="json"), "code": why.code, "detail": why.detail} for p, why in now.items()]
        rig.store.write_document(rig.machine, LACKS, {"state": rig.state, "points": sorted(lines, key=str)})
