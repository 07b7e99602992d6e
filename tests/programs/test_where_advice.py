"""Each piece of advice of `tlb where`, followed in a program of its kind: it brings huge pages."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.common import LONG_S, SUPPORT, compiled, lacking, needs_c
from support.where import GEOMETRY

from tlb.programs import levers
from tlb.programs.levers import LEVERS, Lever, LeverEnvironmentVariable
from tlb.programs.runs import ProgramRun, RunConditions, run_program
from tlb.programs.where import advice, simulation
from tlb.programs.where.report import WhereReport
from tlb.programs.where.simulation import REFUSED, AllocationSite, SimulationResult, WalkCounts
from tlb.system.reasons import Unavailable

HEAPS = "small", "thread"  # kinds of small objects
LEAST_KB = 16 << 10  # of 64 MiB, which lie on no huge page by themselves
PRINTED = RunConditions(metric=re.compile(r"huge=(\d+)"))
SIZE = advice.huge_page_bytes()
pytestmark = [
    needs_c,
    pytest.mark.measures,
    pytest.mark.measuring,  # what fills memory runs in this group too
    pytest.mark.skipif(not SIZE, reason=advice.why_no_huge_pages() or "not Linux"),
]

PYTHON = """import re
objects = [(i, str(i)) for i in range(400_000)]
print("huge=" + re.search(r"AnonHugePages: +(\\d+)", open("/proc/self/smaps_rollup").read())[1])
"""


@pytest.fixture(scope="module")
def allocations(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("allocations") / "allocations"
    return compiled(SUPPORT / "allocations.c", target, "-O1", "-g", "-pthread")


def ran(command: list[str], lever: Lever = LEVERS["none"]) -> ProgramRun:
    done = run_program(command, lever, limit_s=LONG_S, share=0.05, conditions=PRINTED)
    assert done.status == 0, done.last_lines
    return done


def report_of(command: list[str], folder: Path, of_heaps: bool) -> WhereReport:
    """A report that finds as many walks in each of a program's heaps, or else in each of its other
    allocations."""
    found = SimulationResult()
    _, named = simulation.run_naming_sites(command, str(folder), LONG_S)
    for site in named.sites.values():
        if site.id != REFUSED and site.is_heap == of_heaps:
            found.sites[site.id] = site
            site.counts = WalkCounts(walks=10**8, alone=10**8)
            found.lines[simulation.SourceLine("f", "x.c", 1, "x")] += site.counts
    return WhereReport(command, GEOMETRY, found, 100.0, 30.0)


def followed(line: str, command: list[str]) -> Lever | None:
    """The lever that a printed line is; None for a change of the source."""
    words = shlex.split(line)
    if words[:2] == ["tlb", "try"]:
        option, value = words[2:4]
        assert words[4:] == ["--", *command]
        return (
            LEVERS[value]
            if option == "--lever"
            else levers.allocation_sites_lever(value.split(","))
        )
    if line.startswith("in "):
        return None
    assignments = words[: -len(command)]
    assert words[-len(command) :] == command
    variables = [LeverEnvironmentVariable(*word.split("=", 1)) for word in assignments]
    return Lever("followed", line, variables=tuple(variables))


def check(
    report: WhereReport, change: list[str] | None = None, least_kb: int = LEAST_KB
) -> list[str]:
    """Follow each line that a report prints, one by one; return the lines. change: the command of
    the program whose source is changed as a line says."""
    lines = [*report.commands()]
    for line in lines:
        lever = followed(line, report.command)
        assert lever or change, line
        done = ran(report.command, lever) if lever else ran(change or [])
        assert done.number.grouped >= least_kb, line
    return lines


@pytest.mark.parametrize(
    "kind",
    [
        "malloc",
        "calloc",
        "realloc",
        "aligned_alloc",
        "posix_memalign",
        "mmap",
        "small",
        "blocks",
        "thread",
    ],
)
def test_advice_for_a_c_program_brings_huge_pages(kind, allocations, tmp_path):
    command = [str(allocations), kind]
    lines = check(report_of(command, tmp_path, kind in HEAPS), [*command, "advised"])
    is_mapped = kind == "mmap"
    assert lines and sum("GLIBC_TUNABLES" in line for line in lines) == (not is_mapped)
    assert any("madvise" in line for line in lines) == (kind not in (*HEAPS, "blocks"))
    assert any("aligned_alloc(" in line for line in lines) <= (not is_mapped)


@pytest.mark.parametrize(
    ("library", "variable"),
    [
        ("libjemalloc.so.2", "MALLOC_CONF"),
        ("libmimalloc.so.2.0", "MIMALLOC_LARGE_OS_PAGES"),
        ("libtcmalloc_minimal.so.4", ""),
    ],
)
@pytest.mark.parametrize("kind", ["malloc", "small", "blocks", "thread"])
def test_each_allocator_has_advice_of_its_own(kind, library, variable, tmp_path):
    source, target = SUPPORT / "allocations.c", tmp_path / "allocations"
    flags = "-O1", "-g", "-pthread", "-Wl,--no-as-needed", f"-l:{library}"
    try:
        compiled(source, target, *flags)
    except subprocess.CalledProcessError:
        lacking(library)
    command = [str(target), kind]
    report = report_of(command, tmp_path, kind in HEAPS)
    report.found.sites.pop(simulation.HEAP, None)  # of what started it
    assert {site.allocator for site in report.found.sites.values()} == {
        re.match("lib([a-z]+)", library)[1]
    }
    lines = check(report, [*command, "advised"])
    assert any(variable in line for line in lines) if variable else kind == "malloc" or not lines
    assert not any("GLIBC_TUNABLES" in line for line in lines)
    assert any("tcmalloc" in line for line in report.sentences()) == (not variable)


@pytest.mark.needs("g++")
def test_advice_for_c_plus_plus_brings_huge_pages(tmp_path):
    target = tmp_path / "allocate"
    command = ["g++", "-O1", "-g", SUPPORT / "allocate.cc", "-o", target]
    subprocess.run(command, check=True)
    lines = check(report_of([str(target)], tmp_path, False), [str(target), "advised"])
    assert any("aligned_alloc(" in line for line in lines)


def test_advice_for_cpython_brings_huge_pages_and_changes_no_source(tmp_path):
    script = tmp_path / "objects.py"
    script.write_text(PYTHON)
    report = report_of([sys.executable, str(script)], tmp_path, False)
    lines = check(report, least_kb=SIZE >> 10)  # the list alone is a block of its own
    assert any("PYTHONMALLOC=malloc" in line for line in lines)


@pytest.mark.needs("java", "javac")
def test_advice_for_a_jvm_brings_huge_pages(tmp_path):
    subprocess.run(["javac", "-d", tmp_path, SUPPORT / "Map.java"], check=True)
    lines = check(report_of(["java", "-cp", str(tmp_path), "Map"], tmp_path, False))
    assert any("UseTransparentHugePages" in line for line in lines)


@pytest.mark.endurance
@pytest.mark.needs("go")
def test_advice_for_go_is_to_collapse(tmp_path):
    source, target = SUPPORT / "array.go", tmp_path / "array"
    folders = {"GOCACHE": str(tmp_path / "cache"), "GOPATH": str(tmp_path / "go")}
    go = shutil.which("go")
    subprocess.run([go, "build", "-o", target, source], check=True, env=os.environ | folders)
    site = AllocationSite("ff", "mmap", [f"{target}+0x1"], first_bytes=1 << 30)
    (line,) = advice.commands([str(target)], [site], [site.id], SIZE)
    lever = followed(line, [str(target)])
    try:
        lever.check()
    except Unavailable as why:
        pytest.skip(str(why))
    for seconds in (4, 60):  # a busy machine takes long to touch and to collapse
        command = [str(target), str(seconds)]
        done = run_program(command, lever, limit_s=LONG_S, share=0.05, after_s=seconds / 2)
        if done.collapsed.bytes >= LEAST_KB << 10:
            return
    pytest.fail(f"{done.collapsed.bytes >> 10} KiB collapsed")


def test_nothing_is_advised_without_huge_pages_or_for_mappings_that_hold_none(monkeypatch):
    small = AllocationSite("ff", "mmap", ["/x+0x1"], first_bytes=SIZE)
    assert not [*advice.commands(["/x"], [small], advice.reachable([small], SIZE), SIZE)]
    large = AllocationSite("ff", "malloc", ["/x+0x1"], first_bytes=1 << 30)
    assert [*advice.commands(["/x"], [large], ["ff"], SIZE)]
    assert not [*advice.commands(["/x"], [large], ["ff"], 0)]


@pytest.mark.parametrize(("touched", "is_advised"), [(SIZE // 2, False), (4 * SIZE, True)])
def test_a_heap_that_fills_no_huge_page_has_no_advice(touched, is_advised):
    counts = WalkCounts(walks=10**8, alone=10**8)
    site = AllocationSite(simulation.HEAP, "malloc", [], touched=touched, counts=counts)
    found = SimulationResult(
        sites={site.id: site}, lines={simulation.SourceLine("f", "x.c", 1, "x"): counts}
    )
    assert bool([*WhereReport(["x"], GEOMETRY, found, 100.0, 30.0).commands()]) == is_advised


def test_the_size_of_a_huge_page_is_the_machine_s(tmp_path):
    folder = tmp_path / "sys/kernel/mm/transparent_hugepage"
    folder.mkdir(parents=True)
    (folder / "hpage_pmd_size").write_text(f"{512 << 20}\n")
    for setting, size in (("always [madvise] never", 512 << 20), ("always madvise [never]", 0)):
        (folder / "enabled").write_text(setting)
        assert advice.huge_page_bytes(tmp_path) == size
        assert bool(advice.why_no_huge_pages(tmp_path)) == (size == 0)
