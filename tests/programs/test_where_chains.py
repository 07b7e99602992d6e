"""Which walks `tlb where` takes for exposed, and whose they are: programs whose answer is known."""

import sys
from collections import defaultdict
from pathlib import Path

import pytest
from support.common import LONG_S, SUPPORT, compiled, needs_c
from support.where import GEOMETRY, SECOND

from tlb.programs.where import simulation
from tlb.programs.where.simulation import HEAP, SimulationResult, WalkCounts

pytestmark = [
    needs_c,
    pytest.mark.needs("valgrind"),
    pytest.mark.skipif(sys.platform != "linux", reason="Valgrind runs programs of Linux"),
]
PAGES = 2 * SECOND


@pytest.fixture(scope="module")
def structures(tmp_path_factory) -> dict[str, str]:
    folder, source = tmp_path_factory.mktemp("structures"), SUPPORT / "known_structures.c"
    return {
        level: str(
            compiled(
                source,
                folder / f"structures{level}",
                f"-{level}",
                "-g",
                "-fno-optimize-sibling-calls",
            )
        )
        for level in ("O0", "O2", "O3")
    }


def simulated(*command: str) -> SimulationResult:
    return simulation.simulate([*command], GEOMETRY.option, LONG_S)


def by_function(found: SimulationResult) -> dict[str, WalkCounts]:
    made: dict[str, WalkCounts] = defaultdict(WalkCounts)
    for line, counts in found.lines.items():
        made[line.function] += counts
    return made


@pytest.mark.endurance
@pytest.mark.parametrize("level", ["O0", "O2", "O3"])
@pytest.mark.parametrize(
    ("mode", "function"), [("list", "list"), ("tree", "tree"), ("hash", "list"), ("skip", "skip")]
)
def test_searches_that_follow_pointers_are_exposed_and_a_gather_is_not(
    structures, level, mode, function
):
    found = simulated(structures[level], mode, str(PAGES))
    counts = by_function(found)
    searched, gathered = counts[f"search_{function}"], counts["gather"]
    assert searched.walks > PAGES and searched.exposed > 0.7 * searched.walks
    assert gathered.walks > 15 * PAGES and gathered.exposed < 0.1 * gathered.walks
    # Though the gather has more walks.
    first = max(found.sites.values(), key=lambda site: site.counts.exposed)
    assert "allocate_nodes" in first.origin and gathered.walks > searched.walks


def test_small_objects_in_a_freed_block_are_the_heap_s(structures):
    found = simulated(structures["O2"], "freed", str(PAGES))
    (freed,) = (site for site in found.sites.values() if "allocate_freed" in site.origin)
    heap = found.sites[HEAP]
    assert PAGES <= freed.counts.walks < 1.1 * PAGES and freed.lived < 0.5
    assert heap.counts.walks > 0.8 * found.total.walks > 10 * freed.counts.walks


@pytest.mark.parametrize("mode", ["unmapped", "given_back", "moved"])
def test_memory_that_was_unmapped_is_in_no_tlb(structures, mode):
    """As few pages as the second level holds without: each write is a walk all the same."""
    pages = SECOND // 4
    counts = by_function(simulated(structures["O0"], mode, str(pages)))["written"]
    assert abs(counts.walks - 10 * pages) < 20


def test_code_of_modules_that_were_unloaded_keeps_its_lines(tmp_path: Path):
    source, shared = SUPPORT / "unloaded.c", ("-shared", "-fPIC", "-g", "-O1")
    libraries = [
        str(compiled(source, tmp_path / f"{name}.so", *shared, f"-DLIBRARY={name}"))
        for name in ("first", "second")
    ]
    program = compiled(source, tmp_path / "unloaded", "-g", "-O1", "-ldl")
    found = simulated(str(program), *libraries)
    lines = {line.function: line for line in found.lines}
    for name, library in zip(("first", "second"), libraries, strict=True):
        line = lines[f"read_by_{name}"]
        assert line.module == library and line.file.endswith(source.name)
        assert by_function(found)[line.function].walks > 2048
