"""The cliff: the staircase of prices, counted walks, and the published loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from tlb.machine.host import data_caches
from tlb.report import analysis, quantities
from tlb.report.quantities import QuantityDeclaration
from tlb.stats import curves
from tlb.stats.curves import HALF_OCTAVE_TOLERANCE, Curve, found_end, last_level_plateau
from tlb.stats.intervals import LEAST_COVERAGE, Interval
from tlb.system.page_sizes import CACHE_LINE_BYTES
from tlb.system.reasons import Unavailable, require_nonempty
from tlb.system.units import format_size


class Quantities(quantities.Quantities):
    """Costs are what translation adds to a dependent load: spread minus packed."""

    first_entries = QuantityDeclaration(
        "pages that the first level holds (CPUID, or measured)", "pages"
    )
    last_entries = QuantityDeclaration(
        "pages that the last level (CPUID) or all levels (measured) hold", "pages"
    )
    first_reach_bytes = QuantityDeclaration("memory that the first level's entries cover", "bytes")
    last_reach_bytes = QuantityDeclaration("memory that the last level's entries cover", "bytes")
    found_entries = QuantityDeclaration("pages that all levels hold, as found by chases", "pages")
    walks_begin = QuantityDeclaration(
        "pages at which a tenth of the second step is climbed", "pages", is_found=True
    )
    walks_begin_share = QuantityDeclaration(
        "the same, as a share of the last level's entries", "share"
    )
    near_ns = QuantityDeclaration("a load that hits the L1 cache and the first level", "ns", 1)
    hit_ns = QuantityDeclaration("cost of a hit in the last level", "ns", 1)
    walk_ns = QuantityDeclaration(
        "cost of a walk at two to four times the last level's reach", "ns"
    )
    unpriced_from_bytes = QuantityDeclaration(
        "smallest working set in which only the packed lines are sure to fit a cache",
        "bytes",
        is_found=True,
        is_judged=True,
    )
    unpriced_to_bytes = QuantityDeclaration(
        "largest such working set", "bytes", is_found=True, is_judged=True
    )
    far_bytes = QuantityDeclaration(
        "largest working set whose cost of translation is bounded", "bytes"
    )
    far_ns = QuantityDeclaration("a spread load in the largest working set", "ns")
    far_packed_ns = QuantityDeclaration("a packed load in the largest working set", "ns")
    far_price_ns = QuantityDeclaration(
        "cost of translation in the largest working set, at least", "ns"
    )
    far_share = QuantityDeclaration(
        "translation's share of a load in the largest working set, at least", "share"
    )
    price_2_gib_ns = QuantityDeclaration("cost of translation in 2 GiB, at least", "ns")
    sequential_64_mib_ns = QuantityDeclaration(
        "cost of translation in sequential order, 64 MiB", "ns"
    )
    cycle_64_mib_ns = QuantityDeclaration("cost of translation in a random cycle, 64 MiB", "ns")
    cache_bytes = QuantityDeclaration(
        "cached lines that most mappings keep", "bytes", is_found=True
    )
    gather_2_gib_ns = QuantityDeclaration("an independent load in 2 GiB", "ns")
    gather_4_gib_ns = QuantityDeclaration("an independent load in 4 GiB", "ns")
    gather_far_ns = QuantityDeclaration("an independent load in the largest working set", "ns")
    overlap = QuantityDeclaration(
        "independent loads in the time of a dependent one, largest working set", "times"
    )
    walks_below = QuantityDeclaration(
        "loads that walk at 0.7 times the last level's entries", "share"
    )
    walks_at = QuantityDeclaration("loads that walk at 1.1 times the entries", "share")
    walks_above = QuantityDeclaration("loads that walk at 1.4 times the entries", "share")


# "Flat" in the published run is 4.2 to 4.8 ns, a rise of 14 %; twice that is still nothing beside a
# cliff.
FLAT_RATIO = 1.28
LEAST_MEMORY_NS = 50.0  # no load from DRAM of a machine known to us is as fast
STEP_POINTS = 6  # of a counted step: two heights and the shape between them


class Staircase(NamedTuple):
    """Heights of the price of translation (ns per access) and places of its two steps (lines)."""

    hit_ns: float  # past the first level, inside the second
    walk_ns: float  # an octave and more past the second
    first_step: float
    second_step: float
    second_begins: float  # a tenth of the second rise done
    second_ends: float  # nine tenths


class Analysis(analysis.Analysis):
    """Evaluate the rows of `page_chase`, `page_gather` and `page_store` on base pages. Properties
    raise Unavailable where the rows or the TLB's entries are missing."""

    window = (
        2**-0.8,
        2**1.03,
    )  # around the last level's entries, in multiples: where its step is sought

    spread = cached_property(lambda a: curves.spread_curve(a.frame))
    packed = cached_property(lambda a: curves.packed_curve(a.frame))
    price = cached_property(lambda a: a.price_of(a.spread, a.packed))
    # The same two for claims: bounds that allow for page walks of the packed lines.
    judged_price = cached_property(lambda a: a.judged_price_of(a.spread, a.packed))
    memory = cached_property(lambda a: a.judged_packed(a.spread, a.packed))
    random = cached_property(lambda a: a.priced(order="random"))
    sequential = cached_property(lambda a: a.priced(order="sequential"))

    @cached_property
    def gather(self) -> Curve:
        """Independent loads, without those of the published program and NumPy's own work."""
        in_c = self.frame[self.frame["engine"] != "numpy"]
        return Curve.of(in_c, kernel="page_gather", layout="spread")

    @cached_property
    def counted_rows(self) -> pd.DataFrame:
        return curves.select_rows(self.frame, kernel="page_chase", order="cycle", layout="spread")

    # The independent loop over one line a page as published, and the price of translation in it.
    numpy_gather = cached_property(
        lambda a: curves.spread_curve(a.frame, kernel="page_gather", engine="numpy")
    )
    numpy_price = cached_property(
        lambda a: a.judged_price_of(
            a.numpy_gather, curves.packed_curve(a.frame, kernel="page_gather", engine="numpy")
        )
    )

    def priced(self, **where: Any) -> Curve:
        """Return spread minus packed of the rows that `where` selects."""
        return self.price_of(
            curves.spread_curve(self.frame, **where), curves.packed_curve(self.frame, **where)
        )

    @property
    def as_published(self) -> Curve:
        """The published loop in numpy, whose own work takes longer than the loads."""
        return require_nonempty(self.numpy_gather, "the published loop was not run in numpy")

    @property
    def largest_bytes(self) -> int:
        return self.largest * self.base_page_bytes

    @property
    def largest(self) -> int:
        """The largest number of lines that has a price."""
        return require_nonempty(self.price.xs, "no spread point has its packed control")[-1]

    @cached_property
    def _counted(self) -> dict[str, Any]:  # by quantity: of which rows, and the curve
        return {}

    @property
    def ghz(self) -> float:
        measured = self.frame.loc[self.frame["core_ghz"] > 0, "core_ghz"]
        if measured.empty:
            raise Unavailable("no-clock")
        return float(measured.median())

    # --- the staircase

    @property
    def steps(self) -> Staircase:
        """Plateaus and steps around the `entries`. Raises Unavailable: no-geometry without two
        levels, too-few-points, no-step where the price does not rise."""
        first, _ = self.two_levels()
        hit, walk = self.plateaus
        first_step = self.price.crossing(hit / 2, 0.4 * first, 4 * first)
        begins, half, ends = (self.second_step(share).value for share in (0.1, 0.5, 0.9))
        return Staircase(hit, walk, first_step, half, begins, ends)

    @property
    def plateaus(self) -> tuple[float, float]:
        """Price of a hit in the last level and of a walk just past it, ns. Raises as `steps`."""
        (first, second), price = self.two_levels(), self.price
        inside, walks = (1, 0.9 * first), (2 * second, 4 * second)
        hits = last_level_plateau(first, second)
        for below, past in ((inside, hits), (hits, walks)):
            before, after = price.level(*below), price.level(*past)
            highest = price.between(*below).table["high"].median()
            if price.between(*past).table["low"].median() <= highest:
                ends = f"{below[1]:.0f} lines, {after:z.2f} ns from {past[0]:.0f} on"
                raise Unavailable("no-step", f"{before:z.2f} ns up to {ends}")
        return price.level(*hits), price.level(*walks)

    @property
    def is_counted(self) -> bool:
        """Whether walks were counted at enough sizes around the last level's entries."""
        low, high = (end * self.two_levels()[1] for end in self.window)
        return len(self.counted("walk").between(low, high)) >= STEP_POINTS

    @property
    def rise(self) -> Curve:
        """Walks per access where they were counted, otherwise the price."""
        return self.counted("walk") if self.is_counted else self.price

    def what_rises(self) -> str:
        """Return the subject and verb of what shows the misses of the second step. Raises
        Unavailable where walks were not counted and their price is not steady past the step: a
        rise in time is then one of misses, of their price, or of both."""
        if self.is_counted:
            return "The walks, as counted, have"
        _, entries = self.two_levels()
        lacking = curves.missing_counter_reason(self.counted_rows, "walk", self.host.pmu.reason)
        alone = "time alone does not tell more misses from dearer walks"
        try:
            factor = self.price.flatness(2 * entries, 4 * entries)
        except Unavailable as why:
            if lacking == "no-data" or why.code == "too-few-points":
                raise
            raise Unavailable(lacking, alone) from None
        is_few = not factor.coverage >= LEAST_COVERAGE and lacking != "no-data"
        if is_few or factor.high > FLAT_RATIO:
            varies = (
                f"from twice to four times the entries the cost varies by a factor of {factor:.2f}"
            )
            raise Unavailable(lacking, alone if is_few else f"{alone}: {varies}")
        return "The cost of translation has"

    @property
    def walked(self) -> Interval:
        """The price from twice to four times the last level's entries, where each access walks."""
        _, entries = self.two_levels()
        return self.price.between(2 * entries, 4 * entries).typical()

    def far_from_walked(self, lines: float) -> float:
        """Return a number of lines at which the price is another measurement than `walked`. Raises
        Unavailable("too-few-points") where `walked` is the price at this size alone."""
        _, entries = self.two_levels()
        if [*self.price.between(2 * entries, 4 * entries).xs] == [lines]:
            size = format_size(round(lines) * self.base_page_bytes)
            raise Unavailable("too-few-points", f"{size} is the one size measured past the entries")
        return lines

    @property
    def from_memory(self) -> Interval:
        """A packed load in the largest working set, without walks. Raises
        Unavailable("sweep-short") for lines that the stated caches hold and that no memory loads as
        fast: in a guest the stated cache may be many times the own share of it."""
        last = require_nonempty(self.memory, "no packed lines were loaded").last
        packed_bytes = round(self.packed.xs[-1]) * CACHE_LINE_BYTES
        is_held = packed_bytes <= max(data_caches(self.host).values(), default=0)
        if is_held and last.value < LEAST_MEMORY_NS:
            size = format_size(packed_bytes)
            raise Unavailable("sweep-short", f"the largest packed lines, {size}, fit the caches")
        return last

    @property
    def cached_bytes(self) -> float:
        """The most packed lines that most mappings keep in the caches: they take less than half of
        the slowest load. Raises Unavailable: too-few-points, sweep-short without a load from
        memory."""
        slowest = max(self.from_memory.value, *(ns.value for _, ns in self.packed))
        kept = [lines for lines, ns in self.packed if ns.value < slowest / 2]
        return CACHE_LINE_BYTES * found_end(kept, self.packed.xs)

    def unpriced_bytes(self, end: Callable[..., float] = max) -> float:
        """Return the largest working set, or with end=min the smallest, in which only the packed
        lines are sure to fit a cache. Raises Unavailable("control-elsewhere") if a size between the
        two has a price: they are then the ends of no range."""
        gaps = self.price.gaps
        found = found_end(gaps, sorted([*self.price.xs, *gaps]), end)
        if any(min(gaps) < lines < max(gaps) for lines in self.price.xs):
            raise Unavailable("control-elsewhere", "in several ranges of sizes")
        return found * self.base_page_bytes

    def second_step(self, share: float) -> Interval:
        """Return the pages at which this share of the `rise` at the last level is done. Raises
        Unavailable("too-few-points") where the sizes beside it are more than an octave apart."""
        _, second = self.two_levels()
        before, after = (0.0, 1.0) if self.is_counted else self.plateaus
        found = self.rise.passes(before + share * (after - before), 0.4 * second, 4 * second)
        found_end([x for x in self.rise.xs if x <= found.value], self.rise.xs)
        return found

    # --- counters

    def counted(self, quantity: str) -> Curve:
        """Return a counter of the chase, per access, by lines; empty without values. It is kept,
        since a page reads it a hundred times."""
        rows, (of, curve) = self.counted_rows, self._counted.get(quantity, (None, None))
        if of is not rows:
            self._counted[quantity] = rows, (curve := curves.counter_curve(rows, quantity))
        return curve

    # --- what the text compares

    def walks_near(self, octaves: float) -> Interval:
        """Return the share of loads that walk at the size nearest to so many octaves from the last
        level's entries."""
        entries = self.two_levels()[1]
        return Interval.of(self.counted("walk").row(entries * 2**octaves, HALF_OCTAVE_TOLERANCE))

    def rise_across(self, curve: Curve) -> Interval:
        """Return the factor by which a loop slows from half the last level's entries to twice as
        many."""
        _, entries = self.two_levels()
        return curve.at(entries * 2, HALF_OCTAVE_TOLERANCE) / curve.at(
            entries * 0.5, HALF_OCTAVE_TOLERANCE
        )

    def gain_across(self, curve: Curve) -> Interval:
        """Return the ns that a loop loses from 0.6 to 2 times the last level's entries."""
        _, entries = self.two_levels()
        return curve.at(entries * 2, HALF_OCTAVE_TOLERANCE) - curve.at(
            entries * 2**-0.75, HALF_OCTAVE_TOLERANCE
        )
