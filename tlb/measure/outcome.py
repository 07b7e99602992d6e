"""What a campaign did, and what it remembers: points that this computer could not do, and what
perf stat counted of its processes; and how far a campaign is."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from pydantic import BaseModel, ConfigDict

from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.plan import SessionRecord
from tlb.measure.record import CounterReading, KernelEngine, NonNegativeInt, Point, Record, Slug
from tlb.measure.store import UNMEASURED_POINTS_DOCUMENT
from tlb.system.page_sizes import PageKind
from tlb.system.reasons import Unavailable

SESSIONS_DOCUMENT = "sessions"  # the document of what was counted of processes


@dataclass
class CampaignOutcome:
    """What a run did.

    warm_s, timed_s: spent on accesses, in warm-ups and in timed regions, of the points that were
    stored. elapsed_s: the whole run, with processes, memory, graphs and proofs. All three cover
    this run only.
    """

    measured: int = 0
    cached: int = 0
    warm_s: float = 0.0
    timed_s: float = 0.0
    elapsed_s: float = 0.0
    lacking: dict[Point, Unavailable] = field(default_factory=dict)
    retries: int = 0  # records that were not kept because they were noisy
    noisy: int = 0  # records stored with a mark
    # how many mappings of a point there was no time for
    left: Counter[Point] = field(default_factory=Counter)

    @property
    def skipped(self) -> int:
        return self.left.total()

    def count(self, record: Record) -> None:
        """Add a record that was stored."""
        self.measured += 1
        self.retries += record.tries - 1
        self.noisy += bool(record.noisy)
        self.warm_s += (record.warm_ns or 0.0) / 1e9
        self.timed_s += record.elapsed_ns / 1e9

    def __str__(self) -> str:
        accesses_s = self.warm_s + self.timed_s
        share = (
            f", {accesses_s / self.elapsed_s:.0%} of {self.elapsed_s:.0f} s in warm-up and timed regions"
            if self.measured
            else ""
        )
        lacking = f", {len(self.lacking)} points could not be measured" if self.lacking else ""
        noisy = f", {self.noisy} marked as noisy ({self.retries} tried again)" if self.noisy else ""
        skipped = f", {self.skipped} left out for lack of time" if self.skipped else ""
        return (
            f"{self.measured} measured, {self.cached} already there{noisy}{lacking}{skipped}{share}"
        )


# What only another state, a filled pool or more CPUs can change: no other process need find it out.
_SETTLED_REASONS = {"pool-empty", "page-size-unsupported", "no-five-levels", "one-cpu", "thp-never"}


def _read_lacking_points(rig: MeasuringSetup) -> tuple[dict[Point, Unavailable], bool]:
    """Return what points lacked the last time in this state, and whether the computer has the same
    pools, limits and CPUs as then."""
    try:
        document = rig.store.read_document(rig.machine, UNMEASURED_POINTS_DOCUMENT)
    except Unavailable:
        return {}, False
    if document.get("state") != rig.state:
        return {}, False
    lacking = {
        Point.model_validate(line["point"]): Unavailable(
            line["code"], line["detail"], line.get("remedy", "")
        )
        for line in document["points"]
    }
    return lacking, document.get("means") == rig.means


def known_unavailable_points(rig: MeasuringSetup) -> dict[Point, Unavailable]:
    """Return the points that need not be tried: they lack what this computer lacked the last time
    too."""
    known, is_same = _read_lacking_points(rig)
    return {point: why for point, why in known.items() if is_same and why.code in _SETTLED_REASONS}


def store_unmeasured_points(
    rig: MeasuringSetup, due: set[Point], tried: set[Point], outcome: CampaignOutcome
) -> None:
    """Add to `outcome` what points lacked the last time that were not tried now, and store what is
    lacking now beside the rows."""
    known, _ = _read_lacking_points(rig)
    outcome.lacking |= {p: why for p, why in known.items() if p in due - tried}
    now = {p: why for p, why in known.items() if p not in tried} | {
        p: why for p, why in outcome.lacking.items() if p in tried
    }
    if now or known:
        lines = [
            {
                "point": p.model_dump(mode="json"),
                "code": why.code,
                "detail": why.detail,
                "remedy": why.remedy,
            }
            for p, why in now.items()
        ]
        rig.store.write_document(
            rig.machine,
            UNMEASURED_POINTS_DOCUMENT,
            {"state": rig.state, "means": rig.means, "points": sorted(lines, key=str)},
        )


class SessionCounts(BaseModel):
    """What perf stat counted of all processes of one program: the `sessions` of that document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kernel: Slug  # of a process's first point
    engine: KernelEngine
    pages: PageKind
    sessions: NonNegativeInt
    points: NonNegativeInt
    totals: dict[
        str, CounterReading
    ]  # page_faults, context_switches, cpu_migrations, task_clock_ns
    most: dict[str, CounterReading]  # of one session

    @classmethod
    def of(cls, session: SessionRecord) -> SessionCounts:
        return cls(
            kernel=session.kernel,
            engine=session.engine,
            pages=session.pages,
            sessions=1,
            points=session.points,
            totals=session.counters,
            most=session.counters,
        )

    @property
    def program(self) -> tuple[str, str, str]:
        return self.kernel, self.engine, self.pages

    def plus(self, other: SessionCounts) -> SessionCounts:
        names = self.totals.keys() | other.totals.keys()
        return self.model_copy(
            update={
                "sessions": self.sessions + other.sessions,
                "points": self.points + other.points,
                "totals": {name: _merged(sum, self.totals, other.totals, name) for name in names},
                "most": {name: _merged(max, self.most, other.most, name) for name in names},
            }
        )


