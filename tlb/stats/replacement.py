"""What a TLB replaces: the misses of each of six policies on a sequence, compared with measured
ones.

Uniform draws say nothing of the policy, since any holds C of M pages: they give the price of a
miss. With it two kinds of sequence decide. A cycle longer than the TLB is all misses under LRU,
tree-PLRU, NRU and FIFO, 1 - exp(-x M/C) under random replacement, and less under SRRIP. Draws of
which half go to a few hot pages miss less if a policy knows what was used: more under FIFO and
random replacement than under the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import hypot
from typing import NamedTuple

import numpy as np

from tlb.stats.intervals import Interval

POLICIES = ("lru", "tree-plru", "nru", "srrip", "random", "fifo")
WORDS = {
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


def fitting(policies: Sequence[Policy]) -> list[Policy]:
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
    # its loop is in numba, 60 MB that whoever measures has no use for
    from tlb.stats.simulator import hashed, missed

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


def judge(
    measured: Mapping[Visits, Interval],
    entries: tuple[int, int],
    ways: int,
    policies: Sequence[str] = POLICIES,
) -> list[Policy]:
    """Each policy that such a TLB can have, the best supported first. measured: the share of misses
    of each sequence."""
    found = []
    for policy in policies:
        shares = [share_missed(policy, entries, ways, sequence) for sequence in measured]
        if None in shares:
            continue
        errors = [hypot((share.high - share.low) / 4, WALKS) for share in measured.values()]
        away = [
            abs(share.value - said) / error
            for share, said, error in zip(measured.values(), shares, errors, strict=True)
        ]
        found.append(Policy(policy, tuple(shares), max(away), -sum(one**2 for one in away) / 2))
    return sorted(found, key=lambda policy: -policy.support)
