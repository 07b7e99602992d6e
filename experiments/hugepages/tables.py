"""The tables of the chapter about huge pages."""

from __future__ import annotations

from experiments.hugepages.analysis import Analysis
from tlb.page_sizes import BASE
from tlb.reasons import if_available
from tlb.report.chapter import literature
from tlb.report.render import Html, data_table
from tlb.units import format_size


def speedups(a: Analysis) -> Html:
    """Return a row a published size: the published loop as published and here, with the speedup of
    each page size over base pages, and that of the dependent chase on 2 MiB pages."""
    published = literature("hugepages_speedup")
    names = {
        "ns_per_access_4k": "4 KiB, ns",
        "ns_per_access_2m": "2 MiB, ns",
        "speedup_ratio": "speedup",
    }
    table = published[list(names)].rename(columns=names).add_prefix("published ").astype(float)
    table.insert(0, "working set", published["working_set_bytes"].map(format_size))
    measured = {pages: curve for pages, curve in a.gathers.items() if len(curve)}
    columns = {f"{a.page_labels[pages]} here, ns": curve for pages, curve in measured.items()}
    for pages, curve in measured.items():
        if BASE in measured and pages != BASE:
            columns[f"{a.page_labels[pages]} speedup"] = measured[BASE] / curve
    if BASE in a.kinds and (large := if_available(lambda: a.large)):
        columns[f"chase, {a.page_labels[large]} speedup"] = a.speedup(large)
    lines = published["working_set_bytes"] // a.base_page_bytes
    for name, curve in columns.items():
        table[name] = [curve.get(n).value for n in lines]
    return data_table(table, decimals=2)
