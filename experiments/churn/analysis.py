"""Shootdowns, context switches, cold starts, forks and neighbours: what empties a TLB, and what
that costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pandas as pd

from experiments.churn.grid import (
    ARENA_BYTES,
    ARENAS,
    CALLS,
    COLLAPSES,
    FEW,
    FIRST_HOPS,
    HELD,
    LARGE,
    PASSES,
)
from experiments.churn.neighbours import NeighbourAnalysis
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import UNKNOWN, Interval, median_interval
from tlb.machine import flushes
from tlb.page_sizes import BASE
from tlb.reasons import required

PHASES = ("before", "during", "after")
NEW = "new"  # a process's first round, beside SWITCHES
LAYOUTS = ("spread", "packed")


class Analysis(NeighbourAnalysis):
    """The rows of six kernels. Tables and curves of what was not measured are empty. Methods raise
    Unavailable: too-few-points, one-cpu without a second CPU, and what they name.

    The page defines: calls_alone, calls_beside, shootdowns, after, fork_ns, write_ns and loaded.
    """

    documents = ("flushes",)
    on_request = ("housekeeping",)

    @cached_property
    def flushes(self) -> flushes.Flushes:
        """What this computer states of flushes. Raises Unavailable, as `document` does."""
        return self.document("flushes", flushes.make, flushes.Flushes)

    # --- pages that are removed

    @cached_property
    def most_others(self) -> int:
        """On how many other CPUs the program ran at the most; 0 without any."""
        rows = self._rows("shootdown", "threads")
        return int(rows["threads"].max()) if len(rows) else 0

    def calls(self, others: int) -> dict[str, Curve]:
        """Return ns of each call over the pages that it removes, while the program runs on so many
        other CPUs too."""
        rows = self._rows("shootdown", "threads", pages=BASE, threads=others, apart=0)
        return Curve.by(rows, CALLS, "mode")

    @cached_property
    def by_cpus(self) -> Curve:
        """ns a munmap() of one page over the number of other CPUs that run the program."""
        where = {"mode": CALLS[0], "pages": BASE, "lines": FEW, "apart": 0}
        return Curve.of(self._rows("shootdown", "threads", **where), "threads")

    def beside_processes(self, call: str) -> Interval:
        """Return ns a call on one page beside as many processes that share nothing."""
        rows = self._rows("shootdown", mode=call, pages=BASE, lines=FEW, apart=1)
        self.require_others(rows, "no calls beside other processes were measured")
        return median_interval(rows["ns_per_access"])

    @cached_property
    def flush_counts(self) -> pd.DataFrame:
        """A row a process beside other threads: call, taken (pages), flushes_asked of other CPUs
        and flushes_seen by them."""
        columns = {"mode": "call", "lines": "taken"}
        counts = ["flushes_asked", "flushes_seen"]
        rows = self._rows("shootdown", *counts, apart=0, pages=BASE, mode=list(CALLS))
        rows = rows[rows["flushes_asked"] > 0].dropna(subset=["flushes_seen"])
        return rows.reindex(columns=[*columns, *counts]).rename(columns=columns)

    def share_seen(self) -> float:
        """Return all flushes seen over all asked: a few processes miss many, which a median of
        shares hides. Raises Unavailable("no-flush-count") too."""
        if len(self.calls_beside):
            required(self.flush_counts, "", "no-flush-count")
        self.require_others(self.flush_counts, "no calls beside other threads were measured")
        sums = self.flush_counts[["flushes_asked", "flushes_seen"]].sum()
        return float(sums["flushes_seen"] / sums["flushes_asked"])

    def collapse_ns(self) -> Interval:
        """Return ns a large page that the kernel makes of base pages on request, on one CPU."""
        rows = self._rows("shootdown", "threads", mode="collapse", threads=0)
        return self._median(rows, "no pages were collapsed")

    def flushes_per_collapse(self) -> float:
        """Return the flushes that each other CPU sees for a large page made so. Raises
        Unavailable("no-flush-count") too."""
        rows = self._rows("shootdown", "threads", "flushes_seen", mode="collapse")
        rows = rows[rows["threads"] > 0]
        self.require_others(rows, "no pages were collapsed beside other threads")
        rows = required(rows.dropna(subset=["flushes_seen"]), "", "no-flush-count")
        return float(rows["flushes_seen"].sum() / (rows["accesses"] * rows["threads"]).sum())

    @cached_property
    def partial_calls(self) -> pd.DataFrame:
        """call, ns on one base page of each large page, base_ns on a base page, large_share that
        stays large."""
        rows = []
        for call in CALLS:
            part = self._rows("shootdown", "huge_bytes_after", mode=call, pages=LARGE, lines=FEW)
            if len(part):
                alone = self.calls_alone.get(call)
                ns, base_ns = median_interval(part["ns_per_access"]), alone and alone.get(FEW)
                large = (part["huge_bytes_after"] / part["arena_bytes"]).median()
                rows.append((call, ns, base_ns or UNKNOWN, float(large)))
        return pd.DataFrame(rows, columns=["call", "ns", "base_ns", "large_share"])

    @cached_property
    def collapses(self) -> pd.DataFrame:
        """A row a mode of collapsing pages, phase and quantile (p50, p999 of slices): median, low,
        high in ns a hop."""
        rows = []
        for mode in COLLAPSES:
            for phase in PHASES:
                for quantile in ("p50", "p999"):
                    name = f"{phase}_{quantile}_ns"
                    values = self._rows("collapse_chase", name, mode=mode)[name]
                    if len(values):
                        rows.append((mode, phase, quantile, *median_interval(values)[:3]))
        return pd.DataFrame(rows, columns=["mode", "phase", "quantile", "median", "low", "high"])

    def collapse_at(self, phase: str, quantile: str) -> Interval:
        """Return ns a hop of the chase whose own pages are collapsed, by address."""
        self.require_others(self.collapses, "no chase over collapsed pages was measured")
        rows = select(self.collapses, mode="address", phase=phase, quantile=quantile)
        return Interval.of(required(rows, "a chase over its own pages was not measured").iloc[0])

    def break_even_hops(self, mode: str) -> Interval:
        """Return the hops after which a collapse of their pages has paid: its time over what a hop
        takes less. Raises Unavailable("unstable") too, if a hop takes no less."""
        rows = self._rows("collapse_chase", "joined_ns", "before_p50_ns", "after_p50_ns", mode=mode)
        self.require_others(rows, "no chase over collapsed pages was measured")
        saved = median_interval(rows["before_p50_ns"] - rows["after_p50_ns"])
        return median_interval(rows["joined_ns"]) / saved

    # --- context switches and cold starts

    def translation(self, kernel: str, **where: object) -> Curve:
        """Return the price of translation in ns a hop by the pages chased: spread minus packed."""
        spread, packed = (self._rows(kernel, layout=layout, **where) for layout in LAYOUTS)
        return Curve.of(spread) - Curve.of(packed)

    def price_after(self, kind: str) -> Interval:
        """Return `after`, of HELD pages."""
        return required(self.after[kind], "no rounds of this kind were measured").at(HELD)

    def brought_back(self) -> Interval:
        """Return which part of what a new process pays more than one that never left is paid again
        after a process switch."""
        alone = self.price_after("alone")
        return (self.price_after("process") - alone).share_of(self.price_after(NEW) - alone)

    def first_walks(self) -> Interval:
        """Return the time of the first hops after a process switch over that after a thread switch,
        where each is a walk."""
        rows = self._rows("switch_chase", "hops", hops=FIRST_HOPS)
        process, thread = (
            self._median(rows[rows["mode"] == mode], "no first hops were measured")
            for mode in ("process", "thread")
        )
        return process / thread

    def switch_ns(self, mode: str) -> Interval:
        """Return ns of a switch there and back."""
        rows = self._rows("switch_chase", "switch_ns", mode=mode, lines=HELD, hops=0)
        return self._median(rows, "no switches were measured", "switch_ns")

    def _passes(self, number: int, layout: str) -> pd.DataFrame:
        return self._rows("cold_chase", f"pass_{number}_ns", lines=HELD, layout=layout)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row a round of a new process and layout, on HELD pages: number, layout, median, low,
        high in ns a hop."""
        rows = [
            (number, layout, *median_interval(passes[f"pass_{number}_ns"])[:3])
            for layout in LAYOUTS
            for number in PASSES
            if len(passes := self._passes(number, layout))
        ]
        return pd.DataFrame(rows, columns=["number", "layout", "median", "low", "high"])

    def _pass(self, number: int) -> Interval:
        spread, packed = (
            self._median(
                self._passes(number, layout), "no new processes were measured", f"pass_{number}_ns"
            )
            for layout in LAYOUTS
        )
        return spread - packed

    def cold_tax(self) -> Interval:
        """Return translation of a hop in a new process's first round over that in its last."""
        return self._pass(PASSES[0]) / self._pass(PASSES[-1])

    def start(self, name: str) -> Interval:
        """Return `spawn_ns` or `exec_ns` of a new process that has HELD pages."""
        rows = self._rows("cold_chase", name, lines=HELD, layout="spread").dropna(subset=[name])
        return self._median(rows, "no processes were started so", name)

    # --- forks, and sparse memory

    def forked(self, value: str) -> dict[str, Curve]:
        """Return by page size, over the pages resident: `fork_ns` of a fork, or `ns_per_access` of
        a write to each base page after it."""
        rows = self._rows("fork_write", "used", value, used=0, mode="write")
        return Curve.by(rows, (BASE, LARGE), value=value)

    @staticmethod
    def most(curves: Mapping[str, Curve], pages: str) -> Interval:
        """Return the estimate with the most memory resident on such pages."""
        return required(curves.get(pages, ()), "no forks on both page sizes were measured").last

    def single_write(self, pages: str) -> tuple[Interval, Interval]:
        """Return the bytes that one write in each large page's room copies, and its ns."""
        rows = self._rows("fork_write", "used", "copied_bytes", used=1, mode="write", pages=pages)
        ns = self._median(rows, "no single writes were measured")
        return median_interval(rows["copied_bytes"] / rows["lines"]), ns

    @cached_property
    def sparse(self) -> pd.DataFrame:
        """A row a page size and placement of arenas: pages, apart (or side by side); used_bytes;
        per_used (resident over used) and ns a base page used, each an Interval."""
        rows, used = [], max(ARENA_BYTES // self.base_page_bytes, 1)
        columns = ["pages", "apart", "used_bytes", "per_used", "ns"]
        for pages in (BASE, LARGE):
            for apart in (True, False):
                where = {"mode": "touch", "pages": pages, "used": used if apart else 0}
                touched = self._rows("fork_write", "used", "resident_bytes", **where)
                if len(touched):
                    per_used = median_interval(
                        touched["resident_bytes"] / touched["working_set_bytes"]
                    )
                    used_bytes = ARENAS * used * self.base_page_bytes
                    ns = median_interval(touched["ns_per_access"])
                    rows.append((pages, apart, used_bytes, per_used, ns))
        return pd.DataFrame(rows, columns=columns)

    def waste(self) -> Interval:
        """Return resident bytes of arenas apart on large pages over those on base pages."""
        large, base = (
            required(
                select(self.sparse, pages=pages, apart=True)["per_used"], "no arenas were measured"
            ).iloc[0]
            for pages in (LARGE, BASE)
        )
        return large / base
