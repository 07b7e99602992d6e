"""What is asked of each computer of a fleet: the book's grids for a computer such as it says it is, a kernel and a round at a time.

A task is the points of one kernel up to so many processes each. All kernels have their first process before any has its second, so what
drifts on a computer hits all alike, as in a campaign that measures all of them in turns; and what a kill costs is one task at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from experiments.front import campaign
from experiments.lab import campaign as rounds
from experiments.lab import grid
from experiments.lab.grid import MOST_REPEATS, Scope
from experiments.lab.record import Point
from experiments.lab.rig import usable_bytes
from experiments.machine.host import Host, tlb_entries
from experiments.words.pages import PAGES
from experiments.words.reasons import Unavailable

Grids = dict[str, list[Point]]


@dataclass(frozen=True)
class Campaign:
    """chapters: whose grids are measured, all that the book has by default. repeats: how many processes a point, where fewer than the
    profile has it. seconds: on each computer."""

    profile: str = "quick"
    chapters: Collection[str] = ()
    seconds: float = 600.0
    repeats: int = MOST_REPEATS

    def checked(self) -> Campaign:
        """Itself. Raises Unavailable("bad-parameter") for a profile or a chapter that there is not."""
        grid.profile(self.profile)
        known = campaign.gridded()
        if unknown := sorted({*self.chapters} - {*known}):
            raise Unavailable("bad-parameter", f"'{unknown[0][:80]}' has no grid; there are {', '.join(known)}")
        return self

    def grids(self, host: Host) -> Grids:
        """The points for a computer, by chapter: those of `tlb book` there."""
        base = grid.profile(self.profile)
        largest = min(base.max_working_set, max(usable_bytes(host, kind) for kind in PAGES))
        engine = "c" if host.c_compiler else "numba"
        scope = Scope(base.model_copy(update={"max_working_set": largest}), engine, tuple(tlb_entries(host)), len(host.usable_cpus),
                      base_page_bytes=host.base_page_bytes)
        return campaign.grids_of(scope, [name for name in campaign.gridded() if not self.chapters or name in self.chapters])

    def rounds(self, grids: Grids) -> Iterator[tuple[str, int, int]]:
        """(kernel, processes of each point, and where its interval stays wide), in the order in which they are asked for."""
        repeats = min(self.repeats, grid.profile(self.profile).repeats)
        kernels = list(dict.fromkeys(point.kernel for points in grids.values() for point in points))
        for number in range(1, repeats + 1):
            for kernel in kernels:
                yield kernel, number, rounds.most(repeats) if number == repeats else number
