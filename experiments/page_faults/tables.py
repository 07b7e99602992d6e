"""The tables of the chapter about page faults."""

from __future__ import annotations

import pandas as pd

from experiments.page_faults.analysis import WAYS, Analysis
from tlb.reasons import required
from tlb.report.render import Html, data_table


def ways(a: Analysis) -> Html:
    """Return a row a way of touching pages: what a page takes, how many faults, what one takes."""
    rows = []
    for way in required(list(a.touches), "no page was touched"):
        pages, fault = a.pages_per_fault.get(way), a.per_fault.get(way)
        per_fault = "populated" if way.populate else f"{pages:,.3g}" if pages else ""
        row = {
            "memory": WAYS[way],
            "ns a page": f"{a.page_ns(way):,.0f}",
            "pages a fault": per_fault,
            "ns a fault": f"{fault.value:,.0f}" if fault and not way.populate else "",
        }
        rows.append(row)
    return data_table(pd.DataFrame(rows))
