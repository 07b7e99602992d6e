"""A chapter's quantities: named numbers of one machine, each with its interval and the number of
mappings behind it, or the reason why there is none.

A chapter declares them in `experiments/<chapter>/analysis.py` and records them in its cells.
`tlb refresh` keeps them in `data/<machine>/quantities.json`; whatever else speaks of a machine
(texts, claims, other pages) reads them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose, isfinite
from typing import Any, ClassVar, Literal, overload

import pandas as pd
from pydantic import BaseModel, ConfigDict

from tlb.stats.intervals import Interval
from tlb.stats.scatter import MIN_MODE_RATIO, median_interval_rank
from tlb.system.page_sizes import HUGE_PAGE_KINDS
from tlb.system.reasons import PAGE_REASON_CODES, Unavailable, UnmeasuredNote
from tlb.system.units import format_size, rounded_to_digits

Unit = Literal["ns", "us", "ms", "cycles", "pages", "lines", "bytes", "share", "times", ""]
ValueOrFunction = Interval | float | Callable[[], Interval | float]
_DIGITS = 6  # no measurement has more
FEW_MAPPINGS_MARK = (
    " *"  # marks, in a table, what is of fewer mappings than FEWEST_MAPPINGS_WITH_INTERVAL
)
FEW_MAPPINGS_FOOTNOTE = "* fewer than five mappings: no interval, may be far off"
FEWEST_MAPPINGS_WITH_INTERVAL = 5  # that an interval decides of: it then covers 94 %
CONFIDENCE = 0.95  # of a median's interval, where there are mappings enough
HUGE_PAGES = "huge"  # pages of 2 MiB, of the pool or transparent, whichever were measured
QUANTITIES_DOCUMENT = "quantities"  # the document that keeps them
ABSENT_CELL = "–"  # in a table
ABSENT_TEXT_MARK = "⟦lacking⟧ "  # in a text
_UNITS = {"us": " µs", "times": "", "share": "", "": ""}  # as a text writes them


# The largest size that a chapter measured, and by convention `far` in the names of what is of it.
_LARGEST = "far_bytes"
_SHORT = Unavailable("sweep-short")
OF_FEW = Unavailable("too-few-points", "fewer than five mappings")
MAY_BE_OF_FEW = ("no-step", "unstable", "control-elsewhere")  # reasons that are not known of fewer
_BELOW_ZERO = Unavailable("too-few-points", "it came out below zero, so it is noise")
_OVER_WHOLE = Unavailable(
    "too-few-points", "it came out above what it is a part of, so it is noise"
)
# What a table says, marked, in place of a dash: something was measured.
_BELOW_ZERO_CELL = "not above zero"
_OF_TIMES = ("ns", "us", "ms", "cycles", "share", "times")
_COMPARED = ("share", "times")  # of two times, of which too few mappings cannot tell


def _exact(value: float) -> Interval:
    return Interval(value, value, value)


def _mappings_behind(interval: Interval, most: int) -> int:
    """Return how many mappings give a median's interval its coverage; `most` if no number up to
    that does."""
    for mappings in range(most, 0, -1):
        _, coverage = median_interval_rank(mappings, CONFIDENCE)
        if isclose(coverage, interval.coverage, abs_tol=1e-6):
            return mappings
    return most


def _is_small_part(part: Quantity, whole: Quantity) -> bool:
    """Return whether a quantity with a part and without it are less than MIN_MODE_RATIO times
    apart."""
    left, value = whole.value - part.value, whole.value
    return max(left, value) < MIN_MODE_RATIO * min(left, value)


def _kept(value: float) -> float:
    """Return a number as quantities.json keeps it: whole ones exactly."""
    return value if value.is_integer() else rounded_to_digits(value, _DIGITS)


class StoredQuantity(BaseModel):
    """A quantity in quantities.json. mappings: 0 for what was not measured but stated or
    counted. conditions: as of a Quantity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float | None = None
    low: float | None = None
    high: float | None = None
    coverage: float = 1.0
    modes: int = 1
    mappings: int = 0
    conditions: str = ""
    reason: str | None = None  # a code
    detail: str = ""


