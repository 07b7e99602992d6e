"""Which points the chapter about the machine measures first; where its curves bend, the survey goes
on from there."""

from __future__ import annotations

from tlb.measure import survey
from tlb.measure.grid import Scope
from tlb.measure.record import Point
from tlb.system.page_sizes import BASE


def points(scope: Scope) -> list[Point]:
    """The first look: three numbers of pages an octave, in all three layouts, as fine in every
    profile. What follows hangs on what these show: `refined` and `hanging` of tlb/measure/survey.py."""
    return survey.coarse(BASE)
