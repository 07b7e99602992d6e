"""`tlb geometry`: as JSON the geometry and nothing else, stored nowhere; its table."""

import json

import pytest
from support.common import ended
from support.surveys import GHZ, STEPS, estimate, geometry, level, measured
from support.synthetic import Stated, tlbs

from tlb.cli import computer
from tlb.machine import host
from tlb.measure import survey
from tlb.stats.geometry import TlbGeometry
from tlb.system.reasons import UnmeasuredNote


def test_geometry_as_json_is_the_geometry_and_nothing_else(monkeypatch, tmp_path, capsys):
    (first, _), (last, _) = STEPS
    guest = Stated(tlb=tlbs((first, last)), hypervisor="kvm").host()
    notes = [UnmeasuredNote('Alias chases: a "note".')]
    monkeypatch.setattr(survey, "measured", lambda rig, pages: (measured(), notes))
    monkeypatch.setattr(host, "inspect_machine", lambda *_: guest)
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    assert ended(monkeypatch, "geometry", "--json") == 0
    said = capsys.readouterr()
    assert said.err == "" and not (tmp_path / "data").exists()
    assert json.loads(said.out).keys() == TlbGeometry.model_fields.keys()
    inferred = TlbGeometry.model_validate_json(said.out)
    assert [each.stated for each in inferred.levels] == [first, last]
    for each, n in zip(inferred.levels, (first, last), strict=True):
        assert n < each.entries.value < 2 * n  # between two points of the sweep
    assert inferred.levels[1].hit_cost.value == pytest.approx(STEPS[0][1])
    assert inferred.unit == "cycles" and inferred.core_ghz == pytest.approx(GHZ)
    assert notes[0].text in inferred.notes


def test_bounds_are_printed_where_rounding_leaves_them_apart():
    levels = [level(1, estimate(64.2, 64.1, 64.3)), level(2, estimate(2048.0, 1998.6, 2100.2))]
    table = computer.levels_table(geometry(levels=levels))
    assert table["entries"].tolist() == ["64", "2,048 (1,999 to 2,100)"]
