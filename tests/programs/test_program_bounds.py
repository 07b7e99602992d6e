"""What a program can pay and gain at most, on machines whose truth is known."""

import pandas as pd
import pytest
from support.synthetic import MIB, Truth, frame, scope

from tlb.programs.program_bounds import TranslationPrices, bracket, smoothed, tlb_level_holding
from tlb.stats.curves import Curve
from tlb.stats.intervals import Interval
from tlb.system.reasons import Unavailable

PAGE = 4096
SIZES = [2**n for n in range(4, 19)]


@pytest.mark.parametrize(
    ("pages", "entries", "expected"),
    [
        (64, (64, 1536), "first level"),
        (65, (64, 1536), "second level"),
        (1536, (64, 1536), "second level"),
        (1537, (64, 1536), "beyond"),
        (10, (1536,), "second level"),
        (1537, (1536,), "beyond"),
    ],
)
def test_a_tread_is_the_first_level_that_holds_all_pages(pages, entries, expected):
    assert tlb_level_holding(pages, entries) == expected


def curve(*points: tuple[float, float, float, float]) -> Curve:
    return Curve(
        pd.DataFrame(points, columns=["lines", "median", "low", "high"]).assign(
            coverage=1.0, modes=1
        )
    )


def test_between_two_points_the_bounds_are_those_of_both():
    measured = [*curve((10, 1, 0.5, 1.5), (1000, 3, 2, 7))]
    assert bracket(measured, 100) == Interval(2, 0.5, 7)
    assert bracket(measured, 10) == bracket(measured, 1) == Interval(1, 0.5, 1.5)
    assert bracket(measured, 1000) == bracket(measured, 1e9) == Interval(3, 2, 7)
    with pytest.raises(Unavailable):
        bracket([], 1)


def test_one_point_between_two_others_decides_nothing_and_a_step_stays():
    low, high = (1.0, 0.9, 1.1), (3.0, 2.5, 4.0)
    step = curve(*((x, *(low if x < 5 else high)) for x in range(1, 10)))
    assert smoothed(step) == [*step]
    spoilt = step.table.copy()
    spoilt.loc[6, ["median", "low", "high"]] = (0.2, 0.1, 90.0)
    assert smoothed(Curve(spoilt)) == [*step]


# Large pages need one entry for 512 lines: nothing here misses on them.
BASE, LARGE = Truth(noise=0.0), Truth(entries=(2**40, 2**41), noise=0.0)


def rows(base: Truth = BASE, large: Truth = LARGE, kind: str = "thp") -> pd.DataFrame:
    points = {
        pages: [point for lines in SIZES for point in scope().chase("page_chase", pages, lines)]
        for pages in ("4k", kind)
    }
    return pd.concat([frame(base, points["4k"]), frame(large, points[kind])], ignore_index=True)


@pytest.mark.parametrize(("mib", "price"), [(1 / 16, 0.0), (2, 2.0), (64, 11.0), (10_000, 11.0)])
def test_the_most_is_what_a_program_of_far_loads_alone_would_pay_and_gain(mib, price, kind="2m"):
    gain = TranslationPrices.of(rows(kind=kind)).gain(mib * MIB, 0, PAGE)
    assert (gain.large, gain.pages, gain.measured_pages) == (kind, mib * MIB / PAGE, SIZES[-1])
    assert (gain.price.value, gain.large_price.value) == pytest.approx((price, 0), abs=1e-6)
    assert gain.ratio.value == pytest.approx(1 / (1 + price))
    assert gain.ratio.low <= gain.ratio.value and gain.ratio.high == 1.0
