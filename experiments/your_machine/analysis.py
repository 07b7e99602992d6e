"""What a machine states about its TLBs, what others published, and what the survey shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import inf
from typing import Any

import pandas as pd

from experiments.your_machine.address import split
from tlb.inference import geometry, geometry_words
from tlb.inference.curves import Curve, select
from tlb.inference.curves import packed as packed_curve
from tlb.inference.geometry_curves import costs
from tlb.inference.geometry_walks import LINE_BYTES
from tlb.machine.host import data_caches, data_tlbs
from tlb.page_sizes import BASE, HARDWARE, page_bytes
from tlb.reasons import Unavailable, if_available
from tlb.report import analysis
from tlb.report.analysis import About
from tlb.report.chapter import literature

_UNMEASURED = pd.DataFrame(
    columns=["layout", "order", "lines", "stride_pages", "ns_per_access", "core_ghz"]
)
_WHAT = {
    "l1_dtlb entries": "first level, entries",
    "l2_tlb entries": "second level, entries",
    "l2_tlb ways": "second level, ways",
    "l2_tlb penalty_over_l1_dtlb": "second level, cycles added",
}


class Analysis(analysis.Analysis):
    """Evaluate the rows of the survey (experiment `geometry`), the host and published facts.

    The page defines: hit_costs, reaches, caches, spread, packed, alias and price; costs are core
    cycles an access, or ns without a core clock, by pages touched.
    """

    def __init__(
        self,
        survey: pd.DataFrame | Callable[[], pd.DataFrame],
        about: About,
        names: dict[str, Any] | None = None,
    ):
        """survey: its rows, or a function that returns them. If that raises, so does `geometry`."""
        self.lacking: Unavailable | None = None
        try:
            rows = survey() if callable(survey) else survey
        except Unavailable as why:
            rows, self.lacking = _UNMEASURED, why
        super().__init__(rows, about, names)

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
        table = pd.DataFrame(rows, columns=["level", "page_bytes", "entries"])
        return table.sort_values(["level", "page_bytes"], ignore_index=True)

    def data_caches(self) -> pd.DataFrame:
        """Return a row a data cache: level, size_bytes."""
        caches = [cache for cache in self.host.caches if cache.kind != "instruction"]
        rows = [(cache.level, cache.size_bytes) for cache in caches]
        return pd.DataFrame(rows, columns=["level", "size_bytes"])

    @property
    def first_cache_span(self) -> int | None:
        """Sets of the first-level data cache times the line size; None if not stated."""
        for cache in self.host.caches:
            if cache.level == 1 and cache.kind != "instruction":
                return cache.sets * cache.line_bytes if cache.sets and cache.line_bytes else None
        return None

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

    # --- what others published

    # Facts about cores that a vendor stated or somebody measured.
    cores = cached_property(lambda a: literature("microarchitectures"))

    def fact(self, core: str, structure: str, quantity: str) -> tuple[float, float]:
        """Return (low, high) of a fact about a core, measured or else stated. Raises IndexError
        without one."""
        rows = select(self.cores, microarchitecture=core, structure=structure, quantity=quantity)
        row = rows.sort_values("kind").iloc[0]  # "measured" sorts before "stated"
        return float(row["value_low"]), float(row["value_high"])

    @property
    def whole_loads(self) -> pd.Series:
        """Published cycles of a load that hits in the first-level TLB and cache."""
        loads = select(self.cores, structure="l1_dtlb", quantity="load_to_use")
        return loads[["value_low", "value_high"]].stack()

    def published_hit_costs(self) -> pd.DataFrame:
        """Return measured cycles of a load by the TLB level that answers: a row for each core
        with both, or with their difference alone."""
        measured = select(self.cores, kind="measured")
        keys = ["microarchitecture", "structure", "quantity"]
        facts = measured.groupby(keys)["value_low"].first().unstack([1, 2])
        first, second = (facts[level, "load_to_use"] for level in ("l1_dtlb", "l2_tlb"))
        difference = facts["l2_tlb", "penalty_over_l1_dtlb"]
        known = difference.notna() | (first.notna() & second.notna())
        columns = ["first level answers", "second level answers", "difference"]
        table = pd.concat([first, second, difference], axis=1, keys=columns)
        cores = [core for core in measured["microarchitecture"].unique() if known[core]]
        return table.loc[cores].astype("Int64").rename_axis("core").reset_index()

    @cached_property
    def disagreements(self) -> pd.DataFrame:
        """Facts whose stated and measured values differ: core, what, stated, measured."""
        keys, cores = ["microarchitecture", "structure", "pages", "quantity"], self.cores
        cores = cores.fillna({"pages": "any"})
        stated, measured = (select(cores, kind=kind) for kind in ("stated", "measured"))
        both = stated.merge(measured, on=keys, suffixes=("_stated", "_measured"))
        both = both[both["value_high_stated"] != both["value_high_measured"]]
        columns = {
            "core": both["microarchitecture"],
            "what": (both["structure"] + " " + both["quantity"]).map(_WHAT),
            "stated": both["value_high_stated"].astype(int),
            "measured": both["value_high_measured"].astype(int),
        }
        return pd.DataFrame(columns)

    @cached_property
    def fault_ns(self) -> pd.Series:
        """A published minor fault, by the levels of the page table."""
        faults = select(literature("page_fault_levels"), benchmark="lat_pagefault")
        return faults.set_index("page_table_levels")["ns_per_fault"]

    # --- what the survey shows

    def cost_curve(self, layout: str, **where: object) -> Curve:
        """Return the cost of a cycle through the pages of a layout."""
        rows = self.frame.assign(cost=costs(self.frame))
        return Curve.of(rows, value="cost", layout=layout, order="cycle", **where)

    @cached_property
    def geometry(self) -> geometry.Geometry:
        """The levels that the survey finds. Raises Unavailable as it and `geometry.infer` do."""
        if self.lacking:
            raise self.lacking
        return geometry.infer(self.frame, self.stated_entries, data_caches(self.host))

    @property
    def survey_findings(self) -> list[str]:
        """Sentences about each level and what is missing, as `tlb geometry` prints them."""
        return geometry_words.sentences(self.geometry)