@dataclass(frozen=True)
class Quantity:
    """label: what it is, as a table says it. interval: None for the reason in `lacking`.
    conditions: the size or the kind of pages that it is of, where machines may differ in that."""

    label: str
    unit: Unit
    decimals: int
    interval: Interval | None = None
    mappings: int = 0
    lacking: Unavailable | None = None
    conditions: str = ""

    @property
    def value(self) -> float:
        """Raises Unavailable: the reason why there is none."""
        return self._known().value

    def _known(self) -> Interval:
        if self.interval is None:
            raise self.lacking or Unavailable("no-data", self.label)
        return self.interval

    def __format__(self, spec: str) -> str:
        """Format for a text, with its unit: "21 (18 to 24) ns". spec: decimals and what is shown,
        as ".1", "value" (the estimate alone) or ".1 value". What is lacking is ABSENT_TEXT_MARK and its
        reason's code, which `say` refuses. Raises ValueError for another spec."""
        decimals, what = self.decimals, ""
        for word in spec.split():
            if word.startswith("."):
                decimals = int(word[1:])
            elif word == "value":
                what = word
            else:
                raise ValueError(
                    f"a quantity is formatted as '.1', 'value' or '.1 value', not {spec!r}"
                )
        if self.interval is None:
            return f"{ABSENT_TEXT_MARK}{self.lacking.code if self.lacking else 'no-data'}"
        known = self.interval
        return self._text(_exact(known.value) if what else known, decimals)

    def _text(self, shown: Interval, decimals: int) -> str:
        if self.unit == "bytes":
            if shown.high > MIN_MODE_RATIO * shown.low > 0:
                return f"{format_size(round(shown.low))} to {format_size(round(shown.high))}"
            return format_size(round(shown.value))
        number = f"z,.{decimals}%" if self.unit == "share" else f"z,.{decimals}f"
        is_exact = shown.low == shown.high
        # of two modes the page speaks where it matters
        text = format(shown.value if is_exact else replace(shown, modes=1), number)
        return text + _UNITS.get(self.unit, f" {self.unit}")

    @property
    def cell(self) -> str:
        """The text of a table: a dash for what is lacking, the estimate alone, marked, of too few
        mappings."""
        if self.interval is None:
            is_below_zero = self.lacking and self.lacking.detail == _BELOW_ZERO.detail
            return f"{_BELOW_ZERO_CELL}{FEW_MAPPINGS_MARK}" if is_below_zero else ABSENT_CELL
        if self.is_of_few and self.unit == "bytes":
            return f"{format_size(round(self.value), is_rough=True)}{FEW_MAPPINGS_MARK}"
        return f"{self:value}{FEW_MAPPINGS_MARK}" if self.is_of_few else format(self)

    def cell_beside(self, others: Iterable[Quantity]) -> str:
        """Return `cell`, with those of its conditions that are not those of others in its row."""
        known = [one.conditions.split(", ") for one in others if one.interval]
        own = [one for one in self.conditions.split(", ") if any(one not in each for each in known)]
        return self.cell + in_brackets(", ".join(own)) if self.interval and any(own) else self.cell

    @property
    def is_of_few(self) -> bool:
        """Whether it is of fewer mappings than decide: without an interval, compared with
        nothing."""
        return self.interval is not None and 0 < self.mappings < FEWEST_MAPPINGS_WITH_INTERVAL

    @property
    def kept(self) -> StoredQuantity:
        if self.interval is None:
            why = self.lacking
            return StoredQuantity(
                reason=why.code if why else "no-data", detail=why.detail if why else ""
            )
        value, low, high = (
            _kept(float(end)) if isfinite(end) else None
            for end in (self.interval.value, self.interval.low, self.interval.high)
        )
        return StoredQuantity(
            value=value,
            low=low,
            high=high,
            coverage=rounded_to_digits(float(self.interval.coverage), _DIGITS),
            modes=self.interval.modes,
            mappings=self.mappings,
            conditions=self.conditions,
        )


def in_brackets(conditions: str) -> str:
    """Return conditions in one pair of brackets: 2 MiB (pool) as (2 MiB, pool)."""
    return f" ({conditions.replace(' (', ', ').replace(')', '')})"


