"""simulator: every count against a plain simulator of ordered dictionaries and real addresses, and
against closed forms."""

from __future__ import annotations

from collections import OrderedDict
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tlb.inference.misses import miss_probability_cycle_random_replacement
from tlb.inference.simulator import (
    Counts,
    NestedTlb,
    SimulatedCache,
    SimulatedHost,
    SimulatedMachine,
    SimulatedTlb,
    WalkCache,
    references_per_walk,
    simulate,
)

BITS = {"4k": 12, "2m": 21, "1g": 30}
ALL_PAGES = tuple(BITS)
LOWEST = {"4k": 1, "2m": 2, "1g": 3}  # the level of the table that maps such a page
DIMENSIONS = list(product(ALL_PAGES, [None, *ALL_PAGES], (4, 5), (4, 5)))


# --- the oracle: what the caches hold, as Python's own containers, and what a walk loads, by
# address


class LruSet:
    def __init__(self, ways: int) -> None:
        self.ways, self.held = ways, OrderedDict()

    def hits(self, number: int) -> bool:
        if number in self.held:
            self.held.move_to_end(number)
            return True
        if len(self.held) == self.ways:
            self.held.popitem(last=False)
        self.held[number] = True
        return False


class TreeSet:
    """A half of the ways, a half of that half and so on, each with a word on which of its halves
    the next victim is in."""

    def __init__(self, ways: int) -> None:
        self.held: list[int | None] = [None] * ways
        self.victim_is_above: dict[tuple[int, int], bool] = {}

    def hits(self, number: int) -> bool:
        held = number in self.held
        kept = number if held else None
        way = self.held.index(kept) if kept in self.held else self.victim()
        self.held[way] = number
        low, high = 0, len(self.held)
        while high - low > 1:
            middle = (low + high) // 2
            self.victim_is_above[low, high] = way < middle
            low, high = (low, middle) if way < middle else (middle, high)
        return held

    def victim(self) -> int:
        low, high = 0, len(self.held)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.victim_is_above[low, high] else (low, middle)
        return low


class FifoSet(LruSet):
    def hits(self, number: int) -> bool:
        return number in self.held or super().hits(number)


class MarkedSet:
    """Not recently used: the first way without a mark goes."""

    def __init__(self, ways: int) -> None:
        self.held: list[int | None] = [None] * ways
        self.marks: set[int] = set()

    def hits(self, number: int) -> bool:
        held = number in self.held
        empty = self.held.index(None) if None in self.held else None
        free = min(set(range(len(self.held))) - self.marks, default=0)
        way = self.held.index(number) if held else free if empty is None else empty
        self.held[way] = number
        self.marks = self.marks | {way} if len(self.marks | {way}) < len(self.held) else {way}
        return held


class ForeseenSet:
    """Static re-reference interval prediction, by hit priority, with intervals 0 to 3."""

    def __init__(self, ways: int) -> None:
        self.held, self.interval = [None] * ways, [0] * ways

    def hits(self, number: int) -> bool:
        if number in self.held:
            self.interval[self.held.index(number)] = 0
            return True
        if None in self.held:
            way = self.held.index(None)
        else:
            while 3 not in self.interval:
                self.interval = [interval + 1 for interval in self.interval]
            way = self.interval.index(3)
        self.held[way], self.interval[way] = number, 2
        return False


SETS = {"lru": LruSet, "tree-plru": TreeSet, "fifo": FifoSet, "nru": MarkedSet}
SETS["srrip"] = ForeseenSet


