"""`tlb geometry`: two tables and what they mean, and JSON; nothing is stored."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from rich.console import Console
from support.common import make_record
from support.page_sizes import Paged
from support.synthetic import Stated, tlbs

from tlb import cli
from tlb.cli import shown
from tlb.inference.geometry import Geometry
from tlb.lab import survey
from tlb.lab.grid import octaves
from tlb.lab.measuring_setup import Rig
from tlb.lab.record import Point
from tlb.machine import host
from tlb.reasons import Note


def pieces(guest: Paged) -> pd.DataFrame:
    """What survey.pieces measures of a made-up guest."""
    return guest.frame(
        [
            Point(kernel="page_chase", pages=pages, layout=layout, lines=lines)
            for pages in ("4k", "2m")
            for layout in ("spread", "packed")
            for lines in octaves(survey.FROM_LINES, survey.TO_LINES, 2)
        ],
        survey.REPEATS,
    )


def stairs(pages: str = "4k", steps: tuple[int, ...] = (64, 2048)) -> pd.DataFrame:
    """The rows of a survey of a made-up machine: 4 cycles, and ten more past each step, which every
    chase but packed takes."""
    rows = []
    near = [
        point.model_copy(update={"lines": n + k})
        for point in survey.coarse(pages)
        if point.lines == survey.FROM_LINES
        for n in steps
        for k in (-2, -1, 1, 2)
    ]
    for point in [*survey.coarse(pages), *near]:
        ns = (4 + 10 * sum(point.lines > n for n in steps if point.layout != "packed")) / 3.2
        records = (
            make_record(
                **point.model_dump(),
                stride_bytes=4096 * point.stride_pages,
                repeat=k,
                ns_per_access=ns,
                batch_ns_per_access=[ns],
            )
            for k in range(3)
        )
        rows += [record.model_dump(exclude={"counters"}) for record in records]
    return pd.DataFrame(rows)


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A made-up guest: `frame`, `lacking` and `pieces` are what its surveys give, `asked` and
    `torn` what they were asked for; nothing is measured."""
    machine = SimpleNamespace(
        frame=stairs(), lacking=[], asked=[], root=None, pieces=pieces(Paged()), torn=[]
    )

    def fake(rig: Rig, pages: str, **_: object) -> tuple[pd.DataFrame, list[Note]]:
        machine.asked.append(pages)
        machine.root = rig.store.root
        return machine.frame, [Note(text) for text in machine.lacking]

    def fake_pieces(rig: Rig, pages: str, **_: object) -> pd.DataFrame:
        machine.torn.append(pages)
        return machine.pieces

    monkeypatch.setattr(survey, "measured", fake)
    monkeypatch.setattr(survey, "pieces", fake_pieces)
    monkeypatch.setattr(
        host, "inspect", lambda *_: Stated(tlb=tlbs((64, 2048)), hypervisor="kvm").host()
    )
    monkeypatch.setattr(shown, "out", Console(soft_wrap=True, width=300))
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return machine


def geometry(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tlb", "geometry", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_geometry_as_json_is_the_geometry_and_nothing_else(
    surveyed: SimpleNamespace, monkeypatch, capsys
):
    surveyed.lacking = ['Alias chases: a "note".']
    assert geometry(monkeypatch, "--json") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out).keys() == Geometry.model_fields.keys()
    inferred = Geometry.model_validate_json(said.out)
    assert [level.stated for level in inferred.levels] == [64, 2048]
    assert [
        level.entries.low <= n <= level.entries.high
        for level, n in zip(inferred.levels, (64, 2048), strict=True)
    ] == [True, True]
    assert (
        inferred.levels[1].hit_cost.value == pytest.approx(10)
        and inferred.unit == "cycles"
        and inferred.core_ghz == pytest.approx(3.2)
    )
    assert surveyed.lacking[0] in inferred.notes
