"""What a campaign did, and what it remembers of points that this computer could not do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tlb.measure.measuring_setup import Rig
from tlb.measure.record import Point, Record
from tlb.measure.store import LACKING_POINTS
from tlb.system.reasons import Unavailable


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


def remember_lacks(rig: Rig, due: set[Point], tried: set[Point], outcome: Outcome) -> None:
    """Add to `outcome` what points lacked the last time that were not tried now, and store what is
    lacking now beside the rows."""
    try:
        document = rig.store.read_document(rig.machine, LACKING_POINTS)
    except Unavailable:
        document = {}
    lines = document["points"] if document.get("state") == rig.state else []
    known = {
        Point.model_validate(line["point"]): Unavailable(line["code"], line["detail"])
        for line in lines
    }
    outcome.lacking |= {p: why for p, why in known.items() if p in due - tried}
    now = {p: why for p, why in known.items() if p not in tried} | {
        p: why for p, why in outcome.lacking.items() if p in tried
    }
    if now or document:
        lines = [
            {"point": p.model_dump(mode="json"), "code": why.code, "detail": why.detail}
            for p, why in now.items()
        ]
        rig.store.write_document(
            rig.machine, LACKING_POINTS, {"state": rig.state, "points": sorted(lines, key=str)}
        )
