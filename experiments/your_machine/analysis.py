"""What a machine states about its TLBs, and what the survey shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import inf
from typing import Any

import pandas as pd

from experiments.your_machine.address import split
from tlb.machine.host import data_caches, data_tlbs
from tlb.measure import survey
from tlb.report import analysis
from tlb.report.chapter import Chapter
from tlb.stats import geometry
from tlb.stats.curves import Curve
from tlb.stats.curves import packed as packed_curve
from tlb.stats.geometry_curves import LINE_BYTES, cost_per_access
from tlb.system.page_sizes import BASE, HARDWARE, page_bytes
from tlb.system.reasons import Unavailable, if_available

_UNMEASURED = pd.DataFrame(
    columns=["layout", "order", "lines", "stride_pages", "ns_per_access", "core_ghz"]
)


class Analysis(analysis.Analysis):
    """Evaluate the rows of the survey (experiment `geometry`) and the host.

    The page defines: reaches, spread, packed, alias and price; costs are core cycles an access, or
    ns without a core clock, by pages touched.
    """

    def __init__(
        self,
        surveyed: pd.DataFrame | Callable[[], pd.DataFrame],
        about: Chapter,
        names: dict[str, Any] | None = None,
    ):
        """surveyed: the rows, or a function that returns them. If that raises, so does
        `geometry`."""
        self.lacking: Unavailable | None = None
        try:
            rows = surveyed() if callable(surveyed) else surveyed
        except Unavailable as why:
            rows, self.lacking = _UNMEASURED, why
        super().__init__(rows, about, names)

    def on(self, machine: str) -> Analysis:
        """Return the Analysis of another machine's survey. Raises Unavailable("no-data")."""
        other = self.about.on(machine)
        return Analysis(other.kept(survey.NAME), other)

    # --- what the machine states

    # How an address of this machine leads down its page table.
    split = cached_property(lambda a: split(a.host))

    def stated_levels(self) -> pd.DataFrame:
        """Return a row for each level of the TLB and page size, for loads: level, page_bytes,
        entries. A level may have parts that hold the same size."""
        rows = [
            (tlb.level, page_bytes(pages, self.base_page_bytes), tlb.entries)
            for pages in HARDWARE
            for tlb in data_tlbs(self.host, pages)
        ]
        return pd.DataFrame(sorted(rows), columns=["level", "page_bytes", "entries"])

    def data_caches(self) -> pd.DataFrame:
        """Return a row a data cache: level, size_bytes."""
        caches = [cache for cache in self.host.caches if cache.kind != "instruction"]
        rows = [(cache.level, cache.size_bytes) for cache in caches]
        return pd.DataFrame(rows, columns=["level", "size_bytes"])

    @property
    def last_cache_share(self) -> tuple[int, int, int] | None:
        """Level of the last cache and the two sizes between which packed lines leave it: the last
        that take less than half as long as memory, and the next. None if that is not below its
        stated size, or was not measured."""
        packed = if_available(lambda: packed_curve(self.about.kept("stlb_cliff"), pages=BASE))
        caches = self.data_caches().sort_values("level", kind="stable", ascending=False)
        if packed is None or caches.empty:
            return None
        level, stated = caches.iloc[0]
        memory = packed.between(2 * stated / LINE_BYTES, inf)
        inside = [x for x, ns in packed if len(memory) and ns.value < memory.last.value / 2]
        past = [x for x in packed.xs if inside and x > inside[-1]]
        if not past or past[0] * LINE_BYTES >= stated:
            return None
        return int(level), inside[-1] * LINE_BYTES, past[0] * LINE_BYTES

    # --- what the survey shows

    def cost_curve(self, layout: str, **where: Any) -> Curve:
        """Return the cost of a cycle through the pages of a layout."""
        rows = self.frame.assign(cost=cost_per_access(self.frame))
        return Curve.of(rows, value="cost", layout=layout, order="cycle", **where)

    @cached_property
    def geometry(self) -> geometry.Geometry:
        """The levels that the survey finds. Raises Unavailable as it and `geometry.infer` do."""
        if self.lacking:
            raise self.lacking
        return geometry.infer(self.frame, self.stated_entries, data_caches(self.host))