def _merged(
    merge: Callable[[list[float]], float],
    ours: dict[str, CounterReading],
    theirs: dict[str, CounterReading],
    name: str,
) -> CounterReading:
    """Return the sum or maximum of what was counted, or the reason for none."""
    both = [side[name] for side in (ours, theirs) if name in side]
    values = [quantity.value for quantity in both if quantity.value is not None]
    return (
        both[0].model_copy(update={"value": merge(values), "reason": None}) if values else both[0]
    )


def store_session_counts(rig: MeasuringSetup, sessions: Iterable[SessionRecord]) -> None:
    """Add what was counted of these processes to what is stored of this state."""
    try:
        document = rig.store.read_document(rig.machine, SESSIONS_DOCUMENT)
    except Unavailable:
        document = {}
    stored = document["sessions"] if document.get("state") == rig.state else []
    counts = {known.program: known for known in map(SessionCounts.model_validate, stored)}
    for new in map(SessionCounts.of, sessions):
        known = counts.get(new.program)
        counts[new.program] = known.plus(new) if known else new
    if counts:
        lines = [counts[program].model_dump(mode="json") for program in sorted(counts)]
        rig.store.write_document(
            rig.machine, SESSIONS_DOCUMENT, {"state": rig.state, "sessions": lines}
        )


# --- progress: a line that a terminal shows in place, else a line a minute

BELIEVED_FROM_S = 1.0  # of what was expected of a kind of work: then its pace is known
SCREEN_S, LOG_S = 1.0, 60.0  # between two texts
_BAR_CELLS = 20


