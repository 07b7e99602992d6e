"""The tables of the chapter about page sizes, one function a table."""

from __future__ import annotations

import pandas as pd

from experiments.hugepages.analysis import Analysis
from experiments.hugepages.languages import jmh
from experiments.hugepages.languages.jvm import HEAP_PAGES
from tlb.inference.curves import select
from tlb.page_sizes import BASE, PAGES, SWEPT, ordered
from tlb.reasons import if_available
from tlb.report.chapter import literature
from tlb.report.render import Html, data_table
from tlb.units import format_size


def published_reads() -> pd.DataFrame:
    """The published times of random reads, without those that were taken under a profiler."""
    reads = literature("jmh_byte_array_touch")
    return reads[(reads["quantity"] == "time") & reads["where"].str.startswith("first table")]


def _beside_published(here: pd.DataFrame) -> Html:
    """ns per read by array_bytes, and the published ones beside them."""
    published = published_reads().pivot(index="array_bytes", columns="pages", values="score")
    table = here.join(
        published[ordered(published)].add_suffix(" published, ns"), how="outer"
    ).sort_index()
    table.insert(0, "array, bytes", [f"{size:,}" for size in table.index])
    return data_table(table.astype(dict.fromkeys(table.columns[1:], float)), decimals=2)


def offered(a: Analysis) -> Html:
    """What was asked for and what was had: a row a page size, each process verified on it."""
    rows = []
    for pages in SWEPT:
        size = PAGES[pages]
        verified, curve = (a.frame["pages"] == pages).sum(), a.spread[pages]
        rows.append(
            (
                pages,
                size.words,
                size.asked,
                f"{verified:,}" if verified else "none",
                format_size(curve.xs[-1] * a.base_page_bytes) if len(curve) else "–",
            )
        )
    return data_table(
        pd.DataFrame(
            rows,
            columns=[
                "pages",
                "what they are",
                "asked for by",
                "processes verified on them",
                "largest chase",
            ],
        )
    )


def speedups(a: Analysis) -> Html:
    """The published loop, as published and on this machine, a row each published size, with the
    speedup of each page size over base pages; last, the speedup of the dependent chase on 2 MiB
    pages. A dash where something was not measured."""
    published = literature("hugepages_speedup").eval(
        f"lines = working_set_bytes // {a.base_page_bytes}"
    )
    names = {"ns_per_access_4k": "4k, ns", "ns_per_access_2m": "2m, ns", "speedup_ratio": "speedup"}
    table = published[list(names)].rename(columns=names).add_prefix("published ").astype(float)
    table.insert(0, "working set", published["working_set_bytes"].map(format_size))
    curves = {pages: curve for pages, curve in a.gathers.items() if len(curve)}
    ratios = {
        f"{pages} speedup": curves[BASE] / curve
        for pages, curve in curves.items()
        if BASE in curves and pages != BASE
    }
    if BASE in a.kinds and (large := if_available(lambda: a.large)):
        ratios[f"chase, {large} speedup"] = a.speedup(large)
    for name, curve in (
        {f"{pages} here, ns": curve for pages, curve in curves.items()} | ratios
    ).items():
        table[name] = [curve.get(lines).value for lines in published["lines"]]
    return data_table(table, decimals=2)


def reads(a: Analysis) -> Html:
    """ns per read by array size: here on each page size, the draw alone, and the published figures
    beside them."""
    here = a.touches.pivot(index="array_bytes", columns="pages", values="median")
    table = here[ordered(here)].add_suffix(" here, ns")
    if len(here):
        table["draw alone, ns"] = a.touches["generator_ns"].median()
    return _beside_published(table)


def counts(a: Analysis) -> Html:
    """Misses per read of the largest published array: walks as counted here (a dash where nothing
    counts), and JMH's dTLB-load-misses."""
    published = select(literature("jmh_byte_array_touch"), quantity="dTLB-load-misses").set_index(
        "pages"
    )
    here = select(
        a.frame, kernel="random_touch", bytes=int(published["array_bytes"].iloc[0]), spare_draws=0
    )
    counted = (
        here.groupby("pages")["walk_per_access"].median()
        if "walk_per_access" in here
        else pd.Series(dtype=float)
    )
    kinds = ordered({*here["pages"], *published.index})
    return data_table(
        pd.DataFrame(
            {
                "pages": kinds,
                "walks per read here": counted.reindex(kinds).to_numpy(float),
                "published dTLB-load-misses per read": published["score"]
                .reindex(kinds)
                .to_numpy(float),
                "relation": published["relation"].reindex(kinds).fillna("").to_numpy(),
            }
        ),
        decimals=3,
    )


def jvm(a: Analysis) -> Html:
    """ns per read by array size in the JVM: here on each page size, and published."""
    here = (
        jmh.touches(a.scores)
        .pivot(index="array_bytes", columns="pages", values="score")
        .reindex(columns=HEAP_PAGES)
    )
    return _beside_published(here.add_suffix(" here, ns"))
