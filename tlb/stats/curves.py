"""A quantity along a grid, as medians with intervals: curves, their differences and crossings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, isclose
from typing import TYPE_CHECKING

from tlb.stats.intervals import (
    BY_REPEAT_COLUMN,
    FEWEST_PAIRS_WITH_INTERVAL,
    UNKNOWN_INTERVAL,
    Interval,
    ValuesByRepeat,
    add_repeat_columns,
    median_interval,
    summarise,
)
from tlb.stats.scatter import MAX_STABLE_SPREAD, MIN_MODE_RATIO
from tlb.system.reasons import LazyModule, Unavailable, require_nonempty
from tlb.system.units import format_size

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
else:
    np, pd = LazyModule("numpy"), LazyModule("pandas")

# A grid in quarter octaves rounds to whole lines; its next point is 19 % away.
SAME_GRID_POINT = 0.01
HALF_OCTAVE_TOLERANCE = 2**0.5 - 1  # as far as a coarse grid's nearest point may lie
# Beside N lines on N pages the caches hold the entries that lead to them: N/8 lines of the page
# table and, in a guest whose host's entries lie apart, as many as N more.
CACHED_LINES = 2 + 1 / 8
# Where loads miss the first level and hit the last, in multiples of the first level's entries and of
# the last one's. On the published machines nine tenths of the first step are done at 1.05 to 1.08
# times the entries (1.5, interpolated, on the one with two points an octave), and a tenth of the
# second at 0.70 to 0.93 of them.
_LAST_LEVEL_PLATEAU = (1.4, 0.6)
PACKED_LINES_PER_PAGE = 64  # of 4 KiB; larger base pages hold more
# What the data of spread lines may cost more than packed ones, as a share of a price.
_MOST_AHEAD, _MOST_AHEAD_OF_FEW = 1 / 2, 1 / 4
# How far the bounds of a spread load may be apart, in multiples, if its data lie in the same cache
# in all mappings. Just past the TLB's reach they are up to 1.9 apart, where some mappings have left
# a cache and others have not, 3.3 to 5.3.
_MOST_APART = 3
LEAST_ENTRIES = 512  # of a second-level TLB of any CPU of the last ten years
OCTAVE = 2.01  # a step of a coarse grid, rounded to whole lines


def last_level_plateau(first: float, last: float) -> tuple[float, float]:
    """Return the numbers of pages between which loads hit the last TLB level, by the entries of the
    first and of the last level."""
    begins, ends = _LAST_LEVEL_PLATEAU
    return begins * first, ends * last


def found_end(
    sizes: Iterable[float], measured: Iterable[float], end: Callable[..., float] = max
) -> float:
    """Return the largest of some sizes (end=min: the smallest), as the end of what they have in
    common. Raises Unavailable("too-few-points") without any, and where the next one of all measured
    sizes is more than an octave away, so that the end may be anywhere between."""
    found = end(require_nonempty([*sizes], "no such size was measured"))
    both = [sorted((found, other)) for other in measured if end(found, other) != found]
    for low, high in sorted(both, key=lambda pair: pair[1] / pair[0])[:1]:
        if high > OCTAVE * low:
            why = f"nothing was measured between {low:,.0f} and {high:,.0f}"
            raise Unavailable("too-few-points", why)
    return found


def select_rows(frame: pd.DataFrame, **where: object) -> pd.DataFrame:
    """Return the rows in which each named column has the value, or one of the values, given; none
    if a column is missing."""
    if not where.keys() <= set(frame):
        return frame.iloc[:0]
    rows = np.full(len(frame), True)
    for name, value in where.items():
        values = list(value) if isinstance(value, (list, tuple, set)) else [value]
        rows &= frame[name].isin(values).to_numpy()
    return frame[rows]


@dataclass(frozen=True, eq=False)
class Curve:
    """Medians of a quantity along `x`, each with its interval.

    table: a row for each x, ascending, with the columns of `summarise`. processes: a row each, x
    and the quantity as `median`, of the points whose processes lie more than JUMP apart, to be
    shown where a median says little. gaps: what was measured and gives no estimate (`price_of`).
    """

    table: pd.DataFrame
    x: str = "lines"
    processes: pd.DataFrame = field(default_factory=lambda: pd.DataFrame())
    gaps: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, frame: pd.DataFrame, x: str = "lines", value: str = "ns_per_access", **where: object
    ) -> Curve:
        """Return the curve of `select(frame, **where)`, without rows that have no value; empty if
        there is no such column, as of a counter that was not asked for."""
        rows = select_rows(frame, **where)
        if value not in rows:
            rows = rows.iloc[:0].assign(**{value: 0.0})
        summary = summarise(rows, [x], value)
        ends = rows.groupby(x)[value].agg(["min", "max"])
        apart = ends.index[(ends["max"] > MIN_MODE_RATIO * ends["min"]) & (ends["min"] > 0)]
        processes = rows.loc[rows[x].isin(apart), [x, value]].set_axis([x, "median"], axis=1)
        return cls(summary[summary["n"] > 0].reset_index(drop=True), x, processes)

    @classmethod
    def by(
        cls,
        frame: pd.DataFrame,
        kinds: Iterable[str],
        column: str = "pages",
        x: str = "lines",
        value: str = "ns_per_access",
        **where: object,
    ) -> dict[str, Curve]:
        """Return a curve for each of the kinds that was measured, in the order given."""
        curves = {kind: cls.of(frame, x, value, **where, **{column: kind}) for kind in kinds}
        return {kind: curve for kind, curve in curves.items() if len(curve)}

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[tuple[float, Interval]]:
        return zip(self.table[self.x], self.intervals, strict=True)

    @property
    def xs(self) -> list[int]:
        return self.table[self.x].tolist()

    @property
    def medians(self) -> pd.Series:
        """The medians, indexed by x."""
        return self.table.set_index(self.x)["median"]

    @property
    def intervals(self) -> list[Interval]:
        return [Interval.of(row) for row in self.table.to_dict("records")]

    @property
    def modes(self) -> int:
        """2 if any of its points has two."""
        return max((interval.modes for interval in self.intervals), default=1)

    def at(self, x: float, within: float = SAME_GRID_POINT) -> Interval:
        """Return the estimate at the grid point nearest to x, at most a share `within` away. Raises
        Unavailable("too-few-points")."""
        return Interval.of(self.row(x, within))

    def row(self, x: float, within: float = SAME_GRID_POINT) -> pd.Series:
        """Return the row of the table that `at` reads."""
        away = (self.table[self.x].astype(float) / x).apply(np.log).abs()
        if not (away <= np.log1p(within) + 1e-12).any():
            if any(abs(np.log(gap / x)) <= np.log1p(within) + 1e-12 for gap in self.gaps):
                raise Unavailable("control-elsewhere", f"at {x:,.0f} {self.x}")
            raise Unavailable("too-few-points", f"nothing was measured near {x:,.0f} {self.x}")
        return self.table.iloc[int(away.argmin())]

    def get(self, x: float) -> Interval:
        """Return the estimate exactly at x, or UNKNOWN_INTERVAL."""
        rows = self.table[self.table[self.x] == x]
        return Interval.of(rows.iloc[0]) if len(rows) else UNKNOWN_INTERVAL

    @property
    def last(self) -> Interval:
        """The estimate at the largest x. Raises Unavailable("too-few-points") on an empty curve."""
        return Interval.of(require_nonempty(self.table, "nothing was measured").iloc[-1])

    def between(self, low: float, high: float) -> Curve:
        """Return the part with low <= x <= high."""
        part = self.table[self.table[self.x].between(low, high)].reset_index(drop=True)
        return Curve(
            part, self.x, self.processes, tuple(gap for gap in self.gaps if low <= gap <= high)
        )

    def __sub__(self, other: Curve) -> Curve:
        """Return the differences at each x that both have."""
        return self._with(other, lambda a, b: a - b)

    def __truediv__(self, other: Curve) -> Curve:
        """Return the ratios at each x that both have with both medians above zero."""
        return self._with(
            other, lambda a, b: a / b if a.value > 0 and b.value > 0 else UNKNOWN_INTERVAL
        )

    def _with(self, other: Curve, combine) -> Curve:
        """n and unstable are of the worse side; n_left and n_right of each."""
        right = {row[self.x]: row for row in other.table.to_dict("records")}
        rows, intervals = [], []
        for a in self.table.to_dict("records"):
            if (b := right.get(a[self.x])) is None:
                continue
            interval = combine(Interval.of(a), Interval.of(b))
            n, is_unstable = min(a["n"], b["n"]), a["unstable"] or b["unstable"]
            numbers = (*interval.value_and_bounds, interval.coverage, interval.modes)
            rows.append((a[self.x], *numbers, n, is_unstable, a["n"], b["n"]))
            intervals.append(interval)
        columns = ["median", "low", "high", "coverage", "modes"]
        columns = [self.x, *columns, "n", "unstable", "n_left", "n_right"]
        table = add_repeat_columns(pd.DataFrame(rows, columns=columns), intervals)
        return Curve(table[table["median"].notna()].reset_index(drop=True), self.x)

    def level(self, low: float, high: float) -> float:
        """Return the median over the points with low <= x <= high: the height of a plateau. Raises
        Unavailable: too-few-points, control-elsewhere."""
        return float(self._points(low, high, 1).table["median"].median())

    def _points(self, low: float, high: float, least: int) -> Curve:
        part = self.between(low, high)
        if len(part) < least:
            where = f"between {low:.0f} and {high:.0f} {self.x}"
            raise part._lacking(where, f"nothing was measured {where}")
        return part

    def _lacking(self, where: str, otherwise: str) -> Unavailable:
        """Return why an empty curve, or one of too few points, has no estimate."""
        if self.gaps:
            return Unavailable("control-elsewhere", where)
        return Unavailable("too-few-points", otherwise)

    def crossing(self, height: float, low: float = 0, high: float = inf) -> float:
        """Return where the curve first passes a height for good, interpolated in log x.

        Raises Unavailable: too-few-points, no-step if it does not pass it.
        """
        part = self._points(low, high, 2).table
        x, y = np.log2(part[self.x].to_numpy(float)), part["median"].to_numpy(float)
        under = np.flatnonzero(y < height)
        if under.size == 0 or under[-1] == len(y) - 1:
            where = f"between {low:.0f} and {high:.0f} {self.x}"
            raise Unavailable("no-step", f"the curve does not pass {height:.1f} {where}")
        i = under[-1]
        return float(2 ** np.interp(height, [y[i], y[i + 1]], [x[i], x[i + 1]]))

    def passes(self, height: float, low: float = 0, high: float = inf) -> Interval:
        """Return `crossing` with bounds: the x before the crossing of its upper bounds and the x
        after that of its lower ones, since between two x it may pass anywhere. -inf if all upper
        bounds are above the height, inf if the last lower bound is below it. Raises as
        `crossing`."""
        part = self.between(low, high)
        at, xs, table = self.crossing(height, low, high), part.table[self.x], part.table
        before, after = xs[table["high"] < height], xs[table["low"] < height]
        least = float(before.iloc[-1]) if len(before) else -inf
        most = next((float(x) for x in xs if x > after.iloc[-1]), inf)
        beside = table[xs.between(least, most)]
        coverage, modes = float(beside["coverage"].min()), int(beside["modes"].max())
        return Interval(at, least, most, coverage, modes)

    def typical(self) -> Interval:
        """Return the medians of the medians and of their bounds, over a range where one number
        should hold for all x. Raises Unavailable on an empty curve: control-elsewhere where its
        points have no estimate, else too-few-points."""
        if self.table.empty:
            raise self._lacking("", "nothing was measured there")
        table = self.table
        value, low, high = (float(table[name].median()) for name in ("median", "low", "high"))
        return Interval(value, low, high, float(table["coverage"].min()), self.modes)

    def doubling(self, at: float, times: float = 2) -> Interval:
        """Return the ratio of the estimate at `times` x to that at x: 2 is twice as slow."""
        return self.at(times * at) / self.at(at)

    def flatness(self, low: float, high: float) -> Interval:
        """Return the largest over the smallest median with low <= x <= high; 1 is flat.

        Call it flat if `high` is near 1, not flat if `low` is not. `high` is the highest upper
        bound over the lowest lower one; it misses only if the interval at the true maximum or
        minimum misses on its outer side, so many points cost no coverage. `low` compares the two
        ends alone, which were chosen before looking: a bump in the middle raises `value` and
        `high`, not `low`. Raises Unavailable: too-few-points, unstable.
        """
        part = self.between(low, high)
        if len(part) < 2:
            sizes = f"{low:,.0f} and {high:,.0f} {self.x}"
            if self.x == "working_set_bytes":
                sizes = f"{format_size(round(low))} and {format_size(round(high))}"
            why = f"flatness takes two points between {sizes}"
            raise part._lacking(f"between {sizes}", why)
        first, *_, last = part.intervals
        ends, table = last / first, part.table
        lowest, floor = float(table["median"].min()), float(table["low"].min())
        if lowest <= 0:
            raise Unavailable("unstable", f"flatness takes medians above zero, not {lowest:g}")
        value = float(table["median"].max()) / lowest
        most = float(table["high"].max()) / floor if floor > 0 else inf
        least = max(1.0, ends.low, 1 / ends.high)
        return Interval(value, least, most, float(table["coverage"].min()), part.modes)


def median_over_points(points: Sequence[Interval]) -> Interval | None:
    """Return one estimate for points that should be alike: the median over the points inside each
    mapping, then over the mappings that measured them all; None if none did. Points of a mapping
    share its pages and its clock, so they are no independent draws."""
    shared = set.intersection(*({*point.repeats.values} for point in points))
    if not shared:
        return None
    values = {n: float(np.median([p.repeats.values[n] for p in points])) for n in sorted(shared)}
    drift = float(np.median([point.repeats.drift for point in points]))
    found = median_interval(list(values.values()))
    return replace(
        found,
        low=found.low - abs(drift),
        high=found.high + abs(drift),
        repeats=ValuesByRepeat(values, drift),
    )


def medians_at_largest_common_x(curves: Mapping[str, Curve]) -> tuple[float, dict[str, float]]:
    """Return the largest x that all curves but empty ones have, and the median of each there.
    Raises Unavailable("too-few-points")."""
    found = {name: curve for name, curve in curves.items() if len(curve)}
    require_nonempty(found, "nothing was measured")
    shared = set.intersection(*(set(curve.xs) for curve in found.values()))
    x = max(require_nonempty(shared, "the curves have no point in common"))
    return x, {name: curve.get(x).value for name, curve in found.items()}


def spread_curve(
    frame: pd.DataFrame, kernel: str = "page_chase", order: str = "cycle", **where: object
) -> Curve:
    """Return ns per access of a chase over one line a page, by lines."""
    return Curve.of(select_rows(frame, kernel=kernel, layout="spread", order=order, **where))


def packed_curve(
    frame: pd.DataFrame, kernel: str = "page_chase", order: str = "cycle", **where: object
) -> Curve:
    """Return its control: as many lines next to each other."""
    return Curve.of(select_rows(frame, kernel=kernel, layout="packed", order=order, **where))


def price(
    frame: pd.DataFrame,
    entries: float = LEAST_ENTRIES,
    kernel: str = "page_chase",
    order: str = "cycle",
    **where: object,
) -> Curve:
    """Return the price of translation of a chase, ns per access: `price_of` its two layouts."""
    rows = select_rows(frame, kernel=kernel, order=order, **where)
    return price_of(spread_curve(rows, kernel, order), packed_curve(rows, kernel, order), entries)


def price_of(spread: Curve, packed: Curve, entries: float = LEAST_ENTRIES) -> Curve:
    """Return the price of translation by lines: spread minus packed. The one definition of it.

    entries: how many lines the TLB reaches. Past it, page-table entries are read and cached beside
    the data, up to CACHED_LINES lines for each line of data, so the spread chase may have left a
    cache in which its control still lies; the difference is then the data's too. The data of N
    spread lines take at least what N packed lines take, and at most what packed lines take at any
    point up to the first past CACHED_LINES N that is no slower than the whole spread load. The
    intervals span both. An x for which that is more than half of the difference, a quarter where
    too few mappings give no interval that could show it, has no price and is one of `gaps`; so is
    one at which the bounds of the spread load are over _MOST_APART times apart, for then its data
    have left a cache in a part of the mappings. Within the reach only too few mappings may leave a
    cache at two sizes: there a step of the control counts.

    Past 64 times the entries the packed lines have too many pages as well: there the price is a
    lower bound, and a verdict takes `price_with_packed_walks`.
    """
    price, rows, gaps = spread - packed, [], []
    control = packed.table.set_index(packed.x)
    for row in price.table.to_dict("records"):
        n = row[price.x]
        load = spread.get(n)
        nearby = control.loc[n : next((x for x in control.index if x >= CACHED_LINES * n), inf)]
        slowest = nearby["median"][nearby["low"] <= load.high].max()
        own = control["median"][n]
        is_of_few = row["n"] < FEWEST_PAIRS_WITH_INTERVAL
        within_reach = MIN_MODE_RATIO if is_of_few else inf
        step = 1 + MAX_STABLE_SPREAD if n > entries else within_reach
        ahead = slowest - own if slowest > step * own else 0.0
        most = _MOST_AHEAD_OF_FEW if is_of_few else _MOST_AHEAD
        is_apart = n > entries and load.high > _MOST_APART * load.low
        if is_apart or ahead > most * max(row["median"], 0.0):
            gaps.append(n)
        else:
            rows.append(row | {"low": row["low"] - ahead, BY_REPEAT_COLUMN: None} if ahead else row)
    return Curve(pd.DataFrame(rows, columns=price.table.columns), price.x, gaps=tuple(gaps))


def is_comparable(price: Curve, lines: float) -> bool:
    """Return whether a curve of `price_of` has a price at so many lines: neither this size nor, if
    it was not measured, one beside it is a gap."""
    sizes = sorted([*price.xs, *price.gaps])
    same = [n for n in sizes if isclose(n, lines, rel_tol=SAME_GRID_POINT)]
    around = same or [n for pair in pairwise(sizes) if pair[0] < lines < pair[1] for n in pair]
    return not {*around} & {*price.gaps}


def packed_walk_bound(spread: Curve, lines: float, entries: float) -> float:
    """Return the most that translation may add to a load of so many packed lines, ns; 0 up to 64
    times the entries.

    N packed lines lie on N/64 pages. Between two visits of a page they load as many lines, and as
    many page-table entries, as N/64 spread lines do, so the caches keep as much of the page table
    for both. A whole load of these spread lines, at its upper bound, therefore takes as long as
    the translation alone, or longer.
    """
    if lines <= PACKED_LINES_PER_PAGE * entries:
        return 0.0
    as_many_pages = spread.table[spread.table[spread.x] >= lines / PACKED_LINES_PER_PAGE]
    return float(require_nonempty(as_many_pages, "nothing was measured").iloc[0]["high"])


def price_with_packed_walks(spread: Curve, packed: Curve, entries: float = LEAST_ENTRIES) -> Curve:
    """Return `price_of` for a verdict: no lower bound, because its upper ends are raised by
    `packed_walk_bound`."""
    price = price_of(spread, packed, entries)
    return replace(price, table=_moved(price, "high", 1, spread, entries))


def packed_without_walks(spread: Curve, packed: Curve, entries: float = LEAST_ENTRIES) -> Curve:
    """Return the packed chase for a verdict on a load without a walk: its lower ends are lowered
    by `packed_walk_bound`."""
    return replace(packed, table=_moved(packed, "low", -1, spread, entries))


def _moved(curve: Curve, end: str, sign: int, spread: Curve, entries: float) -> pd.DataFrame:
    """Return the table of a curve with one end moved by `packed_walk_bound`. A point whose end
    moves keeps no values by mapping, which would give its differences the old ends."""
    rows = []
    for row in curve.table.to_dict("records"):
        if bound := packed_walk_bound(spread, row[curve.x], entries):
            row |= {end: row[end] + sign * bound, BY_REPEAT_COLUMN: None}
        rows.append(row)
    return pd.DataFrame(rows, columns=curve.table.columns)


# --- counters: columns `<quantity>_per_access` and `<quantity>_reason`


def counter_curve(rows: pd.DataFrame, quantity: str) -> Curve:
    """Return the curve of a counter per access, by lines; empty where no row has a value.

    A quantity is counted in some of the repeats (its group's turn): the others do not count in n.
    """
    return Curve.of(rows, value=f"{quantity}_per_access")


def missing_counter_reason(rows: pd.DataFrame, quantity: str, machine_reason: str | None) -> str:
    """Return the reason code for a counter without any value: that of most rows, else why the
    machine has no counters, else that nothing was measured."""
    reasons = rows.get(f"{quantity}_reason", pd.Series(dtype="str"))
    reasons = reasons[~reasons.isin(["", "other-repeat", "no-data"])]
    return str(reasons.mode().iloc[0]) if len(reasons) else machine_reason or "no-data"
