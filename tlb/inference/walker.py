"""The simulator's loop, in numba: caches of translations, and the walks that their misses begin.

All compiled code is in this file: numba compiles a file anew when it changed, and would not see a
change in another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

LRU, TREE_PLRU, RANDOM, FIFO, NRU, SRRIP = range(6)
MODULO, XOR, HASHED = range(3)
INDEX_BITS = 9  # of a table: 512 entries of 8 bytes fill 4 KiB
_DISTANT, _LONG = 3, 2  # SRRIP's intervals: of what is replaced, and of what is inserted
EMPTY = -1  # no page has this number
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Caches(NamedTuple):
    """All caches of a machine, a row each; row 0 stands for no cache. Slot set * ways + way of a
    row is an entry.

    shapes: sets, ways and two of the codes above, of replacement and placement. pages: the page in
    each slot, or EMPTY; LRU and FIFO keep a set's pages in order, the newest first. words: NRU: 1
    if the entry was used; SRRIP: its interval; tree-PLRU: node n of a set's tree, 1 if it points
    upward. draws: uint64, the state of each cache's splitmix64.
    """

    shapes: np.ndarray
    pages: np.ndarray
    words: np.ndarray
    draws: np.ndarray


class Plan(NamedTuple):
    """Where a machine has its caches: element n of an array is the cache of level n, 0 for none;
    level 1 is the lowest.

    span: level of the tables whose entries map as much as a TLB entry spans. leaf: of those that
    map the guest's pages, or the only ones. host_leaf: and the host's; 0 in one dimension.
    """

    span: int
    leaf: int
    host_leaf: int
    levels: int
    tlbs: np.ndarray
    walk_caches: np.ndarray
    nested: np.ndarray


@njit(cache=True)
def run(
    numbers: np.ndarray, warm: int, plan: Plan, caches: Caches, starts: np.ndarray
) -> tuple[int, int, int]:
    """Return L1 misses, walks and walks of the host's tables from access `warm` on; add to
    starts[n] how many walks began at level n.

    numbers: int64, of the page of each access, of the size that a TLB entry spans.
    """
    l1_misses = walks = host_walks = 0
    for i, number in enumerate(numbers):
        counted = 1 if i >= warm else 0
        if _touch(caches, plan.tlbs[1], number):
            continue
        l1_misses += counted
        if _touch(caches, plan.tlbs[2], number):
            continue
        walks += counted
        start = plan.leaf
        while start < plan.levels and not _touch(
            caches, plan.walk_caches[start + 1], number >> INDEX_BITS * (start + 1 - plan.span)
        ):
            start += 1
        starts[start] += counted
        if plan.host_leaf:
            for table in range(start, plan.leaf - 2, -1):
                level = table if table >= plan.leaf else 0  # at last the data
                if not _touch(
                    caches,
                    plan.nested[level],
                    number >> INDEX_BITS * (level + plan.host_leaf - plan.span),
                ):
                    host_walks += counted
    return l1_misses, walks, host_walks


@njit(cache=True)
def _touch(caches: Caches, cache: int, page: int) -> bool:
    """Return whether a cache held a page; it holds it now. Cache 0 holds none."""
    if not cache:
        return False
    sets, ways, replacement, placement = caches.shapes[cache]
    first = _set_of(page, placement, sets) * ways
    held = caches.pages[cache, first : first + ways]
    words = caches.words[cache, first : first + ways]
    way = _way_of(held, page)
    hit = way < ways
    if replacement in (LRU, FIFO):
        if replacement == LRU or not hit:
            for older in range(min(way, ways - 1), 0, -1):
                held[older] = held[older - 1]
            held[0] = page
        return hit
    if not hit:
        way = _way_of(held, EMPTY)
        if way == ways:
            way = _victim(replacement, words, caches.draws, cache)
        held[way] = page
    _use(replacement, words, way, hit)
    return hit


@njit(cache=True)
def _way_of(held: np.ndarray, page: int) -> int:
    """Return the first way that holds a page; the number of ways if none does."""
    way = 0
    while way < held.size and held[way] != page:
        way += 1
    return way


@njit(cache=True)
def _set_of(page: int, placement: int, sets: int) -> int:
    if placement == HASHED:
        return np.int64(_mixed(np.uint64(page) + _GAMMA) % np.uint64(sets))
    return (page ^ page // sets if placement == XOR else page) % sets


@njit(cache=True)
def _mixed(z: int) -> int:
    """The output function of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _victim(replacement: int, words: np.ndarray, draws: np.ndarray, cache: int) -> int:
    """Return the way of a full set that a missing page takes."""
    if replacement == RANDOM:
        draws[cache] += _GAMMA
        return np.int64(
            (_mixed(draws[cache]) >> np.uint64(32)) * np.uint64(words.size) >> np.uint64(32)
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
def _use(replacement: int, words: np.ndarray, way: int, hit: bool) -> None:
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
