"""What empties a TLB and what that costs: shootdowns, context switches, cold starts, neighbours,
and Linux's own work on pages."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import pandas as pd

from experiments.flushes.document import (
    FRAGMENTED_MEMORY,
    KERNEL_HOUSEKEEPING_DOCUMENT,
    FirstTouchRun,
    HousekeepingDocument,
    KhugepagedWait,
    SamePageMergingRound,
)
from experiments.flushes.grid import (
    FORKED_PROCESS_MIB,
    HOPS_TIMED_AFTER_SWITCH,
    HUGE_PAGE_KIND,
    MALLOC_ARENA_BYTES,
    MAPPING_SYSTEM_CALLS,
    ONE_PAGE_PER_CALL,
    PAGES_PER_DISCARD,
    PAGES_WITHIN_STLB,
    SWITCH_MODES,
)
from tlb.report import quantities
from tlb.report.analysis import SingleEventAnalysis
from tlb.report.quantities import QuantityDeclaration
from tlb.stats.curves import Curve, select_rows
from tlb.stats.intervals import Interval, interval_of_rows, median_interval
from tlb.system.page_sizes import BASE_PAGES, page_bytes
from tlb.system.reasons import Unavailable, require_nonempty

_DOCUMENT = "housekeeping.json"


class Quantities(quantities.Quantities):
    """Of calls and flushes, of a chase through 512 pages, and of Linux's own work on pages."""

    unmap_alone_us = QuantityDeclaration("munmap of one page, program on one CPU", "us", 1)
    unmap_beside_us = QuantityDeclaration(
        "munmap of one page, threads on the other CPUs too", "us", 1
    )
    unmap_added_us = QuantityDeclaration(
        "what those threads add", "us", 1, part_of="unmap_beside_us", is_judged=True
    )
    unmap_32_added_us = QuantityDeclaration("what they add to a munmap of 32 pages", "us", 1)
    unmap_processes_us = QuantityDeclaration(
        "munmap of one page, separate processes there", "us", 1
    )
    flushes_seen = QuantityDeclaration(
        "flushes that other CPUs carried out, of those requested", "share", 1
    )
    heap_singly_ms = QuantityDeclaration("2 GB given back one page a call", "ms")
    heap_batched_ms = QuantityDeclaration("2 GB given back 512 pages a call", "ms")
    lost_packed_us = QuantityDeclaration(
        "lost to a flush by a chase with few TLB entries", "us", part_of="lost_spread_us"
    )
    lost_spread_us = QuantityDeclaration("lost to a flush by a chase through 512 pages", "us")
    thousand_flushes_share = QuantityDeclaration(
        "share of that chase's time that 1,000 flushes per second take", "share", 1
    )
    part_unmap_us = QuantityDeclaration(
        "munmap of one base page of a huge page, on one CPU", "us", 1, pages="thp"
    )
    collapse_us = QuantityDeclaration("a collapse, program on one CPU", "us", pages="thp")
    area_collapse_ms = QuantityDeclaration(
        "a collapse of 64 MiB that another thread reads", "ms", pages="thp"
    )
    page_collapse_ms = QuantityDeclaration(
        "a collapse of one of its 32 huge pages", "ms", 1, pages="thp"
    )
    collapse_flushes = QuantityDeclaration(
        "flushes of each other CPU by a collapse", "", 1, is_found=True, pages="thp"
    )
    fork_base_us = QuantityDeclaration("fork with 64 MiB on base pages", "us")
    fork_thp_us = QuantityDeclaration("fork with 64 MiB on huge pages", "us", pages="thp")
    write_base_us = QuantityDeclaration("first write after a fork, on base pages", "us", 1)
    write_thp_us = QuantityDeclaration(
        "first write after a fork, to a huge page", "us", 1, pages="thp"
    )
    price_alone_ns = QuantityDeclaration("translation of a load without a switch", "ns", 1)
    price_process_ns = QuantityDeclaration(
        "translation of a load after a switch to a process and back", "ns", 1
    )
    price_new_ns = QuantityDeclaration(
        "translation of a load in a new process's first round", "ns", 1
    )
    first_walks_us = QuantityDeclaration(
        "translation of the first 512 loads of a new process", "us", 1
    )
    switch_us = QuantityDeclaration("a switch to another process and back", "us", 1)
    exec_us = QuantityDeclaration("fork, exec and exit of a small program", "us")
    merged_write_us = QuantityDeclaration(
        "next write to a page that KSM merged", "us", 1, _DOCUMENT
    )
    own_write_ns = QuantityDeclaration("next write to any other page", "ns", 0, _DOCUMENT)
    touch_fragments_us = QuantityDeclaration(
        "first touch of 2 MiB in fragmented memory, defrag=always", "us", 0, _DOCUMENT
    )


