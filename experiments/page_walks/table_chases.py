"""What chases through more and more page tables say: what a TLB miss costs with few tables and with
many, and how many upper entries a walk finds cached."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from experiments.page_walks.grid import (
    PAGE_TABLE_LEVELS,
    PAGE_TABLE_OPTION_NAMES,
    PageTablesPerLevel,
    fewest_page_tables,
    page_table_sweep,
)
from tlb.report import analysis
from tlb.stats.curves import Curve, select_rows
from tlb.stats.fits import fit_random_access_curve
from tlb.stats.geometry_curves import WalkPrice
from tlb.stats.intervals import BY_REPEAT_COLUMN, INTERVAL_COLUMNS, Interval, interval_of_rows
from tlb.system.page_sizes import TABLE_ENTRY_BYTES
from tlb.system.reasons import Unavailable, none_if_unavailable, require_nonempty

# The caches of upper entries follow from the cost of a TLB miss as walks use more tables. Pages are
# drawn at random from T tables of a level. A cache of C of the entries that lead to those tables
# holds any of them with probability C/T, and each walk that misses it reads an entry more. So along
# T the cost of a miss is flat, and from C on rises as 1 - C/T: the fit of random draws.

# Of the price before it: what a level adds at the end of a sweep, at the least, to be more than a
# slope. Reading a line of the first cache, the least that a walk can do more, is four cycles on the
# thirty of a walk that reads one.
MIN_COST_STEP_RATIO = 1.08
# entries of a level that no sweep begins below: its price is what all of the sweep pays
_ALWAYS_MISSED = 1e-9


def rises(sweep: Curve) -> bool:
    """Return whether the end of the sweep lies above the beginning by more than MIN_COST_STEP_RATIO."""
    return len(sweep) > 1 and (sweep.intervals[-1] / sweep.intervals[0]).low > MIN_COST_STEP_RATIO


def cached_entries(sweep: Curve) -> Interval:
    """Return how many of the entries that lead to the tables of a level are cached, by a sweep of
    the cost of a miss over these tables. Raises Unavailable: no-step if it does not rise,
    too-few-points below five numbers of tables."""
    if not rises(sweep):
        raise Unavailable("no-step", f"up to {max(sweep.xs, default=0):,.0f} tables")
    fit = fit_random_access_curve(sweep.xs, sweep.table["median"], l1_entries=_ALWAYS_MISSED)
    return fit.l2_entries


class PageTableAnalysis(analysis.Analysis):
    """The rows of `table_chase`: ns a visit. Sweeps run over the number of tables of a level. What
    nothing was measured for is empty here; methods raise Unavailable."""

    @cached_property
    def walked(self) -> pd.DataFrame:
        """Visits of more pages than the TLB holds, at random places."""
        rows = select_rows(self.frame, kernel="table_chase", mode="random", order="cycle")
        return rows[rows["lines"] == rows["lines"].max()] if len(rows) else rows

    @property
    def pages(self) -> int:
        return int(self.walked["lines"].max()) if len(self.walked) else 0

    @property
    def fanout(self) -> int:
        return self.base_page_bytes // TABLE_ENTRY_BYTES

    # --- how many visits miss

    def _cycle(self, pages: int) -> Interval:
        """A visit of a cycle through as few tables as there can be, ns."""
        tables = dict(
            zip(PAGE_TABLE_OPTION_NAMES, fewest_page_tables(pages, self.fanout), strict=True)
        )
        rows = select_rows(
            self.frame, kernel="table_chase", mode="random", order="cycle", lines=pages, **tables
        )
        return interval_of_rows(require_nonempty(rows, "this cycle was not measured"))

    def _drawn(self, pages: int) -> Interval:
        """A visit of pages that are all drawn alike, ns."""
        rows = select_rows(self.frame, kernel="table_chase", order="random", lines=pages, hot=pages)
        return interval_of_rows(require_nonempty(rows, "no drawn visits were measured"))

    @cached_property
    def held_ns(self) -> Interval:
        """A visit of a page that the TLB's last level holds, ns."""
        return self._cycle(self.pages // 8)

    @cached_property
    def missed(self) -> Interval:
        """The share of a cycle's visits through few tables that miss: what they take longer than a
        hit, over the price of a miss, which visits drawn at random give, since C of M pages hit
        under any policy. Raises Unavailable("too-few-points")."""
        entries = require_nonempty(self.entries, "how many entries the TLB has is not known")[-1]
        price = (self._drawn(self.pages) - self.held_ns) * (1 / (1 - entries / self.pages))
        return (self._cycle(self.pages) - self.held_ns) / price

    def _missed_by(self, rows: pd.DataFrame) -> Interval:
        """The share of these visits that walk, as counted; without counts `missed`.

        The kernel places pages so that all tables use the sets of the TLB alike, and the share
        stays as long as pages alone fill it.
        """
        counted = "walk_per_access" in rows and rows["walk_per_access"].notna().any()
        return interval_of_rows(rows, "walk_per_access") if counted else self.missed

    # --- what a miss costs

    @cached_property
    def times(self) -> dict[int, Curve]:
        """ns a visit over the tables of a level, by level; only those that were measured."""
        return {
            level: Curve.of(rows, PAGE_TABLE_OPTION_NAMES[level - 1])
            for level in PAGE_TABLE_LEVELS
            if len(rows := self._swept(level))
        }

    def _swept(self, level: int) -> pd.DataFrame:
        return self._through(page_table_sweep(level, self.pages, self.fanout))

    def _through(self, tables: list[PageTablesPerLevel]) -> pd.DataFrame:
        """The rows of `walked` with these numbers of tables."""
        rows = self.walked
        if rows.empty:
            return rows
        return rows[
            pd.MultiIndex.from_frame(rows[[*PAGE_TABLE_OPTION_NAMES]].astype(int)).isin(tables)
        ]

    @cached_property
    def miss_costs(self) -> dict[int, Curve]:
        """ns a TLB miss along each sweep, by level, with the share of visits that miss at each
        point taken as exact: an error that is common to all points does not blur their steps. Empty
        where a visit that hits, or the share, is not known."""
        try:
            return {level: self._priced(level, visits) for level, visits in self.times.items()}
        except Unavailable:
            return {}

    def _priced(self, level: int, visits: Curve) -> Curve:
        table = visits.table.drop(columns=BY_REPEAT_COLUMN, errors="ignore")
        for place, (tables, visit) in enumerate(visits):
            share = self._missed_at(level, tables).value
            cost = self._per_miss(visit, Interval(share, share, share))
            table.loc[place, INTERVAL_COLUMNS] = list(cost.value_and_bounds)
        return Curve(table, visits.x, visits.processes)

    def _per_miss(self, visit: Interval, missed: Interval) -> Interval:
        """What a visit takes longer than one that hits, over the share of visits that miss."""
        return (visit - self.held_ns) / missed

    def _missed_at(self, level: int, tables: float) -> Interval:
        return self._missed_by(
            select_rows(self._swept(level), **{PAGE_TABLE_OPTION_NAMES[level - 1]: tables})
        )

    @property
    def first_ns(self) -> Interval:
        """What a miss costs that reads as little as there is to read."""
        times = require_nonempty(self.times.get(1), "no tables of the lowest level were swept")
        return self._per_miss(times.intervals[0], self._missed_at(1, times.xs[0]))

    @property
    def last_ns(self) -> Interval:
        """What a miss costs with as many tables of each level as were measured."""
        level, times = max(require_nonempty(self.times, "no tables were swept").items())
        return self._per_miss(times.last, self._missed_at(level, times.xs[-1]))

    def cached_entries(self, level: int) -> Interval:
        """How many of the entries that lead to the tables of a level a walk finds cached. Not of
        tables with a page each: those come round in one cycle, of which a cache that replaces the
        oldest entry holds none, and not C of T. Raises Unavailable("no-step")."""
        costs = require_nonempty(self.miss_costs.get(level), "no tables of this level were swept")
        return cached_entries(costs.between(0, self.pages / 2))

    # --- by the place of the lowest table

    @cached_property
    def surveyed_walks(self) -> list[WalkPrice]:
        """What a walk costs with the lowest tables in one cache after another, in the survey's
        unit; empty without a survey."""
        return [walk for walk in none_if_unavailable(lambda: self.survey.walks) or () if walk.cost]

    def surveyed_walk(self, place: str) -> tuple[int, Interval]:
        """The bytes of entries that are walked through, and the ns of a walk, with the lowest
        tables in a cache (L2, L3) or memory. Raises Unavailable."""
        found = [walk for walk in self.surveyed_walks if walk.table_in == place]
        walk = require_nonempty(found, f"no walk with its table in {place} was surveyed")[0]
        cost = require_nonempty([walk.cost] if walk.cost else [], "that walk has no cost")[
            0
        ].interval
        survey = self.survey
        if survey.unit == "cycles":
            clock = require_nonempty(
                [ghz] if (ghz := survey.core_ghz) else [], "in no row", "no-clock"
            )[0]
            cost = cost * (1 / clock)
        return walk.table_bytes, cost

    @property
    def ghz(self) -> float:
        """The core's clock while the chases ran. Raises Unavailable("no-clock")."""
        clocks = self.walked.get("core_ghz", pd.Series(dtype=float))
        return float(
            require_nonempty(clocks[clocks > 0], "in none of the rows", "no-clock").median()
        )
