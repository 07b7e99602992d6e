"""`tlb where --save` and `--baseline`: the same counts in each run, regressions found and neutral
edits not, and what cannot be compared refused."""

import json
import math
import os
import random
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.common import LONG_S, needs_c
from support.edits import NEUTRAL, REGRESSIONS, Edit, edited

from tlb.cli.where import GREW, GateOptions
from tlb.machine.host import Host, data_tlbs
from tlb.programs.where import baseline, simulation, valgrind
from tlb.programs.where.baseline import (
    LEAST,
    MARGINS,
    METRICS,
    Baseline,
    BaselineComparison,
    CountedPlace,
)
from tlb.programs.where.valgrind import Levels, SimulatedTlb
from tlb.system.files import ROOT
from tlb.system.reasons import Unavailable

pytestmark = [
    needs_c,
    pytest.mark.skipif(sys.platform != "linux", reason="Valgrind runs programs of Linux"),
]
ZEN_4 = valgrind.machines()["zen-4"]
COMMAND = ["./bench"]


def counted(*command: str) -> Baseline:
    fixed = baseline.fixed_environment([*command], {})
    found = simulation.simulate([*command], ZEN_4.option, LONG_S, 0, fixed)
    return Baseline.of([*command], "zen-4", ZEN_4, [found])


def made(
    walks: int = 100_000, exposed: int = 50_000, pages: int = 9000, **others: object
) -> Baseline:
    """Return a baseline of a program that never ran."""
    return Baseline(
        tlb="0",
        command=COMMAND,
        machine="zen-4",
        geometry=ZEN_4.document(),
        runs=1,
        totals={"exposed": exposed, "walks": walks, "pages": pages},
        **{"conditions": {}, "functions": [], "allocations": []}
        | {"spread": dict.fromkeys(METRICS, 0.0)}
        | others,
    )


# --- the published machines


def published() -> dict[str, dict[str, object]]:
    """Return the geometries by data/: what CPUID states, or else what the book's chase found."""
    geometries = {}
    for file in sorted((ROOT / "data").glob("*-*/machine.json")):
        host = Host.model_validate_json(file.read_text())
        cliff = json.loads(file.with_name("quantities.json").read_text())["stlb_cliff"]
        found = [round(cliff[name]["value"]) for name in ("first_entries", "last_entries")]
        made = valgrind.geometry(host, () if data_tlbs(host) else found)
        geometries[file.parent.name.rpartition("-")[0]] = made.document()
    return geometries


def test_each_published_machine_can_be_simulated_by_its_name():
    if os.environ.get("TLB_ACCEPT"):
        valgrind.MACHINES.write_text(json.dumps(published(), indent=1) + "\n")
    assert {name: each.document() for name, each in valgrind.machines().items()} == published()


def test_a_survey_of_tlb_geometry_is_a_machine(tmp_path):
    levels = [{"entries": {"value": entries}} for entries in (64.2, 1535.7)]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"pages": "4k", "levels": levels}))
    assert valgrind.named_geometry(str(file)).base == Levels(64, 1536, 8)


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"levels": []},
        {"levels": [{"entries": {}}] * 2, "pages": "4k"},
        ZEN_4.document() | {"page_bytes": 0},
        ZEN_4.document() | {"page_bytes": 5000},
        ZEN_4.document() | {"huge_page_bytes": 4096},
        ZEN_4.document() | {"huge_page_bytes": 1 << 40},
        ZEN_4.document() | {"base": {"first": 64, "second": 100, "ways": 3}},
        ZEN_4.document() | {"base": {"first": 9999, "second": 1024, "ways": 8}},
        ZEN_4.document() | {"base": {"first": 64, "second": 1 << 20, "ways": 8}},
        ZEN_4.document() | {"base": {"first": "x", "second": 8, "ways": 8}},
    ],
)
def test_a_tlb_that_cannot_be_simulated_is_refused(document):
    with pytest.raises(ValueError):
        SimulatedTlb.of_document(document)


@pytest.mark.needs("valgrind")
def test_the_baselines_of_our_own_programs_are_of_this_simulator():
    """Else `.ci/walks save` makes them anew."""
    files = sorted((ROOT / ".github" / "walks").glob("*.json"))
    simulators = {Baseline.read(file).conditions["simulator"] for file in files}
    assert files and simulators == {baseline.conditions()["simulator"]}


