"""Find by experiment the smallest set of allocations that keeps the gain of huge pages: rounds of
runs, in which every setting has its turn in a random order."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median

from tlb.inference.intervals import Interval
from tlb.inference.pairs import LEAST_PAIRS, paired_ratio
from tlb.programs.levers import GROWTH, Lever, Variable
from tlb.programs.runs import Run, run
from tlb.programs.where.simulation import LEAST_BYTES, SITES
from tlb.reasons import Unavailable

KEPT = 0.95  # of the gain of all allocations, that a smaller set has to bring
MOST_CANDIDATES = 4  # each takes a run in each round
MOST_ROUNDS = 25
NONE, ALL = (), ("all",)
Sites = tuple[str, ...]


def lever(sites: Iterable[str]) -> Lever:
    """Return a lever that puts the allocations of these sites on huge pages, and no others. Heaps
    grow in the steps that a huge page needs, whatever is chosen."""
    chosen = ",".join(sites)
    return Lever(
        "sites",
        f"huge pages requested for {chosen or 'no allocation'}",
        variables=(
            Variable("GLIBC_TUNABLES", GROWTH, ":"),
            Variable("TLB_ONLY", chosen),
            Variable("TLB_LEAST", str(LEAST_BYTES)),
            Variable("NUMPY_MADVISE_HUGEPAGE", "0"),  # else NumPy advises its arrays itself
        ),
        preload=SITES,
    )


@dataclass
class Proof:
    """rounds: seconds of a run by the sites that were advised, of each round. smallest: the set
    that was found, () if huge pages gain nothing that shows."""

    rounds: list[dict[Sites, float]] = field(default_factory=list)
    smallest: Sites = NONE

    @property
    def tried(self) -> list[Sites]:
        """The sets in the order in which they were first tried."""
        return list(dict.fromkeys(sites for each in self.rounds for sites in each))

    def seconds(self, *settings: Sites) -> list[tuple[float, ...]]:
        """Return the times with these settings, of each round that has all of them."""
        whole = [each for each in self.rounds if all(sites in each for sites in settings)]
        return [tuple(each[sites] for sites in settings) for each in whole]

    def ratio(self, sites: Sites) -> Interval:
        """Return the time with these sites advised over that with none."""
        some, none = zip(*self.seconds(sites, NONE), strict=True)
        return paired_ratio(some, none)

    def share(self, sites: Sites) -> float:
        """Return the part of the gain of all sites that these bring, by medians."""
        none, every, some = map(median, zip(*self.seconds(NONE, ALL, sites), strict=True))
        return (none - some) / (none - every) if none > every else 0.0


def prove(
    command: list[str],
    candidates: list[str],
    minutes: float,
    tell: Callable[[Proof], None] = lambda proof: None,
) -> Proof:
    """Time the program with none, all, and each candidate alone on huge pages, then with the best
    ones together until they keep the gain.

    candidates: sites, by the walks that they expose; the first MOST_CANDIDATES are tried. Half of
    the minutes are for each of the two steps. Raises Unavailable as `runs.run` does, and
    program-failed."""
    proof, begin = Proof(), time.monotonic()
    singles = [(site,) for site in candidates[:MOST_CANDIDATES]]
    _measure(proof, command, [NONE, ALL, *singles], begin + 30 * minutes, tell)
    best = sorted(singles, key=lambda sites: median(proof.seconds(sites)))
    nested = [*accumulate(best)]
    if not any(proof.ratio(sites).high < 1 for sites in (ALL, *singles)):
        return proof
    if nested and proof.share(nested[0]) < KEPT:
        _measure(proof, command, [NONE, ALL, *nested[1:]], begin + 60 * minutes, tell)
    enough = (sites for sites in nested if proof.share(sites) >= KEPT)
    proof.smallest = next(enough, ALL)
    return proof


def _measure(
    proof: Proof,
    command: list[str],
    settings: list[Sites],
    until: float,
    tell: Callable[[Proof], None],
) -> None:
    """Time all settings in rounds: six at least, until the time is over."""
    shuffle, took_s = random.Random(len(settings)), 0.0
    for number in range(MOST_ROUNDS):
        begin = time.monotonic()
        if number >= LEAST_PAIRS and begin + took_s > until:
            return
        padding = shuffle.randrange(os.sysconf("SC_PAGESIZE"))
        how = {"limit_s": 600.0, "share": 0.01, "padding_bytes": padding}
        order = shuffle.sample(settings, len(settings))
        proof.rounds.append({sites: _seconds(run(command, lever(sites), **how)) for sites in order})
        took_s = time.monotonic() - begin
        tell(proof)


def _seconds(done: Run) -> float:
    if done.status:
        why = Unavailable("program-failed", f"exit code {done.status}")
        why.add_note(done.last_lines)
        raise why
    return done.elapsed_s
