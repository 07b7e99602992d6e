"""Address translation, simulated: TLB misses, page walks and loads of page-table entries that a
stream of accesses makes.

The tables are those of x86-64, 512 entries each, in four or five levels, walked in one dimension
or, with a `SimulatedHost`, in two. Counts only: no time, no speculative or prefetched access, one
stream on one page size.

- A level of TLB is looked up when the one before misses; a miss fills both. No level takes the
  other's victims.
- A walk starts below the lowest page-walk cache that holds its upper entry, and fills those below
  that (Barr et al., 2010: a paging-structure cache with a structure for each level). The root is
  always known.
- In two dimensions each guest table's address, and at last the data's, is translated by a walk of
  the host's tables, unless a nested TLB holds it (Bhargava et al., 2008). Guest-physical memory is
  taken as contiguous: the data in the order of its virtual addresses, and likewise the tables of
  each level.
- A TLB entry spans the smaller of the guest's and the host's page.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tlb.inference import walker
from tlb.inference.walker import EMPTY, INDEX_BITS, Caches, Plan
from tlb.page_sizes import HARDWARE

LEAF_LEVELS = {page: level for level, page in enumerate(HARDWARE, 1)}  # 1 is the lowest table
REPLACEMENTS = {
    "lru": walker.LRU,
    "tree-plru": walker.TREE_PLRU,
    "nru": walker.NRU,
    "srrip": walker.SRRIP,
    "random": walker.RANDOM,
    "fifo": walker.FIFO,
}
PLACEMENTS = {"modulo": walker.MODULO, "xor": walker.XOR, "hashed": walker.HASHED}
OFFSET_BITS = 12  # of a 4 KiB page


@dataclass(frozen=True, kw_only=True)
class SimulatedCache:
    """`entries` translations in sets of `ways` (0: one set, fully associative).

    replacement: "lru"; "tree-plru", a binary tree of ways whose nodes point away from the last use
    (ways a power of two); "nru", a mark a way, all but the last taken off when all have one;
    "srrip", two bits a way that predict how long it will not be used; "random", splitmix64; or
    "fifo". Empty entries are filled first.

    placement: what chooses the set of a page number n. "modulo": n mod sets; "xor": the same of n
    xor n / sets, sets a power of two, as in Intel's STLBs (Tatar et al., TLB;DR, USENIX Security
    2022); "hashed": any set, as if drawn at random.

    Raises ValueError for a cache that cannot be built.
    """

    entries: int
    ways: int = 0
    replacement: str = "lru"
    placement: str = "modulo"

    def __post_init__(self) -> None:
        divides = self.entries >= 1 <= self.ways + 1 and self.entries % self._ways == 0
        _require(divides, f"{self.entries} entries do not make sets of {self.ways}.")
        for name, known in ((self.replacement, REPLACEMENTS), (self.placement, PLACEMENTS)):
            _require(name in known, f"{name!r} is none of {', '.join(known)}.")
        if self.replacement == "tree-plru":
            _require_power_of_two(self._ways, "tree-plru: the number of ways")
        if self.placement == "xor":
            _require_power_of_two(self.sets, "placement by xor: the number of sets")

    @property
    def _ways(self) -> int:
        return self.ways or self.entries

    @property
    def sets(self) -> int:
        return self.entries // self._ways


@dataclass(frozen=True, kw_only=True)
class SimulatedTlb(SimulatedCache):
    """A data TLB, or the part of one that holds translations of `pages`; level 1 or 2."""

    level: int
    pages: tuple[str, ...] = ("4k",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.level in (1, 2), f"a TLB's level is 1 or 2, not {self.level}.")
        for page in self.pages:
            _leaf(page)


@dataclass(frozen=True, kw_only=True)
class WalkCache(SimulatedCache):
    """A cache of page-table entries of one level that point to a table: 2 (to a page table), 3, 4,
    and 5 under five levels."""

    level: int


@dataclass(frozen=True, kw_only=True)
class NestedTlb(SimulatedCache):
    """A cache of guest-physical to host-physical translations: of the guest's tables of one level,
    or of its data (0)."""

    level: int


@dataclass(frozen=True)
class SimulatedHost:
    """The second dimension: levels and page size of the host's tables, and caches of their
    walks."""

    levels: int = 4
    page: str = "4k"
    nested: tuple[NestedTlb, ...] = ()

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        _leaf(self.page)


@dataclass(frozen=True)
class SimulatedMachine:
    """What translates. A level without a TLB for a page size misses each access; a walk without a
    cache starts at the root.

    Raises ValueError for two caches of one place, or of a level that the tables do not have.
    """

    tlbs: tuple[SimulatedTlb, ...] = ()
    walk_caches: tuple[WalkCache, ...] = ()
    levels: int = 4
    host: SimulatedHost | None = None

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        _check_places([(tlb.level, page) for tlb in self.tlbs for page in tlb.pages], "TLBs")
        nested = self.host.nested if self.host else ()
        for caches, lowest in ((self.walk_caches, 2), (nested, 0)):
            levels = [cache.level for cache in caches]
            for level in levels:
                inside = lowest <= level <= self.levels
                _require(inside, f"{level} is no level from {lowest} to {self.levels}.")
            _check_places(levels, "walk caches or nested TLBs")


class Counts(NamedTuple):
    """What a stream of accesses cost, in events; levels count from 1, the lowest table.

    walks: accesses that both levels of TLB missed. A reference is one load of an 8-byte page-table
    entry by the walker, from whichever cache. references_by_level: to the process's tables, in two
    dimensions the guest's. host_references_by_level: empty in one dimension.
    """

    accesses: int
    l1_misses: int
    walks: int
    references_by_level: tuple[int, ...]
    host_references_by_level: tuple[int, ...]

    @property
    def references(self) -> int:
        """All loads of page-table entries."""
        return sum(self.references_by_level) + sum(self.host_references_by_level)


def references_per_walk(
    page: str, host_page: str | None = None, levels: int = 4, host_levels: int = 4
) -> int:
    """Return the loads of page-table entries in a walk that no cache shortens.

    page: the guest's if there is a host. One dimension: g, the levels down to the one that maps the
    page: 4, 3 and 2 for 4k, 2m and 1g under four levels. Two: (g + 1)(h + 1) - 1, as each of the g
    entries and the data take h loads to find, and the g are loaded too: 24 for 4k on 4k, four
    levels on four (Bhargava et al., 2008), and 35 for five on five.
    """
    _check_levels(levels)
    _check_levels(host_levels)
    g = levels - _leaf(page) + 1
    return g if host_page is None else (g + 1) * (host_levels - _leaf(host_page) + 2) - 1


def _pages(
    machine: SimulatedMachine, addresses: ArrayLike, unit_bytes: int, page_bits: int
) -> np.ndarray:
    """Return the number of each address's page of 2^page_bits bytes."""
    stream = np.asarray(addresses).ravel()
    is_whole = not stream.size or stream.dtype.kind in "iu"
    _require(is_whole, f"addresses are whole numbers, not {stream.dtype}: convert them first.")
    _require_power_of_two(unit_bytes, "unit_bytes")
    low, high = (int(stream.min()), int(stream.max())) if stream.size else (0, 0)
    bits = OFFSET_BITS + INDEX_BITS * machine.levels
    _require(
        low >= 0 and not high * unit_bytes >> bits,
        f"{machine.levels} levels of tables translate addresses from 0 to 2^{bits} - 1, not {low} "
        f"to {high} in units of {unit_bytes}: take addresses of user space, or five levels.",
    )
    return stream.astype(np.int64) * unit_bytes >> page_bits


