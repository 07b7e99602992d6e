"""The tables of the chapter about getting pages, one function a table."""

from __future__ import annotations

import pandas as pd

from experiments.keeping_pages.analysis import Analysis
from experiments.keeping_pages.ways import WAYS
from tlb.reasons import REASONS, required
from tlb.report.render import Html, data_table
from tlb.units import format_size


def ways(a: Analysis) -> Html:
    """A row a way of asking: what was written, what that made resident, and how much of it lies on
    large pages."""
    rows = []
    for name in WAYS:
        if name in a.ways.lacking:
            rows.append((a.ways.asked(name), "–", "–", REASONS[a.ways.lacking[name]].sentence))
        elif any(got.way == name for got in a.ways.got):
            got = a.ways.of(name)
            rows.append(
                (
                    a.ways.asked(name),
                    format_size(got.array_bytes),
                    format_size(got.resident_bytes),
                    f"{100 * got.huge_share:.0f} %",
                )
            )
    return data_table(
        pd.DataFrame(
            rows,
            columns=[
                "asked by",
                "asked for, written",
                "resident with it",
                "of that on large pages",
            ],
        )
    )


def faults(a: Analysis) -> Html:
    """Rates by page size and way, and what one byte costs."""
    rates, base = required(a.faults, "prefault", "engine-lacks"), format_size(a.base_page_bytes)
    return data_table(
        pd.DataFrame(
            {
                "pages": rates["pages"],
                "way": rates["mode"],
                "threads": rates["threads"],
                f"ns per {base}": rates["median"],
                "GB/s": rates["gb_per_s"],
                f"freeing, ns per {base}": rates["free_ns"],
                "resident for one byte": [
                    format_size(int(size)) for size in rates["one_byte_bytes"]
                ],
            }
        ),
        decimals=2,
    )


def languages(a: Analysis) -> Html:
    """What each language's program got: plain, advised, from the pool."""
    runs = a.variants
    return data_table(
        pd.DataFrame(
            {
                "language": runs["language"],
                "toolchain": runs["toolchain"],
                "variant": runs["variant"],
                "on huge pages, %": 100 * runs["huge_share"],
                "huge elsewhere, bytes": runs["elsewhere_huge_bytes"],
                "ns per read": runs["ns_per_access"],
                "plain over this": runs["plain_over_this"],
                "repeats differ": [
                    "–" if variant == "plain" else "yes" if differs else "no"
                    for variant, differs in zip(runs["variant"], runs["differs"], strict=True)
                ],
            }
        ),
        decimals=2,
    )
