"""Which points the chapter about the machine measures first; where its curves bend, the survey goes on from there."""

from __future__ import annotations

from experiments.lab import survey
from experiments.lab.grid import Scope
from experiments.lab.record import Point
from experiments.words.pages import BASE


def points(scope: Scope) -> list[Point]:
    """The first look: three numbers of pages an octave, in all three layouts, as fine in every profile. What follows hangs on what these
    show: `refined` and `hanging` of experiments/lab/survey.py."""
    return survey.coarse(BASE)
