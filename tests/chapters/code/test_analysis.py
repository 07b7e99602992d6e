"""Jumps on machines whose TLB for instructions is known, and what is lacking is a reason."""

import pytest
from support.code import Jumps, analysis, points, rows

from experiments.code import grid
from tlb.system.page_sizes import CACHE_LINE_BYTES
from tlb.system.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Jumps(noise=1e-9)


def test_what_a_front_end_hides_is_no_price():
    a = analysis(rows(QUIET))
    pages, far, near = a.farthest("random")
    spread, packed, random = a.near(pages, "random")
    assert (spread.value, packed.value) == (far.value, near.value)
    hidden = a.near(pages, "direct")[2]
    assert hidden.value == pytest.approx((1 - QUIET.hidden) * random.value, rel=0.05)
    price = a.near(4096, "random")[2]
    assert price.value == pytest.approx(QUIET.hit_ns * (1 - 64 / 4096) + QUIET.walk_ns / 2, rel=0.1)
    with pytest.raises(Unavailable):
        a.walks_counted("direct")
    assert analysis(rows(Jumps(walks=1.0))).walks_counted("random").at(
        pages
    ).value == pytest.approx(1 - 2048 / pages)


def test_a_predictor_that_forgets_no_jump_has_no_end():
    with pytest.raises(Unavailable):
        _ = analysis(rows(QUIET)).predictor_end


def test_a_text_of_each_size_stands_beside_itself_on_large_pages():
    a = analysis(rows(Jumps(noise=1e-9, entries=(512, 2048))))  # 1 MiB is 256 pages
    assert a.texts["mib"].tolist() == list(grid.CODE_SIZES_MIB)
    assert a.gain(100).value > 1.05 and a.gain(1).value == pytest.approx(1.0)
    with pytest.raises(Unavailable):
        a.gain(7)


def test_hot_lines_cost_by_the_pages_they_are_strewn_over():
    """A tenth of 200 MiB: as many lines in ten times as many pages, and on large pages no miss at
    all."""
    machine = Jumps(noise=1e-9)
    least = analysis(rows(machine)).least_hot
    share_missed = [1 - n / pages for pages in (51_200, 5_120) for n in machine.entries]
    apart, together = (
        first * machine.hit_ns + second * machine.walk_ns
        for first, second in (share_missed[:2], share_missed[2:])
    )
    assert least["share"] == pytest.approx(0.1)
    assert least["spread"].value - least["packed"].value == pytest.approx(
        apart - together, rel=1e-3
    )
    assert least["spread"].value - least["large"].value == pytest.approx(apart, rel=1e-3)
    assert least["packed"].value - least["both"].value == pytest.approx(together, rel=1e-3)
    assert analysis(rows(machine, most=20 << 20)).hot["mib"].tolist() == [10] * 4


def test_no_text_is_larger_than_what_may_be_measured():
    small = [
        point.lines * CACHE_LINE_BYTES for point in points(20 << 20) if point.layout == "packed"
    ]
    assert max(small) == 10 << 20
