"""The table of the chapter about the kernel's housekeeping."""

from __future__ import annotations

import pandas as pd

from experiments.housekeeping.analysis import Analysis
from experiments.housekeeping.document import FRAGMENTS, LARGE, NO_DEFRAG_MODE
from tlb.report.render import Html, data_table
from tlb.system.page_sizes import BASE
from tlb.system.units import format_ns


def touches(a: Analysis) -> Html:
    """A row a mode of defrag, in fragmented memory: the first touch of a 2 MiB range, all touches,
    and the share of ranges that get a huge page."""
    a.runs(FRAGMENTS, NO_DEFRAG_MODE)
    touches = a.touches[a.touches["memory"] == FRAGMENTS]
    rows = touches.pivot(index="mode", columns="quantile", values="median")
    base, large = a.page_labels[BASE], a.page_labels[LARGE]
    columns = {
        "pages": [f"{large}, defrag={mode}" if mode else base for mode in rows.index],
        "first touch of 2 MiB, median": rows["p50"].map(format_ns),
        "99.9th percentile of all touches": rows["p999"].map(format_ns),
        "huge pages": [f"{a.large_share(FRAGMENTS, mode).value:.0%}" for mode in rows.index],
    }
    return data_table(pd.DataFrame(columns))
