"""Medians with exact intervals, prices, ratios, unstable points, and points of two modes.

A repeat is a fresh process or a mapping; a figure shows the median of a point's repeats. Its
interval takes them for independent draws. On some machines each repeat is a little slower or faster
than the one before: `log_trend_per_repeat` finds that, and `summarise` widens the intervals by it.

A mapping holds many points, so rows of one repeat share physical pages, the clock and the
neighbours of that time. A difference or a ratio of two points is therefore taken inside each repeat
(`_of_pairs`). Rows with `measures` 1 are of processes that held one point each; their medians count
as independent.

Why no bootstrap: of n = 5 values the smallest is the resampled median in 5.8 % of resamples, so a
"95 %" percentile interval is the full range, which covers the true median 93.75 % of the time. The
order-statistic interval is the same range with its true coverage known, at every n, whatever the
distribution. So each interval here carries its coverage.

If the data just fit a cache that others share, a process finds it either free or taken: there are
two times, and a median between them is of neither. Such a point keeps its rows, and
`Interval.modes` says so for everything computed from it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, hypot, inf, isfinite, log, log2, nan
from typing import TYPE_CHECKING, Any

from tlb.stats import scatter
from tlb.stats.scatter import (
    MAX_STABLE_SPREAD,
    MIN_MODE_RATIO,
    count_modes,
    finite_sorted,
    log_trend_per_repeat,
    median_of_sorted,
)
from tlb.system.reasons import LazyModule, Unavailable
from tlb.system.units import digits_preserving_order, format_rounded

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from scipy import special

    from tlb.stats.scatter import NumericValues
else:
    np, pd, special = LazyModule("numpy"), LazyModule("pandas"), LazyModule("scipy.special")

LEAST_COVERAGE = 0.90  # of an interval that decides: five processes cover 93.75 %, four 87.5 %
FEWEST_PAIRS_WITH_INTERVAL = 5  # whose range covers as much
FIRST_PAIRED_ROW_VERSION = (
    2  # `measures` of the first kernels whose repeats are mappings of many points
)

# A number of a wider interval, as a share of its middle, is printed with two digits, else with three.
MOST_SPREAD_OF_THREE_DIGITS = 0.10
ROUNDED, ROUNDED_MEDIAN = "rounded", "median"  # specifications of `Interval.__format__`

INTERVAL_COLUMNS = ["median", "low", "high"]
SUMMARY = (*INTERVAL_COLUMNS, "coverage", "modes", "n", "spread", "unstable", "outliers")


def significant_digits(low: float, high: float) -> int:
    """Return how many digits of a number between these bounds are known: the rule of all printed
    evidence."""
    middle = abs(low + high) / 2
    return 2 if isfinite(middle) and high - low > MOST_SPREAD_OF_THREE_DIGITS * middle else 3


@dataclass(frozen=True)
class ValuesByRepeat:
    """The value of each mapping, by its number. drift: what the `log_trend_per_repeat` of their rows adds from the
    middle of the campaign to its end."""

    values: Mapping[int, float] = field(default_factory=dict)
    drift: float = 0.0


UNKNOWN_VALUES_BY_REPEAT = ValuesByRepeat()


@dataclass(frozen=True)
class Interval:
    """An estimate between its bounds. `coverage`: how often such bounds hold the truth, 0 to 1.
    `modes`: 2 if a point behind it has two modes. `repeats`: the values of the mappings that it is
    the median of; not compared. Other bounds need other repeats, or UNKNOWN_VALUES_BY_REPEAT.

    `a - b` and `a / b` are of pairs if both have enough repeats in common, else of independent
    estimates.
    """

    value: float
    low: float
    high: float
    coverage: float = 1.0
    modes: int = 1
    repeats: ValuesByRepeat = field(default=UNKNOWN_VALUES_BY_REPEAT, compare=False, repr=False)

    @property
    def is_known(self) -> bool:
        """Whether anything was measured: one mapping has an estimate, and a coverage of 0."""
        return isfinite(self.value)

    @property
    def value_and_bounds(self) -> tuple[float, float, float]:
        return self.value, self.low, self.high

    def as_dict(self) -> dict[str, float]:
        """Return the numbers by name, without repeats, as JSON documents keep them."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "coverage": self.coverage,
            "modes": self.modes,
        }

    def __format__(self, spec: str) -> str:
        """Format as "1.52 (1.40 to 1.60)", no zero with a sign; without a specification, a tuple's
        text.

        "0.54 to 1.80" if the bounds lie more than JUMP apart, so that the median says little; "1.52
        (3 repeats)", or "1.52 *" of one, if they are too few for bounds; "at least 1.40" if it is open above; "1.52" if
        both bounds round to it. ROUNDED is the same with as many digits as are known, and
        ROUNDED_MEDIAN the value alone.
        """
        if not spec:
            return str(self)
        value, low, high = self._texts(spec)
        if spec == ROUNDED_MEDIAN:
            return value
        if self.coverage < LEAST_COVERAGE and isfinite(self.value):
            n = round(1 - log2(1 - self.coverage))  # the range of n values covers 1 - 2^(1-n)
            return f"{value} ({n} repeats)" if n > 1 else f"{value} *"
        if self.high == inf and self.low > -inf:
            return f"at least {low}"
        if self.low == -inf and self.high < inf:
            return f"at most {high}"
        if self.high > MIN_MODE_RATIO * self.low > 0:
            return f"{low} to {high}"
        if low == value == high:
            return value
        return f"{value} ({low} to {high}{', two modes' if self.modes > 1 else ''})"

    def _texts(self, spec: str) -> list[str]:
        """Return value and bounds as text."""
        if spec not in (ROUNDED, ROUNDED_MEDIAN):
            # after fill, alignment and sign
            unsigned = re.sub(r"^((?:.?[<>=^])?[-+ ]?)z?", r"\1z", spec, count=1)
            return [format(number, unsigned) for number in self.value_and_bounds]
        least = significant_digits(self.low, self.high)
        # a ratio stays on its side of 1
        digits = min(4, digits_preserving_order(self.value_and_bounds, [1.0], least))
        return [
            format_rounded(number, digits) if isfinite(number) else str(number)
            for number in self.value_and_bounds
        ]

    def __sub__(self, other: Interval) -> Interval:
        return interval_of_difference(self, other)

    def __truediv__(self, other: Interval) -> Interval:
        return interval_of_ratio(self, other)

    def __mul__(self, factor: float) -> Interval:
        """Multiply by an exact number above zero, such as a unit."""
        repeats = {n: value * factor for n, value in self.repeats.values.items()}
        return replace(
            self,
            value=self.value * factor,
            low=self.low * factor,
            high=self.high * factor,
            repeats=ValuesByRepeat(repeats, self.repeats.drift * factor),
        )

    def share_of(self, whole: Interval) -> Interval:
        """Return the ratio to `whole`; if this may be zero, its bounds over `whole`'s estimate."""
        return self / whole if self.low > 0 else self * (1 / whole.value)

    def widened(self, among: int) -> Interval:
        """Return the bounds for one of `among` estimates that may not all be right, or for the best
        of them: each distance scaled as the normal distribution's 2.5 % quantile divided by their
        number is to that quantile (Bonferroni). tests/report/test_rule.py measures the errors
        left."""
        if among == 1:
            return replace(self, repeats=UNKNOWN_VALUES_BY_REPEAT)
        scale = special.ndtri(0.025 / among) / special.ndtri(0.025)
        return replace(
            self,
            low=self.value - scale * (self.value - self.low),
            high=self.value + scale * (self.high - self.value),
            repeats=UNKNOWN_VALUES_BY_REPEAT,
        )

    @classmethod
    def of(cls, row: Mapping[Any, Any] | pd.Series, name: str = "") -> Interval:
        """Return the interval of a row of `summarise`, with its repeats; or of columns <name>,
        <name>_low, <name>_high with the row's coverage, 1 if it has none, without repeats."""
        columns = (name, f"{name}_low", f"{name}_high") if name else ("median", "low", "high")
        value, low, high = (float(row[column]) for column in columns)
        by_repeat, repeats = None if name else row.get(BY_REPEAT_COLUMN), UNKNOWN_VALUES_BY_REPEAT
        if isinstance(by_repeat, Mapping):
            repeats = ValuesByRepeat(by_repeat, float(row[DRIFT]))
        return cls(
            value,
            low,
            high,
            coverage=float(row.get("coverage", 1.0)),
            modes=int(row.get("modes", 1)),
            repeats=repeats,
        )


