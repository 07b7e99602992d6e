"""ReFrame around `tlb run`: each number with its unit, none a 0."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.overview import profile
from tlb.measure.store import Store, data_root
from tlb.system.files import ROOT

FOLDER = ROOT / "tlb" / "fleet" / "adapters"
MACHINE = Store(data_root()).resolve("reference", experiment="tlb_blocking")
PUBLISHED: dict[str, dict[str, Any]] = {
    found["name"]: found
    for found in json.loads(
        (ROOT / "data" / MACHINE / "translation.json").read_text(encoding="utf-8")
    )["quantities"]
}
ADAPTER = (FOLDER / "reframe_tlb.py").read_text(encoding="utf-8")
NAMES = re.search(r'QUANTITIES = """(.*?)"""', ADAPTER, re.DOTALL)[1].split()


def printed(**changes: Any) -> str:
    """What `tlb run --json` prints of the published machine, with other quantities or another
    version."""
    quantities = [{**found, **changes.get(name, {})} for name, found in PUBLISHED.items()]
    return json.dumps(
        {
            "version": changes.get("version", 1),
            "machine": MACHINE,
            "rows": "",
            "quantities": quantities,
        }
    )


def test_the_quantities_that_reframe_asks_for_are_those_of_a_profile():
    assert set(NAMES) <= set(PUBLISHED) and len(NAMES) == len(set(NAMES)) > 8
    assert f"VERSION = {profile.Profile(machine='a', quantities=()).version} " in ADAPTER


def reframe(folder: Path, *settings: str) -> tuple[str, dict[str, list[Any]]]:
    """(what it says, the performance values by quantity) of a run of the test."""
    program = Path(sys.executable).parent / "reframe"
    command = [
        program,
        "--nocolor",
        "--prefix",
        folder,
        "-c",
        FOLDER / "reframe_tlb.py",
        "--run",
        "--report-file",
        folder / "report.json",
    ]
    done = subprocess.run(
        [*command, *(word for setting in settings for word in ("-S", f"TranslationRun.{setting}"))],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    cases = json.loads((folder / "report.json").read_text(encoding="utf-8"))["runs"][0]["testcases"]
    return done.stdout, {
        name.rpartition(":")[2]: value
        for case in cases
        for name, value in case["perfvalues"].items()
    }


@pytest.mark.endurance
def test_reframe_reports_what_tlb_run_prints_of_the_published_rows(tmp_path):
    told, values = reframe(
        tmp_path,
        "chapters=tlb_blocking",
        "parameters=machine:reference",
        f"tlb={Path(sys.executable).parent / 'tlb'}",
    )
    known = {name for name in NAMES if PUBLISHED[name]["value"] is not None}
    assert {name: (value[0], value[4]) for name, value in values.items()} == {
        name: (PUBLISHED[name]["value"], PUBLISHED[name]["unit"]) for name in known
    }
    skipped = re.findall(r"SKIP.*\[(\w+): ([\w-]+)", told)
    assert (
        dict(skipped) == {name: PUBLISHED[name]["reason"] for name in set(NAMES) - known}
        and "(0 failure(s)" in told
    )


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("changes", "is_whole"),
    [
        ({name: {"value": None, "reason": "no-time", "detail": ""} for name in NAMES}, True),
        ({"version": 2}, False),
    ],
)
def test_without_a_number_or_of_another_version_there_is_no_value(tmp_path, changes, is_whole):
    stub = tmp_path / "tlb"
    (tmp_path / "printed.json").write_text(f"progress\n{printed(**changes)}\n", encoding="utf-8")
    stub.write_text(f"#!/bin/sh\nexec cat {tmp_path}/printed.json\n", encoding="utf-8")
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    told, values = reframe(tmp_path, "chapters=tlb_blocking", f"tlb={stub}")
    assert values == {}
    assert (
        len(re.findall(r"SKIP.*no-time", told)) == (len(NAMES) if is_whole else 0)
        and ("(0 failure(s)" in told) == is_whole
    )
