"""The first page: what it asks of the chapters, and what stays where rows are lacking."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from support.common import About
from support.surveys import ARM, host
from support.synthetic import GIB, Stated, Truth, frame, grid, scope

from experiments import hugepages, stlb_cliff
from experiments.overview import chapter_name, index
from tlb.machine.host import Host
from tlb.measure.record import Point
from tlb.report import notebooks
from tlb.report.notebooks import chapter_names_in_order
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable

CLIFF = frame(Truth(entries=(64, 1536), hit_ns=2.0, walk_ns=9.0), grid(GIB))


@dataclass
class Measured(About):
    """A chapter of which `rows` are all that can be had; why: the code of what the others lack."""

    parameters: dict[str, Any] = field(default_factory=dict)
    why: str = "no-data"
    asked: dict[str, list[Point]] = field(default_factory=dict)

    scope = scope()

    def measure(self, points: list[Point], name: str) -> pd.DataFrame:
        self.asked[name] = points
        if name not in self.rows:
            raise Unavailable(self.why, name)
        return self.rows[name]


def page(
    rows: Mapping[str, pd.DataFrame],
    of: Host | None = None,
    chapters: tuple[ModuleType, ...] = notebooks.chapter_modules(),
    why: str = "no-data",
    **parameters: str,
) -> index.Analysis:
    given = {"machine": "reference", "profile": "full"} | parameters
    return index.Analysis(
        Measured(of or host(), rows=dict(rows), why=why, parameters=given), chapters
    )


def test_the_chapters_are_those_of_the_book_in_its_order():
    names = [*map(chapter_name, notebooks.chapter_modules())]
    assert names == [name for name in chapter_names_in_order() if name in names]
    assert names[0] == "stlb_cliff"
    folders = {path.parent.name for path in (ROOT / "experiments").glob("*/grid.py")}
    assert set(names) == folders & set(chapter_names_in_order())


def test_every_chapters_grid_is_measured_and_no_survey_is_asked_for():
    a = page({"stlb_cliff": CLIFF})
    assert set(a.about.asked) == {*map(chapter_name, notebooks.chapter_modules())} - {
        "your_program"
    }
    assert a.about.asked["stlb_cliff"] == stlb_cliff.grid.points(scope())


@pytest.mark.parametrize("why", ["no-data", "other-arch"])
def test_a_machine_without_rows_has_a_first_page_all_the_same(why):
    a, numbers = page({}, host(**ARM), why=why), index.Quantities()
    numbers.record(a.rows_of(stlb_cliff), near_ns=lambda: a.measured("load_first_level"))
    assert numbers.near_ns.cell == "–" and a.setup
    with pytest.raises(Unavailable):
        index.load_time_chart(a)


def test_what_there_was_no_time_for_is_counted_once():
    a = page({"stlb_cliff": CLIFF.assign(started_at="2026-01-01T00:00:00Z")}, machine="this")
    whole = a.provenance
    a.about.left_out |= {"stlb_cliff": (291, 633), "hugepages": (1_141, 2_315)}
    assert whole in a.provenance and "1,432 of 2,948" in a.provenance
    assert len(a.provenance.splitlines()) == 1 and "missing" not in whole


def test_the_table_has_the_numbers_of_the_profile():
    a = page({"stlb_cliff": CLIFF}, Stated().host())
    load = stlb_cliff.Analysis(CLIFF, a.about).packed.intervals[0]
    assert a.measured("load_first_level").value == pytest.approx(load.value, rel=1e-5)
    assert a.rows_of(stlb_cliff).equals(CLIFF) and a.rows_of(hugepages).empty
    with pytest.raises(Unavailable):
        a.measured("gain_thp")


# --- the working set


def test_the_slider_answers_for_each_half_octave_that_was_measured():
    a = page({"stlb_cliff": CLIFF})
    figure = index.load_time_chart(a)
    params = {param["name"]: param for param in figure.spec()["params"]}
    answers, slider, asked = (
        params["answers"]["value"],
        params["size"]["bind"],
        params["size"]["value"],
    )
    assert len(answers) == (slider["max"] - slider["min"]) / slider["step"] + 1 > 20
    assert figure.alt.endswith(answers[f"{asked:g}"]) and asked == 30
    assert answers["28"].startswith("256 MiB, 65,536 pages of 4 KiB")
    assert answers["28.5"].startswith("384 MiB, 98,304 pages")
    assert not any("2 MiB pages" in text for text in answers.values())  # none were measured


@pytest.mark.parametrize(("few", "many"), [("thp", "2m"), ("2m", "thp")])
def test_huge_pages_are_those_that_were_measured_at_more_sizes(few, many):
    """A line between few sizes would hide the steps that the curve of base pages shows."""
    rows = pd.concat([CLIFF[CLIFF["lines"] >= 1024].assign(pages=few), CLIFF.assign(pages=many)])
    drawn = page({"stlb_cliff": CLIFF, "hugepages": rows}).curves
    assert [*drawn] == ["4 KiB", index.HUGE_PAGES_LABELS[many], "packed"]


def test_nothing_is_answered_outside_of_what_was_measured():
    curve = page({"stlb_cliff": CLIFF}).cliff.spread
    assert index.median_at(curve, curve.xs[-1] * 2) is None
    low, high = curve.medians.iloc[[-2, -1]]
    between = index.median_at(curve, (curve.xs[-2] * curve.xs[-1]) ** 0.5)
    assert between is not None and low <= between <= high


def test_only_sizes_near_one_that_cannot_be_compared_are_more_than_translation():
    a = page({"stlb_cliff": CLIFF})
    vars(a.cliff)["price"] = replace(a.cliff.price, gaps=(2.0**12, 2.0**18))
    texts = [index.working_set_answer(a, lines * 4096) for lines in (2**12, 2**15, 2**18)]
    assert ["may be the data's" in text for text in texts] == [True, False, True]
