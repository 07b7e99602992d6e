"""The tables of the chapter about page sizes, one function a table."""

from __future__ import annotations

import pandas as pd

from experiments.hugepages.analysis import Analysis
from tlb.inference.curves import select
from tlb.page_sizes import BASE, PAGES, SWEPT, ordered
from tlb.programs import jmh
from tlb.programs.jvm import HEAP_PAGES
from tlb.reasons import if_available
from tlb.report.chapter import literature
from tlb.report.render import Html, data_table
from tlb.units import format_size


def published_reads() -> pd.DataFrame:
    """Return the published times of random reads that were taken without a profiler."""
    reads = literature("jmh_byte_array_touch")
    return reads[(reads["quantity"] == "time") & reads["where"].str.startswith("first table")]


def _beside_published(here: pd.DataFrame) -> Html:
    """Return ns per read by array_bytes, and the published ones beside them."""
    published = published_reads().pivot(index="array_bytes", columns="pages", values="score")
    published = published[ordered(published)].add_suffix(" published, ns")
    table = here.join(published, how="outer").sort_index().astype(float)
    table.insert(0, "array, bytes", [f"{size:,}" for size in table.index])
    return data_table(table, decimals=2)


def offered(a: Analysis) -> Html:
    """Return a row a page size: how it is asked for, and how many processes were verified on it."""
    rows = []
    for pages in SWEPT:
        verified, curve = (a.frame["pages"] == pages).sum(), a.spread[pages]
        row = {
            "pages": pages,
            "what they are": PAGES[pages].words,
            "asked for by": PAGES[pages].asked,
            "processes verified on them": f"{verified:,}" if verified else "none",
            "largest chase": format_size(curve.xs[-1] * a.base_page_bytes) if len(curve) else "–",
        }
        rows.append(row)
    return data_table(pd.DataFrame(rows))


def speedups(a: Analysis) -> Html:
    """Return a row a published size: the published loop as published and here, with the speedup of
    each page size over base pages, and that of the dependent chase on 2 MiB pages."""
    published = literature("hugepages_speedup")
    names = {"ns_per_access_4k": "4k, ns", "ns_per_access_2m": "2m, ns", "speedup_ratio": "speedup"}
    table = published[list(names)].rename(columns=names).add_prefix("published ").astype(float)
    table.insert(0, "working set", published["working_set_bytes"].map(format_size))
    measured = {pages: curve for pages, curve in a.gathers.items() if len(curve)}
    columns = {f"{pages} here, ns": curve for pages, curve in measured.items()}
    for pages, curve in measured.items():
        if BASE in measured and pages != BASE:
            columns[f"{pages} speedup"] = measured[BASE] / curve
    if BASE in a.kinds and (large := if_available(lambda: a.large)):
        columns[f"chase, {large} speedup"] = a.speedup(large)
    lines = published["working_set_bytes"] // a.base_page_bytes
    for name, curve in columns.items():
        table[name] = [curve.get(n).value for n in lines]
    return data_table(table, decimals=2)


def reads(a: Analysis) -> Html:
    """Return ns per read by array size: here on each page size, the draw alone, and published."""
    here = a.touches.pivot(index="array_bytes", columns="pages", values="median")
    table = here[ordered(here)].add_suffix(" here, ns")
    if len(here):
        table["draw alone, ns"] = a.touches["generator_ns"].median()
    return _beside_published(table)


def counts(a: Analysis) -> Html:
    """Return misses per read of the largest published array: page walks as counted here, and JMH's
    dTLB-load-misses."""
    published = select(literature("jmh_byte_array_touch"), quantity="dTLB-load-misses")
    size = int(published["array_bytes"].iloc[0])
    here = select(a.frame, kernel="random_touch", bytes=size, spare_draws=0)
    walks = here.reindex(columns=["pages", "walk_per_access"]).groupby("pages").median()
    kinds = ordered({*here["pages"], *published["pages"]})
    published = published.set_index("pages").reindex(kinds)
    table = pd.DataFrame(
        {
            "pages": kinds,
            "walks per read here": walks["walk_per_access"].reindex(kinds).to_numpy(float),
            "published dTLB-load-misses per read": published["score"].to_numpy(float),
            "relation": published["relation"].fillna("").to_numpy(),
        }
    )
    return data_table(table, decimals=3)


def jvm(a: Analysis) -> Html:
    """Return ns per read by array size in the JVM: here on each page size, and published."""
    here = jmh.touches(a.scores).pivot(index="array_bytes", columns="pages", values="score")
    return _beside_published(here.reindex(columns=HEAP_PAGES).add_suffix(" here, ns"))
