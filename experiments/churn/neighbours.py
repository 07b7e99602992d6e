"""What threads and processes beside a program cost it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.churn.grid import DISCARDED, HELD, STREAMED_MIB
from experiments.churn.housekeeping import HousekeepingAnalysis
from tlb.inference.curves import Curve, select
from tlb.inference.intervals import Interval, median_interval
from tlb.reasons import required


class NeighbourAnalysis(HousekeepingAnalysis):
    """The rows of `neighbour_chase`. Methods raise Unavailable, as those of Analysis do."""

    def _rows(self, kernel: str, *columns: str, **where: object) -> pd.DataFrame:
        """Return a kernel's rows, none if one of these columns is missing."""
        rows = select(self.frame, kernel=kernel, **where)
        if kernel == "cold_chase" and len(rows):
            rows = rows[rows["faults_in_passes"] == 0]  # a fault would pass for a walk
        if {*columns} <= set(rows):
            return rows
        return rows.iloc[:0].assign(**dict.fromkeys(columns, 0.0))

    def require_others(self, rows: Sequence | pd.DataFrame, lacking: str) -> None:
        """Raise Unavailable if there are no rows: one-cpu, or too-few-points."""
        required(rows, lacking, "one-cpu" if len(self.host.usable_cpus) < 2 else "too-few-points")

    @staticmethod
    def _median(rows: pd.DataFrame, lacking: str, value: str = "ns_per_access") -> Interval:
        return median_interval(required(rows, lacking)[value])

    def _chases(self, layout: str, value: str, **where: object) -> pd.DataFrame:
        columns = "stream_kib", "walk_lines", "discard_pages", value
        rows = self._rows("neighbour_chase", *columns, mode="other", layout=layout)
        return select(rows, **({"walk_lines": 0, "discard_pages": 0} | where))

    @property
    def far_lines(self) -> int:
        """Of the chase beside streams; 0 without rows."""
        rows = self._rows("neighbour_chase", "stream_kib")
        streamed = rows[rows["stream_kib"] > 0]
        return int(streamed["lines"].max()) if len(streamed) else 0

    def beside_stream(self, layout: str, value: str = "ns_per_access") -> Curve:
        """Return ns a hop over the MiB that a thread beside streams, 0 if it only runs; or p50_ns
        or p99_ns of slices."""
        rows = self._chases(layout, value, lines=self.far_lines)
        return Curve.of(rows.assign(mib=rows["stream_kib"] / 1024), "mib", value)

    @staticmethod
    def _with_stream(curve: Curve, mib: float) -> Interval:
        return required(curve.between(mib, mib), "no chase beside such a stream was measured").last

    def under_load(self) -> Interval:
        """Return the price of translation beside the largest stream over that beside a thread that
        only runs."""
        self.require_others(self.loaded, "no chase beside a stream was measured")
        least, *_, most = STREAMED_MIB
        return self._with_stream(self.loaded, most) / self._with_stream(self.loaded, least)

    def slower_beside_stream(self, name: str) -> Interval:
        """Return a quantile beside the largest stream over that beside a thread that only runs."""
        slices = self.beside_stream("spread", f"{name}_ns")
        least, *_, most = STREAMED_MIB
        return self._with_stream(slices, most) / self._with_stream(slices, least)

    def beside_discards(self) -> Interval:
        """Return `slowed_by_discards` of spread over packed: interrupts take as much from both."""
        return self.slowed_by_discards("spread") / self.slowed_by_discards("packed")

    def slowed_by_discards(self, layout: str) -> Interval:
        """Return a hop's time over HELD lines beside a thread that gives pages back over beside one
        that only runs."""
        busy, idle = (
            self._chases(layout, "ns_per_access", lines=HELD, discard_pages=n, stream_kib=0)
            for n in (DISCARDED, 0)
        )
        self.require_others(busy, "no chase beside a thread that gives pages back was measured")
        return self._median(busy, "") / self._median(idle, "no chase was measured")

    def beside_sibling(self) -> Interval:
        """Return the time of a hop over pages that the TLB holds, beside a chase on the core's
        other thread over beside one that only runs. Raises Unavailable("no-sibling") too."""
        where = {"mode": "sibling", "layout": "spread"}
        rows = required(self._rows("neighbour_chase", "walk_lines", **where), "", "no-sibling")
        walked, idle = rows[rows["walk_lines"] > 0], rows[rows["walk_lines"] == 0]
        lacking = "no chase was measured"
        return self._median(walked, lacking) / self._median(idle, lacking)
