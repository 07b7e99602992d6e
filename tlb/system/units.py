"""Sizes and durations between text and numbers ("256MiB" <-> 268435456, 58.6 -> "58.6 ns"), and
numbers and lists in words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

SECONDS_PER_DAY, MINUTES_PER_DAY = 86_400, 24 * 60  # the most that a command can be asked to take

# KiB and a bare K are binary, as page and cache sizes are; KB and MB are decimal, as the SI has
# them.
_BINARY = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_UNITS = (
    _BINARY
    | {f"{letter}IB": 2 ** (10 * power) for power, letter in enumerate("KMGT", 1)}
    | {f"{letter}B": 10 ** (3 * power) for power, letter in enumerate("KMGT", 1)}
)
# ASCII digits only, and few enough that no conversion can be made slow on purpose.
_SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]{0,3})\s*")
_LARGEST_BYTES = 2**63 - 1  # what off_t and size_t hold on every system that measures


def parse_size(text: str) -> int:
    """Bytes in a size: "256MiB", "1.5 GiB" and "64K" are binary, "100 MB" is decimal, "1048576" is
    bytes.

    ValueError, in one sentence, for anything else: no number, an unknown unit, zero, a negative
    size, a part of a byte, more than 2^63 - 1 bytes.
    """
    shown = repr(text if len(text) <= 40 else text[:40] + "…")
    match = _SIZE.fullmatch(text)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(
            f"{shown} is not a size: write a number and a unit, such as 256MiB or 4GiB."
        )
    size_bytes = Fraction(match[1]) * _UNITS[match[2].upper()]
    if size_bytes.denominator != 1:
        raise ValueError(f"{shown} is not a whole number of bytes: use a smaller unit.")
    if not 0 < size_bytes <= _LARGEST_BYTES:
        raise ValueError(f"{shown} is out of range: a size is from 1 byte to 2^63 - 1 bytes.")
    return int(size_bytes)


def format_size(size_bytes: int, *, is_rough: bool = False) -> str:
    """A size in the largest binary unit that fits, at most two decimals: "256 MiB", "1.5 GiB", "100
    B". is_rough: at most one decimal, and none from ten of the unit on."""
    for unit, letter in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        # From half a hundredth below the unit on, rounding would print "1024" of the unit beneath.
        if abs(size_bytes) >= unit - unit // 2**10 * 0.005:
            decimals = (0 if abs(size_bytes) >= 10 * unit else 1) if is_rough else 2
            return f"{_short(size_bytes / unit, decimals)} {letter}"
    return f"{size_bytes} B"


def page_size_name(size_bytes: int) -> str:
    """The name of a page size, as kernels and data use it: 4096 -> "4k", 2 MiB -> "2m", 1 GiB ->
    "1g"."""
    for unit, letter in ((2**30, "g"), (2**20, "m"), (2**10, "k")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{letter}"
    return str(size_bytes)


def format_ns(ns: float) -> str:
    """A duration given in nanoseconds, to three digits: "4.2 ns", "1.2 µs", "250 ms", "12.7 s"."""
    if not math.isfinite(ns):
        raise ValueError(
            "A duration is a finite number; what was not measured has a reason instead."
        )
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit * 0.9995:  # below that, three digits still fit the smaller unit
            return f"{_digits(ns / unit)} {name}"
    return f"{_digits(ns)} ns"


def rounded_to_digits(value: float, digits: int = 4) -> float:
    """Return a number to `digits` significant digits: those of a fit that do not depend on the CPU
    that computed it.

    Solvers and special functions differ in their last digits from one CPU to the next, by the width
    of its vectors and by fused multiplications. What is drawn and said of committed rows is to be
    the same on all.
    """
    return float(f"{value:.{digits}g}")


def format_significant_digits(value: float, digits: int) -> str:
    """Return a finite number to `digits` significant digits, all whole digits kept, without an
    exponent: "1,234", "0.950"."""
    if not value:
        return "0"
    whole = math.floor(math.log10(abs(value))) + 1
    return f"{value:z,.{max(0, digits - whole)}f}"


def format_rounded(value: float, digits: int) -> str:
    """Return a finite number rounded to `digits` significant digits, whole ones too: "1,200",
    "0.88"."""
    return format_significant_digits(rounded_to_digits(value, digits), digits)


def digits_preserving_order(values: Iterable[float], marks: Iterable[float], least: int) -> int:
    """Return the fewest digits, `least` or more, at which `format_rounded` prints each value on its
    own side of each mark."""
    marks = [mark for mark in marks if math.isfinite(mark)]
    pairs = [(value, mark) for value in values if math.isfinite(value) for mark in marks]

    def keeps(value: float, mark: float, digits: int) -> bool:
        one, other = rounded_to_digits(value, digits), rounded_to_digits(mark, digits)
        return (value < mark, value > mark) == (one < other, one > other)

    return next(
        (digits for digits in range(least, 17) if all(keeps(*pair, digits) for pair in pairs)), 17
    )


def _digits(value: float) -> str:
    """Three significant digits, without trailing zeros and without an exponent."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return _short(value, min(decimals, 6))


def _short(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count_with_verb(count: int, verb: str) -> str:
    """Return a count with its verb, whose first word follows it: "1 holds", "3 fail here"."""
    first, _, rest = verb.partition(" ")
    return " ".join(filter(None, [f"{count} {first}{'s' if count == 1 else ''}", rest]))


def interval_with_unit(shown: str, unit: str) -> str:
    """Return a formatted interval with a unit after its value: "1.5 ns (1.4 to 1.6)"."""
    value, bracket, bounds = shown.partition(" (")
    return f"{value} {unit}{bracket}{bounds}"


# --- numbers and lists as words, and a machine's own text made harmless

_WORDS = ("no", "one", "two", "three", "four", "five", "six")


def escape_markdown(text: object) -> str:
    """A machine's own words (a CPU's name, a kernel's release) on one line, for Markdown: no
    markup, HTML or role in them.

    CommonMark lets a backslash stand before any ASCII punctuation, and takes what follows for a
    letter.
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(str(text).split()))


def with_thousands(number: float) -> str:
    """A number of things as prose wants it: 72, 3,072."""
    return f"{number:,.0f}"


def number_in_words(number: int) -> str:
    """A small number as prose wants it: two; the digits of a larger one."""
    return _WORDS[number] if number < len(_WORDS) else f"{number:,}"


def count_in_words(number: int) -> str:
    """How many of several: none, one, two."""
    return number_in_words(number) if number else "none"


def extremes(
    values: Mapping[str, float],
    unit: str = "ns",
    most: str = "takes longest",
    least: str = "is fastest",
) -> str:
    """Which of several named quantities is the largest and which the smallest, in a sentence; of a
    single one, what it is."""
    (high, largest), (low, smallest) = (
        pick(values.items(), key=lambda item: item[1]) for pick in (max, min)
    )
    if len(values) == 1:
        return f"{high[0].upper()}{high[1:]} alone: {largest:z.3g} {unit}."
    first = f"{high[0].upper()}{high[1:]} {most}, with {largest:z.3g} {unit}"
    return f"{first}, and {low} {least}, with {smallest:z.3g}."


def list_in_words(items: Iterable[str], word: str = "and") -> str:
    """A list of words as prose has it: "a", "a and b", "a, b and c"; "" for none."""
    *first, last = [*items] or [""]
    return f"{', '.join(first)} {word} {last}" if first else last
