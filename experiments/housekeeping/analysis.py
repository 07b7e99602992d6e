"""The kernel's housekeeping: collapses, forks and sparse memory, and what the document of
`tlb housekeeping measure` adds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import product

import pandas as pd

from experiments.housekeeping.document import DocumentAnalysis
from experiments.housekeeping.grid import ARENA_BYTES, COLLAPSED_AREAS, LARGE
from tlb.report.charts import INTERVAL
from tlb.stats.curves import Curve, select
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import BASE
from tlb.system.reasons import required

PHASES = ("before", "during", "after")


class Analysis(DocumentAnalysis):
    """The rows of `collapse_chase`, `fork_write` and `shootdown` (collapses alone). Tables and
    curves of what was not measured are empty. Methods raise Unavailable: too-few-points, one-cpu
    without a second CPU, and what they name.

    The page defines: fork_ns and write_ns.
    """

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
    def collapses(self) -> pd.DataFrame:
        """A row a mode of collapsing pages, phase and quantile (p50, p999 of slices): median, low,
        high in ns a hop."""
        rows = []
        for mode, phase, quantile in product(COLLAPSED_AREAS, PHASES, ("p50", "p999")):
            name = f"{phase}_{quantile}_ns"
            values = self._rows("collapse_chase", name, mode=mode)[name]
            if len(values):
                found = median_interval(values).value_and_bounds
                rows.append((mode, phase, quantile, *found))
        return pd.DataFrame(rows, columns=["mode", "phase", "quantile", *INTERVAL])

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

    def forked(self, value: str) -> dict[str, Curve]:
        """Return by page size, over the pages resident: `fork_ns` of a fork, or `ns_per_access` of
        a write to each base page after it."""
        rows = self._rows("fork_write", "used", value, used=0, mode="write")
        return Curve.by(rows, (BASE, LARGE), value=value)

    @staticmethod
    def most(curves: Mapping[str, Curve], pages: str) -> Interval:
        """Return the estimate with the most memory resident on such pages."""
        return required(curves.get(pages), "no forks on both page sizes were measured").last

    def single_write(self, pages: str) -> tuple[Interval, Interval]:
        """Return the bytes that one write in each large page's room copies, and its ns."""
        rows = self._rows("fork_write", "used", "copied_bytes", used=1, mode="write", pages=pages)
        ns = self._median(rows, "no single writes were measured")
        return median_interval(rows["copied_bytes"] / rows["lines"]), ns

    @cached_property
    def sparse(self) -> pd.DataFrame:
        """A row a page size and placement of arenas: pages, apart (or side by side), per_used
        (resident over used, an Interval)."""
        rows, used = [], max(ARENA_BYTES // self.base_page_bytes, 1)
        for pages, apart in product((BASE, LARGE), (True, False)):
            where = {"mode": "touch", "pages": pages, "used": used if apart else 0}
            touched = self._rows("fork_write", "used", "resident_bytes", **where)
            if len(touched):
                shares = touched["resident_bytes"] / touched["working_set_bytes"]
                rows.append((pages, apart, median_interval(shares)))
        return pd.DataFrame(rows, columns=["pages", "apart", "per_used"])

    def waste(self) -> Interval:
        large, base = (
            required(
                select(self.sparse, pages=pages, apart=True)["per_used"], "no arenas were measured"
            ).iloc[0]
            for pages in (LARGE, BASE)
        )
        return large / base
