"""What first touches cost, how many of them fault, and what threads cost each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from experiments.page_faults import kernel_side
from experiments.page_faults.grid import (
    CHUNK_BYTES,
    CHUNKS,
    LARGE,
    LINE_BYTES,
    PAGES_WRITTEN_AT_ONCE,
)
from experiments.page_faults.kernel_side import KernelSide
from experiments.page_faults.models import Sample, sample_from_interval
from tlb.report import analysis
from tlb.report.chapter import literature
from tlb.stats.curves import Curve, select
from tlb.stats.hops import with_one_clock
from tlb.stats.intervals import UNKNOWN, Interval, median_interval, summarise_beside
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable, if_available, required

BINS_AN_OCTAVE = 16  # of the histogram, as kernels/touches.h merges them
DRAWN_AN_OCTAVE = 2  # bins of the figure: what the eye tells apart on a page
LEAST_NS = 8.0  # what is faster is within the clock's own step of a load from a near cache
CHUNK_LINES = CHUNKS * CHUNK_BYTES // LINE_BYTES  # of the published chunks
BESIDE = ["faults_per_access", "unmap_ns_per_access", "mean_ns", "p50_ns", "p95_ns"]
BESIDE += ["untouched_table_bytes", "filled_table_bytes"]
Value = TypeVar("Value")


class Touch(NamedTuple):
    """How pages are touched for the first time: page_fault's options."""

    mode: str
    order: str = "cycle"
    populate: int = 0
    pages: str = BASE
    written: int = 1


FILE_PAGES = Touch("file")
PREPARED_FILE_PAGES = Touch("file", populate=1)
FILE_PAGES_AT_ONCE = Touch("file", written=PAGES_WRITTEN_AT_ONCE)
FRESH_MEMORY = Touch("anonymous")
FRESH_READY = Touch("anonymous", populate=1)
FRESH_LARGE_MEMORY = Touch("anonymous", pages=LARGE)
NAMED_TOUCHES = {
    FILE_PAGES: "file in memory, shuffled",
    Touch("file", "sequential"): "file in memory, in order",
    PREPARED_FILE_PAGES: "file in memory, populated",
    FILE_PAGES_AT_ONCE: "file in memory, large folios",
    FRESH_MEMORY: "fresh memory, 4 KiB",
    FRESH_READY: "fresh memory, 4 KiB, populated",
    FRESH_LARGE_MEMORY: "fresh memory, 2 MiB (THP)",
}