# --- counts


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory) -> Baseline:
    return counted(edited((), tmp_path_factory.mktemp("unchanged")))


def compared(before: Baseline, edit: Edit, folder: Path) -> BaselineComparison:
    return BaselineComparison(before, counted(edited(edit, folder)), 0.01)


@pytest.mark.needs("valgrind")
def test_a_larger_struct_is_found_where_it_is_and_a_message_is_not(unchanged, tmp_path):
    larger = compared(unchanged, REGRESSIONS["struct + 8 bytes"], tmp_path)
    assert larger.grown == ["walks", "pages"]
    assert larger.changes("functions")[0][1].name == "visit_records"
    assert "malloc in visit_records" in larger.changes("allocations")[0][1].name
    assert not compared(unchanged, NEUTRAL["a message"], tmp_path).grown


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
@pytest.mark.parametrize("name", REGRESSIONS)
def test_each_regression_is_found(name, unchanged, tmp_path):
    assert compared(unchanged, REGRESSIONS[name], tmp_path).grown


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
@pytest.mark.parametrize("name", NEUTRAL)
def test_no_neutral_edit_is_flagged(name, unchanged, tmp_path):
    assert not compared(unchanged, NEUTRAL[name], tmp_path).grown


HASHED = "d = {str(i): i for i in range(20000)}; print(sum(d.values()), {*'abc'})"


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_neither_the_environment_nor_the_folder_changes_a_count(tmp_path, monkeypatch):
    program, draws, totals = edited((), tmp_path), random.Random(1), []
    for run in range(5):
        folder = tmp_path / ("f" * draws.randint(1, 200)) / str(run)
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("TMPDIR", str(folder))
        vary_environment(draws, monkeypatch)
        totals.append(counted(shutil.copy(program, folder)).totals)
    assert totals == totals[:1] * len(totals)


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_an_interpreter_counts_the_same_in_one_folder_without_a_hash_seed(monkeypatch):
    """What Linux gives as random is the same in each run."""
    draws, totals = random.Random(1), []
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    for _ in range(3):
        vary_environment(draws, monkeypatch)
        totals.append(counted(sys.executable, "-S", "-c", HASHED).totals)
    assert totals == totals[:1] * len(totals)


def vary_environment(draws: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X" * draws.randint(1, 99), "x" * draws.randint(0, 9999))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{'/p' * draws.randint(0, 200)}")


@pytest.mark.needs("valgrind")
def test_the_command_saves_compares_and_ends_with_5(tmp_path, capsys):
    program, saved = edited((), tmp_path), tmp_path / "walks.json"
    GateOptions("zen-4", saved, None, "1%", 1, [], None, None).run([program], LONG_S, False, False)
    assert saved.stat().st_size < 200_000
    worse = edited(REGRESSIONS["rows to columns"], tmp_path)
    markdown, junit = tmp_path / "walks.md", tmp_path / "walks.xml"
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        GateOptions("", None, saved, "1%", 1, [], markdown, junit).run([worse], LONG_S, False, True)
    assert ended.value.code == GREW
    document = json.loads(capsys.readouterr().out)
    assert document["grown"] == ["walks"] and document["functions"][0]["name"] == "sum_matrix"
    assert "sum_matrix" in markdown.read_text()
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite.get("failures") == "1" == str(len(suite.findall("testcase/failure")))


# --- what is a growth


@pytest.mark.parametrize(
    ("before", "now", "grown"),
    [
        ({}, {"walks": 101_000}, []),
        ({}, {"walks": 101_001}, ["walks"]),
        ({}, {"walks": 50_000}, []),
        ({}, {"exposed": 50_000 + MARGINS["exposed"] * 500}, []),
        ({}, {"exposed": 50_001 + MARGINS["exposed"] * 500}, ["exposed"]),
        # Few exposed walks have to grow by as much as matters beside all walks.
        ({"walks": 10**7, "exposed": 1000}, {"walks": 10**7, "exposed": 2000}, []),
        ({"pages": 100}, {"pages": 100 + LEAST - 1}, []),
        ({"pages": 100}, {"pages": 100 + LEAST}, ["pages"]),
        ({"walks": 0, "exposed": 0, "pages": 0}, {"walks": LEAST, "exposed": 0, "pages": 0}, ["walks"]),
        # What differs between runs of one program is no growth.
        ({"spread": {"exposed": 0, "walks": 0.2, "pages": 0}}, {"walks": 119_000}, []),
        ({}, {"walks": 119_000, "spread": {"exposed": 0, "walks": 0.2, "pages": 0}}, []),
    ],
)  # fmt: skip
def test_a_count_has_grown_if_it_is_above_what_is_allowed(before, now, grown):
    assert BaselineComparison(made(**before), made(**now), 0.01).grown == grown


