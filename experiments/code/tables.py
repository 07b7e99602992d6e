"""The table of the chapter about code."""

from __future__ import annotations

import pandas as pd

from experiments.code.analysis import Analysis
from experiments.code.ways import WAYS_TO_LOAD_CODE
from tlb.report.render import Html, data_table
from tlb.system.reasons import REASONS


def ways(a: Analysis) -> Html:
    """A row a way of making code executable: how much of it lies on large pages, or why it could
    not be tried."""
    rows = []
    for name in WAYS_TO_LOAD_CODE:
        if name in a.ways.lacking:
            rows.append((a.ways.asked(name), REASONS[a.ways.lacking[name]].sentence))
        elif name in a.huge_shares:
            rows.append((a.ways.asked(name), f"{100 * a.huge_shares[name]:.0f} %"))
    return data_table(pd.DataFrame(rows, columns=["code", "on large pages"]))
