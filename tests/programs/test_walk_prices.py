"""Prices of walks timed on the spot, on a computer whose times are known."""

from types import SimpleNamespace

import pytest

from tlb.programs import reach
from tlb.system.page_sizes import BASE
from tlb.system.reasons import Unavailable

PAGE = 4096


class Rig:
    """Spread lines take 10 ns more than packed ones from 1,000 pages on."""

    def __init__(self) -> None:
        self.lines = set[int]()

    def measured(self, points, repeat):
        for point in points:
            self.lines.add(point.lines)
            walk_ns = 10.0 if point.layout == "spread" and point.lines >= 1000 else 0.0
            yield point, SimpleNamespace(ns_per_access=5.0 + walk_ns)


@pytest.mark.parametrize("pages", [0, 3, 256, 1829, 50_000])
def test_prices_reach_from_the_first_level_to_what_the_program_touches(pages):
    rig = Rig()
    prices = reach.timed_prices(rig, PAGE, pages)
    assert max(rig.lines) == max(pages, 2)
    gain = prices.gain(pages * PAGE, 0, PAGE)
    far = pages >= 1000
    assert gain.price.value == (10.0 if far else 0.0) and gain.large_price is None
    assert gain.ratio.value == pytest.approx(1 / 3 if far else 1.0) and gain.ratio.high == 1.0
    assert gain.measured_pages == max(pages, 2)


@pytest.mark.parametrize("base_page_bytes", [PAGE, 65536])
def test_no_more_memory_is_filled_than_a_tenth_of_a_second_takes(base_page_bytes):
    rig = Rig()
    prices = reach.timed_prices(rig, base_page_bytes, 10**9)
    assert max(rig.lines) * base_page_bytes == reach.MOST_BYTES
    assert prices.loads[BASE][-1][0] == max(rig.lines)


def test_a_computer_that_cannot_be_timed_says_why():
    rig = SimpleNamespace(measured=lambda points, repeat: [(points[0], Unavailable("no-compiler"))])
    with pytest.raises(Unavailable, match="compiler"):
        reach.timed_prices(rig, PAGE, 1000)
