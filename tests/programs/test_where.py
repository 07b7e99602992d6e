"""`tlb where` against closed forms, a plain search, and programs whose answer is known."""

from __future__ import annotations

import ctypes
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.common import ROOT, needs_c

from tlb.machine import settings
from tlb.machine.compiler import compiler
from tlb.machine.tlb import Tlb
from tlb.programs.runs import run
from tlb.programs.snapshots import at_peak
from tlb.programs.where import proof, report, simulation
from tlb.programs.where.simulation import HEAP, Counts

pytestmark = [
    needs_c,
    pytest.mark.skipif(sys.platform != "linux", reason="Valgrind runs programs of Linux"),
]
needs_thp = pytest.mark.skipif(
    settings.thp(Path("/")).enabled not in ("always", "madvise"), reason="THP is off"
)
SOURCE = ROOT / "tests/support/known_walks.c"
FIRST, SECOND, WAYS = 64, 512, 8
GEOMETRY = [f"--first={FIRST}", f"--second={SECOND}", f"--ways={WAYS}", "--hashed=0"]
GEOMETRY += ["--large-first=64", "--large-second=512", "--large-ways=8", "--exclusive=0"]


def built(tmp_path: Path, source: Path, *flags: str) -> str:
    cc = compiler()
    assert cc
    program = tmp_path / source.stem
    subprocess.run([*cc.command, "-O1", "-g", *flags, "-o", program, source], check=True)
    return str(program)


# --- the simulated TLB


