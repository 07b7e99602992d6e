"""How a TLB chooses the set of a page, from what pages a power of two apart cost.

Pages i s, i = 0 ... P - 1, s a power of two, differ in a window of log2 P bits of their numbers.
Where the lowest bits choose one of S sets of W ways, such pages use S/s of the sets, and P of them
fit while W S/s >= P: up to a stride of s = W S/P. So P times the widest stride that fits is W S,
the entries; it says nothing of S and W apart. Where bits above are combined with the lowest by an
exclusive-or, the window reaches more sets, and the product is more than the entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tlb.inference.curves import Curve
from tlb.reasons import Unavailable

PLACEMENTS = (
    "modulo",
    "xor",
)  # of the simulator's; a third, any set as if drawn, fills with no stride
WORDS = {
    "modulo": "the lowest bits of a page's number alone",
    "xor": "those bits, each combined with one above by an exclusive-or",
}


class Fit(NamedTuple):
    """So many pages still fit at the widest stride, in pages, and not at twice that."""

    pages: int
    widest: int

    @property
    def entries(self) -> int:
        """Sets times ways, if the lowest bits of a page's number choose its set; more where bits
        above take part."""
        return self.pages * self.widest


def find(times: Curve, pages: int, miss_ns: float) -> Fit:
    """Where pages cease to fit along powers of two. times: a visit, by the stride in pages;
    miss_ns: what a visit that misses takes longer.

    Raises Unavailable: too-few-points where nothing was measured, no-step where no stride makes
    half of the visits miss.
    """
    if not len(times):
        raise Unavailable("too-few-points", "no pages a power of two apart")
    near = times.intervals[0].value
    dear = [stride for stride, visit in times if visit.value > near + miss_ns / 2]
    fit = [stride for stride in times.xs if not dear or stride < dear[0]]
    if not dear or not fit:
        raise Unavailable("no-step", f"{pages} pages, up to {times.xs[-1]:,.0f} apart")
    return Fit(pages, round(fit[-1]))


def fullest(placement: str, sets: int, pages: int, stride: int) -> int:
    """How many of so many pages, a stride apart, meet in the set that most do. sets: a power of two
    for xor."""
    numbers = np.arange(pages, dtype=np.int64) * stride
    chosen = {"modulo": numbers, "xor": numbers ^ (numbers // sets)}[placement] % sets
    return int(np.bincount(chosen).max())


def widest(placement: str, entries: int, ways: int, pages: int, strides: list[int]) -> int:
    """The widest of ascending strides up to which the pages fit a TLB of so many entries and ways;
    0 where not even the first does."""
    fits = [fullest(placement, entries // ways, pages, stride) <= ways for stride in strides]
    return (
        strides[fits.index(False) - 1]
        if False in fits[1:]
        else strides[-1] * fits[0]
        if all(fits)
        else 0
    )


def fitting(fit: Fit, entries: int, ways: int, strides: list[int]) -> list[str]:
    """The placements under which so many entries in sets of so many ways would cease to fit where
    it was measured."""
    if entries % ways or (entries // ways).bit_count() != 1:
        return []
    return [
        placement
        for placement in PLACEMENTS
        if widest(placement, entries, ways, fit.pages, strides) == fit.widest
    ]
