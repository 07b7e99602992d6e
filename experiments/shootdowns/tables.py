"""The tables of the chapter about TLB shootdowns."""

from __future__ import annotations

import pandas as pd

from experiments.shootdowns.analysis import Analysis
from tlb.report.render import Html, data_table
from tlb.system.reasons import required
from tlb.system.units import format_ns

CALL_WORDS = {"unmap": "munmap", "protect": "mprotect", "discard": "madvise"}


def partial_calls(a: Analysis) -> Html:
    """A row a call on one base page of a large one: its time beside that on a base page, and what
    stays large."""
    rows = required(a.partial_calls, "no parts of large pages were removed")
    return data_table(
        pd.DataFrame(
            {
                "call": rows["call"].map(CALL_WORDS),
                "on a 2 MiB page (THP)": [format_ns(ns.value) for ns in rows["ns"]],
                "on a 4 KiB page": [
                    format_ns(ns.value) if ns.value == ns.value else "" for ns in rows["base_ns"]
                ],
                "stays large": rows["large_share"].map("{:.0%}".format),
            }
        )
    )
