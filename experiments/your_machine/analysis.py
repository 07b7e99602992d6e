"""What a machine states of its means to translate, what others published of theirs, and what the
survey of this one shows."""

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
    """The rows of the survey (experiment `geometry`), and what needs none: what the host states and
    published facts.

    The page defines: hit_costs, reaches, caches, spread, packed, alias and price; costs are core
    cycles an access, ns where nothing has a core clock, by pages touched.
    """

    def __init__(
        self,
        survey: pd.DataFrame | Callable[[], pd.DataFrame],
        about: About,
        names: dict[str, Any] | None = None,
    ):
        """survey: its rows, or what gives them. What that raises, `geometry` raises: the rest of
        the page does without."""
        self.lacking: Unavailable | None = None
        try:
            rows = survey() if callable(survey) else survey
        except Unavailable as why:
            rows, self.lacking = _UNMEASURED, why
        super().__init__(rows, about, names)

    # --- what the machine states

    split = cached_property(
        lambda a: split(a.host)
    )  # how an address of this machine leads down its page table

    def stated_levels(self) -> pd.DataFrame:
        """Return a row for each level of the TLB and page size, for loads: level, page_bytes,
        entries. A level may have parts that hold the same size."""
        rows = [
            (tlb.level, page_bytes(pages, self.base_page_bytes), tlb.entries)
            for pages in HARDWARE
            for tlb in data_tlbs(self.host, pages)
        ]
        return pd.DataFrame(rows, columns=["level", "page_bytes", "entries"]).sort_values(
            ["level", "page_bytes"], ignore_index=True
        )

    def data_caches(self) -> pd.DataFrame:
        """Return a row a data cache: level, size_bytes."""
        rows = [
            (cache.level, cache.size_bytes)
            for cache in self.host.caches
            if cache.kind != "instruction"
        ]
        return pd.DataFrame(rows, columns=["level", "size_bytes"])

    @property
    def first_cache_span(self) -> int | None:
        """The bytes that the sets of the first-level data cache span, a line each; None where they
        are not stated."""
        first = next(
            (
                cache
                for cache in self.host.caches
                if cache.level == 1 and cache.kind != "instruction"
            ),
            None,
        )
        return first.sets * first.line_bytes if first and first.sets and first.line_bytes else None

    @property
    def last_cache_share(self) -> tuple[int, int, int] | None:
        """The level of the last cache and between which two sizes lines side by side leave it: the
        last that take less than half of what memory takes, and the next. None where that is no less
        than its stated size, or was not measured."""
        packed = if_available(lambda: packed_curve(self.about.kept("stlb_cliff"), pages=BASE))
        if packed is None or self.data_caches().empty:
            return None
        level, stated = self.data_caches()[["level", "size_bytes"]].iloc[
            self.data_caches()["level"].argmax()
        ]
        memory = packed.between(2 * stated / LINE_BYTES, inf)
        within = [
            lines for lines, took in packed if len(memory) and took.value < memory.last.value / 2
        ]
        past = [lines for lines in packed.xs if within and lines > within[-1]]
        found = (int(level), within[-1] * LINE_BYTES, past[0] * LINE_BYTES) if past else None
        return found if found and found[2] < stated else None

    # --- what others published

    cores = cached_property(
        lambda a: literature("microarchitectures")
    )  # facts about cores that somebody stated or measured

    def fact(self, core: str, structure: str, quantity: str) -> tuple[float, float]:
        """(low, high) of one fact about one core; measured where it was, else stated. IndexError
        where the literature lost it."""
        rows = select(self.cores, microarchitecture=core, structure=structure, quantity=quantity)
        row = rows.sort_values("kind").iloc[0]  # "measured" sorts before "stated"
        return float(row["value_low"]), float(row["value_high"])

    @property
    def whole_loads(self) -> pd.Series:
        """Published cycles of a load that hits in the first level of the TLB and in the first
        cache."""
        return select(self.cores, structure="l1_dtlb", quantity="load_to_use")[
            ["value_low", "value_high"]
        ].stack()

    def published_hit_costs(self) -> pd.DataFrame:
        """Return cycles of a whole load when the first or the second level of the TLB answers, as
        measured: a row for each core with both, or with their difference alone."""
        measured = select(self.cores, kind="measured")
        facts = (
            measured.groupby(["microarchitecture", "structure", "quantity"])["value_low"]
            .first()
            .unstack([1, 2])
        )
        first, second = (facts[level, "load_to_use"] for level in ("l1_dtlb", "l2_tlb"))
        table = pd.DataFrame(
            {
                "first level answers": first,
                "second level answers": second,
                "difference": facts["l2_tlb", "penalty_over_l1_dtlb"],
            }
        )
        known = table["difference"].notna() | (first.notna() & second.notna())
        cores = [core for core in measured["microarchitecture"].unique() if known[core]]
        return table.loc[cores].astype("Int64").rename_axis("core").reset_index()

    @cached_property
    def disagreements(self) -> pd.DataFrame:
        """Facts that a vendor states and somebody measured, where the two differ: core, what,
        stated, measured."""
        keys = ["microarchitecture", "structure", "pages", "quantity"]
        stated, measured = (
            select(self.cores, kind=kind).fillna({"pages": "any"})
            for kind in ("stated", "measured")
        )
        apart = stated.merge(measured, on=keys, suffixes=("_stated", "_measured")).query(
            "value_high_stated != value_high_measured"
        )
        what = [_WHAT[fact] for fact in apart["structure"] + " " + apart["quantity"]]
        return pd.DataFrame(
            {
                "core": apart["microarchitecture"],
                "what": what,
                "stated": apart["value_high_stated"].astype(int),
                "measured": apart["value_high_measured"].astype(int),
            }
        )

    @cached_property
    def fault_ns(self) -> pd.Series:
        """A published minor fault, by the levels of the page table
        (data/literature/page_fault_levels.csv)."""
        return select(literature("page_fault_levels"), benchmark="lat_pagefault").set_index(
            "page_table_levels"
        )["ns_per_fault"]

    # --- what the survey shows

    def cost_curve(self, layout: str, **where: object) -> Curve:
        """The cost of a cycle through the pages of a layout."""
        return Curve.of(
            self.frame.assign(cost=costs(self.frame)),
            value="cost",
            layout=layout,
            order="cycle",
            **where,
        )

    @cached_property
    def geometry(self) -> geometry.Geometry:
        """What the survey says of each level. Raises Unavailable, as the survey and
        `geometry.infer` do."""
        if self.lacking:
            raise self.lacking
        return geometry.infer(self.frame, self.stated_entries, data_caches(self.host))

    @property
    def survey_findings(self) -> list[str]:
        """What the two methods say of each level, of the ways and of the alias layout, and what was
        lacking, as `tlb geometry` prints it. Raises Unavailable."""
        return geometry_words.sentences(self.geometry)
