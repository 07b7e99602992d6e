"""Find by experiment the smallest set of allocations that keeps the gain of huge pages: rounds of
runs, in which every setting has its turn in a random order."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tlb.inference.intervals import Interval
from tlb.inference.pairs import LEAST_PAIRS, paired_ratio
from tlb.programs import sampling
from tlb.programs.levers import sites_lever
from tlb.programs.runs import run
from tlb.programs.sampling import Samples
from tlb.programs.trial import Aim

KEPT = 0.95  # of the gain of all allocations, that a smaller set has to bring
MOST_CANDIDATES = 4  # each takes a run in each round
MOST_ROUNDS = 25
NONE, ALL = (), ("all",)
Sites = tuple[str, ...]


class Timed(NamedTuple):
    """A run: its time, and where it spent it, empty without perf."""

    seconds: float
    samples: Samples = Samples()


@dataclass
class Proof:
    """rounds: runs by the sites that were advised, of each round. smallest: the set that was found,
    () if huge pages gain nothing that shows. no_samples: why there are none, or ""."""

    rounds: list[dict[Sites, Timed]] = field(default_factory=list)
    smallest: Sites = NONE
    no_samples: str = ""

    @property
    def tried(self) -> list[Sites]:
        """The sets: none, all, then the smaller ones first."""
        made = {sites for each in self.rounds for sites in each}
        return sorted(made, key=lambda sites: (sites != NONE, sites != ALL, len(sites), sites))

    def seconds(self, *settings: Sites) -> list[tuple[float, ...]]:
        """Return the times with each of these settings, of the rounds that have all of them."""
        whole = [each for each in self.rounds if all(sites in each for sites in settings)]
        return [tuple(each[sites].seconds for each in whole) for sites in settings]

    def samples(self) -> Samples:
        """Return the samples of all runs together."""
        return sum((timed.samples for each in self.rounds for timed in each.values()), Samples())

    def ratio(self, sites: Sites) -> Interval:
        """Return the time with these sites advised over that with none."""
        return paired_ratio(*self.seconds(sites, NONE))

    def share(self, sites: Sites) -> float:
        """Return the part of the gain of all sites that these bring, by medians."""
        none, every, some = map(median, self.seconds(NONE, ALL, sites))
        return (none - some) / (none - every) if none > every else 0.0


def prove(
    command: list[str],
    candidates: list[str],
    minutes: float,
    tell: Callable[[Proof], None] = lambda proof: None,
) -> Proof:
    """Time the program with none, all, and each candidate alone on huge pages, then with the best
    ones together until they keep the gain. Where perf is, each run is sampled.

    candidates: sites, the most promising first; MOST_CANDIDATES are tried. Half of the minutes are
    for each of the two steps. Raises Unavailable as `runs.run` does, and program-failed."""
    proof, begin = Proof(), time.monotonic()
    singles = [(site,) for site in candidates[:MOST_CANDIDATES]]
    with sampling.scratch() as (file, proof.no_samples):
        timed = partial(_timed, command, file)
        _measure(proof, timed, [NONE, ALL, *singles], begin + 30 * minutes, tell)
        best = sorted(singles, key=lambda sites: median(*proof.seconds(sites)))
        nested = [*accumulate(best)]
        if not any(proof.ratio(sites).high < 1 for sites in (ALL, *singles)):
            return proof
        if nested and proof.share(nested[0]) < KEPT:
            _measure(proof, timed, [NONE, ALL, *nested[1:]], begin + 60 * minutes, tell)
    enough = (sites for sites in nested if proof.share(sites) >= KEPT)
    proof.smallest = next(enough, ALL)
    return proof


def _measure(
    proof: Proof,
    timed: Callable[[Sites, int], Timed],
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
        order = shuffle.sample(settings, len(settings))
        proof.rounds.append({sites: timed(sites, padding) for sites in order})
        took_s = time.monotonic() - begin
        tell(proof)


def _timed(command: list[str], file: Path | None, sites: Sites, padding_bytes: int) -> Timed:
    """Run the program with these sites on huge pages, and sample it into a file. Raises
    Unavailable."""
    words = [*sampling.recording(file), *command] if file else command
    chosen = sites_lever(sites)
    done = run(words, chosen, limit_s=600, share=0.01, padding_bytes=padding_bytes)
    elapsed_s = Aim(command, chosen).checked(done).elapsed_s
    seconds, samples = sampling.read(file) if file else (0.0, Samples())
    return Timed(seconds or elapsed_s, samples)
