"""A strided loop taken apart on machines whose parts are known: each part comes back, and what lacks is a reason."""

from __future__ import annotations

import pytest
from support.strides import MACHINES, NOTHING, Machine, analysis, points, rows

from experiments.chapters.strides import analysis as chapter
from experiments.chapters.strides.grid import STRIDES, TAKEN_APART
from experiments.words.reasons import Unavailable

pytestmark = pytest.mark.filterwarnings("error")

QUIET = Machine(noise=1e-9)


def test_the_loop_has_a_time_at_each_stride_on_each_page_size_and_nothing_of_its_controls():
    a = analysis()
    assert list(a.times) == ["4k", "thp", "2m"] and all(curve.xs == list(STRIDES) for curve in a.times.values())
    assert all(n == 5 for curve in a.times.values() for n in curve.table["n"])
    assert a.staggered["4k"].xs == a.packed.xs == list(TAKEN_APART)


@pytest.mark.parametrize("stride", TAKEN_APART[1:])
def test_each_part_of_a_stride_comes_back(stride: int):
    parts = analysis(rows(QUIET)).parts.query("step_bytes == @stride").set_index("part")
    truth = {chapter.LINES: QUIET.element_ns + QUIET.line_ns, chapter.LONELY: QUIET.apart_ns, chapter.TRANSLATION: QUIET.walk_ns,
             chapter.SETS: QUIET.sets_ns}
    assert parts["ns"].to_dict() == pytest.approx(truth, rel=1e-6) and list(parts.index) == list(truth)
    assert parts["ends_ns"].iloc[-1] == pytest.approx(sum(truth.values()))
    assert parts["begins_ns"].tolist() == pytest.approx([0.0, *parts["ends_ns"].iloc[:-1]])


def test_a_shuffled_list_shows_translation_without_large_pages():
    a = analysis(rows(QUIET).query("pages == '4k'"))
    assert a.random_price.at(65536).value == pytest.approx(QUIET.walk_ns, rel=1e-6)
    assert not len(a.price)


def test_pages_that_the_host_splinters_are_no_control():
    a = analysis(rows(Machine(splintered=True)), splintered=True)
    assert a.price.at(4096).value == pytest.approx(3.0, rel=0.05)  # half of a walk: the other half is paid on both
    parts = a.parts.query("step_bytes == 4096").set_index("part")["ns"]
    assert parts[chapter.APART] == pytest.approx(Machine.apart_ns + Machine.walk_ns, rel=0.05) and chapter.TRANSLATION not in parts
    assert analysis().price.at(4096).value == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize("most", [64 << 10, 1 << 20, 256 << 20])
def test_no_step_is_wider_than_its_array_however_small(most: int):
    options = [dict(point.options) for point in points(most)]
    assert len(options) > 40 and all(own["step_bytes"] <= own["bytes"] <= max(most, 16 << 10) for own in options)


def test_the_published_table_stands_beside_the_same_strides():
    table = analysis(rows(QUIET)).side_by_side
    assert table["stride_bytes"].tolist() == [8, 64, 512, 4096, 8192] and table["theirs"].tolist() == [1.36, 2.49, 5.38, 12.51, 13.31]
    assert table["ns"].notna().all() and table["ratio"].iloc[0] == 1
    assert table["ratio"].iloc[3] == pytest.approx(table["ns"].iloc[3] / table["ns"].iloc[0])


def test_what_was_not_measured_is_empty_or_a_reason():
    a = analysis(NOTHING)
    assert a.times == a.staggered == a.listed == {} and a.parts.empty and not len(a.packed) and not len(a.price)
    for what in ("large", "near_ns"):
        with pytest.raises(Unavailable):
            getattr(a, what)


@pytest.mark.parametrize("machine", MACHINES)
def test_no_machine_breaks_a_property(machine: str):
    a = analysis(MACHINES[machine]())
    assert len(a.side_by_side) == 5 and a.parts["ns"].notna().all()
