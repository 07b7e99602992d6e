"""Context switches, cold starts and neighbours: what they leave in a TLB and in the caches."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from experiments.context_switches.grid import (
    HOPS_AFTER_SWITCH,
    NEW_PROCESS_ROUNDS,
    PAGES_THE_TLB_HOLDS,
    STREAMED_MIB,
)
from tlb.report.analysis import EventAnalysis
from tlb.report.charts import INTERVAL
from tlb.stats import curves
from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable, if_available, required

NEW_PROCESS = "new"  # a process's first round, beside SWITCHES
LAYOUTS = ("spread", "packed")


class Analysis(EventAnalysis):
    """The rows of `switch_chase`, `cold_chase` and `neighbour_chase`. Tables and curves of what was
    not measured are empty. Methods raise Unavailable: too-few-points, one-cpu without a second CPU,
    and what they name.

    The page defines: after and loaded.
    """

    documents = ("flushes",)

    def _rows(self, kernel: str, *columns: str, **where: object) -> pd.DataFrame:
        rows = super()._rows(kernel, *columns, **where)
        if kernel == "cold_chase" and len(rows):
            return rows[rows["faults_in_passes"] == 0]  # a fault would pass for a walk
        return rows

    def translation(self, kernel: str, **where: object) -> Curve:
        """Return the price of translation in ns a hop by the pages chased."""
        spread, packed = (self._rows(kernel, layout=layout, **where) for layout in LAYOUTS)
        return self.price_of(Curve.of(spread), Curve.of(packed))

    def price_after(self, kind: str) -> Interval:
        return required(self.after[kind], "no rounds of this kind were measured").at(
            PAGES_THE_TLB_HOLDS
        )

    def brought_back(self) -> Interval:
        """Return which part of what a new process pays more than one that never left is paid again
        after a process switch."""
        alone = self.price_after("alone")
        return (self.price_after("process") - alone).share_of(self.price_after(NEW_PROCESS) - alone)

    def first_walks(self) -> Interval:
        """Return the time of the first hops after a process switch over that after a thread switch,
        where each is a walk."""
        rows = self._rows("switch_chase", "hops", hops=HOPS_AFTER_SWITCH)
        process, thread = (
            self._median(rows[rows["mode"] == mode], "no first hops were measured")
            for mode in ("process", "thread")
        )
        return process / thread

    def switch_ns(self, mode: str) -> Interval:
        """Return ns of a switch there and back."""
        rows = self._rows("switch_chase", "switch_ns", mode=mode, lines=PAGES_THE_TLB_HOLDS, hops=0)
        return self._median(rows, "no switches were measured", "switch_ns")

    def _passes(self, number: int, layout: str) -> pd.Series:
        name = f"pass_{number}_ns"
        return self._rows("cold_chase", name, lines=PAGES_THE_TLB_HOLDS, layout=layout)[name]

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row a round of a new process and layout, on HELD pages: number, layout, median, low,
        high in ns a hop."""
        rows = [
            (number, layout, *median_interval(passes).value_and_bounds)
            for layout in LAYOUTS
            for number in NEW_PROCESS_ROUNDS
            if len(passes := self._passes(number, layout))
        ]
        return pd.DataFrame(rows, columns=["number", "layout", *INTERVAL])

    def _pass(self, number: int) -> Interval:
        spread, packed = (
            median_interval(
                required(self._passes(number, layout), "no new processes were measured")
            )
            for layout in LAYOUTS
        )
        return spread - packed

    def first_over_last_round(self) -> Interval:
        """Return translation of a hop in a new process's first round over that in its last."""
        return self._pass(NEW_PROCESS_ROUNDS[0]) / self._pass(NEW_PROCESS_ROUNDS[-1])

    def start(self, name: str) -> Interval:
        """Return `spawn_ns` or `exec_ns` of a new process that has HELD pages."""
        rows = self._rows("cold_chase", name, lines=PAGES_THE_TLB_HOLDS, layout="spread").dropna(
            subset=[name]
        )
        return self._median(rows, "no processes were started so", name)

    # --- neighbours

    @property
    def far_lines(self) -> int:
        """Of the chase beside streams; 0 without rows."""
        rows = self._rows("neighbour_chase", "stream_kib")
        streamed = rows[rows["stream_kib"] > 0]
        return int(streamed["lines"].max()) if len(streamed) else 0

    def beside_stream(self, layout: str) -> Curve:
        """Return ns a hop over the MiB that a thread beside streams, 0 if it only runs."""
        where = {"mode": "other", "layout": layout, "lines": self.far_lines}
        rows = self._rows("neighbour_chase", "stream_kib", **where)
        return Curve.of(rows.assign(mib=rows["stream_kib"] / 1024), "mib")

    def price_beside_stream(self) -> Curve:
        """Return the price of translation in ns a hop over the MiB that a thread beside streams.

        A stream has a control of as many lines alone. Whether the spread lines have left the cache
        in which that control lies is asked of the larger controls of this machine's chase without
        neighbours, which a stream makes no faster. Empty where that was not measured.
        """
        alone = if_available(lambda: curves.packed(self.about.kept("stlb_cliff"), pages=BASE))
        larger = alone.table[alone.table["lines"] > self.far_lines] if alone else ()
        spread, packed = (self.beside_stream(layout) for layout in LAYOUTS)
        both, tables, gaps = spread - packed, [], []
        if not len(larger) or not len(both):
            return Curve(both.table.iloc[:0], "mib")
        for mib in both.xs:
            one, control = (
                curve.between(mib, mib).table.assign(lines=self.far_lines)
                for curve in (spread, packed)
            )
            price = self.price_of(Curve(one), Curve(pd.concat([control, larger])))
            tables.append(price.table.assign(mib=mib))
            gaps += [mib for _ in price.gaps]
        return Curve(pd.concat(tables, ignore_index=True), "mib", gaps=tuple(gaps))

    @staticmethod
    def _with_stream(curve: Curve, mib: float) -> Interval:
        if mib in curve.gaps:
            raise Unavailable("control-elsewhere", f"beside a stream of {mib} MiB")
        return required(curve.between(mib, mib), "no chase beside such a stream was measured").last

    def under_load(self) -> Interval:
        """Return the price of translation beside the largest stream over that beside a thread that
        only runs. Raises Unavailable: also control-elsewhere."""
        loaded = self.loaded
        self.require_others([*loaded.xs, *loaded.gaps], "no chase beside a stream was measured")
        least, *_, most = STREAMED_MIB
        return self._with_stream(loaded, most) / self._with_stream(loaded, least)

    def beside_sibling(self) -> Interval:
        """Return the time of a hop over pages that the TLB holds, beside a chase on the core's
        other thread over beside one that only runs. Raises Unavailable("no-sibling") too."""
        where = {"mode": "sibling", "layout": "spread"}
        rows = required(self._rows("neighbour_chase", "walk_lines", **where), "", "no-sibling")
        walked, idle = rows[rows["walk_lines"] > 0], rows[rows["walk_lines"] == 0]
        lacking = "no chase was measured"
        return self._median(walked, lacking) / self._median(idle, lacking)
