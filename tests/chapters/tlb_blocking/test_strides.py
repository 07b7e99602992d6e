"""A strided loop on machines whose parts are known: each part comes back, and what is lacking is a
reason."""

import pytest
from support.strides import Machine, analysis, points, rows

from experiments.tlb_blocking.grid import STRIDE_BYTES, STRIDES_WITH_PACKED_CONTROL

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Machine(noise=1e-9)


def test_the_loop_has_a_time_at_each_stride_on_each_page_size_and_its_controls_at_four():
    a = analysis()
    assert list(a.times) == ["4k", "thp", "2m"]
    assert all(curve.xs == list(STRIDE_BYTES) for curve in a.times.values())
    assert a.padded.xs == a.side_by_side.xs == list(STRIDES_WITH_PACKED_CONTROL)


@pytest.mark.parametrize("stride", STRIDES_WITH_PACKED_CONTROL[1:])
def test_each_part_of_a_stride_comes_back(stride):
    a = analysis(rows(QUIET))
    found = a.side_by_side, a.at_most, a.padding_saves, a.stride_price
    truth = (
        QUIET.element_ns + QUIET.line_ns,
        QUIET.apart_ns + QUIET.walk_ns,
        QUIET.sets_ns,
        QUIET.walk_ns,
    )
    assert [curve.at(stride).value for curve in found] == pytest.approx(truth, rel=1e-6)


def test_lists_show_translation_without_large_pages():
    a = analysis(rows(QUIET).query("pages == '4k'"))
    assert a.shuffled_price.at(65536).value == pytest.approx(QUIET.walk_ns, rel=1e-6)
    assert not len(a.stride_price)


def test_pages_that_the_host_splinters_are_no_control():
    a = analysis(rows(Machine(splintered=True)), splintered=True)
    # half of a walk: the other half is paid on both
    assert a.stride_price.at(4096).value == pytest.approx(3.0, rel=0.05)
    assert a.at_most.at(4096).value == pytest.approx(Machine.apart_ns + Machine.walk_ns, rel=0.05)
    assert analysis().stride_price.at(4096).value == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize("most", [64 << 10, 256 << 20])
def test_no_step_is_wider_than_its_array_however_small(most):
    options = [dict(point.options) for point in points(most)]
    assert len(options) > 40 and all(
        own["step_bytes"] <= own["bytes"] <= max(most, 16 << 10) for own in options
    )


def test_walks_are_those_that_were_counted():
    assert analysis(rows(Machine(walks=1.0))).stride_walks.at(4096).value == 1.0
    assert not len(analysis().stride_walks)
