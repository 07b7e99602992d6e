"""The model of `inference.cost`: what is known of a machine, and T for given parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from tlb.inference.reuse import LINE_BYTES, ORDERS, SHARING, SharedCache, places
from tlb.machine.host import Host, data_caches, data_tlbs
from tlb.reasons import Unavailable

# From one without rivals on; by then times move by less than the noise, but for those at the edge
# of a fall. As many for all parameters: ending early where times agree would make the model jump,
# and the fit with it.
ROUNDS = 4


@dataclass(frozen=True)
class Known:
    """What is known of a machine before any fit: entries of each level of the data TLB, bytes of
    the data caches, whether the host's page table is walked too, and the ways of the last TLB."""

    entries: tuple[int, ...]
    cache_bytes: tuple[int, ...]
    nested: bool = False
    ways: int | None = None  # of the last TLB
    page_bytes: int = field(kw_only=True)

    def __post_init__(self) -> None:
        for what, sizes, most in (("TLBs", self.entries, 2), ("caches", self.cache_bytes, 9)):
            if not 1 <= len(sizes) <= most or list(sizes) != sorted(sizes):
                detail = f"the model takes the sizes of the {what}, ascending, not {sizes}"
                raise Unavailable("no-geometry", detail)

    @classmethod
    def of(cls, host: Host, entries: Sequence[int]) -> Known:
        """Return what a machine states of itself for base pages, with the entries of each level,
        stated or found. Raises Unavailable("no-geometry") if that is too little."""
        tlbs, caches = data_tlbs(host), data_caches(host)
        return cls(
            tuple(entries),
            tuple(caches[level] for level in sorted(caches)),
            host.has_nested_walks is not False,
            tlbs[-1].ways if tlbs else None,
            page_bytes=host.base_page_bytes,
        )

    @property
    def lines_per_page(self) -> int:
        return self.page_bytes // LINE_BYTES

    @property
    def beyond(self) -> list[str]:
        """The places behind the first cache."""
        return [*(f"l{i}" for i in range(2, len(self.cache_bytes) + 1)), "memory"]

    @property
    def nearest_table(self) -> int:
        """The first cache that the tables can be in once there are walks: a smaller one is full of
        as many lines of data."""
        first = self.entries[-1] * (LINE_BYTES + LINE_BYTES // SHARING)
        return next(
            (i for i, size in enumerate(self.cache_bytes) if size > first), len(self.cache_bytes)
        )

    @property
    def parameters(self) -> list[str]:
        """What is fitted, each with its unit.

        load_<place>_adds_ns: what a read answered there takes longer than one answered by the place
        before. walk_ns: a walk whose reads are answered by the nearest place that has room for
        them. rivals_bytes_per_ns: what other programs bring into the last cache, GB/s. smear_ways:
        how gradually a cache ends, infinite for a step.
        """
        return [
            "load_cycle_ns",
            "load_random_ns",
            *(f"load_{place}_adds_ns" for place in self.beyond),
            *(["stlb_hit_ns"] if len(self.entries) > 1 else []),
            "walk_ns",
            *(["rivals_bytes_per_ns"] if len(self.cache_bytes) > 1 else []),
            *(f"{place}_smear_ways" for place in self.beyond[:-1]),
        ]


def time_ns(
    known: Known,
    parameters: Mapping[str, float],
    missed: Sequence[np.ndarray],
    pages: ArrayLike,
    order: str,
    lines_per_page: ArrayLike = 1,
) -> np.ndarray:
    """Return T in ns of a load from `pages` pages with `lines_per_page` lines each, of which the
    shares `missed` miss each TLB (`Tlbs.misses`)."""
    p = parameters
    # Pages are scattered over the sets of caches beyond the first, whose sets lie inside a page.
    caches = [
        SharedCache(size, p.get(f"l{i}_smear_ways", inf))
        for i, size in enumerate(known.cache_bytes, 1)
    ]
    tables = [SHARING] * (2 if known.nested else 1)
    *first, walks = missed
    walks = np.ravel(walks)
    adds = [p[f"load_{place}_adds_ns"] for place in known.beyond]
    loads = {other: p[name] for other in ORDERS if (name := f"load_{other}_ns") in p}
    hits = np.ravel(first[0] * p["stlb_hit_ns"]) if first else 0.0
    flat = loads.get(order, min(loads.values())) + hits + walks * p["walk_ns"]
    rivals = p["rivals_bytes_per_ns"] if len(caches) > 1 else 0.0  # nobody shares the first
    time = np.zeros(1)
    for _ in range(ROUNDS):  # a slower chase leaves others more time to take the last cache from it
        where = places(pages, order, caches, walks, tables, lines_per_page, np.ravel(time) * rivals)
        data = sum(share * ns for ns, share in zip(adds, where.data, strict=True))
        reads = np.zeros(1)
        for table in where.tables:
            for ns, share in list(zip(adds, table, strict=True))[known.nearest_table :]:
                reads = reads + share * ns
        time = flat + data + walks * reads
    return time
