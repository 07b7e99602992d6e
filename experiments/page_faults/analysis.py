"""What first touches say: what a page costs and how many of them fault, what threads cost each
other, and what a host adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from experiments.page_faults import kernel_side
from experiments.page_faults.grid import AT_ONCE, CHUNK_BYTES, CHUNKS, LARGE, LINE_BYTES
from experiments.page_faults.kernel_side import KernelSide
from tlb.inference import student
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import UNKNOWN, Interval, median_interval, summarise, summarise_beside
from tlb.inference.student import Sample, Test
from tlb.page_sizes import BASE
from tlb.reasons import Unavailable, if_available, required
from tlb.report import analysis
from tlb.report.chapter import literature

BINS_AN_OCTAVE = 16  # of the histogram, as kernels/touches.h merges them
DRAWN_AN_OCTAVE = 2  # bins of the figure: what the eye tells apart on a page
LEAST_NS = 8.0  # what is faster is within the clock's own step of a load from a near cache
BESIDE = (
    "faults_per_access",
    "map_ns_per_access",
    "later_ns_per_access",
    "p50_ns",
    "p99_ns",
    "unmap_ns_per_access",
    "unmap_empty_ns_per_access",
    "protect_ns_per_access",
    "protect_empty_ns_per_access",
    "fork_ns_per_access",
    "fork_empty_ns_per_access",
    "untouched_table_bytes",
    "filled_table_bytes",
)
Value = TypeVar("Value")


class Way(NamedTuple):
    """How pages are touched for the first time: page_fault's mode, order, populate, pages and
    written."""

    mode: str
    order: str = "cycle"
    populate: int = 0
    pages: str = BASE
    written: int = 1


FILE, IN_ORDER, FILE_READY, FILE_AT_ONCE = (
    Way("file"),
    Way("file", "sequential"),
    Way("file", populate=1),
    Way("file", written=AT_ONCE),
)
FRESH, FRESH_READY, FRESH_LARGE = (
    Way("anonymous"),
    Way("anonymous", populate=1),
    Way("anonymous", pages=LARGE),
)
WAYS = {
    FILE: "a file, shuffled",
    IN_ORDER: "a file, in order",
    FILE_READY: "a file, populated",
    FILE_AT_ONCE: "a file, written at once",
    FRESH: "fresh memory",
    FRESH_READY: "fresh memory, populated",
    FRESH_LARGE: "fresh memory, huge pages",
}


class Analysis(analysis.Analysis):
    """The rows of `page_fault`, `touch_again`, `map_churn` and `prefault`. What nothing was
    measured for is empty here; methods raise Unavailable.

    The page defines: shown, histograms, pages_per_fault, per_fault, charged, rates, published_test,
    published_buckets and profiles.
    """

    documents = ("side",)

    # --- first touches

    def rows(self, way: Way) -> pd.DataFrame:
        """The processes of one way; none where it was not measured."""
        return select(self.frame, kernel="page_fault", **way._asdict())

    @cached_property
    def touches(self) -> dict[Way, pd.Series]:
        """By way: median, low, high ... of ns a page, as published: touched and taken away, less a
        mapping that nobody touched; and the medians of BESIDE. Only those that were measured."""
        found = {}
        for way in WAYS:
            rows = self.rows(way)
            if len(rows):
                found[way] = summarise_beside(
                    rows.assign(all=0), ["all"], {name: name for name in BESIDE if name in rows}
                ).iloc[0]
        return found

    def touch(self, way: Way) -> pd.Series:
        """`touches` of a way. Raises Unavailable("too-few-points")."""
        return required(
            [self.touches[way]] if way in self.touches else [], f"{WAYS[way]} was not measured"
        )[0]

    def page_ns(self, way: Way) -> Interval:
        """ns a page. Raises Unavailable("too-few-points")."""
        return Interval.of(self.touch(way))

    @staticmethod
    def known(values: Mapping[Way, Value], way: Way) -> Value:
        """Return what a table of the page says of a way. Raises Unavailable("too-few-points")."""
        return required(
            [values[way]] if way in values else [],
            f"{WAYS[way]} was not measured, or did not fault",
        )[0]

    def histograms_of(self, ways: Iterable[Way]) -> pd.DataFrame:
        """Return what single touches took, all processes of a way together: way (in words), ns (the
        middle of a bin), low_ns, high_ns and share."""
        parts = [
            _histogram(self.rows(way)).assign(way=WAYS[way]) for way in ways if len(self.rows(way))
        ]
        parts = [part for part in parts if len(part)]
        return (
            pd.concat(parts, ignore_index=True)
            if parts
            else pd.DataFrame(columns=["ns", "low_ns", "high_ns", "share", "way"])
        )

    # --- in a memory cgroup and outside

    def grouped(self) -> pd.DataFrame:
        """Return a row a process that alternated between a memory cgroup and the root: inside_ns
        and outside_ns, a page."""
        rows = select(self.frame, kernel="page_fault", mode="grouped")
        if not len(rows) or "outside_ns_per_access" not in rows:
            return pd.DataFrame(columns=["inside_ns", "outside_ns"], dtype=float)
        inside, outside = rows["ns_per_access"], rows["outside_ns_per_access"]
        return pd.DataFrame({"inside_ns": inside, "outside_ns": outside}).reset_index(drop=True)

    @property
    def group_ratio(self) -> Interval:
        """A page's time in a memory cgroup over that outside, process by process. Raises
        Unavailable, as the rows' lack has it."""
        return median_interval(
            required(self.charged, "no page was charged to a memory cgroup", "no-memory-group")[
                "ratio"
            ]
        )

    # --- the published statistics, and the same done here

    @cached_property
    def published(self) -> dict[int, Sample]:
        """By levels: the sample behind the published mean of minor faults and its interval."""
        rows = select(literature("page_fault_levels"), benchmark="lat_pagefault")
        return {
            int(row.page_table_levels): student.printed(
                row.ns_per_fault,
                row.ci95_low_ns_per_fault,
                row.ci95_high_ns_per_fault,
                int(row.run_count),
            )
            for row in rows.itertuples()
        }

    @cached_property
    def own_test(self) -> Test:
        """The same test of this machine's pages inside a memory cgroup less outside. Raises
        Unavailable."""
        rows = required(self.charged, "no page was charged to a memory cgroup", "no-memory-group")
        return student.compare(
            student.sample(rows["outside_ns"]), student.sample(rows["inside_ns"])
        )

    @cached_property
    def published_means(self) -> dict[int, float]:
        """By levels: total over count of the published histograms, ns a fault."""
        rows = literature("page_fault_levels").dropna(subset=["total_ns"])
        return {
            int(row.page_table_levels): row.total_ns / row.fault_count for row in rows.itertuples()
        }

    def printed_buckets(self) -> pd.DataFrame:
        """Return a row a level and bucket of the published histograms: page_table_levels, from_ns,
        to_ns, fault_count, and all_faults, the count that is printed below it."""
        counts = (
            literature("page_fault_levels")
            .dropna(subset=["fault_count"])
            .set_index("page_table_levels")["fault_count"]
        )
        rows = literature("page_fault_histogram")[
            ["page_table_levels", "from_ns", "to_ns", "fault_count"]
        ]
        return rows.assign(all_faults=rows["page_table_levels"].map(counts))

    # --- threads

    def churn(self, mode: str) -> Curve:
        """ns a record of all threads together, over the number of threads; of chunks as published."""
        return Curve.of(
            self.frame,
            "threads",
            kernel="map_churn",
            mode=mode,
            pages=BASE,
            lines=CHUNKS * CHUNK_BYTES // LINE_BYTES,
        )

    def churned(self, pages: str) -> Interval:
        """ns a record whose chunk is as large as a large page, by one thread. Raises
        Unavailable("too-few-points")."""
        rows = select(self.frame, kernel="map_churn", mode="unmap", pages=pages)
        rows = rows[rows["lines"] != CHUNKS * CHUNK_BYTES // LINE_BYTES] if len(rows) else rows
        return median_interval(
            required(rows, "no chunk as large as a large page was mapped")["ns_per_access"]
        )

    def rates_by(self, mean: Callable[[pd.Series], Interval]) -> pd.DataFrame:
        """Return a row a mode and number of threads: records a second as this mean of the
        processes' rates, with its bounds, which single processes lack; faults a record; is_beyond:
        more threads than CPUs."""
        rows = []
        for mode in ("unmap", "keep"):
            found = select(
                self.frame,
                kernel="map_churn",
                mode=mode,
                pages=BASE,
                lines=CHUNKS * CHUNK_BYTES // LINE_BYTES,
            )
            for threads, part in found.groupby("threads") if len(found) else ():
                rate = mean(1e9 / part["ns_per_access"])
                rate = (
                    rate
                    if rate.value == rate.value
                    else UNKNOWN._replace(value=1e9 / float(part["ns_per_access"].iloc[0]))
                )
                rows.append(
                    (
                        mode,
                        int(threads),
                        *rate[:3],
                        len(part),
                        float(part["faults_per_access"].median()),
                        bool((part["cpus"] < threads).any()),
                    )
                )
        return pd.DataFrame(
            rows, columns=["mode", "threads", "rate", "low", "high", "n", "faults", "is_beyond"]
        )

    @property
    def most_real_threads(self) -> int:
        """The most threads that had a CPU each. Raises Unavailable("too-few-points")."""
        return int(
            required(self.rates[~self.rates["is_beyond"].astype(bool)], "no threads mapped memory")[
                "threads"
            ].max()
        )

    def prefaulted(self, threads: int) -> Interval:
        """ns a base page of memory that so many threads touch in parts. Raises
        Unavailable("too-few-points", or "one-cpu")."""
        rows = select(self.frame, kernel="prefault", mode="touch", pages=BASE, threads=threads)
        alone = threads > 1 and len(self.host.usable_cpus) < threads
        return median_interval(
            required(rows, f"{threads} threads", "one-cpu" if alone else "too-few-points")[
                "ns_per_access"
            ]
        )

    # --- memory that was left alone

    @cached_property
    def again(self) -> pd.DataFrame:
        """A row a page size and wait: pages, idle_ms, median, low, high ... of ns a page when
        touched again, and first, the same process's first time."""
        rows = select(self.frame, kernel="touch_again")
        if not len(rows):
            return pd.DataFrame(columns=["pages", "idle_ms", "median", "low", "high", "n", "first"])
        return summarise(rows, ["pages", "idle_ms"], "mean_ns").merge(
            rows.groupby(["pages", "idle_ms"])["first_ns_per_access"]
            .median()
            .rename("first")
            .reset_index()
        )

    def first_ns(self, pages: str) -> Interval:
        """A page of memory that the kernel found for a new process. Raises
        Unavailable("too-few-points")."""
        rows = select(self.frame, kernel="touch_again", pages=pages)
        return median_interval(required(rows, "no memory was touched again")["first_ns_per_access"])

    def waited(self, pages: str) -> tuple[Interval, Interval, float]:
        """A page that is touched again at once, and after the longest wait, and how long that was,
        in seconds. Raises Unavailable."""
        rows = self.again[(self.again["pages"] == pages)].sort_values("idle_ms")
        if len(rows) < 2:
            raise Unavailable("too-few-points", "no memory was left alone and touched again")
        return (
            Interval.of(rows.iloc[0]),
            Interval.of(rows.iloc[-1]),
            float(rows["idle_ms"].iloc[-1]) / 1e3,
        )

    # --- the kernel's own words

    @cached_property
    def side(self) -> KernelSide:
        """What this computer's kernel says and lets be seen. Raises Unavailable, as `document`
        does."""
        return self.document("kernel_side", kernel_side.make, KernelSide)

    def sampled(self) -> pd.DataFrame:
        """Return a row a function: symbol, its share of the samples on base pages and on large ones
        (`base`, `large`), widest difference first. Empty without profiles."""
        side = if_available(lambda: self.side)
        if not side or not {BASE, LARGE} <= set(side.profiles):
            return pd.DataFrame(columns=["symbol", "base", "large"]).astype(
                {"base": float, "large": float}
            )
        base, large = (pd.Series(side.profiles[pages], dtype=float) for pages in (BASE, LARGE))
        table = pd.DataFrame({"base": base, "large": large}).fillna(0.0)
        widest = (
            (table["base"] - table["large"]).abs().sort_values(ascending=False, kind="stable").index
        )
        return table.loc[widest].rename_axis("symbol").reset_index()


def _histogram(rows: pd.DataFrame) -> pd.DataFrame:
    """The histograms of several processes as one, each process alike; less the clock's own cost."""
    parts = []
    for _, row in rows.iterrows():
        bins = np.array([tuple(pair) for pair in row["histogram"]], dtype=float).reshape(-1, 2)
        if len(bins):
            ticks = np.maximum(bins[:, 0] * row["tsc_ghz"], 1.0)
            width = (
                np.maximum(2.0 ** np.floor(np.log2(ticks)) / BINS_AN_OCTAVE, BINS_AN_OCTAVE / 2)
                / row["tsc_ghz"]
            )
            middle = bins[:, 0] + width / 2 - row["clock_ns"]
            parts.append(
                pd.DataFrame({"ns": middle, "share": bins[:, 1] / bins[:, 1].sum() / len(rows)})
            )
    if not parts:
        return pd.DataFrame(columns=["ns", "low_ns", "high_ns", "share"])
    whole = pd.concat(parts)
    place = np.round(np.log2(np.maximum(whole["ns"], LEAST_NS)) * DRAWN_AN_OCTAVE)
    binned = whole["share"].groupby(place).sum()
    middle = 2.0 ** (binned.index.to_numpy() / DRAWN_AN_OCTAVE)
    half = 2.0 ** (0.5 / DRAWN_AN_OCTAVE)
    return pd.DataFrame(
        {
            "ns": middle,
            "low_ns": middle / half,
            "high_ns": middle * half,
            "share": binned.to_numpy(),
        }
    )
