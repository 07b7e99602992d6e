"""A strided loop on machines whose parts are known: each part comes back, and what is lacking is a
reason."""

import pytest
from support.strides import MACHINES, NOTHING, Machine, analysis, points, rows

from experiments.strides import analysis as chapter
from experiments.strides import tables
from experiments.strides.grid import CONTROLLED_STRIDES, STRIDES
from tlb.system.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Machine(noise=1e-9)


def test_the_loop_has_a_time_at_each_stride_on_each_page_size_and_nothing_of_its_controls():
    a = analysis()
    assert list(a.times) == ["4k", "thp", "2m"] and all(
        curve.xs == list(STRIDES) for curve in a.times.values()
    )
    assert a.staggered["4k"].xs == a.packed.xs == list(CONTROLLED_STRIDES)


def test_each_part_of_a_stride_comes_back():
    truth = {
        chapter.PACKED: QUIET.element_ns + QUIET.line_ns,
        chapter.GAPS: QUIET.apart_ns,
        chapter.TRANSLATION: QUIET.walk_ns,
        chapter.CONFLICTS: QUIET.sets_ns,
    }
    every = analysis(rows(QUIET)).parts
    for each in CONTROLLED_STRIDES[1:]:
        parts = every.query(f"step_bytes == {each}").set_index("part")
        assert parts["ns"].to_dict() == pytest.approx(truth, rel=1e-6) and list(
            parts.index
        ) == list(truth)
        assert parts["begins_ns"].tolist() == pytest.approx([0.0, *parts["ends_ns"].iloc[:-1]])


def test_lists_show_translation_without_large_pages_and_what_order_saves():
    a = analysis(rows(QUIET).query("pages == '4k'"))
    assert a.random_price.at(65536).value == pytest.approx(QUIET.walk_ns, rel=1e-6) and not len(
        a.price
    )
    assert a.saved["packed"].at(4096).value == pytest.approx(QUIET.shuffled_ns)


def test_pages_that_the_host_splinters_are_no_control():
    a = analysis(rows(Machine(splintered=True)), splintered=True)
    assert a.price.at(4096).value == pytest.approx(
        3.0, rel=0.05
    )  # half of a walk: the other half is paid on both
    parts = a.parts.query("step_bytes == 4096").set_index("part")["ns"]
    assert parts[chapter.GAPS_AND_TRANSLATION] == pytest.approx(
        Machine.apart_ns + Machine.walk_ns / 2, rel=0.05
    )
    assert parts[chapter.AT_LEAST] == pytest.approx(Machine.walk_ns / 2, rel=0.05)
    assert a.at_most.at(4096).value == pytest.approx(Machine.apart_ns + Machine.walk_ns, rel=0.05)
    assert chapter.TRANSLATION not in parts and analysis().price.at(4096).value == pytest.approx(
        6.0, rel=0.05
    )


@pytest.mark.parametrize("most", [64 << 10, 256 << 20])
def test_no_step_is_wider_than_its_array_however_small(most):
    options = [dict(point.options) for point in points(most)]
    assert len(options) > 40 and all(
        own["step_bytes"] <= own["bytes"] <= max(most, 16 << 10) for own in options
    )


def test_walks_are_this_machine_s_where_they_were_counted_and_otherwise_another_s():
    own = analysis(rows(Machine(walks=1.0)))
    assert own.counting is own and analysis().counting.about.machine == chapter.COUNTING


@pytest.mark.parametrize("machine", ["base pages alone", "lists alone", "nothing"])
def test_what_was_not_measured_is_empty_or_a_reason(machine):
    a = analysis(MACHINES[machine]())
    assert a.parts["ns"].notna().all()
    if len(a.base):
        assert "12.5" in tables.published(a).text
    if a.frame is NOTHING:
        assert a.times == a.staggered == {} and not any(
            map(len, (a.packed, a.random_price, a.price, a.parts))
        )
        for what in (lambda: a.large, lambda: a.near_ns, lambda: a.saved["spread"].at(4096)):
            with pytest.raises(Unavailable):
                what()
