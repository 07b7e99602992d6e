"""Which points the chapter about programs measures: not one, since its programs are other people's
and no kernels."""

from __future__ import annotations

from tlb.measure.grid import Scope
from tlb.measure.record import Point


def points(scope: Scope) -> list[Point]:
    """None: `programs.py` measures whole programs, which have no points."""
    return []
