"""Curves by page size, speedups, reads and rates: each the median of its processes."""

import pytest
from support.hugepages import PAGES, analysis, only, priced, rows

pytestmark = pytest.mark.filterwarnings("error")


def test_a_price_is_spread_minus_packed_on_the_same_pages():
    a = analysis(rows().query("pages != '2m' or layout != 'packed' or lines != 4096"))
    for pages in PAGES:
        for lines, price in list(a.price[pages])[::4]:
            assert price.value == pytest.approx(priced(rows(), pages, lines * 4096))
    assert 4096 not in a.price["2m"].xs and 4096 in a.price["4k"].xs and 4096 in a.spread["2m"].xs


@pytest.mark.parametrize(
    ("there", "best"), [(PAGES, "2m"), (("4k", "thp", "1g"), "thp"), (("4k", "2m"), "2m")]
)
def test_the_pools_pages_are_the_best_large_ones_and_transparent_ones_the_next(there, best):
    assert analysis(only(*there)).large == best
