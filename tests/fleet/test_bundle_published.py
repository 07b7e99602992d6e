"""The published machines as bundles: none of their rows is impossible, and all come through to the
byte."""

from datetime import UTC, datetime

import pytest
from support.common import ROOT
from support.fuzzing import ENDURANCE, sampled

from tlb.fleet import accept, archive, check, lines, pack, plausible
from tlb.machine.host import Host
from tlb.measure.store import PUBLISHED_ROWS, Store

DATA = Store(ROOT / "data")
STEP = 1 if ENDURANCE else 25  # of the rows, in the suite a sample


@sampled
@pytest.mark.parametrize("machine", DATA.machines())
def test_no_row_that_was_measured_is_impossible_and_no_description_is_private(machine):
    described = DATA.read_machine(machine)
    host, now, number = Host.model_validate(described), datetime.now(UTC), 0
    for record in [*DATA.records(machine).values()][::STEP]:
        assert plausible.breach(record, host, now) == "", record
        assert lines.parse(lines.written(record).rstrip(b"\n")).record == record
        number += 1
    assert number >= 100
    assert Host.model_validate_json(pack.public("machine.json", described)) == host


@pytest.mark.endurance
def test_a_published_machine_goes_into_another_data_as_it_is(tmp_path):
    """All its rows and what only it can say; what is derived is derived again."""
    machine = DATA.reference()
    pack.write(DATA, machine, tmp_path / "a.tlb.zip")
    ours = Store(tmp_path / "data")
    accept.add(ours, check.opened(archive.read(tmp_path / "a.tlb.zip")))
    there, came = (
        {path.name: path.read_bytes() for path in (root / machine).rglob("*") if path.is_file()}
        for root in (DATA.root, ours.root)
    )
    assert came.keys() == there.keys() - {
        "quantities.json",
        "claims.json",
    }  # `tlb refresh` records them
    assert ours.published(machine) == DATA.published(machine)
    other = {name for name in came if came[name] != there[name]} - {PUBLISHED_ROWS}
    described = {name for name in came if name.startswith("machine")}  # in each state
    assert other <= described | {"runtimes.json", "your_program.json", "translation.json"}
    for name in described:
        assert Host.model_validate_json(came[name]) == Host.model_validate_json(there[name])
