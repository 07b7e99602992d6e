"""Where a load and the reads of its page walk are found: misses of TLBs and caches by reuse
distance, in closed form.

M pages have L visited lines each: L = 1 is the spread layout, L = 64 a dense array. A walk's last
read goes to a line of the page table, which s = 8 neighbouring pages share; in a guest the host's
table is a second one. Lines of data and of tables share the caches. What is reused after d other
lines is still in a cache of C lines if d < C; if pages lie at random over its sets of w ways,
Poisson(w d/C) of them fell into the same set, and it is gone when w did: the regularised gamma
function P(w, w d/C) (Smith, IEEE Trans. Software Engineering 4, 1978). Random draws revisit after
an exponential time (Che, Tung and Wang, IEEE J. Selected Areas in Communications 20, 2002), so that
one class of lines misses with 1 - C/M.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc

from tlb.inference import misses

LINE_BYTES, ENTRY_BYTES = 64, 8
SHARING = LINE_BYTES // ENTRY_BYTES  # pages whose entries lie in one line
ORDERS = ("cycle", "random")
# Gauss-Legendre nodes over the quantiles of the time to a revisit: 16 give misses to 0.004 for w up
# to 32.
_NODES, _WEIGHTS = (a / 2 for a in np.polynomial.legendre.leggauss(16))
# a set of lines that fills a cache to the last fits, and a walk in a million takes none away
BRIM = 1.001
_QUANTILES = _NODES + 0.5


class SharedCache(NamedTuple):
    """The bytes of a cache, and the ways that smear its end; infinite if visits fill it evenly."""

    size_bytes: float
    ways: float = inf


class Tlbs(NamedTuple):
    """Entries of each level of the data TLB, one or two, and how the last one replaces (the kinds
    of misses.StepFit)."""

    entries: tuple[int, ...]
    kind: str = misses.TEXTBOOK
    ways: int | None = None

    def misses(
        self, pages: ArrayLike, order: str, lines_per_page: ArrayLike = 1
    ) -> list[np.ndarray]:
        """Return the share of loads that miss each level. A cycle over many lines of each page
        comes back to a page as draws do."""
        m, dense = np.asarray(pages, dtype=float), np.asarray(lines_per_page) > 1
        drawn = [misses.miss_probability_random(m, c) for c in self.entries]
        if order == "random":
            if self.kind == "hashed sets, LRU":
                sets = self.entries[-1] // self.ways
                drawn[-1] = np.where(dense, drawn[-1], misses.hashed_lru(m, sets, self.ways, order))
            return drawn
        once = [
            *(misses.miss_probability_cycle(m, c) for c in self.entries[:-1]),
            misses.share_missed(self.kind, m, self.entries[-1], self.ways),
        ]
        return [np.where(dense, again, first) for again, first in zip(drawn, once, strict=True)]


class Places(NamedTuple):
    """Shares of the loads (`data`), and of the walks' last reads (`tables`, one for each table),
    that miss each cache."""

    data: list[np.ndarray]
    tables: list[list[np.ndarray]]


def places(
    pages: ArrayLike,
    order: str,
    caches: Sequence[SharedCache],
    walks: ArrayLike,
    tables: Sequence[float] = (SHARING,),
    lines_per_page: ArrayLike = 1,
    rivals_bytes: ArrayLike = 0.0,
) -> Places:
    """Return the misses of each cache, one value for each number of pages.

    walks: the share of loads that walk. tables: for each table that a walk reads, how many pages
    share a line of its last level. rivals_bytes: what others bring into the last cache between two
    loads. The time x is in units of a visit to each line, in which n = s L loads go to the pages of
    a line of a table. If a share p of them walks, a share (1 - p x)^n of these lines is not read in
    a time x of a cycle, whose order is a random permutation, and exp(-p n x) among draws.
    """
    if order not in ORDERS:
        raise ValueError(f"order is 'cycle' or 'random', not {order!r}")
    given = (np.atleast_1d(a).astype(float) for a in (pages, lines_per_page, walks, rivals_bytes))
    m, each, p, rivals = (a.reshape(-1, 1) for a in np.broadcast_arrays(*given))
    cyclic = order == "cycle"

    def missed(x: np.ndarray) -> list[np.ndarray]:
        read = (m / s * (1 - _left(cyclic, s * each, p, x)) for s in tables)
        own = (m * each * (1 - _left(cyclic, 1, 1, x)) + sum(read)) * LINE_BYTES
        others = rivals * m * each * x  # in the last cache, which they share
        return [_lost(cache, own + others * (cache is caches[-1])) for cache in caches]

    ones = np.ones_like(m)
    data = ones if cyclic else _again(cyclic, ones, ones)
    return Places(missed(data), [missed(_again(cyclic, s * each, p)) for s in tables])


def _left(cyclic: bool, n: ArrayLike, p: ArrayLike, x: np.ndarray) -> np.ndarray:
    """Return the share of lines that are not read in a time x."""
    return np.maximum(0, 1 - p * x) ** n if cyclic else np.exp(-n * p * x)


def _again(cyclic: bool, n: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the quantiles of the time to the next read of a line; in a cycle of one round at
    most."""
    p = np.maximum(p, 1e-12)
    if not cyclic:
        return -np.log(_QUANTILES) / (n * p)
    return np.minimum(1, (1 - _QUANTILES ** (1 / np.maximum(n - 1, 1e-9))) / p)


def _lost(cache: SharedCache, distance: np.ndarray) -> np.ndarray:
    """Return the share of lines that a cache has lost when so many bytes came between, a row each,
    the mean over the quantiles."""
    share = distance / cache.size_bytes
    lost = share > BRIM if cache.ways == inf else gammainc(cache.ways, cache.ways * share)
    return lost @ _WEIGHTS if distance.shape[1] > 1 else lost[:, 0].astype(float)
