"""simulator: every visit against plain Python containers, and shares against closed forms."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from support.tlb_simulator import REPLACEMENTS, hashed, missed

# --- the oracle: what a set holds, as Python's own containers


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


def plain(pages: list[int], entries: int, ways: int, replacement: str) -> list[bool]:
    sets = [SETS[replacement](ways) for _ in range(entries // ways)]
    return [not sets[page % len(sets)].hits(page) for page in pages]


@st.composite
def caches(draw: st.DrawFn) -> tuple[int, int, str]:
    replacement = draw(st.sampled_from(list(SETS)))
    ways = draw(st.sampled_from([1, 2, 4, 8] if replacement == "tree-plru" else [1, 2, 3, 4]))
    return draw(st.sampled_from([1, 2, 3, 5])) * ways, ways, replacement


# Of a set of one way whose only entry is marked, that entry is the victim.
@example((2, 1, "nru"), [0, 2, 0])
@given(caches(), st.lists(st.integers(0, 30), max_size=120))
@settings(deadline=None, max_examples=200)
def test_every_visit_misses_as_in_plain_containers(cache, pages):
    assert missed(pages, *cache).tolist() == plain(pages, *cache)


@pytest.mark.parametrize("replacement", SETS)
def test_a_long_stream_misses_as_in_plain_containers(replacement):
    rng = np.random.default_rng(5)
    pages = rng.integers(0, rng.choice([1 << 9, 1 << 12, 1 << 19], 40_000))
    cache = 1536 if replacement != "tree-plru" else 2048, 16, replacement
    assert missed(pages, *cache).tolist() == plain(pages.tolist(), *cache)


def test_hashed_sets_hold_as_many_pages_each_as_drawn_ones():
    pages = np.arange(1 << 16) * 4096  # of which modulo has one set
    found = np.bincount(hashed(pages, 64), minlength=64)
    assert found.size == 64 and found.std() == pytest.approx(np.sqrt(1024), rel=0.3)
    assert not missed(np.tile(pages[:64], 2), 4096, 64, place=hashed)[64:].any()


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_one_set_holds_as_many_pages_as_it_has_entries(replacement):
    pages = np.tile(np.arange(64), 3)
    assert missed(pages, 64, 0, replacement).tolist() == [True] * 64 + [False] * 128
    assert missed(np.tile(np.arange(65), 3), 64, 0, replacement)[65:].any()


# --- closed forms


@pytest.mark.parametrize(("pages", "entries"), [(100, 128), (177, 128), (3000, 1536)])
def test_random_replacement_misses_a_cycle_as_its_closed_form_says(pages, entries):
    cycle = np.tile(np.random.default_rng(pages).permutation(pages), 400)
    rate = missed(cycle, entries, 0, "random")[200 * pages :].mean()
    # Between two visits of a page lie x M misses, each of which evicts it with probability 1/C.
    ratio = pages / entries
    expected = brentq(lambda x: x - 1 + np.exp(-x * ratio), 1e-6, 1) if ratio > 1 else 0.0
    # The formula's exponential differs from a set of C slots by the order of 1/C.
    assert rate == pytest.approx(expected, abs=0.01 + 1 / entries)


@pytest.mark.parametrize(("pages", "share"), [(2048, 0), (2112, 64 * 17 / 2112), (2176, 1)])
def test_the_step_of_a_set_associative_tlb_is_as_sharp_as_one_part_in_its_ways(pages, share):
    """A sharp cliff does not show full associativity: 128 sets of 16 ways have one as well."""
    cycle = np.tile(np.random.default_rng(pages).permutation(pages), 3)
    assert missed(cycle, 2048, 16)[pages:].mean() == pytest.approx(share, abs=1e-12)
    assert missed(cycle, 2048)[pages:].mean() == (pages > 2048)
