"""Other people's harnesses around `tlb run`: ReFrame runs its test, PerfKitBenchmarker is a stub; each number with its unit, none a 0."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from experiments.front import profile
from experiments.lab.store import Store, data_root
from experiments.system.files import ROOT

FOLDER = ROOT / "experiments" / "fleet" / "adapters"
MACHINE = Store(data_root()).resolve("reference", experiment="strides")
PUBLISHED: dict[str, dict[str, Any]] = {
    found["name"]: found for found in json.loads((ROOT / "data" / MACHINE / "translation.json").read_text(encoding="utf-8"))["quantities"]}
NAMES = next(ast.literal_eval(node.value) for node in ast.parse((FOLDER / "reframe_tlb.py").read_text(encoding="utf-8")).body
             if isinstance(node, ast.Assign) and node.targets[0].id == "QUANTITIES")


def printed(**changes: Any) -> str:
    """What `tlb run --json` prints of the published machine, with other quantities or another version."""
    quantities = [{**found, **changes.get(name, {})} for name, found in PUBLISHED.items()]
    return json.dumps({"version": changes.get("version", 1), "machine": MACHINE, "rows": "", "quantities": quantities})


# --- PerfKitBenchmarker


class Sample(NamedTuple):
    metric: str
    value: float
    unit: str
    metadata: dict[str, Any]


class Machine:
    """A virtual machine that keeps what was asked of it."""

    def __init__(self, answer: str) -> None:
        self.answer, self.asked = answer, []

    def InstallPackages(self, packages: str) -> None:
        self.asked.append(packages)

    def RemoteCommand(self, command: str) -> tuple[str, str]:
        self.asked.append(command)
        return self.answer, "progress"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    library = ModuleType("perfkitbenchmarker")
    library.configs = SimpleNamespace(LoadConfig=lambda text, user, name: (text, user, name))
    library.sample = SimpleNamespace(Sample=Sample)
    flags = SimpleNamespace(DEFINE_string=lambda name, default, _: SimpleNamespace(value=default or "https://example.org/a book.git"),
                            DEFINE_list=lambda name, default, _: SimpleNamespace(value=default))
    absl = ModuleType("absl")
    absl.flags = flags
    for name, module in (("perfkitbenchmarker", library), ("absl", absl)):
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("tlb_benchmark", FOLDER / "pkb_tlb.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def test_a_sample_is_a_quantity_that_has_a_number_in_its_unit(benchmark: ModuleType):
    lacks = {"gain_1g": {"value": None, "low": None, "high": None, "coverage": None, "reason": "pool-empty"}}
    vm = Machine(printed(**lacks) + "\n")
    benchmark.Prepare(SimpleNamespace(vms=[vm]))
    assert "'https://example.org/a book.git'" in vm.asked[1]  # one word of the shell
    samples = {found.metric: found for found in benchmark.Run(SimpleNamespace(vms=[vm]))}
    known = {name: found for name, found in PUBLISHED.items() if found["value"] is not None and name != "gain_1g"}
    assert {name: (found.value, found.unit) for name, found in samples.items()} == {
        name: (found["value"], found["unit"]) for name, found in known.items()}
    assert all(found.metadata["machine"] == MACHINE and found.metadata["lacks_gain_1g"] == "pool-empty" for found in samples.values())
    assert samples["load_first_level"].metadata["coverage"] == PUBLISHED["load_first_level"]["coverage"]
    assert [command.split(" run ")[1].split()[0] for command in vm.asked[2:]] == ["page_faults", "hugepages", "stlb_cliff"]
    assert benchmark.GetConfig({})[2] == benchmark.BENCHMARK_NAME and benchmark.Cleanup(None) is None


# --- ReFrame


def test_the_quantities_that_reframe_asks_for_are_those_of_a_profile():
    assert set(NAMES) <= set(PUBLISHED) and len(NAMES) == len(set(NAMES)) > 8
    assert f"VERSION = {profile.Profile(machine='a', quantities=()).version} " in (FOLDER / "reframe_tlb.py").read_text(encoding="utf-8")


def reframe(folder: Path, *settings: str) -> tuple[str, dict[str, list[Any]]]:
    """(what it says, the performance values by quantity) of a run of the test."""
    program = Path(sys.executable).parent / "reframe"
    if not program.exists():
        pytest.skip("reframe is not installed: `make fleet` has it")
    command = [program, "--nocolor", "--prefix", folder, "-c", FOLDER / "reframe_tlb.py", "--run", "--report-file", folder / "report.json"]
    done = subprocess.run([*command, *(word for setting in settings for word in ("-S", f"TranslationRun.{setting}"))],
                          capture_output=True, text=True, cwd=folder, env=os.environ | {"TMPDIR": str(folder)}, timeout=300)
    cases = json.loads((folder / "report.json").read_text(encoding="utf-8"))["runs"][0]["testcases"]
    return done.stdout, {name.rpartition(":")[2]: value for case in cases for name, value in case["perfvalues"].items()}


@pytest.mark.endurance
def test_reframe_reports_what_tlb_run_prints_of_the_published_rows(tmp_path: Path):
    told, values = reframe(tmp_path, "chapters=strides", "parameters=machine:reference", f"tlb={Path(sys.executable).parent / 'tlb'}")
    known = {name for name in NAMES if PUBLISHED[name]["value"] is not None}
    assert {name: (value[0], value[4]) for name, value in values.items()} == {
        name: (PUBLISHED[name]["value"], PUBLISHED[name]["unit"]) for name in known}
    skipped = re.findall(r"SKIP.*\[(\w+): ([\w-]+)", told)
    assert dict(skipped) == {name: PUBLISHED[name]["reason"] for name in set(NAMES) - known} and "(0 failure(s)" in told


@pytest.mark.endurance
@pytest.mark.parametrize(("changes", "is_whole"), [
    ({name: {"value": None, "reason": "no-time", "detail": ""} for name in NAMES}, True), ({"version": 2}, False)])
def test_without_a_number_or_of_another_version_there_is_no_value(tmp_path: Path, changes: dict[str, Any], is_whole: bool):
    stub = tmp_path / "tlb"
    (tmp_path / "printed.json").write_text(f"progress\n{printed(**changes)}\n", encoding="utf-8")
    stub.write_text(f"#!/bin/sh\nexec cat {tmp_path}/printed.json\n", encoding="utf-8")
    stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    told, values = reframe(tmp_path, "chapters=strides", f"tlb={stub}")
    assert values == {}
    assert len(re.findall(r"SKIP.*no-time", told)) == (len(NAMES) if is_whole else 0) and ("(0 failure(s)" in told) == is_whole
