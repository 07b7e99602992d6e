"""Sizes and durations: what is read, what is refused; what is printed can be read again."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tlb.stats.intervals import Interval
from tlb.system.units import (
    digits_preserving_order,
    format_ns,
    format_significant_digits,
    format_size,
    interval_with_unit,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("256MiB", 256 * 2**20),
        ("4 GiB", 4 * 2**30),
        ("64K", 65536),
        ("1.5 GiB", 3 * 2**29),
        ("1048576", 2**20),
        (" 100 B ", 100),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_size_is_read_in_bytes(text, size_bytes):
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "12 bananas",
        "-1",
        "",
        "inf",
        "0",
        "0.3B",
        "MiB",
        "1,5G",
        "9223372036854775808",
        "1" * 400,
        "4 GiB\n4",
    ],
)
def test_what_is_no_size_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError) as caught:
        parse_size(text)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 160


@given(st.text())
def test_any_text_is_a_size_or_a_value_error(text):
    with contextlib.suppress(ValueError):
        assert 0 < parse_size(text) < 2**63


@given(st.integers(1, 2**20), st.sampled_from([1, 2**10, 2**20, 2**30, 2**40]))
def test_a_printed_size_reads_back_to_within_its_two_decimals(count, unit):
    size_bytes = count * unit
    number = parse_size_loosely(format_size(size_bytes))
    assert abs(number - size_bytes) <= 0.006 * number


def parse_size_loosely(text: str) -> float:
    value, unit = text.split(" ")
    return float(value) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[unit]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (3 * 2**29, "1.5 GiB"),
        (2**20 - 1, "1 MiB"),  # never "1024 KiB"
        (1023, "1023 B"),
    ],
)
def test_a_size_is_printed_in_its_largest_unit(size_bytes, text):
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (4.2, "4.2 ns"),
        (12.34, "12.3 ns"),
        (999.9, "1 µs"),
        (1200, "1.2 µs"),
        (-3.14159, "-3.14 ns"),
    ],
)
def test_a_duration_is_printed_to_three_digits(ns, text):
    assert format_ns(ns) == text


@given(st.floats(1e-3, 1e12))
def test_a_printed_duration_is_within_half_a_percent_of_its_value(ns):
    value, unit = format_ns(ns).split(" ")
    assert float(value) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit] == pytest.approx(
        ns, rel=0.0051
    )


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1234.5, 3, "1,234"),
        (0.95, 3, "0.950"),
        (9.996, 3, "10.00"),
        (0, 3, "0"),
        (-1e-9, 3, "-0.00000000100"),
        (1.0, 1, "1"),
    ],
)
def test_significant_digits_keep_whole_numbers_and_have_no_exponent(value, digits, text):
    assert format_significant_digits(value, digits) == text


FINITE = st.floats(1e-6, 1e6) | st.just(0.0)


@given(mark=FINITE, apart=st.floats(1e-9, 1e-2))
def test_what_lies_beside_a_mark_is_printed_beside_it(mark, apart):
    for value in (mark * (1 - apart), mark, mark * (1 + apart)):
        digits = digits_preserving_order([value], [mark], 3)
        shown, line = (
            float(format_significant_digits(number, digits).replace(",", ""))
            for number in (value, mark)
        )
        assert (shown < line, shown > line) == (value < mark, value > mark)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ((1.5, 1.4, 1.6, 0.95), "1.5 ns (1.4 to 1.6)"),
        ((0.0, 0.0, 0.0, 0.75), "0.0 ns (3 repeats)"),
        ((9.0, 1.0, 90.0, 0.95), "1.0 to 90.0 ns"),
    ],
)
def test_a_unit_stands_after_the_value(bounds, text):
    assert interval_with_unit(format(Interval(*bounds), ".1f"), "ns") == text