def simulate(
    machine: SimulatedMachine,
    addresses: ArrayLike,
    page: str = "4k",
    *,
    unit_bytes: int = 1,
    warm: int = 0,
    seed: int = 1,
) -> Counts:
    """Return the counts of a stream of loads from mapped memory on pages of one size.

    addresses: whole numbers, one an access, in units of `unit_bytes`, a power of two: virtual
    addresses, or with 4096 the numbers of 4 KiB pages. page: the guest's, in a guest. The first
    `warm` accesses are not counted. seed: of random replacement. Raises ValueError.
    """
    leaf, host_leaf = _leaf(page), _leaf(machine.host.page) if machine.host else 0
    span = min(leaf, host_leaf or leaf)  # what an entry of the TLB covers
    pages = _pages(machine, addresses, unit_bytes, OFFSET_BITS + INDEX_BITS * (span - 1))
    _require(0 <= warm <= pages.size, f"warm is from 0 to the {pages.size} accesses, not {warm}.")
    shapes = [(1, 1, walker.LRU, walker.MODULO)]  # row 0 stands for no cache

    def numbered(caches: Iterable[SimulatedTlb | WalkCache | NestedTlb]) -> np.ndarray:
        # the number of the cache of each level, from 1; 0 if there is none
        numbers = np.zeros(machine.levels + 1, dtype=np.int64)
        for cache in caches:
            numbers[cache.level] = len(shapes)
            policies = REPLACEMENTS[cache.replacement], PLACEMENTS[cache.placement]
            shapes.append((cache.sets, cache.entries // cache.sets, *policies))
        return numbers

    nested = machine.host.nested if machine.host else ()
    caches = (
        numbered(tlb for tlb in machine.tlbs if span in map(_leaf, tlb.pages)),
        numbered(cache for cache in machine.walk_caches if cache.level > leaf),
        numbered(cache for cache in nested if cache.level == 0 or cache.level >= leaf),
    )
    plan = Plan(span, leaf, host_leaf, machine.levels, *caches)
    return _counted(machine, pages, warm, plan, _empty(shapes, seed))


def _counted(
    machine: SimulatedMachine, pages: np.ndarray, warm: int, plan: Plan, caches: Caches
) -> Counts:
    starts = np.zeros(machine.levels + 1, dtype=np.int64)
    l1_misses, walks, host_walks = walker.run(pages, warm, plan, caches, starts)
    is_read = np.arange(1, machine.levels + 1) >= plan.leaf
    by_level = np.cumsum(starts[::-1])[::-1][1:] * is_read
    host_levels = range(1, machine.host.levels + 1) if machine.host else ()
    by_host_level = tuple(host_walks * (level >= plan.host_leaf) for level in host_levels)
    return Counts(pages.size - warm, l1_misses, walks, tuple(map(int, by_level)), by_host_level)


def _empty(shapes: Sequence[tuple[int, int, int, int]], seed: int) -> Caches:
    """Return caches that hold nothing. Each draws numbers of its own from `seed`."""
    size = len(shapes), max(sets * ways for sets, ways, *_ in shapes)
    draws = np.array([(seed + (i << 32)) % 2**64 for i in range(len(shapes))], dtype=np.uint64)
    return Caches(np.array(shapes), np.full(size, EMPTY), np.zeros(size, dtype=np.int64), draws)


def _require(is_true: bool, otherwise: str) -> None:
    if not is_true:
        raise ValueError(otherwise)


def _require_power_of_two(number: int, what: str) -> None:
    _require(number > 0 and number & (number - 1) == 0, f"{what} is a power of two, not {number}.")


def _leaf(page: str) -> int:
    _require(page in LEAF_LEVELS, f"a page is one of {', '.join(LEAF_LEVELS)}, not {page!r}.")
    return LEAF_LEVELS[page]


def _check_levels(levels: int) -> None:
    # Intel SDM, volume 3, 4.5: the fifth is LA57's
    _require(levels in (4, 5), f"tables have 4 or 5 levels, not {levels}.")


def _check_places(places: Sequence[Hashable], what: str) -> None:
    is_unique = len(set(places)) == len(places)
    _require(is_unique, f"two {what} have the same level and page size, among {places}.")