class QuantityDeclaration:
    """Declares a quantity of a chapter. source: where the number comes from, if not from rows.
    is_found: of a number of pages, bytes or events, that measured rows show it; other such numbers
    are stated, or chosen by the grid, and known without an interval. is_counted: whether one process
    settles it, such as what smaps shows. pages: the kind of pages that it is of, if a machine may
    lack it; HUGE_PAGES for any huge ones. part_of: the name of a quantity of which it is a part, in
    the same unit. is_judged: whether a comparison found it, which too few mappings cannot make; of
    a part, only where its whole with and without it are MIN_MODE_RATIO times apart."""

    def __init__(
        self,
        label: str,
        unit: Unit = "ns",
        decimals: int = 0,
        source: str = "",
        *,
        is_found: bool = False,
        is_counted: bool = False,
        is_judged: bool = False,
        pages: str = "",
        part_of: str = "",
    ):
        self.part_of = part_of
        self.label, self.unit, self.decimals, self.source = label, unit, decimals, source
        self.is_counted, self.is_judged, self.pages = is_counted, is_judged, pages
        self.is_measured = not source and not is_counted and (is_found or unit in _OF_TIMES)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> QuantityDeclaration: ...
    @overload
    def __get__(self, instance: Quantities, owner: type) -> Quantity: ...
    def __get__(self, instance: Quantities | None, owner: type) -> QuantityDeclaration | Quantity:
        return self if instance is None else instance.of(self)

    def read(self, found: ValueOrFunction, mappings: int) -> Quantity:
        """Return the quantity that was found, or the reason that `found` raises. mappings: of the
        rows that it is of, if its interval does not know its own."""
        try:
            known = found() if callable(found) else found
            interval = known if isinstance(known, Interval) else _exact(float(known))
            if not isfinite(interval.value):
                raise Unavailable("too-few-points", self.label)
        except Unavailable as why:
            return Quantity(self.label, self.unit, self.decimals, lacking=why)
        if interval.repeats.values:
            mappings = len(interval.repeats.values)
        elif interval.coverage == 1.0 and interval.low == interval.high:
            mappings = 0  # stated or counted
        else:
            mappings = _mappings_behind(interval, mappings)
        return Quantity(self.label, self.unit, self.decimals, interval, mappings)

    def restore(self, kept: StoredQuantity) -> Quantity:
        if kept.value is None:
            why = Unavailable(kept.reason or "no-data", kept.detail)
            return Quantity(self.label, self.unit, self.decimals, lacking=why)
        low = -float("inf") if kept.low is None else kept.low
        high = float("inf") if kept.high is None else kept.high
        interval = Interval(kept.value, low, high, kept.coverage, kept.modes)
        return Quantity(
            self.label,
            self.unit,
            self.decimals,
            interval,
            kept.mappings,
            conditions=kept.conditions,
        )