# Columns of tables that keep each row's `ValuesByRepeat`; absent where none has any. What changes `median`,
# `low` or `high` of a table drops BY_REPEAT_COLUMN.
BY_REPEAT_COLUMN, DRIFT = "by_repeat", "by_repeat_drift"


UNKNOWN_INTERVAL = Interval(nan, nan, nan, 0.0)  # what was not measured


def median_interval(values: NumericValues, confidence: float = 0.95) -> Interval:
    """Return the median and its exact order-statistic interval [X(r), X(n+1-r)].

    The number of values below the true median is Binomial(n, 1/2), so the coverage is 1 - 2 P(B <
    r) whatever the distribution (Thompson, Ann. Math. Stat. 7, 1936). From n = 6 on it reaches 95
    %. Below that it is the full range: 93.75, 87.5, 75 and 50 % for 5, 4, 3 and 2 values, and 0 for
    one. NaN is left out; without any value every field is NaN.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is between 0 and 1, not {confidence}")
    x = finite_sorted(values)
    if not x:
        return UNKNOWN_INTERVAL
    r, coverage = scatter.median_interval_rank(len(x), confidence)
    return Interval(median_of_sorted(x), x[r - 1], x[-r], coverage, count_modes(x))


def interval_of_rows(rows: pd.DataFrame, value: str = "ns_per_access") -> Interval:
    """Return `median_interval` of a column; rows of one mapping count once, by their median."""
    return _of_mappings(*_columns(rows, value))


def _columns(rows: pd.DataFrame, value: str) -> list[np.ndarray]:
    """Return a value's column and, if the rows have both, `measures` and `repeat`."""
    mapping = ["measures", "repeat"] if {"measures", "repeat"} <= set(rows) else []
    return [rows[value].to_numpy(float), *(rows[name].to_numpy() for name in mapping)]


