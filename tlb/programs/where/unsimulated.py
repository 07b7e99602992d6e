"""Programs that cannot be simulated: why, and the allocations that runs of them can compare."""

from __future__ import annotations

import tempfile

from tlb.measure.build import library
from tlb.programs.executable import sanitizer_of, why_no_preload
from tlb.programs.levers import SITES
from tlb.programs.where.simulation import Simulated, named
from tlb.system.reasons import Unavailable

# Why a program is not simulated, of what leaves it to be timed.
LACKING = {"no-valgrind", "no-compiler", "compile-failed", "no-geometry", "no-simulation"}


def check_sanitizer(command: str) -> None:
    """Raise Unavailable("no-simulation") for a program that has a sanitizer in it."""
    if sanitizer := sanitizer_of(command):
        raise Unavailable(
            "no-simulation",
            f"it is built with {sanitizer}, whose shadow memory takes more addresses than Valgrind "
            "has; build it without",
        )


def sites_of(command: list[str], seconds: float, why: Unavailable) -> Simulated:
    """Return the sites of a program that cannot be simulated, in the order to try them in; none
    without the library that names them. Raises `why` if that does not reach it."""
    if why.code not in LACKING or why_no_preload(command[0]):
        raise why
    found = Simulated()
    try:
        library(SITES)
    except Unavailable as lacking:
        found.unnamed = str(lacking)
    else:
        with tempfile.TemporaryDirectory(prefix="tlb-where-") as scratch:
            _, found = named(command, scratch, seconds)
        if not found.sites:
            raise why
    found.lacking = str(why)
    return found
