"""Which visits of pages miss a TLB, simulated: one level, by what it replaces.

A level that another one precedes sees the visits that miss there. Counts only: no time, no
speculative or prefetched access.

All compiled code is in this file: numba compiles a file anew when it changed, and would not see a
change in another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

Way = int | np.signedinteger  # numba has int64 for both
REPLACEMENTS = ("lru", "tree-plru", "random", "fifo", "nru", "srrip")
LRU, TREE_PLRU, RANDOM, FIFO, NRU, SRRIP = range(6)
_DISTANT, _LONG = 3, 2  # SRRIP's intervals: of what is replaced, and of what is inserted
_EMPTY = -1  # no page has this number
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def missed(
    pages: ArrayLike,
    entries: int,
    ways: int = 0,
    replacement: str = "lru",
    place: Callable[[np.ndarray, int], np.ndarray] = np.remainder,
    seed: int = 1,
) -> np.ndarray:
    """Return which of the visits miss a TLB that is empty before the first.

    pages: the number of each visit's page. ways: of a set, a divisor of the entries; 0: all are one
    set. place: the set of each page, from their numbers and how many sets there are. seed: of
    random replacement. Empty entries are filled first.

    replacement: "lru"; "tree-plru", a binary tree of ways whose nodes point away from the last use
    (ways a power of two); "nru", a mark a way, all but the last taken off when all have one;
    "srrip", two bits a way that predict how long it will not be used; "random", splitmix64; or
    "fifo".
    """
    numbers, ways = np.asarray(pages, dtype=np.int64), ways or entries
    slots, draws = place(numbers, entries // ways) * ways, np.array([seed], dtype=np.uint64)
    return _missed(numbers, slots, entries, ways, REPLACEMENTS.index(replacement), draws)


def hashed(pages: np.ndarray, sets: int) -> np.ndarray:
    """Return a set for each page, as if drawn."""
    return (_mixed(pages.astype(np.uint64) + _GAMMA) % np.uint64(sets)).astype(np.int64)


@njit(cache=True)
def _missed(
    pages: np.ndarray,
    slots: np.ndarray,
    entries: int,
    ways: int,
    replacement: int,
    draws: np.ndarray,
) -> np.ndarray:
    """Return which visits miss. slots: the first entry of each page's set. draws: the state of
    splitmix64.

    LRU and FIFO keep a set's pages in order, the newest first. words: NRU: 1 if the entry was used;
    SRRIP: its interval; tree-PLRU: node n of a set's tree, 1 if it points upward.
    """
    held, words = np.full(entries, _EMPTY), np.zeros(entries, dtype=np.int64)
    misses = np.zeros(pages.size, dtype=np.bool_)
    for i, page in enumerate(pages):
        of_set = slice(slots[i], slots[i] + ways)
        misses[i] = not _touch(held[of_set], words[of_set], page, replacement, draws)
    return misses


@njit(cache=True)
def _touch(
    held: np.ndarray, words: np.ndarray, page: int, replacement: int, draws: np.ndarray
) -> bool | np.bool_:
    """Return whether a set held a page; it holds it now."""
    ways, way = held.size, _way_of(held, page)
    hit = way < ways
    if replacement in (LRU, FIFO):
        if replacement == LRU or not hit:
            for older in range(min(way, ways - 1), 0, -1):
                held[older] = held[older - 1]
            held[0] = page
        return hit
    if not hit:
        way = _way_of(held, _EMPTY)
        if way == ways:
            way = _victim(replacement, words, draws)
        held[way] = page
    _use(replacement, words, way, hit)
    return hit


@njit(cache=True)
def _way_of(held: np.ndarray, page: int) -> Way:
    """Return the first way that holds a page; the number of ways if none does."""
    way = 0
    while way < held.size and held[way] != page:
        way += 1
    return way


@njit(cache=True)
def _mixed(z: np.ndarray) -> np.ndarray:
    """Return the output function of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _victim(replacement: int, words: np.ndarray, draws: np.ndarray) -> Way:
    """Return the way of a full set that a missing page takes."""
    if replacement == RANDOM:
        draws[0] += _GAMMA
        return np.int64(
            (_mixed(draws[0]) >> np.uint64(32)) * np.uint64(words.size) >> np.uint64(32)
        )
    if replacement == TREE_PLRU:
        node = 1
        while node < words.size:
            node = 2 * node + words[node]
        return node - words.size
    if replacement == SRRIP:
        words += _DISTANT - words.max()
        return words.argmax()
    return words.argmin()  # NRU: the first without a mark


@njit(cache=True)
def _use(replacement: int, words: np.ndarray, way: Way, hit: bool | np.bool_) -> None:
    """Remember that an entry was used, or filled."""
    if replacement == TREE_PLRU:  # each node above the way points at its other half
        node = way + words.size
        while node > 1:
            words[node // 2] = 1 - node % 2
            node //= 2
    elif replacement == NRU:  # where all would be marked, the other marks go (SPARC T1)
        words[way] = 1
        if words.min() == 1:
            words[:] = 0
            words[way] = 1
    elif replacement == SRRIP:  # Jaleel et al., ISCA 2010: after a hit the next use comes soon
        words[way] = 0 if hit else _LONG
