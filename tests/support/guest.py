"""Guests: a point of guest_chase, and what a real one may lack here."""

import pytest

from support.kernels import measured
from tlb.measure.record import Point, Record
from tlb.system.reasons import Unavailable

# Why a guest that is whole may not run on the computer that has these tests.
ANY_MACHINES = ("no-kvm", "not-permitted", "kernel-failed", "emulated", "no-five-levels")
ANY_MACHINES += ("page-size-unsupported", "thp-never", "pool-empty", "backing-partial")


def guest(mode: str = "4k", pages: str = "4k", lines: int = 300, **more: object) -> Point:
    return Point(kernel="guest_chase", mode=mode, pages=pages, lines=lines, region_ms=1, **more)


def real(point: Point) -> Record:
    """A record of this computer's own KVM, where it has one that runs the point."""
    try:
        return measured(point)
    except Unavailable as why:
        if why.code in ANY_MACHINES:
            pytest.skip(str(why))
        raise
