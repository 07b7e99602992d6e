"""A chapter's quantities: recorded once, kept as JSON, formatted with their unit and interval."""

import pandas as pd
import pytest

from tlb.report import quantities
from tlb.report.quantities import ABSENT_TEXT_MARK, HUGE_PAGES, QuantityDeclaration
from tlb.stats.intervals import Interval, median_interval
from tlb.system.page_sizes import HUGE_PAGE_KINDS
from tlb.system.reasons import Unavailable, UnmeasuredNote


class Quantities(quantities.Quantities):
    load_ns = QuantityDeclaration("a load", "ns", 1)
    size = QuantityDeclaration("a size", "bytes")
    share = QuantityDeclaration("a share", "share")
    pages = QuantityDeclaration("pages", "pages")


class FoundQuantities(Quantities):
    found_bytes = QuantityDeclaration("a size that rows show", "bytes", is_found=True)
    judged_bytes = QuantityDeclaration("a judged size", "bytes", is_found=True, is_judged=True)
    gain = QuantityDeclaration("a gain on 1 GiB pages", "times", pages="1g")


ROWS = pd.DataFrame({"repeat": [0, 1, 2, 2]})


def no_pages() -> float:
    raise Unavailable("no-geometry", "in a test")


@pytest.fixture
def recorded() -> Quantities:
    made = Quantities()
    load = median_interval([1.0, 2.0, 2.0, 2.0, 2.0, 2.5])
    made.record(ROWS, load_ns=load, size=8 << 30, share=lambda: 0.25, pages=no_pages)
    return made


def test_a_text_has_the_number_its_interval_and_its_unit(recorded):
    texts = [f"{recorded.load_ns}", f"{recorded.load_ns:value}", f"{recorded.load_ns:.2 value}"]
    assert [text.split()[0] for text in texts] == ["1.0", "2.0", "2.00"]
    assert all(text.endswith(" ns") for text in texts)
    assert f"{recorded.size}, {recorded.share}" == "8 GiB, 25%"
    with pytest.raises(ValueError, match="median"):
        f"{recorded.load_ns:median}"


def test_a_size_of_a_wide_interval_is_a_range_without_its_median():
    made = Quantities()
    made.record(ROWS, size=Interval(3 << 20, 1 << 20, 4 << 20))
    assert f"{made.size}" == "1 MiB to 4 MiB" and f"{made.size:value}" == "3 MiB"


def test_what_is_lacking_is_marked_in_a_text_and_has_its_reason(recorded):
    assert ABSENT_TEXT_MARK in f"{recorded.pages:value}" and recorded.pages.cell == "–"
    with pytest.raises(Unavailable):
        _ = recorded.pages.value


def test_they_come_back_from_json_as_they_were(recorded):
    again = Quantities(recorded.kept)
    assert again.kept == recorded.kept and again.size.value == 8 << 30
    assert [one.cell for _, one in again] == [one.cell for _, one in recorded]


def test_an_open_interval_stays_open():
    made = Quantities()
    made.record(ROWS, load_ns=Interval(1.0, 0.5, float("inf")))
    assert Quantities(made.kept).load_ns.interval == Interval(1.0, 0.5, float("inf"))


def test_mappings_are_those_of_the_interval_or_of_the_rows_and_none_of_an_exact_number(recorded):
    made = Quantities()
    made.record(ROWS, load_ns=Interval(1.0, 0.5, 2.0, 0.123), size=1.0)
    assert (made.load_ns.mappings, made.size.mappings) == (3, 0)


@pytest.mark.parametrize("number", range(2, 12))
def test_an_interval_of_some_of_the_rows_mappings_says_of_how_many(number):
    made, rows = Quantities(), pd.DataFrame({"repeat": range(12)})
    values = [float(value) for value in range(number)]
    made.record(rows, load_ns=median_interval(values))
    assert made.load_ns.mappings == number


def test_a_quantity_of_too_few_mappings_is_shown_without_its_interval_and_marked():
    made = Quantities()
    made.record(ROWS, load_ns=median_interval([1.0, 2.0, 3.0]))
    assert made.load_ns.cell == "2.0 ns *"


def test_too_few_mappings_show_nothing_that_a_comparison_has_to_find():
    for number, cell in ((2, "–"), (5, "8 MiB")):
        made = FoundQuantities()
        made.record(pd.DataFrame({"repeat": range(number)}), judged_bytes=2**23)
        assert made.judged_bytes.cell == cell


class OfHugePages(Quantities):
    huge_ns = QuantityDeclaration("a load on huge pages", "ns", pages=HUGE_PAGES)
    base_ns = QuantityDeclaration("a load on base pages", "ns")
    reach_bytes = QuantityDeclaration("what huge pages cover", "bytes", pages=HUGE_PAGES)


def test_what_the_machine_does_not_give_is_the_reason_for_no_number():
    made = FoundQuantities()
    made.notes = [UnmeasuredNote("No such pages.", "pool-empty", ("2m", "1g"))]
    made.record(ROWS, gain=float("nan"), load_ns=float("nan"))
    assert (made.gain.lacking.code, made.load_ns.lacking.code) == ("pool-empty", "too-few-points")


@pytest.mark.parametrize("is_own, cell", [(True, "–"), (False, "2 *")])
def test_of_this_computer_too_few_mappings_compare_no_two_times(is_own, cell):
    made = FoundQuantities()
    made.is_own = is_own
    made.record(pd.DataFrame({"repeat": [0]}), gain=median_interval([2.0]), load_ns=2.0)
    assert (made.gain.cell, made.load_ns.cell) == (cell, "2.0 ns *")


