"""The published machines as bundles: their rows are by no rule impossible, and come through to the
byte."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.common import ROOT
from support.fuzzing import ENDURANCE, sampled

from tlb.fleet import accept, archive, check, pack, plausible
from tlb.lab import lines
from tlb.lab.store import Store
from tlb.machine.host import Host

DATA = Store(ROOT / "data")
STEP = 1 if ENDURANCE else 50  # of the rows, in the suite a sample


@sampled
@pytest.mark.parametrize("machine", DATA.machines())
def test_no_row_that_was_measured_is_impossible(machine: str):
    """So that a rule refuses no honest row; in the suite every fiftieth, and all of them in
    endurance."""
    host, now, looked = Host.model_validate(DATA.read_machine(machine)), datetime.now(UTC), 0
    for path in sorted((DATA.root / machine).glob("*.jsonl")):
        for line in path.read_bytes().splitlines()[::STEP]:
            row = lines.parse(line)
            assert (
                isinstance(row, lines.Stored) and [*plausible.breaches(row.record, host, now)] == []
            ), line
            looked += 1
    assert looked >= 100


@pytest.mark.endurance
def test_a_published_machine_goes_into_another_data_as_it_is(tmp_path: Path):
    """All its rows and what only it can say; what is derived is derived again."""
    machine = DATA.reference()
    pack.write(DATA, machine, tmp_path / "a.tlb.zip")
    ours = Store(tmp_path / "data")
    accept.add(ours, check.opened(archive.read(tmp_path / "a.tlb.zip")))
    there = {path.name: path.read_bytes() for path in (DATA.root / machine).iterdir()}
    came = {path.name: path.read_bytes() for path in (ours.root / machine).iterdir()}
    assert came.keys() == there.keys() - {"verdicts.json"}
    assert [name for name in came if name.endswith(".jsonl") and came[name] != there[name]] == []
    other = {name for name in came if came[name] != there[name]}
    described = {name for name in came if name.startswith("machine")}  # in each state
    assert other <= described | {"runtimes.json", "your_program.json", "translation.json"}
    for name in described:
        assert Host.model_validate_json(came[name]) == Host.model_validate_json(there[name])
