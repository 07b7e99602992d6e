"""Points that were measured in the same mappings: differences and ratios are taken inside each, and
what mappings share leaves them."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from tlb.stats.curves import Curve, median_over_points, price
from tlb.stats.intervals import Interval, interval_of_rows, median_interval, summarise

# what a mapping multiplies all of its times by
MAPPINGS = np.array([1.0, 3.0, 0.5, 10.0, 2.0, 5.0])
TRUE = {(1024, "spread"): 4.0, (1024, "packed"): 2.0}  # ns
TRUE |= {(2048, "spread"): 9.0, (2048, "packed"): 2.5}


def rows(times: Mapping[int, float], measures: int = 2, **point: object) -> pd.DataFrame:
    """A row a repeat, by its number."""
    return pd.DataFrame({"repeat": list(times), "ns_per_access": list(times.values())}).assign(
        measures=measures, **point
    )


def numbered(times) -> dict[int, float]:
    return dict(enumerate(map(float, times)))


def campaign(measures: int = 2, factors: np.ndarray = MAPPINGS) -> pd.DataFrame:
    points = [
        rows(numbered(ns * factors), measures, lines=lines, layout=layout)
        for (lines, layout), ns in TRUE.items()
    ]
    points = [point.assign(kernel="page_chase", order="cycle") for point in points]
    return pd.concat(points).sample(frac=1, random_state=1)


def exactly(ns: float) -> tuple[float, float, float]:
    return pytest.approx((ns, ns, ns))


def test_what_mappings_share_leaves_ratios_of_points_and_of_prices():
    frame = campaign()
    spread, packed = (Curve.of(frame, layout=layout) for layout in ("spread", "packed"))
    assert [interval.value_and_bounds for interval in (spread / packed).intervals] == [
        exactly(2.0),
        exactly(3.6),
    ]
    assert spread.doubling(1024).value_and_bounds == exactly(2.25)
    prices = price(frame, entries=4096)
    assert prices.doubling(1024).value_and_bounds == exactly(6.5 / 2)
    assert prices.at(2048).share_of(spread.at(2048)).value_and_bounds == exactly(6.5 / 9)
    table = summarise(frame, ["layout", "lines"])
    assert (
        Interval.of(table.iloc[3]) / (Interval.of(table.iloc[0]) * 2)
    ).value_and_bounds == exactly(9 / 4)


def test_a_difference_is_the_median_of_the_mappings_differences():
    spread, packed = (
        interval_of_rows(campaign().query(f"lines == 2048 and layout == '{layout}'"))
        for layout in ("spread", "packed")
    )
    assert (spread - packed).value_and_bounds == pytest.approx(
        median_interval(6.5 * MAPPINGS).value_and_bounds
    )


def test_processes_of_one_point_each_are_independent():
    frame = campaign(measures=1)
    spread, packed = (Curve.of(frame, layout=layout) for layout in ("spread", "packed"))
    medians = [median_interval(ns * MAPPINGS) for ns in TRUE.values()]
    assert (spread / packed).intervals == [medians[0] / medians[1], medians[2] / medians[3]]
    assert (spread - packed).intervals == [medians[0] - medians[1], medians[2] - medians[3]]
    assert list(spread.table) == list(
        Curve.of(frame.drop(columns="measures"), layout="spread").table
    )


TIMES = {0: 4.0, 1: 5.0, 2: 4.5, 3: 6.0, 4: 5.5}


@pytest.mark.parametrize(
    "other",
    [
        rows({n: ns / 2 for n, ns in TIMES.items() if n}),
        rows({n + 1: ns / 2 for n, ns in TIMES.items()}),
        rows({n: ns / 2 for n, ns in TIMES.items()}, measures=1),
        rows({**{n: ns / 2 for n, ns in TIMES.items()}, 2: -1.0}),
    ],
    ids=["four mappings", "four in common", "processes", "not above zero"],
)
def test_without_five_pairs_two_points_are_independent(other):
    a, b = interval_of_rows(rows(TIMES)), interval_of_rows(other)
    assert a / b == median_interval(list(TIMES.values())) / median_interval(other["ns_per_access"])


def test_rows_of_one_mapping_count_once():
    several = pd.concat([rows(numbered(factor * MAPPINGS[:5])) for factor in (1, 3, 2)])
    assert interval_of_rows(several) == median_interval(2 * MAPPINGS[:5])
    assert summarise(several.assign(lines=1), ["lines"]).iloc[0]["n"] == 5


def test_of_mappings_that_drift_a_difference_holds_the_first_and_the_last():
    """Each repeat takes 2 % longer than the one before; of ratios nothing is left of that."""
    noise = np.exp(0.004 * np.random.default_rng(4).standard_normal((4, 15)))
    frame = pd.concat(
        rows(numbered(ns * 1.02 ** np.arange(15) * own), lines=lines, layout=layout)
        for ((lines, layout), ns), own in zip(TRUE.items(), noise, strict=True)
    )
    spread, packed = (Curve.of(frame, layout=layout) for layout in ("spread", "packed"))
    difference, ratio = (spread - packed).at(2048), (spread / packed).at(2048)
    assert difference.low < 6.5 * 1.005 and difference.high > 6.5 * 1.02**14 / 1.005
    assert 3.6 / 1.02 < ratio.low < ratio.high < 3.6 * 1.02


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.5])
@pytest.mark.parametrize(("mappings", "sizes"), [(5, 5), (9, 7)])
def test_an_interval_over_sizes_covers_what_it_states_however_alike_mappings_err(
    correlation, mappings, sizes
):
    """An interval over the sizes' medians, as if they were independent, covers 75 % for a stated
    93.8 % at a correlation of 0.5. Whether it is held is counted over 600 campaigns, of which one
    in a thousand may miss by more than three standard errors."""
    random, campaigns, held = np.random.default_rng(5), 600, 0
    for _ in range(campaigns):
        shared = random.standard_normal((mappings, 1)) * correlation**0.5
        own = random.standard_normal((mappings, sizes)) * (1 - correlation) ** 0.5
        times = np.exp(0.05 * (shared + own))
        found = median_over_points(
            [interval_of_rows(rows(numbered(size), lines=n)) for n, size in enumerate(times.T)]
        )
        held += found.low <= 1.0 <= found.high
    error = (found.coverage * (1 - found.coverage) / campaigns) ** 0.5
    assert held / campaigns >= found.coverage - 3 * error


def test_points_that_no_mapping_shares_have_no_interval_over_them():
    apart = [interval_of_rows(rows(dict.fromkeys(repeats, 2.0))) for repeats in ((0, 1), (2, 3))]
    alone = [interval_of_rows(rows(numbered(MAPPINGS), measures=1)) for _ in range(2)]
    assert median_over_points(apart) is median_over_points(alone) is None
