"""Models of the walk: what a TLB replaces, and the caches of upper page-table entries.

A TLB's policy follows from the misses of each of six policies on a sequence, compared with measured
ones.

Uniform draws say nothing of the policy, since any holds C of M pages: they give the price of a
miss. With it two kinds of sequence decide. A cycle longer than the TLB is all misses under LRU,
tree-PLRU, NRU and FIFO, 1 - exp(-x M/C) under random replacement, and less under SRRIP. Draws of
which half go to a few hot pages miss less if a policy knows what was used: more under FIFO and
random replacement than under the others.

The caches of upper entries follow from the cost of a TLB miss as walks use more tables. Pages are
drawn at random from T tables of a level. A cache of C of the entries that lead to those tables holds
any of them with probability C/T, and each walk that misses it reads an entry more. So along T the
price of a miss is flat, and from C on rises as 1 - C/T: the fit of random draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import hypot
from typing import NamedTuple

import numpy as np

from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval
from tlb.stats.misses import fit_random_curve, miss_probability_random
from tlb.system.reasons import Unavailable

POLICIES = ("lru", "tree-plru", "nru", "srrip", "random", "fifo")
POLICY_NAMES = {
    "lru": "LRU",
    "tree-plru": "tree-PLRU",
    "nru": "NRU",
    "srrip": "SRRIP",
    "random": "random replacement",
    "fifo": "FIFO",
}
# of a share of misses: as far as walks of one sequence may be dearer than of another, and a
# simulation off
WALKS = 0.015
ODDS = 3.0  # of the logarithm of a likelihood: twenty to one
FITS = 3.0  # errors that the worst sequence of a policy that fits is away, at most
SEED = 0x2_0000_0001  # of random replacement
VISITS = 120_000  # simulated of each sequence, half of them to warm: a share of misses within 0.3 %


class Visits(NamedTuple):
    """Visits of so many pages: a cycle (hot 0), or draws of which half go to the `hot` first
    ones."""

    pages: int
    hot: int


class Policy(NamedTuple):
    """A policy and its fit. misses: share of each sequence; away: distance of the worst sequence,
    in errors; support: log likelihood, 0 for a perfect fit."""

    name: str
    misses: tuple[float, ...]
    away: float
    support: float


def fitting_policies(policies: Sequence[Policy]) -> list[Policy]:
    """Return the policies whose every sequence is near and that are not much worse than the
    best."""
    return [
        policy
        for policy in policies
        if policy.away <= FITS and policy.support >= policies[0].support - ODDS
    ]


@cache
def share_missed(
    policy: str, entries: tuple[int, int], ways: int, sequence: Visits
) -> float | None:
    """The share of a sequence's visits that miss the last of two levels; None where no TLB of so
    many ways can have the policy.

    entries: of both levels, (0, n) for the first alone. The level before it is LRU, in one set;
    pages are in sets as if drawn."""
    # compiled by numba, which measuring does without
    from experiments.walk_anatomy.tlb_simulator import hashed, missed

    first, last = entries
    ways = ways or last
    if last % ways or (policy == "tree-plru" and ways.bit_count() > 1):
        return None
    draw = np.random.default_rng(1)
    if sequence.hot:
        among = np.where(draw.integers(0, 2, VISITS) == 1, sequence.hot, sequence.pages)
        stream = (draw.random(VISITS) * among).astype(np.int64)
    else:
        stream = np.resize(draw.permutation(sequence.pages), max(VISITS, 4 * sequence.pages))
    walks = missed(stream, first) if first else np.full(len(stream), True)
    reached = walks.copy()
    walks[reached] = missed(stream[reached], last, ways, policy, hashed, SEED)
    return float(walks[len(stream) // 2 :].mean())


def rank_policies(
    measured: Mapping[Visits, Interval],
    entries: tuple[int, int],
    ways: int,
    policies: Sequence[str] = POLICIES,
) -> list[Policy]:
    """Each policy that such a TLB can have, the best supported first. measured: the share of misses
    of each sequence."""
    found = []
    for policy in policies:
        simulated = [share_missed(policy, entries, ways, sequence) for sequence in measured]
        shares = [share for share in simulated if share is not None]
        if len(shares) < len(simulated):
            continue
        errors = [hypot((share.high - share.low) / 4, WALKS) for share in measured.values()]
        away = [
            abs(share.value - said) / error
            for share, said, error in zip(measured.values(), shares, errors, strict=True)
        ]
        found.append(Policy(policy, tuple(shares), max(away), -sum(one**2 for one in away) / 2))
    return sorted(found, key=lambda policy: -policy.support)


# --- caches of upper entries

# Of the price before it: what a level adds at the end of a sweep, at the least, to be more than a
# slope. Reading a line of the first cache, the least that a walk can do more, is four cycles on the
# thirty of a walk that reads one.
LEAST_RISE = 1.08
# entries of a level that no sweep begins below: its price is what all of the sweep pays
_ALWAYS_MISSED = 1e-9


class WalkCache(NamedTuple):
    """A cache of the entries that lead to the tables of one level."""

    level: int  # of those tables, 1 the lowest
    entries: Interval
    # that a walk takes longer where this fails: to read that entry, and those above it that nothing
    # keeps
    ns: Interval

    def missed(self, tables: float) -> float:
        """The share of walks through so many tables that it fails."""
        return float(miss_probability_random(np.array([max(tables, 1.0)]), self.entries.value)[0])


def rises(sweep: Curve) -> bool:
    """Return whether the end of the sweep lies above the beginning by more than LEAST_RISE."""
    return len(sweep) > 1 and (sweep.intervals[-1] / sweep.intervals[0]).low > LEAST_RISE


def find_walk_cache(
    level: int, sweep: Curve, below: Sequence[WalkCache] = (), tables: Sequence[float] = ()
) -> WalkCache:
    """Return the cache that a sweep of the price over the tables of a level shows.

    below: the caches of the levels below, and tables: how many tables of each the sweep has; only
    walks that those fail read further. Raises Unavailable: no-step if the price does not rise,
    too-few-points below five numbers of tables.
    """
    if not rises(sweep):
        raise Unavailable("no-step", f"level {level}, up to {max(sweep.xs, default=0):,.0f} tables")
    reach = float(np.prod([cache.missed(n) for cache, n in zip(below, tables, strict=True)]))
    fit = fit_random_curve(sweep.xs, sweep.table["median"], l1_entries=_ALWAYS_MISSED)
    return WalkCache(level, fit.l2_entries, fit.walk_ns * (1 / reach) if reach > 0 else fit.walk_ns)


def predicted_miss_ns(
    first_ns: float, caches: Sequence[WalkCache], tables: dict[int, float]
) -> float:
    """Return what a miss costs with so many tables of each level: first_ns, and the price of each
    level that is failed, if the ones below it were failed too."""
    total, reach = first_ns, 1.0
    for one in sorted(caches, key=lambda one: one.level):
        reach *= one.missed(tables[one.level])
        total += reach * one.ns.value
    return total