class Quantities:
    """The quantities of a chapter about one machine. A subclass declares them:

    walk_ns = Measured("a walk just past the TLB's reach", "ns")
    """

    declared: ClassVar[dict[str, QuantityDeclaration]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: one for name, one in vars(cls).items() if isinstance(one, QuantityDeclaration)}
        cls.declared = cls.declared | own

    def __init__(self, kept: Mapping[str, Any] | None = None):
        """kept: what `kept` gave. Raises ValidationError for anything else.

        is_short: whether the machine's sweeps end below the sizes that the quantities are of. What is
        then recorded has a reason in place of a number, unless it is stated or counted. So has what
        is below zero and of too few mappings: no cost is, so it is noise. is_own: whether they are of
        this computer; what compares two times of too few mappings then has a reason too. notes: what
        could not be measured on the machine, such as some pages. lacking_pages: kinds of pages that
        it does not have, each with the reason's code.
        """
        self.is_short = self.is_own = False
        self.notes: Sequence[UnmeasuredNote] = ()
        self.lacking_pages: Mapping[str, str] = {}
        self._found = {
            name: self.declared[name].restore(StoredQuantity.model_validate(one))
            for name, one in (kept or {}).items()
            if name in self.declared
        }

    def record(
        self, rows: pd.DataFrame, *, conditions: str | float = "", **found: ValueOrFunction
    ) -> None:
        """Record quantities of some rows, once each: numbers, intervals, or functions of no
        argument, of which an Unavailable becomes the reason for no number. conditions: of all of
        them, as of a Quantity; a number is a size in bytes. Raises AttributeError for one that is
        not declared, ValueError for one that is recorded already."""
        mappings = int(rows["repeat"].nunique()) if "repeat" in rows else 0
        if not isinstance(conditions, str):
            conditions = format_size(round(conditions)) if conditions > 0 else ""
        for name, one in found.items():
            if name not in self.declared:
                raise AttributeError(f"{type(self).__qualname__} declares no quantity {name!r}")
            if name in self._found:
                raise ValueError(f"{name} is recorded already")
            declared = self.declared[name]
            quantity = self._checked(declared, declared.read(one, mappings), mappings)
            self._found[name] = replace(quantity, conditions=conditions)

    def _checked(self, declared: QuantityDeclaration, read: Quantity, mappings: int) -> Quantity:
        """Return what was read, with its mappings, or with a reason in place of a number that
        means nothing. mappings: of the rows."""
        if read.interval is None and (why := self._lack_of(declared.pages)):
            return replace(read, lacking=why)
        if read.lacking and read.lacking.code == "pool-empty" and not self._may_fill_pool(declared):
            return replace(read, lacking=Unavailable("no-large-pages", read.lacking.detail))
        if not (read.mappings or declared.is_measured) and self._lacks_size(declared.pages):
            return replace(read, interval=None, lacking=Unavailable("page-size-unsupported"))
        if declared.is_counted:
            return replace(read, mappings=0)
        if declared.source or not (read.mappings or declared.is_measured):
            return read
        if self.is_short:
            return replace(read, interval=None, mappings=0, lacking=_SHORT)
        if read.interval is None:
            code = read.lacking.code if read.lacking else ""
            is_of_few = 0 < mappings < FEWEST_MAPPINGS_WITH_INTERVAL and code in MAY_BE_OF_FEW
            return replace(read, lacking=OF_FEW) if is_of_few else read
        if not read.mappings and mappings < FEWEST_MAPPINGS_WITH_INTERVAL:
            read = replace(read, mappings=mappings)  # so that it is marked
        is_whole = declared.is_judged and not declared.part_of
        if read.is_of_few and (is_whole or (self.is_own and declared.unit in _COMPARED)):
            return replace(read, interval=None, mappings=0, lacking=OF_FEW)
        if read.is_of_few and read.value < 0:
            return replace(read, interval=None, lacking=_BELOW_ZERO)
        return read

    def _lack_of(self, pages: str) -> Unavailable | None:
        """Return why the machine does not give a kind of pages, None if that is not known; of
        HUGE_PAGES if it gives none of them."""
        codes = [
            self._code_of(one) for one in (HUGE_PAGE_KINDS if pages == HUGE_PAGES else (pages,))
        ]
        return Unavailable(codes[0]) if all(codes) else None

    def _lacks_size(self, pages: str) -> bool:
        """Whether the machine does not offer a kind of pages: arithmetic on them is of no use there."""
        lack = self._lack_of(pages)
        return lack is not None and lack.code == "page-size-unsupported"

    def _code_of(self, pages: str) -> str:
        codes = [one.code for one in self.notes if pages in one.pages]
        code = next((code for code in codes if code in PAGE_REASON_CODES), "")
        return code or self.lacking_pages.get(pages, "")

    def _may_fill_pool(self, declared: QuantityDeclaration) -> bool:
        """Whether what a quantity lacks may be had by filling a pool: it is of large pages, and the
        machine has such a pool."""
        return bool(declared.pages) and not {"2m", declared.pages} & self.lacking_pages.keys()

    def of(self, declared: QuantityDeclaration) -> Quantity:
        """Return what was recorded, or a quantity that lacks its rows."""
        if found := self._found.get(declared.name):
            if noise := self._noise(declared, found):
                return replace(found, interval=None, mappings=0, lacking=noise)
            return self._with_size(declared.name, found)
        lacking = Unavailable("no-data", declared.label)
        return Quantity(declared.label, declared.unit, declared.decimals, lacking=lacking)

    def _noise(self, declared: QuantityDeclaration, part: Quantity) -> Unavailable | None:
        """Return why a part of another quantity cannot be told from noise, None if it can or is no
        part."""
        whole = self._found.get(declared.part_of)
        if not (part.is_of_few and whole and whole.interval):
            return None
        if part.value > whole.value:
            return _OVER_WHOLE
        return OF_FEW if declared.is_judged and _is_small_part(part, whole) else None

    def _with_size(self, name: str, found: Quantity) -> Quantity:
        """Return a quantity of the largest size, which has `far` in its name, with that size among
        its conditions."""
        largest = self._found.get(_LARGEST)
        is_far = name != _LARGEST and "far" in name.split("_")
        if not (is_far and largest and largest.interval and found.interval):
            return found
        each = dict.fromkeys([f"{largest:value}", *found.conditions.split(", ")])
        return replace(found, conditions=", ".join(filter(None, each)))

    def __iter__(self) -> Iterator[tuple[str, Quantity]]:
        """Yield all that are declared, in their order."""
        for name, declared in self.declared.items():
            yield name, self.of(declared)

    @property
    def missing(self) -> list[str]:
        """The names that are declared and were not recorded."""
        return [name for name in self.declared if name not in self._found]

    @property
    def kept(self) -> dict[str, Any]:
        """What quantities.json keeps, by name."""
        return {name: one.kept.model_dump(exclude_defaults=True) for name, one in self}