def _of_mappings(
    values: np.ndarray, measures: np.ndarray | None = None, repeat: np.ndarray | None = None
) -> Interval:
    """Return `interval_of_rows` of columns."""
    is_kept = np.isfinite(values)
    values = values[is_kept]
    if measures is None or repeat is None or not values.size:
        return median_interval(values)
    if not (measures[is_kept] >= FIRST_PAIRED_ROW_VERSION).all():
        return median_interval(values)
    by_repeat = scatter.medians_by_repeat(values, repeat[is_kept])
    return replace(median_interval([*by_repeat.values()]), repeats=ValuesByRepeat(by_repeat))


def add_repeat_columns(table: pd.DataFrame, intervals: Sequence[Interval]) -> pd.DataFrame:
    """Return the table with the columns from which `Interval.of` reads repeats."""
    if not any(i.repeats.values for i in intervals):
        return table
    values = pd.Series([i.repeats.values for i in intervals], dtype=object)
    columns: dict[str, Any] = {
        BY_REPEAT_COLUMN: values,
        DRIFT: [i.repeats.drift for i in intervals],
    }
    return table.assign(**columns)


def _of_pairs(
    a: Interval, b: Interval, combine: Callable[[float, float], float], drift: float
) -> Interval | None:
    """Return the median, over the repeats that both have, of what a repeat's two values make; None
    for fewer than FEWEST_PAIRS_WITH_INTERVAL.

    It is exact whatever the distributions; Wilcoxon's (effects.py) is narrower, but promises too much
    if one side alone has two modes (tests/stats/test_noise.py). drift: of the result, which is
    widened by it as `summarise` widens a point.
    """
    left, right = a.repeats.values, b.repeats.values
    values = {n: combine(left[n], right[n]) for n in sorted(left.keys() & right.keys())}
    if len(values) < FEWEST_PAIRS_WITH_INTERVAL:
        return None
    found = median_interval(list(values.values()))
    return replace(
        found,
        low=found.low - abs(drift),
        high=found.high + abs(drift),
        repeats=ValuesByRepeat(values, drift),
    )


def interval_of_difference(a: Interval, b: Interval) -> Interval:
    """Return a - b: of pairs, or of independent estimates by the method of variance estimates
    recovery: each bound adds in quadrature the distances from which it comes (Zou & Donner,
    Statistics in Medicine 27, 2008). Coverage: the lower of the two, which simulations over six
    distributions do not undercut (tests/stats/test_intervals.py)."""
    if pairs := _of_pairs(a, b, operator.sub, a.repeats.drift - b.repeats.drift):
        return replace(pairs, modes=max(a.modes, b.modes))
    value = a.value - b.value
    low = value - hypot(a.value - a.low, b.high - b.value)
    high = value + hypot(a.high - a.value, b.value - b.low)
    return Interval(value, low, high, min(a.coverage, b.coverage), max(a.modes, b.modes))


