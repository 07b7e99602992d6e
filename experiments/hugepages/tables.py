"""The tables of the chapter about huge pages."""

from __future__ import annotations

from math import isfinite

import pandas as pd

from experiments.hugepages.analysis import Analysis
from tlb.page_sizes import BASE
from tlb.reasons import if_available
from tlb.report.chapter import literature
from tlb.report.render import Html, data_table
from tlb.units import format_size


def speedups(a: Analysis) -> Html:
    """Return a row a published size: the published speedup, the published loop's time on base pages
    here, its speedup on each other page size, and that of the dependent chase on 2 MiB pages."""
    published = literature("hugepages_speedup")
    table = pd.DataFrame({"working set": published["working_set_bytes"].map(format_size)})
    table["published, 2 MiB"] = published["speedup_ratio"].map("{:.1f}x".format)
    measured = {pages: curve for pages, curve in a.gathers.items() if len(curve)}
    columns = {}
    if BASE in measured:
        base = measured.pop(BASE)
        columns[f"{a.page_labels[BASE]} here, ns"] = base
        columns |= {f"here, {a.page_labels[pages]}": base / c for pages, c in measured.items()}
    if BASE in a.kinds and (large := if_available(lambda: a.large)):
        columns[f"chase, {a.page_labels[large]}"] = a.speedup(large)
    lines = published["working_set_bytes"] // a.base_page_bytes
    for name, curve in columns.items():
        decimals = 1 if name.endswith("ns") else 2
        found = [curve.get(n) for n in lines]
        table[name] = [f"{v:.{decimals}f}" if isfinite(v.value) else "–" for v in found]
    return data_table(table)
