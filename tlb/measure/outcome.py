"""What a campaign did, and what it remembers: points that this computer could not do, and what
perf stat counted of its processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from tlb.measure.measuring_setup import MeasuringSetup
from tlb.measure.plan import SessionRecord
from tlb.measure.record import Count, Engine, Point, Quantity, Record, Slug
from tlb.measure.store import UNMEASURED_POINTS_DOCUMENT
from tlb.system.page_sizes import Pages
from tlb.system.reasons import Unavailable

SESSIONS_DOCUMENT = "sessions"  # the document of what was counted of processes


@dataclass
class Outcome:
    """What a run did. `timed_s` lies inside timed regions, `elapsed_s` is the whole; both cover
    this run only."""

    measured: int = 0
    cached: int = 0
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
        self.timed_s += record.elapsed_ns / 1e9

    def __str__(self) -> str:
        share = (
            f", {self.timed_s / self.elapsed_s:.0%} of {self.elapsed_s:.0f} s inside timed regions"
            if self.measured
            else ""
        )
        lacking = f", {len(self.lacking)} points could not be measured" if self.lacking else ""
        noisy = f", {self.noisy} marked as noisy ({self.retries} tried again)" if self.noisy else ""
        skipped = f", {self.skipped} left out for lack of time" if self.skipped else ""
        return (
            f"{self.measured} measured, {self.cached} already there{noisy}{lacking}{skipped}{share}"
        )


def remember_lacking_points(
    rig: MeasuringSetup, due: set[Point], tried: set[Point], outcome: Outcome
) -> None:
    """Add to `outcome` what points lacked the last time that were not tried now, and store what is
    lacking now beside the rows."""
    try:
        document = rig.store.read_document(rig.machine, UNMEASURED_POINTS_DOCUMENT)
    except Unavailable:
        document = {}
    lines = document["points"] if document.get("state") == rig.state else []
    known = {
        Point.model_validate(line["point"]): Unavailable(
            line["code"], line["detail"], line.get("remedy", "")
        )
        for line in lines
    }
    outcome.lacking |= {p: why for p, why in known.items() if p in due - tried}
    now = {p: why for p, why in known.items() if p not in tried} | {
        p: why for p, why in outcome.lacking.items() if p in tried
    }
    if now or document:
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
            {"state": rig.state, "points": sorted(lines, key=str)},
        )


class SessionCounts(BaseModel):
    """What perf stat counted of all processes of one program: the `sessions` of that document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kernel: Slug  # of a process's first point
    engine: Engine
    pages: Pages
    sessions: Count
    points: Count
    totals: dict[str, Quantity]  # page_faults, context_switches, cpu_migrations, task_clock_ns
    most: dict[str, Quantity]  # of one session

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
    ours: dict[str, Quantity],
    theirs: dict[str, Quantity],
    name: str,
) -> Quantity:
    """Return the sum or maximum of what was counted, or the reason for none."""
    both = [side[name] for side in (ours, theirs) if name in side]
    values = [quantity.value for quantity in both if quantity.value is not None]
    return (
        both[0].model_copy(update={"value": merge(values), "reason": None}) if values else both[0]
    )


def remember_sessions(rig: MeasuringSetup, sessions: Iterable[SessionRecord]) -> None:
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
