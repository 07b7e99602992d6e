"""What chases through more and more page tables say: where a walk begins, and what each level that
it reads costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pandas as pd

from experiments.walk_anatomy.grid import (
    COLLIDING_PAGES,
    LEVELS,
    PADDED_STRIDES,
    POWER_OF_TWO_STRIDES,
    TABLES,
    Tables,
    colliding_pages,
    held_out_tables,
    table_sweep,
)
from experiments.walk_anatomy.models import WalkCache, find_walk_cache, predicted_miss_ns
from experiments.walk_anatomy.policies import PolicyAnalysis
from tlb.report.charts import INTERVAL
from tlb.stats.curves import Curve, select
from tlb.stats.geometry_curves import Walk
from tlb.stats.intervals import BY_REPEAT, Interval, interval_of_rows, summarise
from tlb.system.reasons import Unavailable, if_available, required
from tlb.system.units import format_size

EVENLY, AT_RANDOM = "exactly", "at random places"


class Analysis(PolicyAnalysis):
    """The rows of `table_chase`: ns a visit. Sweeps run over the number of tables of a level. What
    nothing was measured for is empty here; methods raise Unavailable.

    The page defines: per_miss, prices, predictions, strides and padded.
    """

    def _through(self, tables: list[Tables]) -> pd.DataFrame:
        """The rows of `walked` with these numbers of tables."""
        rows = self.walked
        if rows.empty:
            return rows
        return rows[pd.MultiIndex.from_frame(rows[[*TABLES]].astype(int)).isin(tables)]

    @cached_property
    def held_ns(self) -> Interval:
        """A visit of a page that the TLB's last level holds, ns."""
        return self._cycle(self.pages // 8)

    @cached_property
    def times(self) -> dict[int, Curve]:
        """ns a visit over the tables of a level, by level; only those that were measured."""
        return {
            level: Curve.of(rows, TABLES[level - 1])
            for level in LEVELS
            if len(rows := self._swept(level))
        }

    def _swept(self, level: int) -> pd.DataFrame:
        return self._through(table_sweep(level, self.pages, self.fanout))

    def along_sweeps(self, per_miss: Callable[[Interval, Interval], Interval]) -> dict[int, Curve]:
        """Return what a TLB miss costs along each sweep, by level. per_miss: the cost, of the time
        of a visit and of the share of visits that miss at that point, taken as exact: an error that
        is common to all points does not blur their steps. Empty where a visit that hits, or the
        share, is not known."""
        try:
            return {n: self._priced(n, visits, per_miss) for n, visits in self.times.items()}
        except Unavailable:
            return {}

    def _priced(
        self, level: int, visits: Curve, per_miss: Callable[[Interval, Interval], Interval]
    ) -> Curve:
        table = visits.table.drop(columns=BY_REPEAT, errors="ignore")
        for place, (tables, visit) in enumerate(visits):
            share = self._missed_at(level, tables).value
            cost = per_miss(visit, Interval(share, share, share))
            table.loc[place, INTERVAL] = list(cost.value_and_bounds)
        return Curve(table, visits.x, visits.processes)

    def _missed_by(self, rows: pd.DataFrame) -> Interval:
        """The share of these visits that walk, as counted; without counts `missed`.

        The kernel places pages so that all tables use the sets of the TLB alike, and the share
        stays as long as pages alone fill it.
        """
        counted = "walk_per_access" in rows and rows["walk_per_access"].notna().any()
        return interval_of_rows(rows, "walk_per_access") if counted else self.missed

    @cached_property
    def caches(self) -> list[WalkCache]:
        """The cache of the entries that lead to the tables of each level whose sweep shows one. Not
        of tables with a page each: those come round in one cycle, of which a cache that replaces
        the oldest entry holds none, and not C of T."""
        found: list[WalkCache] = []
        for level, curve in self.prices.items():
            curve = curve.between(0, self.pages / 2)
            ahead = [
                table_sweep(level, self.pages, self.fanout)[0][cache.level - 1] for cache in found
            ]
            if cache := if_available(find_walk_cache, level, curve, found, ahead):
                found.append(cache)
        return found

    @property
    def first_ns(self) -> Interval:
        """What a miss costs that reads as little as there is to read."""
        times = required(self.times.get(1), "no tables of the lowest level were swept")
        return self._miss_ns(times.intervals[0], 1, times.xs[0])

    @property
    def last_ns(self) -> Interval:
        """What a miss costs with as many tables of each level as were measured."""
        level, times = max(required(self.times, "no tables were swept").items())
        return self._miss_ns(times.last, level, times.xs[-1])

    def _miss_ns(self, visit: Interval, level: int, tables: float) -> Interval:
        """A miss, from a visit at a point of a level's sweep."""
        return self.per_miss(visit, self._missed_at(level, tables))

    def _missed_at(self, level: int, tables: float) -> Interval:
        return self._missed_by(select(self._swept(level), **{TABLES[level - 1]: tables}))

    def held_out(self) -> pd.DataFrame:
        """Return a row a held-out point: its tables, ns a miss as measured (median, low, high) and
        as the caches found along the sweeps predict (predicted). Empty where no cache was found."""
        rows = self._through(held_out_tables(self.pages, self.fanout))
        if not len(rows) or not self.caches:
            return pd.DataFrame(columns=[*TABLES, *INTERVAL, "predicted"], dtype=float)
        table = summarise(rows, [*TABLES])
        shares = np.array([[self._missed_by(part).value] for _, part in rows.groupby([*TABLES])])
        table[INTERVAL] = (table[INTERVAL] - self.held_ns.value) / shares
        counts, first = table[[*TABLES]].astype(float).to_numpy(), self.first_ns.value
        predicted = [
            predicted_miss_ns(first, self.caches, dict(zip(LEVELS, row, strict=True)))
            for row in counts
        ]
        return table.assign(predicted=predicted)

    @cached_property
    def collisions(self) -> pd.DataFrame:
        """A row a distance and kind of place: level, apart (as a size), places, median, low, high
        in ns a visit, n."""
        rows = select(self.frame, kernel="table_chase", order="cycle", lines=COLLIDING_PAGES)
        rows = rows.reindex(
            columns=list(dict.fromkeys([*rows, *TABLES]))
        )  # where none was measured
        placed = [(*tables, mode) for _, tables, mode in colliding_pages(self.fanout)]
        rows = rows[pd.MultiIndex.from_frame(rows[[*TABLES, "mode"]]).isin(placed)]
        level = 1 + (rows[[*TABLES[:2]]] == COLLIDING_PAGES).sum(axis=1)
        places = np.where(rows["mode"] == "even", EVENLY, AT_RANDOM)
        table = summarise(rows.assign(level=level, places=places), ["level", "places"])
        spans = self.base_page_bytes * self.fanout ** (table["level"] - 1)
        return table.assign(apart=spans.map(format_size))

    @property
    def far_apart(self) -> tuple[Interval, Interval, Interval]:
        """ns a visit of pages side by side, exactly the largest distance apart, and at random
        places within it."""
        level = int(required(self.collisions, "no pages were set apart")["level"].max())
        wanted = [
            select(self.collisions, level=n, places=places)
            for n, places in ((1, EVENLY), (level, EVENLY), (level, AT_RANDOM))
        ]
        side, exact, random = (
            Interval.of(required(rows, "these pages were not set apart").iloc[0]) for rows in wanted
        )
        return side, exact, random

    # --- the sets of the last level

    @property
    def widest(self) -> int:
        """The widest stride, in pages, at which COLLIDING pages fit the last level, if a page's
        lowest bits choose its set: pages s apart reach one set in s. Raises Unavailable where one
        level may hold them all."""
        if (
            not self.entries
            or self.entries[0] * 2 > COLLIDING_PAGES
            or self.entries[-1] < 2 * COLLIDING_PAGES
        ):
            why = f"of two that hold fewer and more than {COLLIDING_PAGES} pages"
            raise Unavailable("one-level", why)
        return max(
            stride
            for stride in POWER_OF_TWO_STRIDES
            if stride * COLLIDING_PAGES <= self.entries[-1]
        )

    @property
    def widened(self) -> list[int]:
        """The strides past `widest` that were measured a page wider too."""
        both = [
            wide
            for wide in PADDED_STRIDES
            if wide in self.strides.xs and wide + 1 in self.padded.xs
        ]
        return [wide for wide in both if wide > self.widest]

    @property
    def alias_ns(self) -> float:
        """What a visit costs more because the last one reached its line by another address, ns; 0
        where the survey shows no such cost."""
        found = if_available(lambda: self.survey)
        penalty = (found and found.alias_penalty) or 0.0
        if penalty < 1:
            return 0.0
        return penalty / found.core_ghz if found.unit == "cycles" else penalty

    @cached_property
    def walks(self) -> list[Walk]:
        """What a walk costs with the lowest tables in one cache after another, in the survey's
        unit; empty without a survey."""
        return [walk for walk in if_available(lambda: self.survey.walks) or () if walk.cost]

    @property
    def ghz(self) -> float:
        """The core's clock while the chases ran. Raises Unavailable("no-clock")."""
        clocks = self.walked.get("core_ghz", pd.Series(dtype=float))
        return float(required(clocks[clocks > 0], "in none of the rows", "no-clock").median())
