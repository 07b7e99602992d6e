"""Curves by page size, speedups, reads and rates: each the median of its processes."""

from __future__ import annotations

import numpy as np
import pytest
from support.hugepages import ENTRIES, PAGES, analysis, chased, median, only, priced, rows
from support.hugepages_documents import scores
from support.synthetic import Paged

from experiments.hugepages.analysis import typical
from tlb.inference.intervals import median_interval
from tlb.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")


def test_a_price_is_spread_minus_packed_on_the_same_pages():
    a = analysis(rows().query("pages != '2m' or layout != 'packed' or lines != 4096"))
    for pages in PAGES:
        for lines, price in list(a.price[pages])[::4]:
            assert price.value == pytest.approx(priced(rows(), pages, lines * 4096))
    assert 4096 not in a.price["2m"].xs and 4096 in a.price["4k"].xs and 4096 in a.spread["2m"].xs


@pytest.mark.parametrize(
    ("pages", "over"), [("2m", "4k"), ("thp", "4k"), ("1g", "2m"), ("4k", "2m")]
)
def test_a_speedup_is_the_ratio_of_the_medians_of_the_sizes_that_both_have(pages: str, over: str):
    speedup = analysis().speedup(pages, over)
    shared = [
        set(
            rows().query("kernel == 'page_chase' and layout == 'spread' and pages == @kind")[
                "lines"
            ]
        )
        for kind in (pages, over)
    ]
    assert speedup.xs == sorted(set.intersection(*shared))
    for lines, times in speedup:
        assert times.value == pytest.approx(
            chased(rows(), over, lines * 4096) / chased(rows(), pages, lines * 4096)
        )
        assert times.low <= times.value <= times.high


def test_below_the_reach_are_the_parts_that_were_measured():
    both, first = analysis().below_reach(), analysis(entries=[64]).below_reach()
    assert [list(parts) for parts in (both, first)] == [
        ["inside the first level", "between the two"],
        ["inside the first level"],
    ]
    inside, between = (part.xs for part in both.values())
    assert (
        max(inside) <= 0.9 * ENTRIES[0]
        and min(between) >= 1.3 * ENTRIES[0]
        and max(between) <= 0.6 * ENTRIES[1]
    )
    assert analysis(rows().query("lines > 60")).below_reach().keys() == {"between the two"}
    with pytest.raises(Unavailable) as why:
        analysis(entries=[]).below_reach()
    assert why.value.code == "no-geometry"


def test_one_number_for_many_sizes_is_their_median_with_its_exact_interval():
    gain = analysis(rows(per_octave=4)).speedup("2m")
    assert typical(gain) == median_interval(gain.medians)
    few = gain.between(16, 27)
    assert len(few) == 4
    assert typical(few)[:3] == tuple(np.median([times[k] for _, times in few]) for k in range(3))


@pytest.mark.parametrize(
    ("there", "best"), [(PAGES, "2m"), (("4k", "thp", "1g"), "thp"), (("4k", "2m"), "2m")]
)
def test_the_pools_pages_are_the_best_large_ones_and_transparent_ones_the_next(
    there: tuple[str, ...], best: str
):
    assert analysis(only(*there)).large == best


# --- random reads


def test_touches_are_medians_with_what_the_draw_costs():
    reads = analysis().touches
    assert (
        set(reads["array_bytes"]) == {10**3, 10**4, 10**6, 10**7, 10**8, 10**9} and len(reads) == 18
    )
    for row in reads.itertuples():
        assert row.median == pytest.approx(
            median(rows(), kernel="random_touch", pages=row.pages, bytes=row.array_bytes)
        )
        assert row.generator_ns == Paged.DRAW_NS and row.n == 5


def test_the_jvm_stands_beside_the_loop_in_c_with_a_spare_draw_and_without():
    frame = rows(per_octave=4)
    both = analysis(frame, jmh=scores(1.5)).against_c
    assert len(both) == 15 and list(dict.fromkeys(both["array_bytes"])) == [
        10**3,
        10**4,
        10**6,
        10**7,
        10**8,
    ]
    for row in both.itertuples():
        ours = median(frame, kernel="random_touch", pages=row.pages, bytes=row.array_bytes)
        assert (row.ours_ns, row.ratio) == pytest.approx((ours, row.jmh_ns / ours))
        spare = median(
            frame, kernel="random_touch", pages=row.pages, bytes=row.array_bytes, spare_draws=1
        )
        assert (row.median_spare, row.ratio_spare) == pytest.approx((spare, row.jmh_ns / spare))
    with pytest.raises(Unavailable):
        analysis(rows().query("kernel == 'page_chase'"), jmh=scores()).against_c  # noqa: B018


def test_the_smallest_and_the_largest_array_are_those_read_on_both_pages():
    least, most, read = analysis(
        rows().query("kernel != 'random_touch' or bytes != 10**9 or pages == '4k'")
    ).extreme_reads
    ours = median(rows(), kernel="random_touch", pages="2m", bytes=10**8)
    assert (least, most) == (10**3, 10**8) and read["2m", 10**8] == pytest.approx(ours)


# --- documents
