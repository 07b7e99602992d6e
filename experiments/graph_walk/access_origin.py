"""Which access to memory is for what, by a cache: how often the data, this machine's page-table
entry and the host's would miss it."""

from __future__ import annotations

from experiments.graph_walk.analysis import SIZE, Analysis
from tlb.inference import memory_trips
from tlb.inference.memory_trips import Explained
from tlb.page_sizes import BASE, page_bytes
from tlb.reasons import required

ENTRY_BYTES = 8


def explained(a: Analysis) -> Explained:
    """The shares of two accesses to memory and more, by one cache for the lines of the data, of
    this machine's entries for them and, in a guest, of the host's, which has one for each base page
    where it splinters. Raises Unavailable."""
    shares = required(
        a.access_shares[a.access_shares["accesses"] > 1], "hops on base pages have one peak"
    )
    return memory_trips.explain(
        shares.rename(columns={"accesses": "trips"}).astype({SIZE: int}),
        {pages: _read(a, pages) for pages in a.peaks},
    )


def _read(a: Analysis, pages: str) -> list[float]:
    """Bytes that a hop draws a line from, for a byte of the working set: the vertices, and an entry
    for each page of either table."""
    base = a.base_page_bytes
    page = page_bytes(pages, base)
    of_host = base if pages == BASE or a.in_pieces else page
    return [
        1.0,
        ENTRY_BYTES / page,
        *([ENTRY_BYTES / of_host] if a.host.hypervisor != "none" else []),
    ]
