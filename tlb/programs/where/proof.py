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
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tlb.programs.levers import allocation_sites_lever
from tlb.programs.runs import run_program
from tlb.programs.trial import TrialAim, failure_with_lever
from tlb.programs.where import sampling
from tlb.programs.where.sampling import CodeSamples
from tlb.stats.effects import FEWEST_RATIO_PAIRS, paired_ratio
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable

KEPT = 0.95  # of the largest gain, that a smaller set has to bring
MOST_CANDIDATES = 4  # each takes a run in each round
MOST_ROUNDS = 25
# How often a proof may name a set, or a loss, where huge pages change nothing: divided among its
# comparisons (Bonferroni), since the best of many sets that change nothing looks like a gain.
WRONG = 0.05
AllocationSiteNames = tuple[str, ...]
NO_ALLOCATION_SITES: AllocationSiteNames = ()
ALL_ALLOCATION_SITES: AllocationSiteNames = ("all",)


class Timed(NamedTuple):
    """A run: its time, and where it spent it, empty without perf."""

    seconds: float
    samples: CodeSamples = CodeSamples()


@dataclass
class AllocationSitesProof:
    """rounds: runs by the sites that were advised, of each round. smallest: the set that was found,
    () if no set is known to gain. no_samples: why there are none, or "". left_out: candidates that
    there was no time to try. is_interrupted: by Ctrl-C."""

    rounds: list[dict[AllocationSiteNames, Timed]] = field(default_factory=list)
    smallest: AllocationSiteNames = NO_ALLOCATION_SITES
    no_samples: str = ""
    left_out: int = 0
    is_interrupted: bool = False

    @property
    def tried(self) -> list[AllocationSiteNames]:
        """The sets: none, all, then the smaller ones first."""
        made = {sites for each in self.rounds for sites in each}
        return sorted(
            made,
            key=lambda sites: (
                sites != NO_ALLOCATION_SITES,
                sites != ALL_ALLOCATION_SITES,
                len(sites),
                sites,
            ),
        )

    @property
    def confidence(self) -> float:
        """Of the interval of each comparison, so that all of them hold together."""
        return 1 - WRONG / max(len(self.tried) - 1, 1)

    def seconds(self, *settings: AllocationSiteNames) -> list[tuple[float, ...]]:
        """Return the times with each of these settings, of the rounds that have all of them."""
        whole = [each for each in self.rounds if all(sites in each for sites in settings)]
        return [tuple(each[sites].seconds for each in whole) for sites in settings]

    def samples(self) -> CodeSamples:
        """Return the samples of all runs together."""
        return sum(
            (timed.samples for each in self.rounds for timed in each.values()), CodeSamples()
        )

    def ratio(self, sites: AllocationSiteNames) -> Interval:
        """Return the time with these sites advised over that with none."""
        with_sites, without = self.seconds(sites, NO_ALLOCATION_SITES)
        return paired_ratio(with_sites, without, self.confidence)

    def gains(self, sites: AllocationSiteNames) -> bool:
        """Whether these sites are known to gain; False with too few rounds to know."""
        ratio = self.ratio(sites)
        return ratio.high < 1 and ratio.coverage >= self.confidence

    @property
    def is_decisive(self) -> bool:
        """Whether there are rounds enough to show a gain of all sites."""
        return self.ratio(ALL_ALLOCATION_SITES).coverage >= self.confidence

    def gain(self, sites: AllocationSiteNames) -> float:
        """Return the part of the time that these sites save, by medians."""
        none, some = map(median, self.seconds(NO_ALLOCATION_SITES, sites))
        return 1 - some / none

    def share(self, sites: AllocationSiteNames) -> float:
        """Return the part of the gain of all sites that these bring; 0 if all gain nothing."""
        every = self.gain(ALL_ALLOCATION_SITES)
        return self.gain(sites) / every if every > 0 else 0.0

    def enough(self) -> AllocationSiteNames:
        """Return the smallest set that is known to gain and keeps the largest gain; () if none is."""
        gaining = [
            sites for sites in self.tried if sites != NO_ALLOCATION_SITES and self.gains(sites)
        ]
        least = KEPT * max(map(self.gain, gaining), default=0.0)
        kept = [sites for sites in gaining if self.gain(sites) >= least]
        return min(
            kept,
            key=lambda sites: (sites == ALL_ALLOCATION_SITES, len(sites), -self.gain(sites)),
            default=(),
        )


def least_rounds(comparisons: int) -> int:
    """Return the rounds after which as many comparisons can show a gain: fewer than that go one way
    by chance too often."""
    return max(FEWEST_RATIO_PAIRS, 1 + ceil(log2(comparisons / WRONG)))