def test_of_several_runs_the_medians_are_kept_and_how_far_they_lie_apart():
    found = []
    for walks in (1000, 1300, 1100):
        line = simulation.SourceLine("f", "/src/x.c", 1, "/bin/x")
        found.append(
            simulation.SimulationResult(lines={line: simulation.WalkCounts(walks, walks, walks)})
        )
    kept = Baseline.of(COMMAND, "zen-4", ZEN_4, found)
    assert kept.totals["walks"] == 1100 and math.isclose(kept.spread["walks"], 0.3)
    assert [(each.name, each.place, each.walks) for each in kept.functions] == [
        ("f", "x.c:1", 1100)
    ]


def test_functions_are_the_same_though_their_lines_moved_and_any_name_can_be_shown():
    def of(line: int, walks: int) -> Baseline:
        odd = CountedPlace(name="a|b<c>\x01", place="x.c:9", walks=walks)
        return made(
            functions=[CountedPlace(name="f", place=f"x.c:{line}", walks=walks), odd], walks=walks
        )

    done = BaselineComparison(of(10, 1000), of(99, 2000), 0.01)
    assert {(pair[0].walks, pair[1].walks) for pair in done.changes("functions")} == {(1000, 2000)}
    rows = [line for line in done.markdown().splitlines() if line.startswith("|")]
    assert {row.replace("\\|", "").count("|") for row in rows} == {7, 4}
    assert ElementTree.fromstring(done.junit()).find("testsuite").get("failures") == "1"
    assert json.dumps(done.document())


# --- what is refused


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"schema_version": 2},
        {"command": []},
        {"totals": {"walks": 1}},
        {"totals": {"exposed": -1, "walks": 1, "pages": 1}},
        {"spread": {"exposed": "nan", "walks": 0, "pages": 0}},
        {"geometry": {}},
        {"functions": [{"nome": "f"}]},
        {"more": 1},
    ],
)
def test_a_file_that_is_no_baseline_is_refused(change, tmp_path):
    file = tmp_path / "walks.json"
    file.write_text(json.dumps(made().model_dump() | change))
    with pytest.raises(Unavailable) as why:
        Baseline.read(file)
    assert why.value.code == "bad-parameter" and str(file) in why.value.detail


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    file, text = tmp_path / "walks.json", made().model_dump_json()
    for end in (0, 1, len(text) // 2, len(text) - 1):
        file.write_text(text[:end])
        with pytest.raises(Unavailable):
            Baseline.read(file)
    file.write_text(text)
    assert Baseline.read(file) == made()


@pytest.mark.needs("valgrind")
@pytest.mark.parametrize(
    ("change", "command", "geometry", "named"),
    [
        ({"Valgrind": "valgrind-3.0"}, COMMAND, ZEN_4, "Valgrind: valgrind-3.0, now"),
        ({"C library": "glibc 2.0"}, COMMAND, ZEN_4, "C library: glibc 2.0, now"),
        ({"CPU features": "none"}, COMMAND, ZEN_4, "CPU features: none, now"),
        ({"simulator": "0"}, COMMAND, ZEN_4, "simulator: 0, now"),
        ({}, ["./bench", "-x"], ZEN_4, "command: bench, now bench -x"),
        ({}, COMMAND, valgrind.machines()["zen-3"], "simulated TLB: zen-4, now other"),
    ],
)
def test_other_conditions_are_named(change, command, geometry, named):
    before = made(conditions=baseline.conditions() | change)
    with pytest.raises(Unavailable) as why:
        before.check_comparable(command, "other", geometry)
    assert why.value.code == "program-unfit" and named in why.value.detail
    same = made(conditions=baseline.conditions())
    same.check_comparable(["/elsewhere/bench"], "another name", ZEN_4)