class PlainCache:
    def __init__(self, cache: SimulatedCache) -> None:
        kind = SETS[cache.replacement]
        self.count = cache.entries // cache.ways if cache.ways else 1
        self.sets = [kind(cache.ways or cache.entries) for _ in range(self.count)]
        self.by_xor = cache.placement == "xor"

    def hits(self, number: int) -> bool:
        return self.sets[
            (number ^ number // self.count if self.by_xor else number) % self.count
        ].hits(number)


def plain(machine: SimulatedMachine, addresses: list[int], page: str, warm: int = 0) -> Counts:
    host = machine.host
    span = min(BITS[page], BITS[host.page]) if host else BITS[page]
    tlbs = {
        tlb.level: PlainCache(tlb)
        for tlb in machine.tlbs
        if span in [BITS[name] for name in tlb.pages]
    }
    uppers = {one.level: PlainCache(one) for one in machine.walk_caches}
    nested = {one.level: PlainCache(one) for one in host.nested} if host else {}
    l1_misses = walks = 0
    by_level, host_by_level = [0] * machine.levels, [0] * (host.levels if host else 0)

    def translate(guest_physical: int, table: int) -> None:
        if not host or (table in nested and nested[table].hits(guest_physical >> BITS[host.page])):
            return
        for level in range(host.levels, LOWEST[host.page] - 1, -1):
            host_by_level[level - 1] += 1

    for i, address in enumerate([*addresses, 0]):
        if i == warm:
            l1_misses = walks = 0
            by_level, host_by_level = [0] * len(by_level), [0] * len(host_by_level)
        if i == len(addresses):
            break
        if 1 in tlbs and tlbs[1].hits(address >> span):
            continue
        l1_misses += 1
        if 2 in tlbs and tlbs[2].hits(address >> span):
            continue
        walks += 1
        level = LOWEST[page]
        while level < machine.levels and not (
            level + 1 in uppers and uppers[level + 1].hits(address >> 12 + 9 * level)
        ):
            level += 1
        for table in range(level, LOWEST[page] - 1, -1):
            translate((address >> 12 + 9 * (table - 1)) * 8, table)
            by_level[table - 1] += 1
        translate(address, 0)
    return Counts(len(addresses) - warm, l1_misses, walks, tuple(by_level), tuple(host_by_level))


@st.composite
def shapes(draw: st.DrawFn) -> dict:
    replacement = draw(st.sampled_from(list(SETS)))
    placement = draw(st.sampled_from(["modulo", "xor"]))
    sets = draw(st.sampled_from([1, 2, 4] if placement == "xor" else [1, 2, 3, 5]))
    ways = draw(st.sampled_from([1, 2, 4, 8] if replacement == "tree-plru" else [1, 2, 3, 4]))
    return {
        "entries": sets * ways,
        "ways": 0 if sets == 1 and draw(st.booleans()) else ways,
        "replacement": replacement,
        "placement": placement,
    }


@st.composite
def machines(draw: st.DrawFn) -> SimulatedMachine:
    levels = draw(st.sampled_from([4, 5]))

    def some(kind, among):
        return tuple(kind(level=n, **draw(shapes())) for n in among if draw(st.booleans()))  # noqa: E731

    pages = st.sampled_from([ALL_PAGES, ("4k",), ("2m", "1g")])
    host = draw(
        st.none()
        | st.builds(SimulatedHost, levels=st.sampled_from([4, 5]), page=st.sampled_from(ALL_PAGES))
    )
    if host:
        host = SimulatedHost(host.levels, host.page, some(NestedTlb, range(levels + 1)))
    return SimulatedMachine(
        tuple(
            SimulatedTlb(level=n, pages=draw(pages), **draw(shapes()))
            for n in (1, 2)
            if draw(st.booleans())
        ),
        some(WalkCache, range(2, levels + 1)),
        levels,
        host,
    )


@st.composite
def streams(draw: st.DrawFn) -> list[int]:
    """Up to 120 addresses of a few indices at each level: near each other, far apart, or both."""
    digits = [draw(st.sampled_from([(0,), (0, 1), (3, 511), (0, 1, 2, 3, 4)])) for _ in range(4)]
    pages = [sum(d << 9 * i for i, d in enumerate(chosen)) for chosen in product(*digits)]
    return [
        page << 12 | draw(st.integers(0, 4095))
        for page in draw(st.lists(st.sampled_from(pages), max_size=120))
    ]


# Of a set of one way whose only entry is marked, that entry is the victim.
@example(
    SimulatedMachine((SimulatedTlb(level=1, entries=2, ways=1, replacement="nru"),)),
    [0, 2 << 12, 0],
    "4k",
    0,
)
@given(machines(), streams(), st.sampled_from(ALL_PAGES), st.integers(0, 120))
@settings(deadline=None, max_examples=200)
def test_every_count_is_that_of_the_plain_simulator(
    machine: SimulatedMachine, addresses: list[int], page: str, warm: int
):
    warm = min(warm, len(addresses))
    found = simulate(machine, np.array(addresses, dtype=np.uint64), page, warm=warm)
    assert found == plain(machine, addresses, page, warm)


@pytest.mark.parametrize(
    "host", [None, SimulatedHost(4, "4k", tuple(NestedTlb(level=n, entries=16) for n in range(5)))]
)
def test_a_long_stream_through_a_whole_machine_counts_as_in_the_plain_simulator(
    host: SimulatedHost | None,
):
    machine = SimulatedMachine(
        (SimulatedTlb(level=1, entries=64), SimulatedTlb(level=2, entries=1536, ways=12)),
        (
            WalkCache(level=2, entries=32, ways=4),
            WalkCache(level=3, entries=4),
            WalkCache(level=4, entries=2),
        ),
        host=host,
    )
    rng = np.random.default_rng(5)
    addresses = rng.integers(0, rng.choice([1 << 21, 1 << 24, 1 << 31, 1 << 41], 40_000))
    assert simulate(machine, addresses, "4k", warm=10_000) == plain(
        machine, addresses.tolist(), "4k", 10_000
    )


# --- one level, against closed forms


def one_level(entries: int, ways: int = 0, replacement: str = "lru") -> SimulatedMachine:
    tlb = SimulatedTlb(level=1, entries=entries, ways=ways, replacement=replacement)
    return SimulatedMachine((tlb,))


def missed(machine: SimulatedMachine, stream: np.ndarray, warm: int) -> float:
    counts = simulate(machine, stream, unit_bytes=4096, warm=warm)
    return counts.l1_misses / counts.accesses


@pytest.mark.parametrize(("pages", "entries"), [(100, 128), (177, 128), (3000, 1536)])
def test_random_replacement_misses_a_cycle_as_its_closed_form_says(pages: int, entries: int):
    cycle = np.tile(np.random.default_rng(pages).permutation(pages), 400)
    rate = missed(one_level(entries, 0, "random"), cycle, warm=200 * pages)
    expected = float(miss_probability_cycle_random_replacement(pages, entries))
    # The formula's exponential differs from a set of C slots by the order of 1/C.
    assert rate == pytest.approx(expected, abs=0.01 + 1 / entries)


@pytest.mark.parametrize(("pages", "share"), [(2048, 0), (2112, 64 * 17 / 2112), (2176, 1)])
def test_the_step_of_a_set_associative_tlb_is_as_sharp_as_one_part_in_its_ways(
    pages: int, share: float
):
    """A sharp cliff does not show full associativity: 128 sets of 16 ways have one as well."""
    cycle = np.tile(np.random.default_rng(pages).permutation(pages), 3)
    assert missed(one_level(2048, 16), cycle, warm=pages) == pytest.approx(share, abs=1e-12)
    assert missed(one_level(2048), cycle, warm=pages) == (pages > 2048)


# --- walks, against closed forms


@pytest.mark.parametrize(("page", "host_page", "levels", "host_levels"), DIMENSIONS)
def test_a_cold_walk_makes_the_references_of_the_formula(
    page: str, host_page: str | None, levels: int, host_levels: int
):
    g = levels - LOWEST[page] + 1
    expected = g if host_page is None else (g + 1) * (host_levels - LOWEST[host_page] + 2) - 1
    machine = SimulatedMachine(
        levels=levels, host=SimulatedHost(host_levels, host_page) if host_page else None
    )
    found = simulate(machine, np.array([0x7F12_3456_7ABC]), page)
    assert references_per_walk(page, host_page, levels, host_levels) == expected == found.references


# --- what goes in and what comes out


TWO_OF_A_KIND = SimulatedTlb(level=1, entries=8), SimulatedTlb(level=1, entries=4, pages=ALL_PAGES)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SimulatedTlb(level=1, entries=10, ways=4), "sets of 4"),
        (lambda: SimulatedTlb(level=1, entries=12, replacement="tree-plru"), "power of two"),
        (lambda: SimulatedTlb(level=1, entries=12, ways=4, placement="xor"), "power of two"),
        (lambda: SimulatedMachine(TWO_OF_A_KIND), "two TLBs"),
        (lambda: SimulatedMachine(walk_caches=(WalkCache(level=5, entries=4),)), "2 to 4"),
        (lambda: simulate(SimulatedMachine(), np.array([1 << 48])), "or five levels"),
    ],
)
def test_what_cannot_be_built_or_translated_is_refused_in_a_sentence(make, says: str):
    with pytest.raises(ValueError, match=says):
        make()
