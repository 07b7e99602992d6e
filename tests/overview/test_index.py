"""The first page: what it asks of the chapters, and what stays where rows are lacking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from support.common import About
from support.rendered import written
from support.synthetic import GIB, Truth, frame, grid, scope
from support.your_machine import ARM, host

from experiments import stlb_cliff, your_machine
from experiments.overview import CHAPTERS, index
from tlb.lab.record import Point
from tlb.machine.host import Host
from tlb.reasons import REASONS, Unavailable
from tlb.report.parameters import table_of_contents
from tlb.system.files import ROOT

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
    chapters: tuple[ModuleType, ...] = CHAPTERS,
    why: str = "no-data",
    **parameters: str,
) -> index.Analysis:
    given = {"machine": "reference", "profile": "full"} | parameters
    return index.Analysis(
        Measured(of or host(), rows=dict(rows), why=why, parameters=given), chapters
    )


def test_the_chapters_are_those_of_the_book_in_its_order():
    names = [module.__name__.rpartition(".")[2] for module in CHAPTERS]
    assert names == [name for name in table_of_contents() if name in names] and names[:2] == [
        "your_machine",
        "stlb_cliff",
    ]
    folders = {path.parent.name for path in (ROOT / "experiments").glob("*/__init__.py")}
    assert set(names) == folders & set(table_of_contents())


def test_every_chapters_grid_is_measured_and_no_survey_is_asked_for():
    a = page({"stlb_cliff": CLIFF})
    assert set(a.about.asked) == {module.__name__.rpartition(".")[2] for module in CHAPTERS} - {
        "your_machine",
        "your_program",
    }
    assert a.about.asked["stlb_cliff"] == stlb_cliff.grid.points(scope())
    assert a.of(your_machine).frame.empty


@pytest.mark.parametrize("why", ["no-data", "arch-unsupported"])
def test_a_machine_without_rows_has_a_first_page_all_the_same(why: str):
    a = page({}, host(**ARM), why=why)
    told = written("index", lambda names: setattr(a, "_names", names) or a)
    assert (
        REASONS[why].sentence.removesuffix(".") in told and "not measured on this machine" in told
    )