class CampaignProgress:
    """Seconds as they pass, and as many as are to come. What was expected of a piece of work is a
    guess, whose pace is learned for each kind of work as it is done. later: of what follows beside
    that, by kind."""

    def __init__(self, name: str, quiet: bool = False):
        self._begin, self.until, self._extra = time.monotonic(), inf, 0.0
        self.later = defaultdict[str, float](float)
        # by kind of work
        self._all, self._left = defaultdict[str, float](float), defaultdict[str, float](float)
        self._expected, self._took = defaultdict[str, float](float), defaultdict[str, float](float)
        self._now: tuple[str, float, float] | None = None  # kind, seconds expected, since when
        self._name, self._said, self._quiet = name[:60], "", quiet
        self._on_screen, self._shown_s = sys.stderr.isatty(), 0.0
        self.measured = self.to_measure = 0  # mappings of points, in the part that is at work
        self.ready = ""  # where a finished page can be opened

    def __enter__(self) -> CampaignProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._show(is_last=True)

    def _show(self, *, is_last: bool = False) -> None:
        """Write to stderr how far it is, unless that was just done; a log gets no escapes."""
        gone_s, left_s = self.gone_s, self.left_s
        pause_s = SCREEN_S if self._on_screen else LOG_S
        if self._quiet or not (is_last or gone_s - self._shown_s >= pause_s):
            return
        self._shown_s = gone_s
        share = gone_s / (gone_s + left_s) if gone_s + left_s else 1.0
        bar = "#" * round(share * _BAR_CELLS)
        text = f"{self._name} {share:4.0%} |{bar:{_BAR_CELLS}}| {_clock(gone_s)} gone"
        if left_s < inf:
            text += f", {_clock(left_s)} left"
        if self.to_measure:
            text += f", {self.measured} of {max(self.to_measure, self.measured)} measured"
        text += f", {self._said}" if self._said else ""
        text += f"; ready: {self.ready}" if self.ready else ""
        if self._on_screen:
            text = f"\r{text[: shutil.get_terminal_size().columns - 1]}\x1b[K"
        end = "" if self._on_screen and not is_last else "\n"
        print(text, end=end, file=sys.stderr, flush=True)

    def expect(self, costs: Mapping[str, float], until: float, extra: float = 0.0) -> None:
        """From now on these seconds are to come, by kind, and an extra share of them; nothing is
        begun that would end after `until`."""
        self._all, self._left = defaultdict(float, costs), defaultdict(float, costs)
        self.until, self._extra = until, extra

    def remain(self, costs: Mapping[str, float]) -> None:
        """Of what was expected no more than this is to come: what is lacking once is lacking in
        every round."""
        for kind in self._left.keys() | costs.keys():
            self._all[kind] += costs.get(kind, 0.0) - self._left[kind]
        self._left = defaultdict(float, costs)

    @property
    def gone_s(self) -> float:
        return time.monotonic() - self._begin

    @property
    def time_left_s(self) -> float:
        return self.until - time.monotonic()

    def pace(self, kind: str) -> float:
        """Seconds for one that was expected: of this kind, or where little of it is done, of all."""
        for expected_s, took_s in (
            (self._expected[kind], self._took[kind]),
            (sum(self._expected.values()), sum(self._took.values())),
        ):
            if expected_s >= BELIEVED_FROM_S:
                return took_s / expected_s
        return 1.0

    def _at_pace(self, costs: Mapping[str, float]) -> float:
        return sum(self.pace(kind) * max(seconds, 0.0) for kind, seconds in costs.items())

    @property
    def left_s(self) -> float:
        """Until all is done, or the time is over."""
        left_s = min(self._at_pace(self._left) + self.extra_s, self.time_left_s)
        return max(left_s, 0.0) + self._at_pace(self.later)

    def has_time_for_all(self) -> bool:
        return self._at_pace(self._left) <= self.time_left_s

    @property
    def extra_s(self) -> float:
        """The extra share of what was expected."""
        return self._extra and self._extra * self._at_pace(self._all)

    def begin(self, kind: str, expected_s: float, said: str) -> bool:
        """The next piece of work begins, and the one before it has ended; False where there is no
        time for it."""
        self.end()
        if not self.pace(kind) * expected_s <= self.time_left_s:
            self._left[kind] -= expected_s
            return False
        self._now = kind, expected_s, time.monotonic()
        self._said = said
        self._show()
        return True

    @contextmanager
    def doing(self, kind: str, expected_s: float) -> Iterator[None]:
        """Do a piece of what comes later, whatever time is left."""
        self.end()
        self._now, self._said = (kind, expected_s, time.monotonic()), kind
        self.measured = self.to_measure = 0
        self._show()
        yield
        self.end()
        self.later[kind] = max(self.later[kind] - expected_s, 0.0)

    def end(self) -> None:
        """What was begun is done."""
        if self._now:
            kind, expected_s, since = self._now
            self._expected[kind] += expected_s
            self._took[kind] += time.monotonic() - since
            self._left[kind] -= expected_s
            self._now = None
        self._show()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    )