def test_a_page_size_that_the_machine_does_not_have_is_the_reason():
    made = FoundQuantities()
    made.lacking_pages = {"1g": "page-size-unsupported"}
    made.record(ROWS, gain=no_pages, load_ns=no_pages)
    assert made.gain.lacking.code == "page-size-unsupported"
    assert made.load_ns.lacking.code == "no-geometry"


@pytest.mark.parametrize(
    "lacking, codes",
    [
        ({}, ("pool-empty", "no-large-pages")),
        ({"2m": "page-size-unsupported"}, ("no-large-pages", "no-large-pages")),
        (
            dict.fromkeys(HUGE_PAGE_KINDS, "page-size-unsupported"),
            ("page-size-unsupported", "no-large-pages"),
        ),
    ],
)
def test_a_pool_is_the_reason_only_of_large_pages_where_there_is_such_a_pool(lacking, codes):
    def no_pool() -> float:
        raise Unavailable("pool-empty")

    made = OfHugePages()
    made.lacking_pages = lacking
    made.record(ROWS, huge_ns=no_pool, base_ns=no_pool, reach_bytes=2**30)
    assert (made.huge_ns.lacking.code, made.base_ns.lacking.code) == codes
    is_offered = "page-size-unsupported" not in codes
    assert (made.reach_bytes.interval is not None) == is_offered


def test_a_size_found_in_too_few_mappings_has_no_more_digits_than_it_is_known_to():
    few, many = FoundQuantities(), FoundQuantities()
    for made, number in ((few, 2), (many, 5)):
        made.record(pd.DataFrame({"repeat": range(number)}), found_bytes=2**20 * 16 * 2**0.5)
    assert (few.found_bytes.cell, many.found_bytes.cell) == ("23 MiB *", "22.63 MiB")


def test_a_time_without_an_interval_is_marked_if_all_its_rows_are_of_too_few_mappings():
    few, many = Quantities(), Quantities()
    few.record(pd.DataFrame({"repeat": [0, 1]}), load_ns=2.0)
    many.record(pd.DataFrame({"repeat": range(5)}), load_ns=2.0)
    assert (few.load_ns.cell, many.load_ns.cell) == ("2.0 ns *", "2.0 ns")


@pytest.mark.parametrize("mappings, cell", [(1, "–"), (5, "3.0 ns")])
def test_a_part_that_exceeds_its_whole_is_noise_of_too_few_mappings(mappings, cell):
    class PartQuantities(Quantities):
        part_ns = QuantityDeclaration("a part of it", "ns", 1, part_of="load_ns")

    made = PartQuantities()
    made.record(pd.DataFrame({"repeat": range(mappings)}), part_ns=3.0, load_ns=2.0)
    assert (made.part_ns.cell, made.load_ns.value) == (cell, 2.0)
    assert cell != "–" or not made.part_ns.mappings


def test_a_time_below_zero_of_too_few_mappings_is_no_absent_one():
    made = Quantities()
    made.record(pd.DataFrame({"repeat": [0]}), load_ns=-2.0, share=float("nan"))
    assert made.load_ns.cell == "not above zero *" and made.share.cell == "–"


def test_that_there_is_no_step_is_not_known_of_too_few_mappings():
    def no_step() -> float:
        raise Unavailable("no-step")

    few, many = Quantities(), Quantities()
    few.record(pd.DataFrame({"repeat": [0]}), load_ns=no_step, pages=no_pages)
    many.record(pd.DataFrame({"repeat": range(5)}), load_ns=no_step)
    assert (few.load_ns.kept.reason, few.pages.kept.reason) == ("too-few-points", "no-geometry")
    assert many.load_ns.kept.reason == "no-step"


def test_a_cell_names_the_size_that_another_of_its_row_is_not_of():
    own, other = Quantities(), Quantities()
    own.record(ROWS, conditions=4 << 30, load_ns=2.0)
    other.record(ROWS, conditions=8 << 30, load_ns=2.0)
    assert own.load_ns.cell_beside([own.load_ns]) == own.load_ns.cell
    assert own.load_ns.cell_beside([other.load_ns]) == f"{own.load_ns.cell} (4 GiB)"
    assert Quantities(own.kept).load_ns.conditions == "4 GiB"


def test_each_is_declared_and_recorded_once(recorded):
    with pytest.raises(ValueError, match="size"):
        recorded.record(ROWS, size=1.0)
    with pytest.raises(AttributeError, match="weight"):
        recorded.record(ROWS, weight=1.0)
    made = Quantities()
    made.record(ROWS, size=1.0)
    assert made.missing == ["load_ns", "share", "pages"]


def test_a_short_sweep_gives_no_measured_number_but_what_is_stated():
    made = Quantities()
    made.is_short = True
    made.record(ROWS, load_ns=median_interval([1.0, 2.0, 3.0]), share=0.5, pages=64, size=8 << 30)
    cells = {name: one.cell for name, one in made}
    assert (cells["load_ns"], cells["share"]) == ("–", "–")
    assert (cells["pages"], cells["size"]) == ("64 pages", "8 GiB")


class DifferenceQuantities(Quantities):
    saved_ns = QuantityDeclaration("what it saves", "ns", 1, part_of="load_ns", is_judged=True)


@pytest.mark.parametrize(
    "mappings, saved, cell", [(1, 7.0, "–"), (1, 60.0, "60.0 ns *"), (5, 7.0, "7.0 ns")]
)
def test_a_small_difference_of_too_few_mappings_is_not_told_from_noise(mappings, saved, cell):
    made = DifferenceQuantities()
    made.record(pd.DataFrame({"repeat": range(mappings)}), saved_ns=saved, load_ns=166.0)
    assert made.saved_ns.cell == cell
