"""The tables of the chapter about churn."""

from __future__ import annotations

import pandas as pd

from experiments.churn.analysis import Analysis
from experiments.churn.grid import CALLS
from experiments.churn.housekeeping import FRAGMENTS, FREE
from tlb.page_sizes import words
from tlb.reasons import required
from tlb.report.render import Html, data_table
from tlb.units import format_ns, format_size

CALL_WORDS = {"unmap": "munmap", "protect": "mprotect", "discard": "madvise(MADV_DONTNEED)"}


def flushes(a: Analysis) -> Html:
    """Return a row a call: how many flushes were asked of other CPUs, and how many those CPUs
    saw."""
    a.share_seen()
    sums = a.flush_counts.groupby("call")[["flushes_asked", "flushes_seen"]].sum()
    sums = sums.loc[[call for call in CALLS if call in sums.index]]
    return data_table(
        pd.DataFrame(
            {
                "call": sums.index.map(CALL_WORDS),
                "requested": sums["flushes_asked"].map("{:,.0f}".format),
                "seen": sums["flushes_seen"].map("{:,.0f}".format),
                "seen over requested": (sums["flushes_seen"] / sums["flushes_asked"]).map(
                    "{:.3f}".format
                ),
            }
        )
    )


def partial_calls(a: Analysis) -> Html:
    """A row a call on one base page of a large one: its time beside that on a base page, and what
    stays large."""
    rows = required(a.partial_calls, "no parts of large pages were removed")
    return data_table(
        pd.DataFrame(
            {
                "call": rows["call"].map(CALL_WORDS),
                "on a 2 MiB page": [format_ns(ns.value) for ns in rows["ns"]],
                "on base pages": [
                    format_ns(ns.value) if ns.value == ns.value else "" for ns in rows["base_ns"]
                ],
                "stays large": rows["large_share"].map("{:.0%}".format),
            }
        )
    )


def sparse(a: Analysis) -> Html:
    """Arenas with a large page's room each, and side by side: what is resident of what is used, and
    what touching it takes."""
    rows = required(a.sparse, "no arenas were measured")
    return data_table(
        pd.DataFrame(
            {
                "arenas": ["one per 2 MiB" if apart else "side by side" for apart in rows["apart"]],
                "on": rows["pages"].map(words),
                "used": rows["used_bytes"].map(format_size),
                "resident over used": [f"{per.value:.1f}" for per in rows["per_used"]],
                "a base page touched": [format_ns(ns.value) for ns in rows["ns"]],
            }
        )
    )


def short_lived(a: Analysis) -> Html:
    """A row a size of programs that live briefly: their time on base pages, and the ratio to it on
    large ones, in free and in fragmented memory."""
    a.lives(FREE)
    free, fragmented = (
        a.short_lived[a.short_lived["memory"] == memory].set_index("mib")
        for memory in (FREE, FRAGMENTS)
    )
    return data_table(
        pd.DataFrame(
            {
                "a program writes": [f"{mib} MiB" for mib in free.index],
                "on base pages": [format_ns(ns.value) for ns in free["base_ns"]],
                "on 2 MiB pages, ratio": [f"{ratio:.2f}" for ratio in free["ratio"]],
                "the same, fragmented memory": [
                    f"{fragmented['ratio'][mib]:.2f}" if mib in fragmented.index else ""
                    for mib in free.index
                ],
            }
        )
    )