Part = TypeVar("Part")
_NOT_COUNTED = "it does not count the TLB flushes between its CPUs"

SWITCH_TO_NEW_PROCESS = "new"  # a process's first round, beside SWITCH_MODES
LAYOUTS = ("spread", "packed")


class _Shootdowns(SingleEventAnalysis):
    """The rows of `shootdown`, and of `neighbour_chase` beside a thread that gives pages back."""

    @cached_property
    def most_others(self) -> int:
        """On how many other CPUs the program ran at the most; 0 without any."""
        rows = self._rows("shootdown", "threads")
        return int(rows["threads"].max()) if len(rows) else 0

    def calls(self, others: int) -> dict[str, Curve]:
        """Return ns of each call over the pages that it removes, while the program runs on so many
        other CPUs too."""
        rows = self._rows("shootdown", "threads", pages=BASE_PAGES, threads=others, apart=0)
        return Curve.by(rows, MAPPING_SYSTEM_CALLS, "mode")

    def unmapped(self, others: int, pages: int) -> Interval:
        """Return ns a munmap() of so many pages."""
        curve = self.calls(others).get(MAPPING_SYSTEM_CALLS[0])
        return require_nonempty(curve, "no calls were measured").at(pages)

    @property
    def interrupting(self) -> int:
        """`most_others`. Raises Unavailable: one-cpu, too-few-points."""
        self.require_others([0] * self.most_others, "no calls beside other threads were measured")
        return self.most_others

    def added(self, pages: int) -> Interval:
        """Return the ns that other CPUs add to a munmap() of so many pages."""
        return self.unmapped(self.interrupting, pages) - self.unmapped(0, pages)

    def returned_ns(self, size_bytes: int, pages: int) -> Interval:
        """Return ns to give back so much memory in calls of so many pages, while the program runs
        on other CPUs too."""
        calls = size_bytes / (pages * self.base_page_bytes)
        return self.unmapped(self.interrupting, pages) * calls

    def beside_processes(self, call: str) -> Interval:
        """Return ns a call on one page beside as many processes that share nothing."""
        rows = self._rows(
            "shootdown", mode=call, pages=BASE_PAGES, lines=ONE_PAGE_PER_CALL, apart=1
        )
        self.require_others(rows, "no calls beside other processes were measured")
        return interval_of_rows(rows)

    @cached_property
    def flush_counts(self) -> pd.DataFrame:
        """A row a process beside other threads: call, flushes_asked of other CPUs and flushes_seen
        by them."""
        counts = ["flushes_asked", "flushes_seen"]
        rows = self._rows(
            "shootdown", *counts, apart=0, pages=BASE_PAGES, mode=list(MAPPING_SYSTEM_CALLS)
        )
        rows = rows[rows["flushes_asked"] > 0].dropna(subset=["flushes_seen"])
        return rows.reindex(columns=["mode", *counts]).rename(columns={"mode": "call"})

    def share_seen(self) -> float:
        """Return all flushes seen over all asked: a few processes miss many, which a median of
        shares hides. Raises Unavailable("linux-lacks") too."""
        if self.most_others:
            require_nonempty(self.flush_counts, _NOT_COUNTED, "linux-lacks")
        self.require_others(self.flush_counts, "no calls beside other threads were measured")
        sums = self.flush_counts[["flushes_asked", "flushes_seen"]].sum()
        return float(sums["flushes_seen"] / sums["flushes_asked"])

    def beside_discards(self) -> Interval:
        """Return `slowed_by_discards` of spread over packed: interrupts take as much from both."""
        return self.slowed_by_discards("spread") / self.slowed_by_discards("packed")

    def _beside_discards(self, layout: str, *columns: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the chases beside a thread that gives pages back, and beside one that only runs."""
        where = {"mode": "other", "layout": layout, "lines": PAGES_WITHIN_STLB}
        rows = self._rows("neighbour_chase", "discard_pages", *columns, **where)
        return select_rows(rows, discard_pages=PAGES_PER_DISCARD), select_rows(
            rows, discard_pages=0
        )

    def lost_per_flush(self, layout: str) -> Interval:
        """Return ns that the chase over PAGES_WITHIN_STLB lines loses for each flush that its CPU
        counts. Raises Unavailable("linux-lacks") too."""
        busy, idle = self._beside_discards(layout, "flushes_seen")
        added_ns = busy["ns_per_access"] - self._median(idle, "no chase was measured").value
        counted = require_nonempty(
            busy[busy["flushes_seen"] > 0], "no TLB flush was counted", "linux-lacks"
        )
        return median_interval((added_ns * counted["accesses"] / counted["flushes_seen"]).dropna())

    def slowed_by_discards(self, layout: str) -> Interval:
        """Return a hop's time over PAGES_WITHIN_STLB lines beside a thread that gives pages back
        over beside one that only runs."""
        busy, idle = self._beside_discards(layout)
        self.require_others(busy, "no chase beside a thread that gives pages back was measured")
        return self._median(busy, "") / self._median(idle, "no chase was measured")

    def part_unmapped(self) -> Interval:
        """Return ns of a munmap() of one base page of a large page, on one CPU."""
        where = {
            "mode": MAPPING_SYSTEM_CALLS[0],
            "pages": HUGE_PAGE_KIND,
            "lines": ONE_PAGE_PER_CALL,
        }
        return self._median(self._rows("shootdown", **where), "no part of a page was removed")

    def _collapses(self, kernel: str, *columns: str, **where: object) -> pd.DataFrame:
        """Return a kernel's rows whose memory has room for a large page of this machine."""
        rows = self._rows(kernel, *columns, "arena_bytes", **where)
        return rows[rows["arena_bytes"] >= page_bytes(HUGE_PAGE_KIND, self.base_page_bytes)]

    def collapse_ns(self) -> Interval:
        """Return ns in which Linux makes a large page of base pages on request, on one CPU."""
        rows = self._collapses("shootdown", "threads", mode="collapse", threads=0)
        return self._median(rows, "no pages were collapsed")

    def area_collapse_ns(self) -> Interval:
        """Return ns in which Linux makes large pages of a whole area, one after the other, while
        another thread chases through it."""
        rows = self._collapses("collapse_chase", "joined_ns", mode="random")
        rows = require_nonempty(rows.dropna(subset=["joined_ns"]), "no area was collapsed")
        return interval_of_rows(rows, "joined_ns")

    def flushes_per_collapse(self) -> float:
        """Return the flushes that each other CPU sees for a large page that Linux makes of base
        pages. Raises Unavailable("linux-lacks") too."""
        rows = self._collapses("shootdown", "threads", "flushes_seen", mode="collapse")
        rows = rows[rows["threads"] > 0]
        self.require_others(rows, "no pages were collapsed beside other threads")
        rows = require_nonempty(rows.dropna(subset=["flushes_seen"]), _NOT_COUNTED, "linux-lacks")
        return float(rows["flushes_seen"].sum() / (rows["accesses"] * rows["threads"]).sum())


class _Switches(SingleEventAnalysis):
    """The rows of `switch_chase`, `cold_chase` and of `neighbour_chase` beside streams."""

    def _rows(self, kernel: str, *columns: str, **where: object) -> pd.DataFrame:
        rows = super()._rows(kernel, *columns, **where)
        if kernel == "cold_chase" and len(rows):
            return rows[rows["faults_in_passes"] == 0]  # a fault would pass for a walk
        return rows

    def translation(self, kernel: str, **where: object) -> Curve:
        """Return the price of translation in ns a hop by the pages chased."""
        spread, packed = (self._rows(kernel, layout=layout, **where) for layout in LAYOUTS)
        return self.price_of(Curve.of(spread), Curve.of(packed))

    @cached_property
    def after(self) -> dict[str, Curve]:
        """By kind of switch, and for a new process: `translation` in the first round after it."""
        found = {mode: self.translation("switch_chase", mode=mode, hops=0) for mode in SWITCH_MODES}
        return found | {SWITCH_TO_NEW_PROCESS: self.translation("cold_chase")}

    def price_after(self, kind: str) -> Interval:
        return require_nonempty(self.after[kind], "no rounds of this kind were measured").at(
            PAGES_WITHIN_STLB
        )

    def first_walks(self) -> Interval:
        """Return the time of the first hops after a process switch over that after a thread switch,
        where each is a walk."""
        rows = self._rows("switch_chase", "hops", hops=HOPS_TIMED_AFTER_SWITCH)
        process, thread = (
            self._median(rows[rows["mode"] == mode], "no first hops were measured")
            for mode in ("process", "thread")
        )
        return process / thread

    def switch_ns(self, mode: str) -> Interval:
        """Return ns of a switch there and back."""
        where = {"mode": mode, "layout": "spread", "lines": PAGES_WITHIN_STLB, "hops": 0}
        rows = self._rows("switch_chase", "switch_ns", **where)
        return self._median(rows, "no switches were measured", "switch_ns")

    def start(self, name: str) -> Interval:
        """Return `spawn_ns` or `exec_ns` of a new process that has PAGES_WITHIN_STLB pages."""
        rows = self._rows("cold_chase", name, lines=PAGES_WITHIN_STLB, layout="spread").dropna(
            subset=[name]
        )
        return self._median(rows, "no processes were started so", name)


class _Copies(SingleEventAnalysis):
    """The rows of `fork_write`."""

    def fork_ns(self, pages: str) -> Interval:
        """Return ns of a fork with FORKED_PROCESS_MIB's most resident on such pages."""
        rows = self._rows("fork_write", "used", "fork_ns", used=0, mode="write", pages=pages)
        return Curve.of(rows, value="fork_ns").at(
            (FORKED_PROCESS_MIB[-1] << 20) // self.base_page_bytes
        )

    def single_write(self, pages: str) -> tuple[Interval, Interval]:
        """Return the bytes that one write after a fork in each large page's room copies, and its
        ns."""
        rows = self._rows("fork_write", "used", "copied_bytes", used=1, mode="write", pages=pages)
        ns = self._median(rows, "no single writes were measured")
        return median_interval(rows["copied_bytes"] / rows["lines"]), ns

    def _resident_per_used(self, pages: str) -> Interval:
        """Return the resident bytes over the used ones of arenas far apart."""
        used = max(MALLOC_ARENA_BYTES // self.base_page_bytes, 1)
        where = {"mode": "touch", "pages": pages, "used": used}
        rows = self._rows("fork_write", "used", "resident_bytes", **where)
        rows = require_nonempty(rows, "no arenas were measured")
        return median_interval(rows["resident_bytes"] / rows["working_set_bytes"])

    def waste(self) -> Interval:
        """Return how much more memory arenas far apart take on large pages than on base pages."""
        return self._resident_per_used(HUGE_PAGE_KIND) / self._resident_per_used(BASE_PAGES)


class Analysis(_Shootdowns, _Switches, _Copies):
    """The chapter's rows, and the document of Linux's own work. Curves of what was not measured are
    empty. Methods raise Unavailable: too-few-points, one-cpu without a second CPU, and what they
    name; those of the document housekeeping-not-asked without it, and the reason of a part that it
    lacks."""

    documents = ("flushes",)
    on_request = (KERNEL_HOUSEKEEPING_DOCUMENT,)

    @cached_property
    def housekeeping(self) -> HousekeepingDocument:
        """The document. Raises Unavailable("housekeeping-not-asked")."""
        try:
            return self.document(KERNEL_HOUSEKEEPING_DOCUMENT, None, HousekeepingDocument)
        except Unavailable as why:
            raise Unavailable("housekeeping-not-asked", why.detail) from None

    def _part(self, value: Part | None, part: str) -> Part:
        """Return the value of a part. Raises Unavailable, with the reason why it is lacking, if it
        is None or empty."""
        if value is None or (not value and value != 0):
            raise Unavailable(self.housekeeping.lacking.get(part, "no-data"))
        return value

    def runs(self, memory: str, mode: str) -> tuple[FirstTouchRun, ...]:
        """The runs of first touches in such memory, with defrag in a mode or DEFRAG_NOT_APPLICABLE."""
        runs: dict[tuple[str, str], tuple[FirstTouchRun, ...]] = {
            (some.memory, some.mode): some.runs for some in self.housekeeping.touched
        }
        return self._part(
            runs.get((memory, mode)), "pieces" if memory == FRAGMENTED_MEMORY else "touched"
        )

    def touch_ns(
        self, memory: str, mode: str, of_run: Callable[[FirstTouchRun], float]
    ) -> Interval:
        """Return the median over runs of a number of each."""
        return median_interval([of_run(run) for run in self.runs(memory, mode)])

    def first_touch_ns(self, memory: str, mode: str) -> Interval:
        """Return the ns of the first touch of a block."""
        return self.touch_ns(memory, mode, lambda run: run.median_ns)

    def merged(self) -> tuple[SamePageMergingRound, ...]:
        return self._part(self.housekeeping.merged, "merged")

    def merged_write_ns(self, kind: str) -> Interval:
        """Return the ns of the next write to a "merged" page, or to one of its "own"."""
        return median_interval([getattr(some, f"{kind}_write_ns") for some in self.merged()])

    def idle(self) -> KhugepagedWait:
        """What became large of memory that no program touched."""
        return self._part(self.housekeeping.idle, "idle")

    def idle_share(self) -> float:
        """Return the share of untouched base pages that khugepaged made large."""
        return self.idle().large_bytes / self.idle().bytes

    def pool_taken(self) -> Interval:
        """What is available less, over what a pool took."""
        self._part(self.housekeeping.pool_taken, "pool_taken")
        return median_interval(self.housekeeping.pool_taken)

    def pool_plain(self) -> float:
        """Of a plain array beside a free pool the share in the pool."""
        return self._part(self.housekeeping.pool_plain, "pool_plain")
