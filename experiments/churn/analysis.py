"""Shootdowns, context switches, cold starts, forks and neighbours: what empties a TLB, and what
that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import pandas as pd

from experiments.churn.grid import (
    ARENA_BYTES,
    ARENAS,
    CALLS,
    COLLAPSES,
    DISCARDED,
    FEW,
    FIRST_HOPS,
    HELD,
    LARGE,
    PASSES,
    STREAMED_MIB,
)
from experiments.churn.housekeeping import HousekeepingAnalysis
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import UNKNOWN, Interval, median_interval
from tlb.machine import flushes
from tlb.page_sizes import BASE
from tlb.reasons import required

PHASES = ("before", "during", "after")
NEW = "new"  # a process's first round, beside SWITCHES


class Analysis(HousekeepingAnalysis):
    """The rows of six kernels. What was not measured is empty here; methods raise Unavailable,
    one-cpu without a second CPU.

    The page defines: calls_alone, calls_beside, shootdowns, after, fork_ns, write_ns and loaded.
    """

    documents = ("flushes",)
    on_request = ("housekeeping",)

    def _rows(self, kernel: str, *values: str, **where: object) -> pd.DataFrame:
        """A kernel's rows; none where one of these columns is lacking."""
        rows = select(self.frame, kernel=kernel, **where)
        if kernel == "cold_chase" and len(rows):
            rows = rows[rows["faults_in_passes"] == 0]  # else a fault would pass for a walk
        return (
            rows if {*values} <= set(rows) else rows.iloc[:0].assign(**dict.fromkeys(values, 0.0))
        )

    def require_others(self, rows: Sequence | pd.DataFrame, lacking: str) -> None:
        """Raises Unavailable where there are none: one-cpu, or too-few-points."""
        required(rows, lacking, "one-cpu" if len(self.host.usable_cpus) < 2 else "too-few-points")

    @cached_property
    def flushes(self) -> flushes.Flushes:
        """What this computer states of flushes. Raises Unavailable, as `document` does."""
        return self.document("flushes", flushes.make, flushes.Flushes)

    # --- pages that are removed

    @cached_property
    def most_others(self) -> int:
        """On how many other CPUs the program ran at the most; 0 where it had none."""
        rows = self._rows("shootdown", "threads")
        return int(rows["threads"].max()) if len(rows) else 0

    def calls(self, others: int) -> dict[str, Curve]:
        """By call: ns over the pages that it removes, while the program runs on so many other CPUs
        too."""
        return Curve.by(
            self._rows("shootdown", "threads", pages=BASE, threads=others, apart=0), CALLS, "mode"
        )

    @cached_property
    def by_cpus(self) -> Curve:
        """ns a munmap() of one page over the number of other CPUs that run the program."""
        return Curve.of(
            self._rows("shootdown", "threads", mode=CALLS[0], pages=BASE, lines=FEW, apart=0),
            "threads",
        )

    def beside_processes(self, call: str) -> Interval:
        """ns a call on one page beside as many processes that share nothing. Raises Unavailable."""
        rows = self._rows("shootdown", mode=call, pages=BASE, lines=FEW, apart=1)
        self.require_others(rows, "no calls beside other processes were measured")
        return median_interval(rows["ns_per_access"])

    @cached_property
    def flush_counts(self) -> pd.DataFrame:
        """Return a row a process beside other threads: call, pages taken, flushes asked of the
        other CPUs and seen by them."""
        rows = self._rows(
            "shootdown", "flushes_asked", "flushes_seen", apart=0, pages=BASE, mode=list(CALLS)
        )
        rows = (
            rows[rows["flushes_asked"] > 0].dropna(subset=["flushes_seen"]) if len(rows) else rows
        )
        return rows.assign(call=rows["mode"], taken=rows["lines"])[
            ["call", "taken", "flushes_asked", "flushes_seen"]
        ]

    def share_seen(self) -> float:
        """Return all flushes seen over all asked: a few processes miss many, which a median of
        shares hides. Raises Unavailable: one-cpu, no-flush-count."""
        if len(self.calls_beside):
            required(self.flush_counts, "", "no-flush-count")
        self.require_others(self.flush_counts, "no calls beside other threads were measured")
        return float(
            self.flush_counts["flushes_seen"].sum() / self.flush_counts["flushes_asked"].sum()
        )

    def collapse_ns(self) -> Interval:
        """ns a large page that the kernel makes of base pages on request, on one CPU. Raises
        Unavailable."""
        rows = self._rows("shootdown", "threads", mode="collapse", threads=0)
        return median_interval(required(rows, "no pages were collapsed")["ns_per_access"])

    def flushes_per_collapse(self) -> float:
        """Return flushes that each other CPU sees for a large page made so. Raises Unavailable:
        one-cpu, no-flush-count."""
        rows = self._rows("shootdown", "threads", "flushes_seen", mode="collapse")
        rows = rows[rows["threads"] > 0]
        self.require_others(rows, "no pages were collapsed beside other threads")
        counted = required(rows.dropna(subset=["flushes_seen"]), "", "no-flush-count")
        return float(
            counted["flushes_seen"].sum() / (counted["accesses"] * counted["threads"]).sum()
        )

    @cached_property
    def partial_calls(self) -> pd.DataFrame:
        """A row a call on one base page of each large page: call; ns, beside `base_ns` of a base
        page; and the share that stays large."""
        rows = []
        for call in CALLS:
            of = self._rows("shootdown", "huge_bytes_after", mode=call, pages=LARGE, lines=FEW)
            if len(of):
                alone = self.calls_alone.get(call)
                rows.append(
                    (
                        call,
                        median_interval(of["ns_per_access"]),
                        alone.get(FEW) if alone else UNKNOWN,
                        float((of["huge_bytes_after"] / of["arena_bytes"]).median()),
                    )
                )
        return pd.DataFrame(rows, columns=["call", "ns", "base_ns", "large_share"])

    @cached_property
    def collapses(self) -> pd.DataFrame:
        """A row a mode of collapsing pages, phase and quantile (p50, p999 of slices): median, low,
        high in ns a hop. Empty without rows."""
        rows = []
        for mode in COLLAPSES:
            for phase in PHASES:
                for quantile in ("p50", "p999"):
                    of = self._rows("collapse_chase", name := f"{phase}_{quantile}_ns", mode=mode)
                    rows += (
                        [(mode, phase, quantile, *median_interval(of[name])[:3])] if len(of) else []
                    )
        return pd.DataFrame(rows, columns=["mode", "phase", "quantile", "median", "low", "high"])

    def collapse_at(self, phase: str, quantile: str) -> Interval:
        """Return ns a hop of the chase whose own pages are collapsed, by address. Raises
        Unavailable."""
        self.require_others(self.collapses, "no chase over collapsed pages was measured")
        rows = select(self.collapses, mode="address", phase=phase, quantile=quantile)
        return Interval.of(required(rows, "a chase over its own pages was not measured").iloc[0])

    def break_even_hops(self, mode: str) -> Interval:
        """Return the hops after which a collapse of their pages has paid: its time over what a hop
        takes less. Raises Unavailable, unstable where a hop takes no less."""
        rows = self._rows("collapse_chase", "joined_ns", "before_p50_ns", "after_p50_ns", mode=mode)
        self.require_others(rows, "no chase over collapsed pages was measured")
        return median_interval(rows["joined_ns"]) / median_interval(
            rows["before_p50_ns"] - rows["after_p50_ns"]
        )

    # --- context switches and cold starts

    def translation(self, kernel: str, **where: object) -> Curve:
        """Return the price of translation in ns a hop by the pages chased: spread minus packed."""
        spread, packed = (
            Curve.of(self._rows(kernel, layout=layout, **where)) for layout in ("spread", "packed")
        )
        return spread - packed

    def price_after(self, kind: str) -> Interval:
        """Return `after`, of HELD pages. Raises Unavailable."""
        return required(self.after[kind], "no rounds of this kind were measured").at(HELD)

    def brought_back(self) -> Interval:
        """Of what a new process pays more than one that never left, the part that a process switch
        brings back. Raises Unavailable."""
        alone = self.price_after("alone")
        return (self.price_after("process") - alone).share_of(self.price_after(NEW) - alone)

    def first_walks(self) -> Interval:
        """A hop of the first ones after a process switch over one after a thread switch, where each
        is a walk. Raises Unavailable."""
        rows = self._rows("switch_chase", "hops", hops=FIRST_HOPS)
        of = [
            required(rows[rows["mode"] == mode], "no first hops were measured")
            for mode in ("process", "thread")
        ]
        process, thread = (median_interval(one["ns_per_access"]) for one in of)
        return process / thread

    def switch_ns(self, mode: str) -> Interval:
        """A switch there and back, in ns. Raises Unavailable."""
        rows = self._rows("switch_chase", "switch_ns", mode=mode, lines=HELD, hops=0)
        return median_interval(required(rows, "no switches were measured")["switch_ns"])

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row a round of a new process and layout, on HELD pages: number, layout, median, low,
        high in ns a hop. Empty without rows."""
        rows = []
        for layout in ("spread", "packed"):
            of = self._rows(
                "cold_chase", *(f"pass_{n}_ns" for n in PASSES), lines=HELD, layout=layout
            )
            rows += [
                (n, layout, *median_interval(of[f"pass_{n}_ns"])[:3]) for n in PASSES if len(of)
            ]
        return pd.DataFrame(rows, columns=["number", "layout", "median", "low", "high"])

    def _pass(self, number: int) -> Interval:
        spread, packed = (
            self._rows("cold_chase", f"pass_{number}_ns", lines=HELD, layout=layout)
            for layout in ("spread", "packed")
        )
        required(spread if len(packed) else packed, "no new processes were measured")
        return median_interval(spread[f"pass_{number}_ns"]) - median_interval(
            packed[f"pass_{number}_ns"]
        )

    def cold_tax(self) -> Interval:
        """Translation of a hop in a new process's first round over that in its last. Raises
        Unavailable."""
        return self._pass(PASSES[0]) / self._pass(PASSES[-1])

    def start(self, name: str) -> Interval:
        """`spawn_ns` or `exec_ns` of a new process that has HELD pages. Raises Unavailable."""
        rows = self._rows("cold_chase", name, lines=HELD, layout="spread").dropna(subset=[name])
        return median_interval(required(rows, "no processes were started so")[name])

    # --- forks, and sparse memory

    def forked(self, value: str) -> dict[str, Curve]:
        """By page size: `fork_ns` of a fork, or `ns_per_access` of a write to each base page after
        it, over the pages that are resident."""
        return Curve.by(
            self._rows("fork_write", "used", value, used=0, mode="write"),
            (BASE, LARGE),
            value=value,
        )

    @staticmethod
    def most(curves: Mapping[str, Curve], pages: str) -> Interval:
        """Return the estimate with the most memory resident on such pages. Raises Unavailable."""
        return required(curves.get(pages, ()), "no forks on both page sizes were measured").last

    def single_write(self, pages: str) -> tuple[Interval, Interval]:
        """(bytes that one write copies, its ns), of one to each large page's room. Raises
        Unavailable."""
        rows = self._rows("fork_write", "used", "copied_bytes", used=1, mode="write", pages=pages)
        required(rows, "no single writes were measured")
        return median_interval(rows["copied_bytes"] / rows["lines"]), median_interval(
            rows["ns_per_access"]
        )

    @cached_property
    def sparse(self) -> pd.DataFrame:
        """A row a page size and way: pages, apart (or side by side); used_bytes; per_used (resident
        over used) and ns a base page used, each an Interval. Empty without rows."""
        rows, used = [], max(ARENA_BYTES // self.base_page_bytes, 1)
        for pages in (BASE, LARGE):
            for apart in (True, False):
                of = self._rows(
                    "fork_write",
                    "used",
                    "resident_bytes",
                    mode="touch",
                    pages=pages,
                    used=used if apart else 0,
                )
                if len(of):
                    per_used = median_interval(of["resident_bytes"] / of["working_set_bytes"])
                    rows.append(
                        (
                            pages,
                            apart,
                            ARENAS * used * self.base_page_bytes,
                            per_used,
                            median_interval(of["ns_per_access"]),
                        )
                    )
        return pd.DataFrame(rows, columns=["pages", "apart", "used_bytes", "per_used", "ns"])

    def waste(self) -> Interval:
        """Resident bytes of arenas apart on large pages over those on base pages. Raises
        Unavailable."""
        of = {
            pages: select(self.sparse, pages=pages, apart=True)["per_used"]
            for pages in (BASE, LARGE)
        }
        large, base = (
            required(of[pages], "no arenas were measured").iloc[0] for pages in (LARGE, BASE)
        )
        return large / base

    # --- beside others

    def _chases(self, layout: str, value: str, **where: object) -> pd.DataFrame:
        rows = self._rows(
            "neighbour_chase",
            "stream_kib",
            "walk_lines",
            "discard_pages",
            value,
            mode="other",
            layout=layout,
        )
        return select(rows, **({"walk_lines": 0, "discard_pages": 0} | where))

    @property
    def far_lines(self) -> int:
        """Of the chase beside streams; 0 without rows."""
        rows = self._rows("neighbour_chase", "stream_kib")
        streamed = rows[rows["stream_kib"] > 0]
        return int(streamed["lines"].max()) if len(streamed) else 0

    def beside_stream(self, layout: str, value: str = "ns_per_access") -> Curve:
        """ns a hop over the MiB that a thread beside streams, 0 where it only runs; or p50_ns or
        p99_ns of slices."""
        rows = self._chases(layout, value, lines=self.far_lines)
        return Curve.of(rows.assign(mib=rows["stream_kib"] / 1024), "mib", value)

    def under_load(self) -> Interval:
        """The price of translation beside the largest stream over that beside a thread that only
        runs. Raises Unavailable."""
        self.require_others(self.loaded, "no chase beside a stream was measured")
        most, least = (
            required(
                self.loaded.between(mib, mib), "not both ends of the streams were measured"
            ).last
            for mib in (STREAMED_MIB[-1], STREAMED_MIB[0])
        )
        return most / least

    def quantile(self, mib: float, name: str) -> Interval:
        """A quantile's ns a hop beside a stream of so many MiB. Raises Unavailable."""
        slices = self.beside_stream("spread", f"{name}_ns").between(mib, mib)
        return required(slices, "no chase beside a stream was measured").last

    def slower_beside_stream(self, name: str) -> Interval:
        """Return a quantile beside the largest stream over that beside a thread that only runs.
        Raises Unavailable."""
        return self.quantile(STREAMED_MIB[-1], name) / self.quantile(STREAMED_MIB[0], name)

    def beside_discards(self) -> Interval:
        """Return `slowed_by_discards` of spread over packed: interrupts take as much from both.
        Raises Unavailable."""
        return self.slowed_by_discards("spread") / self.slowed_by_discards("packed")

    def slowed_by_discards(self, layout: str) -> Interval:
        """Return a hop's time over HELD lines beside a thread that gives pages back over beside one
        that only runs. Raises Unavailable."""
        rows = [
            self._chases(layout, "ns_per_access", lines=HELD, discard_pages=n, stream_kib=0)
            for n in (DISCARDED, 0)
        ]
        self.require_others(rows[0], "no chase beside a thread that gives pages back was measured")
        taken, left = (
            median_interval(required(of, "no chase was measured")["ns_per_access"]) for of in rows
        )
        return taken / left

    def beside_sibling(self) -> Interval:
        """A hop over pages that the TLB holds, beside a chase on the core's other thread over
        beside one that only runs. Raises Unavailable: no-sibling."""
        rows = required(
            self._rows("neighbour_chase", "walk_lines", mode="sibling", layout="spread"),
            "",
            "no-sibling",
        )
        walked, left = (
            median_interval(required(of, "no chase was measured")["ns_per_access"])
            for of in (rows[rows["walk_lines"] > 0], rows[rows["walk_lines"] == 0])
        )
        return walked / left
