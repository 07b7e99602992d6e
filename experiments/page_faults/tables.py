"""The tables of the chapter about page faults."""

from __future__ import annotations

import pandas as pd

from experiments.page_faults.analysis import (
    FRESH_LARGE_MEMORY,
    FRESH_MEMORY,
    NAMED_TOUCHES,
    Analysis,
    Touch,
)
from tlb.report.render import Html, data_table
from tlb.stats.curves import select
from tlb.system.reasons import if_available, required
from tlb.system.units import format_size


def ways(a: Analysis) -> Html:
    """Return a row a price: the memory, what is timed, ns a base page, how many of them a fault
    maps, and what one takes."""
    prices = [
        (
            _name(way),
            "populate, unmap" if way.populate else "touch, unmap",
            a.page_ns(way),
            None if way.populate else a.pages_per_fault.get(way),
        )
        for way in required(list(a.touches), "no page was touched")
        if way.order != "sequential"  # much like the shuffled ones
    ]
    memories = list(dict.fromkeys(memory for memory, *_ in prices))
    if FRESH_MEMORY in a.touches:
        alone = a.touches[FRESH_MEMORY]["mean_ns"], a.pages_per_fault.get(FRESH_MEMORY)
        prices.append((_name(FRESH_MEMORY), "mean touch", *alone))
    prices += [price for price in _filled(a) if price[0] in memories]
    rows = [
        {
            "memory": memory,
            "timed": timed,
            "ns per 4 KiB": f"{ns:,.0f}",
            "pages/fault": f"{pages:,.3g}" if pages else "–",
            "µs/fault": f"{getattr(ns, 'value', ns) * pages / 1e3:,.3g}" if pages else "–",
        }
        for memory, timed, ns, pages in sorted(prices, key=lambda price: memories.index(price[0]))
    ]
    return data_table(pd.DataFrame(rows))


def _name(way: Touch) -> str:
    """Return what a way touches, in a few words: a row is then one line."""
    name = NAMED_TOUCHES[way].removesuffix(", populated")
    return name.replace(" in memory", "").replace(" memory", "").removesuffix(" (THP)")


def _filled(a: Analysis) -> list[tuple]:
    """Return the prices of memory that no cache holds, touched in order and not yet given back."""
    prices = []
    for way in (FRESH_MEMORY, FRESH_LARGE_MEMORY):
        if ns := if_available(a.prefaulted, 1, way.pages):
            rows = select(a.frame, kernel="prefault", mode="touch", pages=way.pages, threads=1)
            size = format_size(int(rows["working_set_bytes"].max()))
            prices.append((_name(way), f"touch {size}", ns, a.pages_per_fault.get(way)))
    return prices