class Analysis(analysis.Analysis):
    """The rows of `page_fault`, `touch_again`, `map_churn` and `prefault`. Tables of what was not
    measured are empty; methods raise Unavailable, too-few-points if they name no other reason.

    The page defines: shown, histograms, pages_per_fault, per_fault, rates, published_test,
    published_buckets, usual and profiles.
    """

    documents = ("side",)

    def __init__(self, frame: pd.DataFrame, *more: Any):
        super().__init__(with_one_clock(frame), *more)

    # --- first touches

    def rows(self, way: Touch) -> pd.DataFrame:
        return select(self.frame, kernel="page_fault", **way._asdict())

    @cached_property
    def touches(self) -> dict[Touch, pd.Series]:
        """By way, if measured: median, low, high ... of ns a page, as published: touched and
        unmapped, less a mapping that was not touched; and the medians of BESIDE."""
        found = {}
        for way in NAMED_TOUCHES:
            rows = self.rows(way)
            if len(rows):
                beside = {name: name for name in BESIDE if name in rows}
                found[way] = summarise_beside(rows.assign(all=0), ["all"], beside).iloc[0]
        return found

    def touch(self, way: Touch) -> pd.Series:
        if way not in self.touches:
            raise Unavailable("too-few-points", f"{NAMED_TOUCHES[way]} was not measured")
        return self.touches[way]

    def page_ns(self, way: Touch) -> Interval:
        return Interval.of(self.touch(way))

    @staticmethod
    def known(values: Mapping[Touch, Value], way: Touch) -> Value:
        """Return what a table of the page has for a way."""
        if way not in values:
            raise Unavailable(
                "too-few-points", f"{NAMED_TOUCHES[way]} was not measured, or did not fault"
            )
        return values[way]

    def histograms_of(self, ways: Iterable[Touch]) -> pd.DataFrame:
        """Return how long single touches took, all processes of a way together: way (in words), ns
        (the middle of a bin), low_ns, high_ns and share."""
        tables = [_histogram(self.rows(way)).assign(way=NAMED_TOUCHES[way]) for way in ways]
        return pd.concat(tables, ignore_index=True)

    # --- the published statistics

    @cached_property
    def published(self) -> dict[int, Sample]:
        """By levels: the sample behind the published mean of minor faults and its interval."""
        rows = select(literature("page_fault_levels"), benchmark="lat_pagefault")
        columns = ["ns_per_fault", "ci95_low_ns_per_fault", "ci95_high_ns_per_fault"]
        samples = {}
        for _, row in rows.iterrows():
            mean, low, high = row[columns]
            runs = int(row["run_count"])
            samples[int(row["page_table_levels"])] = sample_from_interval(mean, low, high, runs)
        return samples

    @cached_property
    def published_means(self) -> dict[int, float]:
        """By levels: total over count of the published histograms, ns a fault."""
        rows = literature("page_fault_levels").dropna(subset=["total_ns"])
        means = rows["total_ns"] / rows["fault_count"]
        return dict(zip(rows["page_table_levels"].tolist(), means.tolist(), strict=True))

    def printed_buckets(self) -> pd.DataFrame:
        """Return a row a level and bucket of the published histograms: page_table_levels, from_ns,
        to_ns, fault_count, and all_faults, the count that is printed below it."""
        levels = literature("page_fault_levels").dropna(subset=["fault_count"])
        counts = levels.set_index("page_table_levels")["fault_count"]
        columns = ["page_table_levels", "from_ns", "to_ns", "fault_count"]
        rows = literature("page_fault_histogram")[columns]
        return rows.assign(all_faults=rows["page_table_levels"].map(counts))

    # --- threads

    def churn(self, mode: str) -> Curve:
        """Return ns a record of all threads together, over the number of threads."""
        return Curve.of(self._chunks(mode), "threads")

    def _chunks(self, mode: str) -> pd.DataFrame:
        return select(self.frame, kernel="map_churn", mode=mode, pages=BASE, lines=CHUNK_LINES)

    def churned(self, pages: str) -> Interval:
        """Return ns a record whose chunk is as large as a large page, by one thread."""
        rows = select(self.frame, kernel="map_churn", mode="unmap", pages=pages)
        rows = rows[rows["lines"] != CHUNK_LINES] if len(rows) else rows
        required(rows, "no chunk as large as a large page was mapped")
        return median_interval(rows["ns_per_access"])

    def rates_by(self, mean: Callable[[pd.Series], Interval]) -> pd.DataFrame:
        """Return a row a mode and number of threads: rate, records a second as this mean of the
        processes' rates, with its bounds, which single processes lack; faults, a record; is_beyond:
        more threads than CPUs."""
        columns = ["mode", "threads", "rate", "low", "high", "n", "faults", "is_beyond"]
        rows = []
        for mode in ("unmap", "keep"):
            chunks = self._chunks(mode)
            for _, part in chunks.groupby("threads") if len(chunks) else ():
                threads = int(part["threads"].iloc[0])
                rates = 1e9 / part["ns_per_access"]
                rate = mean(rates)
                if np.isnan(rate.value):
                    rate = replace(UNKNOWN, value=float(rates.iloc[0]))
                faults, is_beyond = part["faults_per_access"].median(), part["cpus"].min() < threads
                found = rate.value_and_bounds
                rows.append((mode, threads, *found, len(part), float(faults), is_beyond))
        return pd.DataFrame(rows, columns=columns).astype({"is_beyond": bool})

    @property
    def most_real_threads(self) -> int:
        """The most threads that had a CPU each."""
        real = required(self.rates[~self.rates["is_beyond"]], "no threads mapped memory")
        return int(real["threads"].max())

    def prefaulted(self, threads: int, pages: str = BASE) -> Interval:
        """Return ns a base page of memory that so many threads touch in parts. Raises
        Unavailable: too-few-points, one-cpu."""
        rows = select(self.frame, kernel="prefault", mode="touch", pages=pages, threads=threads)
        has_cpus = threads == 1 or len(self.host.usable_cpus) >= threads
        reason = "too-few-points" if has_cpus else "one-cpu"
        return median_interval(required(rows, f"{threads} threads", reason)["ns_per_access"])

    # --- memory that was left alone

    def left_alone(self) -> pd.Series:
        """Return ns a base page, a process each, of memory on large pages that was given back, left
        alone for the longest time measured, and touched again."""
        rows = select(self.frame, kernel="touch_again", pages=LARGE)
        rows = required(rows, "no memory was left alone")
        return rows.loc[rows["idle_ms"] == rows["idle_ms"].max(), "mean_ns"]

    # --- what the Linux kernel reports

    @cached_property
    def side(self) -> KernelSide:
        """What Linux reports here."""
        return self.document("kernel_side", kernel_side.make, KernelSide)

    def sampled(self) -> pd.DataFrame:
        """Return a row a function: symbol, its share of the samples on base pages and on large ones
        (`base`, `large`), widest difference first. Empty without profiles."""
        profiles = if_available(lambda: self.side.profiles) or {}
        profiles = profiles if {BASE, LARGE} <= set(profiles) else {BASE: {}, LARGE: {}}
        named = {"base": profiles[BASE], "large": profiles[LARGE]}
        columns = {name: pd.Series(shares, dtype=float) for name, shares in named.items()}
        table = pd.DataFrame(columns).fillna(0.0)
        widths = (table["base"] - table["large"]).abs().sort_values(ascending=False, kind="stable")
        return table.loc[widths.index].rename_axis("symbol").reset_index()


def _histogram(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the histograms of several processes as one, each process alike, less the clock's own
    cost: ns, low_ns, high_ns, share."""
    tables = [pd.DataFrame({"ns": [], "share": []}, dtype=float)]
    for _, row in rows.iterrows():
        bins = np.array([tuple(pair) for pair in row["histogram"]], dtype=float).reshape(-1, 2)
        octave = np.log2(np.maximum(bins[:, 0] * row["tsc_ghz"], 1.0))
        ticks = np.maximum(2.0 ** np.floor(octave) / BINS_AN_OCTAVE, BINS_AN_OCTAVE / 2)
        middle = bins[:, 0] + ticks / row["tsc_ghz"] / 2 - row["clock_ns"]
        share = bins[:, 1] / max(bins[:, 1].sum(), 1) / len(rows)
        tables.append(pd.DataFrame({"ns": middle, "share": share}))
    whole = pd.concat(tables)
    place = np.round(np.log2(np.maximum(whole["ns"], LEAST_NS)) * DRAWN_AN_OCTAVE)
    shares = whole["share"].groupby(place).sum()
    middle = 2.0 ** (shares.index.to_numpy(float) / DRAWN_AN_OCTAVE)
    half = 2.0 ** (0.5 / DRAWN_AN_OCTAVE)
    columns = {"ns": middle, "low_ns": middle / half, "high_ns": middle * half}
    return pd.DataFrame(columns | {"share": shares.to_numpy()})