def prove(
    command: list[str],
    candidates: list[str],
    native_s: float,
    limit_s: float,
    tell: Callable[[AllocationSitesProof], None] = lambda proof: None,
    status: int = 0,
) -> AllocationSitesProof:
    """Time the program with none, all, and each candidate alone on huge pages, then with the best
    ones together until they keep the gain. Where perf is, each run is sampled.

    candidates: sites, the most promising first; as many are tried as there is time for, and
    MOST_CANDIDATES at most. native_s: of a run by itself; status: its exit code. No run goes on after
    limit_s of the monotonic clock, and Ctrl-C ends the proof: the rounds until then are kept. Raises
    Unavailable as `runs.run_program` does, and lever-failed."""
    begin = time.monotonic()
    number = _affordable(len(candidates), (limit_s - begin) / max(native_s, 1e-3))
    controls: list[AllocationSiteNames] = [NO_ALLOCATION_SITES, ALL_ALLOCATION_SITES]
    singles: list[AllocationSiteNames] = [(site,) for site in candidates[:number]]
    proof = AllocationSitesProof()
    proof.left_out = min(len(candidates), MOST_CANDIDATES) - number
    with sampling.scratch() as (file, proof.no_samples):
        timed = partial(_timed, command, file, limit_s, status)
        try:
            _measure(proof, timed, [*controls, *singles], (begin + limit_s) / 2, limit_s, tell)
            if nested := _together(proof, singles):
                _measure(proof, timed, [*controls, *nested], limit_s, limit_s, tell)
        except KeyboardInterrupt:
            proof.is_interrupted = True
    proof.smallest = proof.enough()
    return proof


def _affordable(candidates: int, runs: float) -> int:
    """Return how many candidates so many runs are enough for, beside none and all."""
    numbers = range(min(candidates, MOST_CANDIDATES), 0, -1)
    return next((n for n in numbers if (2 + n) * least_rounds(1 + n) <= runs), 0)


def _together(
    proof: AllocationSitesProof, singles: list[AllocationSiteNames]
) -> list[AllocationSiteNames]:
    """Return the sets to try next: the best candidates together, more and more of them; none if no
    set gains, or one alone keeps the gain."""
    gaining = [
        sites for sites in (ALL_ALLOCATION_SITES, *singles) if proof.rounds and proof.gains(sites)
    ]
    best = sorted((s for s in singles if proof.rounds and proof.gain(s) > 0), key=proof.gain)
    if not gaining or proof.enough() in singles:
        return []
    return [*accumulate(reversed(best))][1:]


def _measure(
    proof: AllocationSitesProof,
    timed: Callable[[AllocationSiteNames, int], Timed],
    settings: list[AllocationSiteNames],
    until_s: float,
    limit_s: float,
    tell: Callable[[AllocationSitesProof], None],
) -> None:
    """Time all settings in rounds: as many as can show a gain until limit_s, more until until_s,
    both of the monotonic clock. A round that is not finished then is dropped."""
    least = least_rounds(len({*proof.tried, *settings} - {NO_ALLOCATION_SITES}))
    shuffle, took_s = random.Random(len(settings)), 0.0
    for number in range(MOST_ROUNDS):
        begin = time.monotonic()
        if begin + took_s > (limit_s if number < least else until_s):
            return
        padding = shuffle.randrange(os.sysconf("SC_PAGESIZE"))
        order = shuffle.sample(settings, len(settings))
        try:
            proof.rounds.append({sites: timed(sites, padding) for sites in order})
        except Unavailable as why:
            if why.code != "no-time":
                raise
            return
        took_s = time.monotonic() - begin
        tell(proof)


def _timed(
    command: list[str],
    file: Path | None,
    limit_s: float,
    status: int,
    sites: AllocationSiteNames,
    padding_bytes: int,
) -> Timed:
    """Run the program with these sites on huge pages, and sample it into a file. limit_s: when it is
    ended; status: its exit code by itself. Raises Unavailable: no-time, and lever-failed
    because the program ran before without the library that advises."""
    words = [*sampling.recording(file), *command] if file else command
    chosen, left_s = allocation_sites_lever(sites), max(limit_s - time.monotonic(), 0.0)
    done = run_program(words, chosen, limit_s=left_s, share=0.01, padding_bytes=padding_bytes)
    aim = TrialAim(command, chosen, ignore_failure=done.status == status)
    try:
        elapsed_s = aim.checked(done).elapsed_s
    except Unavailable as why:
        raise failure_with_lever(chosen, why) from None
    seconds, samples = sampling.read(file) if file else (0.0, CodeSamples())
    return Timed(seconds or elapsed_s, samples)