class Plain:
    """The same TLB by searching lists."""

    def __init__(self, first: int, second: int, ways: int, exclusive: bool, hashed: bool):
        self.first, self.most, self.ways, self.exclusive = list[int](), first, ways, exclusive
        self.sets, self.hashed = [list[int]() for _ in range(second // ways)], hashed

    def set_of(self, page: int) -> list[int]:
        n = len(self.sets)
        return self.sets[(page ^ page // n ^ page // n // n if self.hashed else page) % n]

    def access(self, page: int) -> int:
        if page in self.first:
            self.first.remove(page)
            self.first.append(page)
            return 0
        self.first.append(page)
        left = self.first.pop(0) if len(self.first) > self.most else None
        found = page in self.set_of(page)
        if found:
            self.set_of(page).remove(page)
        new = left if self.exclusive else page
        if new is not None:
            kept = self.set_of(new)
            if new in kept:
                kept.remove(new)
            kept.append(new)
            del kept[: -self.ways]
        return 1 if found else 2


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("hashed", [False, True])
def test_the_tlb_is_that_of_a_plain_search(tmp_path: Path, exclusive: bool, hashed: bool):
    source = tmp_path / "tlb.c"
    source.write_text(
        f'#include "{simulation.TOOL.parent}/tlb.h"\n'
        "static struct tlb t;\n"
        "void clear(struct geometry is) { tlb_clear(&t, is); }\n"
        "int visit(uint64_t page) { uint64_t left; return tlb_access(&t, page, &left); }\n"
    )
    library = ctypes.CDLL(built(tmp_path, source, "-shared", "-fPIC"))
    library.visit.argtypes = [ctypes.c_uint64]
    library.clear.argtypes = [ctypes.c_uint32 * 5]
    geometry = type(
        "Geometry", (ctypes.Structure,), {"_fields_": [(n, ctypes.c_uint32) for n in "fswxh"]}
    )
    library.clear.argtypes = [geometry]
    library.clear(geometry(8, 32, 4, exclusive, hashed))
    plain, drawn = Plain(8, 32, 4, exclusive, hashed), random.Random(1)
    pages = [drawn.randrange(drawn.choice((6, 20, 60, 5000))) for _ in range(20_000)]
    assert [library.visit(page) for page in pages] == [plain.access(page) for page in pages]


# --- programs


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built(tmp_path_factory.mktemp("known"), SOURCE)


def line_of(word: str) -> int:
    lines = SOURCE.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if f"/* {word} */" in line)


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_each_walk_is_at_its_line_and_allocation(program: str):
    pages, passes = 4 * SECOND, 20
    found = simulation.simulate([program, "chase", str(pages), str(passes)], GEOMETRY, 120)
    at = {
        line.line: (line, counts)
        for line, counts in found.lines.items()
        if line.file.endswith(SOURCE.name)
    }
    chased, gathered = at[line_of("CHASED")], at[line_of("GATHERED")]
    # A cycle of more pages than there are entries misses each time.
    assert abs(chased[1].walks / (pages * passes) - 1) < 0.005
    assert abs(gathered[1].walks / (2 * pages * passes) - 1) < 0.005
    assert chased[1].exposed > 0.99 * chased[1].walks
    assert gathered[1].exposed < 0.05 * gathered[1].walks
    for line, counts in (chased, gathered):
        ((site, walks),) = found.touches[line].most_common(1)
        assert walks > 0.99 * counts.walks and found.sites[site].bytes >= pages * 4096
    names = {
        line.function: simulation.resolved(
            found.sites[found.touches[line].most_common(1)[0][0]].stack
        )[0]
        for line, _ in (chased, gathered)
    }
    assert "allocate_chased" in names["follow"] and "allocate_gathered" in names["gather"]
    made = report.Report(["x"], found, 10.0, 30.0)
    assert made.sites[0].id == found.touches[chased[0]].most_common(1)[0][0]
    assert found.total.large_walks < 100 and json.dumps(made.document())
    assert f"{chased[0].line} {chased[1].walks} " in report.callgrind(found)
    assert "follow" in report.collapsed(found)


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_small_objects_are_the_heap_s(program: str):
    pages, passes = 2 * SECOND, 20
    found = simulation.simulate([program, "small", str(pages), str(passes)], GEOMETRY, 120)
    ((line, counts),) = [
        (k, c) for k, c in found.lines.items() if k.function == "follow" and c.walks > 100
    ]
    assert abs(counts.walks / (pages * passes) - 1) < 0.005
    assert found.touches[line][HEAP] > 0.99 * counts.walks


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_a_program_that_reads_in_order_has_nothing_to_gain(program: str):
    found = simulation.simulate([program, "stream", "2000", "20"], GEOMETRY, 120)
    assert found.total.walks < 0.03 * found.total.misses * 64
    made = report.Report(["x"], found, 1.0, 30.0)
    assert made.verdict().startswith("Nothing to gain") and not [*made.commands()]


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_a_site_is_the_same_in_each_run_and_can_be_advised_alone(program: str):
    arguments = [program, "chase", "2048", "5"]
    first, again = (simulation.simulate(arguments, GEOMETRY, 120) for _ in range(2))
    ids = [
        {
            site
            for site, each in found.sites.items()
            if each.how and site != HEAP and each.bytes >= 1 << 23
        }
        for found in (first, again)
    ]
    assert ids[0] == ids[1] and len(ids[0]) == 2


@pytest.mark.endurance
@pytest.mark.measuring  # what fragments memory runs in this group too
@needs_thp
def test_the_chosen_allocation_alone_lies_on_huge_pages(program: str):
    arguments = [program, "chase", str(1 << 14), "200"]  # two arrays of 64 MiB
    found = simulation.simulate([*arguments[:3], "1"], GEOMETRY, 120)
    sites = [site for site, each in found.sites.items() if each.bytes == 1 << 26 and each.how]
    chosen = next(s for s in sites if "chased" in simulation.resolved(found.sites[s].stack)[0])
    huge = {
        each: at_peak(run(arguments, proof.lever(each), limit_s=60, share=0.2).snapshots)
        for each in (proof.NONE, (chosen,), proof.ALL)
    }
    sizes = [snapshot.pages.huge_bytes >> 20 for snapshot in huge.values()]
    # Linux gives fewer where memory is fragmented.
    assert sizes[0] == 0 < sizes[1] <= 64 and sizes[2] >= sizes[1]


def test_the_smallest_set_that_keeps_the_gain_is_found(monkeypatch: pytest.MonkeyPatch):
    """Made-up times: A saves 0.3 s and B 0.1 s, C nothing."""
    saves = {"A": 0.3, "B": 0.1, "C": 0.0}
    noise = random.Random(3)

    def measure(made: proof.Proof, command: list[str], settings: list, *rest: object) -> None:
        for _ in range(9):
            load, each = 1 + noise.random(), {}
            for sites in settings:
                chosen = saves if sites == proof.ALL else sites
                saved = sum(saves[site] for site in chosen)
                each[sites] = load * (1 - saved) + noise.random() / 500
            made.rounds.append(each)

    monkeypatch.setattr(proof, "_measure", measure)
    assert set(proof.prove(["x"], ["C", "B", "A"], 1).smallest) == {"A", "B"}
    saves["B"] = 0.0
    assert proof.prove(["x"], ["C", "B", "A"], 1).smallest == ("A",)
    saves["A"] = 0.0
    assert proof.prove(["x"], ["C", "B", "A"], 1).smallest == ()


@pytest.mark.parametrize(
    ("entries", "ways", "between", "found"),
    [
        (3072, None, (8, 15), 12),  # 256 sets
        (2048, None, (8, 15), 8),
        (1536, 6, None, 6),
        (1024, 0, None, 1024),
        (1536, 5, None, 1536),  # no such sets
    ],
)
def test_ways_are_those_that_make_a_power_of_two_of_sets(entries, ways, between, found):
    stated = {"entries": entries, "ways": ways, "ways_between": between, "source": "CPUID"}
    level = Tlb(level=2, kind="data", pages=("4k",), **stated)
    assert simulation._second(level) == (entries, found)


def test_counts_add_up():
    assert Counts(1, 2, 3, 4, 5) + Counts(1, 1, 1, 1, 1) == Counts(2, 3, 4, 5, 6)
    assert Counts(9, 9, 2, 3, 0).exposed == 5
