"""The tables of the chapter about getting pages, one function a table."""

from __future__ import annotations

import pandas as pd

from experiments.keeping_pages.analysis import Analysis
from experiments.keeping_pages.ways import WAYS
from tlb.reasons import REASONS
from tlb.report.render import Html, data_table
from tlb.units import format_size


def ways(a: Analysis) -> Html:
    """Return a row a way of asking: what was written, what that made resident, and how much of it
    lies on large pages."""
    rows = []
    for name in WAYS:
        got = next((got for got in a.ways.got if got.way == name), None)
        if name in a.ways.lacking:
            rows.append((a.ways.asked(name), "–", "–", REASONS[a.ways.lacking[name]].sentence))
        elif got:
            written, resident = format_size(got.array_bytes), format_size(got.resident_bytes)
            rows.append((a.ways.asked(name), written, resident, f"{100 * got.huge_share:.0f} %"))
    columns = ["asked by", "asked for, written", "resident with it", "of that on large pages"]
    return data_table(pd.DataFrame(rows, columns=columns))


def languages(a: Analysis) -> Html:
    """Return what each language's program got: plain, advised, from the pool."""
    columns = {
        "huge_share": "on huge pages, %",
        "elsewhere_huge_bytes": "huge elsewhere, bytes",
        "ns_per_access": "ns per read",
        "plain_over_this": "plain over this",
        "differs": "repeats differ",
    }
    differs = a.variants["differs"].map({True: "yes", False: "no"})
    differs = differs.mask(a.variants["variant"] == "plain", "–")
    runs = a.variants.assign(huge_share=100 * a.variants["huge_share"], differs=differs)
    return data_table(runs.rename(columns=columns), decimals=2)