def interval_of_ratio(a: Interval, b: Interval) -> Interval:
    """Return a / b of positive estimates: of pairs, or `interval_of_difference` of logs, since
    order statistics keep their coverage under any increasing map. A bound at or below zero leaves
    the ratio open on its side; for a median there raises Unavailable("unstable")."""
    if not (a.value > 0 and b.value > 0):
        raise Unavailable("unstable", f"a ratio takes medians above zero: {a.value:g}, {b.value:g}")
    drift = a.value / b.value * (a.repeats.drift / a.value - b.repeats.drift / b.value)
    if min(b.repeats.values.values(), default=nan) > 0 and (
        pairs := _of_pairs(a, b, operator.truediv, drift)
    ):
        return pairs
    logs = interval_of_difference(_log(a), _log(b))
    return replace(logs, value=a.value / b.value, low=exp(logs.low), high=exp(logs.high))


def _log(interval: Interval) -> Interval:
    """Return the logarithm of a positive estimate; a bound at or below zero becomes -inf."""
    low = log(interval.low) if interval.low > 0 else -inf
    return Interval(log(interval.value), low, log(interval.high), interval.coverage, interval.modes)


def summarise(frame: pd.DataFrame, by: Sequence[str], value: str = "ns_per_access") -> pd.DataFrame:
    """Return one row a group, sorted by `by`: by + SUMMARY.

    median, low and high are in the unit of `value`; spread is `relative_spread`, outliers a count.
    unstable: the spread is over 5 %, or there are too few values to know it. n: values, one a
    mapping, without NaN. If the repeats have a `log_trend_per_repeat`, each interval is widened by half of it on
    either side, so that it holds the median of any moment of the campaign, not only of its middle.
    """
    rows, intervals, slope = [], [], 0.0 if frame.empty else log_trend_per_repeat(frame, by, value)
    columns = _columns(frame, value)
    # A group is the places of its rows: pandas takes a millisecond to copy out a part of a frame.
    places = frame[[*by]].assign(place=np.arange(len(frame)))
    for key, group in places.groupby([*by], sort=True, dropna=False)["place"]:
        at = group.to_numpy()
        interval = _of_mappings(*(column[at] for column in columns))
        values = interval.repeats.values
        x = finite_sorted(list(values.values()) or columns[0][at])
        spread = scatter.relative_spread(x)
        drift = slope * np.ptp(frame["repeat"].to_numpy()[at]) / 2 if slope else 0.0
        if slope and interval.low > 0:
            factor = exp(abs(drift))
            interval = replace(interval, low=interval.low / factor, high=interval.high * factor)
        intervals.append(replace(interval, repeats=ValuesByRepeat(values, drift * interval.value)))
        numbers = (*interval.value_and_bounds, interval.coverage, interval.modes)
        is_unstable = not spread <= MAX_STABLE_SPREAD
        rows.append((*key, *numbers, len(x), spread, is_unstable, int(scatter.outliers(x).sum())))
    return add_repeat_columns(pd.DataFrame(rows, columns=[*by, *SUMMARY]), intervals)


def summarise_with_medians_of(
    frame: pd.DataFrame, by: Sequence[str], others: Mapping[str, str]
) -> pd.DataFrame:
    """Return `summarise` of ns per access with the medians of other columns, renamed as in
    `others`. Empty without rows."""
    by = list(by)
    if frame.empty:
        return pd.DataFrame(
            columns=[*by, "median", "low", "high", "coverage", "n", *others.values()]
        )
    medians = frame.groupby(by)[list(others)].median().rename(columns=dict(others))
    return summarise(frame, by).merge(medians.reset_index(), on=by)


def without_bounds_of_few(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of estimates without the bounds, in columns named low and high, of fewer
    mappings than an interval takes. The mappings are known by n or coverage; without these columns
    by bounds that are equal."""
    bounds = [name for name in map(str, table) if name.rpartition("_")[2] in ("low", "high")]
    if "n" in table:
        is_of_few = table["n"] < FEWEST_PAIRS_WITH_INTERVAL
    elif "coverage" in table:
        is_of_few = table["coverage"] < LEAST_COVERAGE
    elif {"low", "high"} <= {*table}:
        is_of_few = table["low"] == table["high"]
    else:
        return table
    return table.assign(**{name: table[name].mask(is_of_few) for name in bounds})
