"""The cliff: rows of the chase and the gather as curves, the staircase of prices, kinds of TLB
beside it, and what was counted."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from tlb.inference import counts, curves, misses
from tlb.inference.curves import HALF_AN_OCTAVE, Curve, select
from tlb.inference.intervals import Interval
from tlb.inference.misses import TEXTBOOK, RandomFit, StepFit
from tlb.machine.host import data_tlbs
from tlb.machine.tlb import ways_of
from tlb.reasons import Unavailable, if_available, required
from tlb.report import analysis
from tlb.report.chapter import literature

# "Flat" in the published run is 4.2 to 4.8 ns, a rise of 14 %; twice that is still nothing beside a
# cliff.
FLAT = 1.28
ENTRY_BYTES = 8  # of the page table's last level, each page's own
THEIR_PAGE_BYTES = 4 << 10  # of the published graph walk on base pages, a fact of that machine


class Staircase(NamedTuple):
    """The price of translation as treads (ns per access), and the places of the two steps (lines):
    the first of the price, the second of what rises there."""

    hit_ns: float  # past the first level, inside the second
    walk_ns: float  # an octave and more past the second
    first_step: float
    second_step: float
    second_begins: float  # a tenth of the second rise done
    second_ends: float  # nine tenths


class Analysis(analysis.Analysis):
    """The rows of `page_chase`, `page_gather` and `page_store` on base pages.

    The page defines: spread, packed, price, window, random, sequential, gather, in_flight,
    side_by_side, stores, walk_costs, counted_rows and counters.
    """

    # The independent loop over one line a page as published, and the price of translation in it.
    numpy_gather = cached_property(
        lambda a: curves.spread(a.frame, kernel="page_gather", engine="numpy")
    )
    numpy_price = cached_property(lambda a: a.priced(kernel="page_gather", engine="numpy"))

    def priced(self, **where: object) -> Curve:
        """Return the price of translation in the rows of a chase that `curves.spread` and
        `curves.packed` select."""
        return self.price_of(curves.spread(self.frame, **where), curves.packed(self.frame, **where))

    @property
    def by_order(self) -> dict[str, Curve]:
        """The price of translation of each order of visits that was measured."""
        prices = {"cycle": self.price, "random": self.random, "sequential": self.sequential}
        return {order: price for order, price in prices.items() if len(price)}

    @property
    def as_published(self) -> Curve:
        """The published loop, which is numpy's. The same loads in another engine are another loop:
        numpy's own work takes longer than they do. Raises Unavailable("too-few-points") where it
        was not run."""
        return required(self.numpy_gather, "the published loop was not run in numpy")

    @property
    def largest_bytes(self) -> int:
        """`largest`, as a working set."""
        return self.largest * self.base_page_bytes

    @property
    def largest(self) -> int:
        """The largest number of lines that has a price. Raises Unavailable("too-few-points")."""
        return required(self.price.xs, "no spread point has its packed control")[-1]

    # GHz of the core beside the chase, by lines; NaN where an engine has no clock.
    _counted = cached_property(lambda a: {})  # by quantity: of which rows, and the curve
    clocks = cached_property(
        lambda a: a.counted_rows.groupby("lines")["core_ghz"].median().where(lambda ghz: ghz > 0)
    )

    @property
    def ghz(self) -> float:
        """The clock over all rows. Raises Unavailable("no-clock")."""
        measured = self.frame.loc[self.frame["core_ghz"] > 0, "core_ghz"]
        if measured.empty:
            raise Unavailable("no-clock")
        return float(measured.median())

    # --- the staircase

    @property
    def steps(self) -> Staircase:
        """Treads and steps around the `entries`. Raises Unavailable: no-geometry without two
        levels, too-few-points, no-step where the price does not rise."""
        first, _ = self.two_levels()
        hit, walk = self.treads
        begins, half, ends = (self.second_step(share).value for share in (0.1, 0.5, 0.9))
        return Staircase(
            hit, walk, self.price.crossing(hit / 2, 0.4 * first, 4 * first), half, begins, ends
        )

    @property
    def treads(self) -> tuple[float, float]:
        """What a hit in the last level costs and what a walk just past it does, ns. Raises as
        `steps` does."""
        (first, second), price = self.two_levels(), self.price
        treads = [(1, 0.9 * first), (1.4 * first, 0.6 * second), (2 * second, 4 * second)]
        for below, past in pairwise(treads):
            before, after = price.level(*below), price.level(*past)
            # The interval of the upper tread's price may not reach down into that of the lower.
            if (
                price.between(*past).table["low"].median()
                <= price.between(*below).table["high"].median()
            ):
                raise Unavailable(
                    "no-step",
                    f"{before:z.2f} ns up to {below[1]:.0f} lines, {after:z.2f} ns from {past[0]:.0f} on",
                )
        return price.level(*treads[1]), price.level(*treads[2])

    @property
    def is_counted(self) -> bool:
        """Whether walks were counted at enough sizes around the last level's entries to show its
        step without the price of a walk."""
        _, entries = self.two_levels()
        low, high = self.window
        return (
            len(self.counted("walk").between(entries * low, entries * high)) >= misses.STEP_POINTS
        )

    @property
    def rise(self) -> Curve:
        """What rises where the last level is full: walks per access where they were counted,
        otherwise the price."""
        return self.counted("walk") if self.is_counted else self.price

    def what_rises(self) -> str:
        """Return what shows the misses of the second step, as a subject with its verb. Raises
        Unavailable where walks were not counted and their price is not known to be steady past the
        step: a rise in time is then one of misses, of their price, or of both."""
        if self.is_counted:
            return "The walks, as counted, have"
        _, entries = self.two_levels()
        over = self.price.flatness(2 * entries, 4 * entries)
        if over.high > FLAT:
            raise Unavailable(
                counts.why_not_counted(self.counted_rows, "walk", self.host),
                "time alone does not tell more misses from "
                f"dearer walks: from twice to four times the entries the price varies by a factor of {over:.2f}",
            )
        return "The price has"

    @property
    def walked(self) -> Interval:
        """The price from twice to four times the last level's entries, where each access walks and
        the table is near."""
        _, entries = self.two_levels()
        return self.price.between(2 * entries, 4 * entries).typical()

    def second_step(self, share: float) -> Interval:
        """Where so much of the `rise` at the last level is done, in pages. Raises Unavailable."""
        _, second = self.two_levels()
        before, after = (0.0, 1.0) if self.is_counted else self.treads
        return self.rise.passes(before + share * (after - before), 0.4 * second, 4 * second)

    def near(self, entries: int, curve: Curve) -> Curve:
        """Return a curve within an octave of a knee. Raises Unavailable("too-few-points")."""
        low, high = self.window
        return required(
            curve.between(entries * low, entries * high),
            f"nothing was measured within an octave of {entries:,} pages",
        )

    @property
    def fits(self) -> list[StepFit]:
        """The kinds of TLB beside the `rise`, the best first. Raises Unavailable: no-geometry,
        too-few-points."""
        _, entries = self.two_levels()
        near = self.near(entries, self.rise)
        return misses.fit_step(
            near.xs, near.medians, entries, self.last_ways, is_share=self.is_counted
        )

    @property
    def last_ways(self) -> int | None:
        """The last level's ways as stated; None where nothing states them."""
        tlbs = data_tlbs(self.host)
        return ways_of(tlbs[-1]) if tlbs else None

    @property
    def models(self) -> dict[str, pd.DataFrame]:
        """The best kind, the textbook's and the best of the others: lines and median, in the unit
        of `rise`; empty where none can be fitted."""
        if not (fits := if_available(lambda: self.fits)):
            return {}
        shown = {
            fit.kind: fit for fit in [*fits[:2], *(fit for fit in fits if fit.kind == TEXTBOOK)]
        }
        entries = self.entries[-1]
        lines = sorted({round(entries * 2 ** (k / 40)) for k in range(-32, 42)})
        return {
            kind: pd.DataFrame(
                {"lines": lines, "median": fit.predict(lines, entries, self.last_ways)}
            )
            for kind, fit in shown.items()
        }

    @property
    def random_fit(self) -> tuple[RandomFit, Curve]:
        """1 - C/M over two levels fitted to the random order up to where the walk itself gets
        dearer; the fit and its points. Raises Unavailable: no-geometry, too-few-points."""
        first, second = self.two_levels()
        part = self.random.between(1, 4 * second)
        fit = misses.fit_random_curve(part.xs, part.medians, first, second)
        if not np.isfinite(fit.walk_ns.low):
            raise Unavailable(
                "too-few-points",
                f"nothing was drawn from more than {second:,} pages, where walks begin",
            )
        return fit, part

    # --- the published run

    published = property(
        lambda a: literature("tlb_pressure")
    )  # a gather: working_set_bytes, pages (how many), ns_per_access, reach

    def at_published_sizes(self, **loops: Curve) -> pd.DataFrame:
        """Return the median of each loop at each published number of pages, ns; NaN where it was
        not measured."""
        return pd.DataFrame(
            {
                name: [curve.get(n).value for n in self.published["pages"]]
                for name, curve in loops.items()
            }
        )

    # --- counters

    def counted(self, quantity: str) -> Curve:
        """A counter of the chase, per access, by lines; empty where no row has a value. A page asks
        a hundred times."""
        rows, (of, curve) = self.counted_rows, self._counted.get(quantity, (None, None))
        if of is not rows:
            self._counted[quantity] = rows, (curve := counts.counted(rows, quantity))
        return curve

    @property
    def counts_are(self) -> str:
        """What the numbers of walks are: counted, simulated or predicted."""
        return (
            "predicted"
            if not len(self.counted("walk"))
            else "simulated"
            if self.is_simulated
            else "counted"
        )

    @property
    def walks(self) -> dict[str, pd.DataFrame]:
        """Walks per access by lines, by what they are: counted or simulated, predicted from
        `entries`, published."""
        series = {f"walks, {self.counts_are}": self.counted("walk").table}
        if self.entries:
            kind = if_available(lambda: self.fits[0].kind) or TEXTBOOK
            least, most, entries = (
                int(self.frame["lines"].min()),
                int(self.frame["lines"].max()),
                self.entries[-1],
            )
            near = {round(entries * 2 ** (k / 16)) for k in range(-32, 65)}
            lines = sorted(n for n in near | {least, most} if least <= n <= most)
            series[f"walks, predicted: {kind}"] = pd.DataFrame(
                {
                    "lines": lines,
                    "median": misses.share_missed(kind, lines, entries, self.last_ways),
                }
            )
        # A random walk on another machine, as far as the sizes here reach; a figure for a range
        # holds at both of its ends.
        most, theirs = (
            self.frame["lines"].max(),
            select(literature("dtlb_misses_per_hop"), pages="4k"),
        )
        theirs = theirs[theirs["working_set_from_bytes"] // THEIR_PAGE_BYTES <= most]
        ends = (
            theirs[["working_set_from_bytes", "working_set_to_bytes"]] // THEIR_PAGE_BYTES
        ).clip(upper=most)
        points = ends.assign(median=theirs["misses_per_hop"]).melt("median", value_name="lines")
        series["misses per hop of a graph walk, published"] = (
            points[["lines", "median"]].drop_duplicates().sort_values("lines")
        )
        return {name: table for name, table in series.items() if len(table)}

    @property
    def cycles(self) -> dict[str, pd.DataFrame]:
        """Core cycles per access by lines: with a walk in progress, as counted or simulated; and
        the price of translation, from time."""
        table, spans = self.price.table, ["median", "low", "high"]
        ghz = table["lines"].map(self.clocks)
        timed = table.assign(**{name: table[name] * ghz for name in spans})[ghz.notna()]
        series = {
            f"walk cycles, {self.counts_are}": self.counted("walk_cycles").table,
            "price of translation, inferred from time": timed,
        }
        return {name: table for name, table in series.items() if len(table)}

    def costs_by_size(self) -> pd.DataFrame:
        """Return a row a size, each four times the one before: lines, price_ns, price_cycles, walks
        per access, spent (cycles with a walk in progress; the price in cycles where those are not
        counted); NaN where walks are not counted."""
        shown = [
            n
            for n in sorted({*self.price.xs, *self.price.gaps})
            if n.bit_count() == 1 and n.bit_length() % 2
        ]
        price, walks, spent = (
            curve.medians.reindex(shown).astype(float)
            for curve in (self.price, self.counted("walk"), self.counted("walk_cycles"))
        )
        cycles = price * self.clocks.reindex(shown)
        table = pd.DataFrame(
            {
                "price_ns": price,
                "price_cycles": cycles,
                "walks": walks,
                "spent": spent if spent.notna().any() else cycles,
            }
        )
        return table.rename_axis("lines").reset_index()

    # --- what the text compares

    def in_cycles(self, ns: float, decimals: int = 0) -> str:
        """Return a time in cycles, to follow it in brackets; "" where the clock was not measured."""
        ghz = if_available(lambda: self.ghz)
        return f" ({ns * ghz:.{decimals}f} cycles)" if ghz else ""

    def walks_near(self, octaves: float) -> tuple[int, Interval]:
        """Return the size nearest to so many octaves from the last level's entries, and the share
        of its loads that walk. Raises Unavailable."""
        row = self.counted("walk").row(self.two_levels()[1] * 2**octaves, HALF_AN_OCTAVE)
        return int(row["lines"]), Interval.of(row)

    def rise_across(self, curve: Curve) -> Interval:
        """Return by what factor a loop slows from half the last level's entries to twice as many.
        Raises Unavailable."""
        _, entries = self.two_levels()
        return curve.at(entries * 2, HALF_AN_OCTAVE) / curve.at(entries * 0.5, HALF_AN_OCTAVE)

    def gain_across(self, curve: Curve) -> Interval:
        """Return by how much a loop slows from 0.6 times the last level's entries to twice as many,
        ns. Raises Unavailable."""
        _, entries = self.two_levels()
        return curve.at(entries * 2, HALF_AN_OCTAVE) - curve.at(entries * 2**-0.75, HALF_AN_OCTAVE)

    @property
    def textbook_fit(self) -> StepFit:
        return next(fit for fit in self.fits if fit.kind == TEXTBOOK)
