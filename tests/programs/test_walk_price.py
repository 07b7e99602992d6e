"""Prices of walks timed on the spot, on a computer whose times are known, and kept for its boot."""

from types import SimpleNamespace

import pytest
from support.common import refusal

from tlb.machine import host as hosts
from tlb.programs import walk_price
from tlb.programs.walk_price import SIZES, PriceAtSize, WalkPrices
from tlb.system.reasons import Unavailable

PAGE = 4096


class Rig:
    """Spread lines take 10 ns more than packed ones from 4,000 pages on, and 3 ns on huge pages."""

    def __init__(self, usable_bytes: int = 1 << 40, refused: str = "") -> None:
        self.usable_bytes, self.refused, self.lines = usable_bytes, refused, set[int]()

    def measured(self, points, repeat):
        for point in points:
            self.lines.add(point.lines)
            far = point.layout == "spread" and point.lines >= 4000
            walk_ns = far * {"4k": 10.0, "thp": 3.0}[point.pages]
            found = SimpleNamespace(ns_per_access=5.0 + walk_ns)
            yield point, Unavailable("thp-never") if point.pages == self.refused else found


HOST = hosts.inspect_machine()


def timed(rig: Rig, thp: str = "madvise") -> WalkPrices:
    state = HOST.thp.model_copy(update={"enabled": thp})
    known = {"thp": state, "base_page_bytes": PAGE, "tlb": ()}
    return walk_price.timed(rig, HOST.model_copy(update=known))


@pytest.mark.parametrize(("refused", "thp"), [("", "madvise"), ("thp", "madvise"), ("", "never")])
def test_prices_are_those_of_chases_on_base_pages_and_on_huge_ones(refused, thp):
    prices = timed(Rig(refused=refused), thp)
    far = 8 / 15 if not refused and thp == "madvise" else 5 / 15  # else a walk costs nothing
    assert [size.walk_ns for size in prices.sizes] == [0.0, 10.0, 10.0, 10.0]
    assert [size.ratio for size in prices.sizes] == pytest.approx([1.0, far, far, far])
    assert prices.fault_ns > 0 and prices.tlb_entries == 0


def test_no_more_memory_is_filled_than_there_is():
    rig = Rig(usable_bytes=5000 * PAGE)
    timed(rig)
    assert max(rig.lines) == 4096
    timed(rig := Rig(usable_bytes=9 * PAGE))
    assert rig.lines == {9}


def test_a_computer_that_cannot_be_timed_says_why():
    assert refusal(timed, Rig(refused="4k")) == "thp-never"


def test_a_price_between_two_sizes_is_the_dearer_and_the_least_ratio_of_any_smaller_one():
    sizes = tuple(map(PriceAtSize, SIZES, (1.0, 30.0, 20.0, 90.0), (1.0, 0.5, 0.7, 0.6)))
    prices = WalkPrices(PAGE, 512 * PAGE, 1536, sizes)
    pages = (1, 1024, 1025, 4096, 16384, 10**9)
    assert [prices.walk_ns(n) for n in pages] == [1.0, 1.0, 30.0, 30.0, 30.0, 90.0]
    assert [prices.ratio(n) for n in pages] == [1.0, 1.0, 0.5, 0.5, 0.5, 0.5]


def test_prices_are_kept_for_the_boot(tmp_path, monkeypatch):
    monkeypatch.setattr(walk_price.files, "build_root", lambda: tmp_path / "new")
    assert walk_price.kept() is None
    prices = timed(Rig())
    walk_price._keep(prices)
    assert walk_price.kept() == prices == walk_price.kept_or_timed(pytest.fail)
    monkeypatch.setattr(walk_price, "_boot", lambda: "another boot")
    assert walk_price.kept() is None
    (tmp_path / "new" / "walk_price.json").write_text("{")
    assert walk_price.kept() is None
