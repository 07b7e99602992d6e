"""`tlb where` against closed forms, a plain search, and programs whose answer is known."""

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.common import LONG_S, needs_c
from support.where import GEOMETRY, SECOND, SOURCE, line_of

from tlb.machine import settings
from tlb.machine.cpuid import Tlb
from tlb.programs import levers
from tlb.programs.reports import flame_graph
from tlb.programs.runs import run_program
from tlb.programs.snapshots import at_peak
from tlb.programs.where import proof, report, sampling, simulation, valgrind
from tlb.programs.where.report import FAULT_NS, HugePagesVerdict, most_faults_s
from tlb.programs.where.sampling import LOCATION_IN_LINUX
from tlb.programs.where.simulation import (
    HEAP,
    UNATTRIBUTED_CODE,
    AllocationSite,
    SimulationResult,
    SourceLine,
    WalkCounts,
)

pytestmark = [
    needs_c,
    pytest.mark.skipif(sys.platform != "linux", reason="Valgrind runs programs of Linux"),
]
needs_thp = pytest.mark.skipif(
    settings.thp(Path("/")).enabled not in ("always", "madvise"), reason="THP is off"
)

# --- programs


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_each_walk_is_at_its_line_and_allocation(known_walks):
    pages, passes = 4 * SECOND, 20
    found = simulation.simulate(
        [known_walks, "chase", str(pages), str(passes)], GEOMETRY.option, LONG_S
    )
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
        line.function: found.sites[found.touches[line].most_common(1)[0][0]].origin
        for line, _ in (chased, gathered)
    }
    assert "allocate_chased" in names["follow"] and "allocate_gathered" in names["gather"]
    chains, gathers = (found.sites[[*found.touches[each[0]]][0]] for each in (chased, gathered))
    assert chains.lived < 0.7 < 0.95 < gathers.lived <= 1  # it is freed before the other is read
    # A larger level than the cycle misses each page the first time only.
    assert found.curve[SECOND // 2] > 0.99 * found.total.walks > 20 * found.curve[8 * SECOND]
    made = report.WhereReport(["x"], GEOMETRY, found, 10.0, 30.0)
    assert made.sites[0].id == found.touches[chased[0]].most_common(1)[0][0]
    assert found.total.large_walks < 100 and json.dumps(made.document())
    assert f"{chased[0].line} {chased[1].walks} " in found.callgrind()
    assert "follow" in found.collapsed()


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
@pytest.mark.parametrize(
    ("mode", "chosen"),
    [("gather", {"gathered"}), ("chase", {"chased"}), ("surgical", {"chased", "second"})],
)
def test_exposed_walks_choose_the_allocations_and_all_walks_where_none_is_exposed(
    known_walks, mode, chosen
):
    found = simulation.simulate([known_walks, mode, str(2 * SECOND), "20"], GEOMETRY.option, LONG_S)
    made = report.WhereReport(["x"], GEOMETRY, found, 1.0, 30.0)
    assert "gathered" in max(made.sites, key=lambda site: site.counts.walks).origin
    assert {re.search(r"allocate_(\w+)", site.origin)[1] for site in made.largest()} == chosen


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_memory_lives_on_in_a_child_and_without_a_part(known_walks):
    found = simulation.simulate(
        [known_walks, "forked", str(2 * SECOND), "20"], GEOMETRY.option, LONG_S
    )
    (site,) = (site for site in found.sites.values() if "trimmed" in site.origin)
    assert site.counts.walks > 2 * SECOND * 20 and 0.9 < site.lived <= 1
    assert site.added == 0  # of pages that the parent did not touch, the child did


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_huge_pages_add_what_is_not_touched_of_whole_blocks(known_walks):
    blocks, added = 8, {}
    for mode in ("sparse", "gather"):
        arguments = [known_walks, mode, str(512 * blocks), "1"]
        found = simulation.simulate(arguments, GEOMETRY.option, LONG_S)
        (site,) = (site for site in found.sites.values() if "gathered" in site.origin)
        added[mode] = site.added
    # One page in 16 is touched; the array may begin and end within a block.
    assert added["sparse"] in {whole * 480 * 4096 for whole in (blocks - 1, blocks)}
    assert added["gather"] == 0


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_a_site_is_the_same_in_each_run_and_can_be_advised_alone(known_walks):
    arguments = [known_walks, "chase", "2048", "5"]
    first, again = (simulation.simulate(arguments, GEOMETRY.option, LONG_S) for _ in range(2))
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
@pytest.mark.measuring  # what fills memory runs in this group too
@needs_thp
def test_the_chosen_allocation_alone_lies_on_huge_pages(known_walks):
    arguments = [known_walks, "chase", str(1 << 14), "200"]  # two arrays of 64 MiB
    found = simulation.simulate([*arguments[:3], "1"], GEOMETRY.option, LONG_S)
    sites = [site for site, each in found.sites.items() if each.bytes == 1 << 26 and each.how]
    chosen = next(s for s in sites if "chased" in simulation.resolved(found.sites[s].stack[0]))
    huge = {
        each: at_peak(
            run_program(
                arguments, levers.allocation_sites_lever(each), limit_s=LONG_S, share=0.2
            ).snapshots
        )
        for each in (proof.NO_ALLOCATION_SITES, (chosen,), proof.ALL_ALLOCATION_SITES)
    }
    sizes = [snapshot.pages.huge_bytes >> 20 for snapshot in huge.values()]
    # Linux gives fewer where memory is fragmented.
    assert sizes[0] == 0 < sizes[1] <= 64 and sizes[2] >= sizes[1]


@pytest.mark.parametrize(
    ("walks", "spread", "verdict"),
    [
        (10**8, 0.01, HugePagesVerdict.NO_GAIN_SHOWN),
        (10**8, 0.5, HugePagesVerdict.UNDECIDED),
        (1000, 0.5, HugePagesVerdict.NO_GAIN),  # the walks bound what noise leaves open
    ],
)
def test_runs_that_differ_too_much_leave_the_gain_open(walks, spread, verdict):
    noise = random.Random(1)
    rounds = [
        {
            sites: proof.Timed(1 + spread * noise.random())
            for sites in (proof.NO_ALLOCATION_SITES, proof.ALL_ALLOCATION_SITES)
        }
        for _ in range(8)
    ]
    found = SimulationResult(
        lines={SourceLine("f", "x.c", 1, "x"): WalkCounts(misses=walks, walks=walks)}
    )
    made = report.WhereReport(
        ["x"], GEOMETRY, found, 1.0, 30.0, proof.AllocationSitesProof(rounds, no_samples="none")
    )
    assert made.verdict is verdict and not [*made.commands()]
    assert made.document()["verdict"] == verdict


@pytest.mark.parametrize(
    ("prices", "is_cut", "verdict", "saved_s"),
    [
        ({"walk_ns": 30.0}, False, HugePagesVerdict.NO_GAIN, 0.003),
        ({"walk_ns": 30.0, "hit_ns": 2.5}, False, HugePagesVerdict.POSSIBLE, 0.253),
        ({"walk_ns": 30.0, "faults_s": 0.7}, False, HugePagesVerdict.POSSIBLE, 0.703),
        (
            {"walk_ns": 30.0, "faults_s": 7.0},
            False,
            HugePagesVerdict.POSSIBLE,
            1.0,
        ),  # the whole run
        ({"walk_ns": 30.0}, True, HugePagesVerdict.NOT_ENDED, 0.003),
    ],
)
def test_what_huge_pages_may_save_has_faults_and_all_misses(prices, is_cut, verdict, saved_s):
    counts = WalkCounts(misses=10**8 + 10**5, walks=10**5)
    found = SimulationResult(lines={SourceLine("f", "x.c", 1, "x"): counts}, is_cut=is_cut)
    made = report.WhereReport(["x"], GEOMETRY, found, 1.0, **prices)
    assert made.verdict is verdict and made.most_saved_s == pytest.approx(saved_s)
    assert "nothing" in made.sentences()[0].lower() or is_cut


def test_page_faults_cost_at_most_linux_s_time_and_at_most_a_generous_price():
    lever = levers.LEVERS["none"]
    touching = "import mmap; m = mmap.mmap(-1, 1 << 28); [m.__setitem__(k, 1) for k in range(0, 1 << 28, 4096)]"
    reading = (
        "import os; f = os.open('/dev/zero', os.O_RDONLY); [os.read(f, 1 << 23) for _ in range(99)]"
    )
    touched, read = (
        run_program([sys.executable, "-c", code], lever, limit_s=LONG_S, share=0.01)
        for code in (touching, reading)
    )
    # so many that a clock which ticks sees some of them
    assert touched.minor_faults > 1 << 16 and 0 < touched.system_s <= touched.cpu_s
    assert most_faults_s(touched) == touched.system_s
    assert most_faults_s(read) <= read.minor_faults * FAULT_NS / 1e9


def test_a_survey_comes_before_cpuid_but_does_not_blur_it(monkeypatch):
    levels = [
        Tlb(level=n, kind="data", pages=("4k",), entries=entries, ways=0, source="CPUID")
        for n, entries in ((1, 64), (2, 512))
    ]
    monkeypatch.setattr(valgrind, "data_tlbs", lambda host, page: levels)
    host = SimpleNamespace(base_page_bytes=4096, thp=SimpleNamespace(page_bytes=2 << 20))
    assert valgrind.geometry(host).base[:2] == (64, 512)
    assert valgrind.geometry(host, (66, 500)).base[:2] == (64, 512)
    assert valgrind.geometry(host, (66, 1030)).base[:2] == (66, 1030)


@pytest.mark.parametrize(
    ("base_kib", "stated", "huge_mib"), [(4, 2 << 20, 2), (16, None, 32), (64, 512 << 20, 512)]
)
def test_the_simulated_huge_page_is_the_machine_s(base_kib, stated, huge_mib, monkeypatch):
    levels = [
        Tlb(level=n, kind="data", pages=("4k",), entries=64, ways=0, source="CPUID") for n in (1, 2)
    ]
    monkeypatch.setattr(valgrind, "data_tlbs", lambda host, page: levels)
    thp = SimpleNamespace(page_bytes=stated)
    found = valgrind.geometry(SimpleNamespace(base_page_bytes=base_kib << 10, thp=thp))
    assert found.huge_page_bytes == huge_mib << 20
    shifts = [base_kib.bit_length() + 9, huge_mib.bit_length() + 19]
    assert found.option.startswith(f"--machine={shifts[0]},{shifts[1]},")


def test_a_site_inside_an_interpreter_is_said_to_stand_for_many():
    frames = ["/lib/numpy/_multiarray.cpython-311.so+0x1", "/usr/bin/python3.11+0x2"]
    sites = {
        "a": AllocationSite("a", "malloc", frames, 1 << 24, counts=WalkCounts(9, 9, 9)),
        "b": AllocationSite(
            "b", "malloc", ["/usr/bin/pythonic+0x1"], 1 << 24, counts=WalkCounts(5, 5, 5)
        ),
    }
    lines = {SourceLine("f", "x.c", 1, "x"): WalkCounts(14, 14, 14)}
    made = report.WhereReport(
        ["x"], GEOMETRY, SimulationResult(lines=lines, sites=sites), 1.0, 30.0
    )
    assert [*made.interpreted()] == [("A", "python")]
    assert any("python" in sentence for sentence in made.sentences())


# --- samples and pages

RECORDED = """\
    0     0.000000: PERF_RECORD_MMAP -1/0: [0xffff0000(0x10) @ 0xffff0000]: x [kernel.kallsyms]_text
    0     0.000000: PERF_RECORD_COMM: perf-exec:7/7
    7     1.500000: PERF_RECORD_COMM exec: known:7/7
    7     1.500100: PERF_RECORD_MMAP2 7/7: [0x5000(0x1000) @ 0x1000 fe:00 1 2]: r-xp /tmp/a program
    7     1.600000:             5010
    7     1.700000: ffffffff81630019
    7     1.800000: PERF_RECORD_FORK(8:8):(7:7)
    8     1.900000:             5014
    8     2.000000:             9999
    7     2.500000: PERF_RECORD_EXIT(7:7):(6:6)
"""


def test_a_sample_after_a_load_that_walked_is_of_the_load():
    seconds, found = sampling.parse(RECORDED)
    first, second = ("/tmp/a program", 0x1010), ("/tmp/a program", 0x1014)
    assert seconds == 1.0
    assert found == {first: 1, second: 1, LOCATION_IN_LINUX: 1, ("?", 0): 1}
    load = SourceLine("follow", "x.c", 7, "/tmp/a program")
    made = SimulationResult()
    where = f"1\t{first[1]}\t4\t{first[0]}\tfollow\tx.c\t7"
    simulation.add_tool_counts(made, ["R\t1\t0\t8\t1\t0\t0", f"P\t{where}\t1\t1\t0\t1\t0"])
    times = made.milliseconds(found)
    assert times[load] == 2 * times[UNATTRIBUTED_CODE] == sampling.SAMPLING_PERIOD_NS * 2e-6


@pytest.fixture
def perf_map():
    """The file in which this process would name Python functions, as CPython writes it."""
    names = Path(f"/tmp/perf-{os.getpid()}.map")
    names.write_text("7f00 b py::look_up:/tmp/a b.py\n7f0b b py::<module>:<string>\n7f16 b other\n")
    yield names
    names.unlink(missing_ok=True)


def test_walks_of_a_trampoline_are_of_its_python_function(perf_map):
    made = SimulationResult()
    counts = "\t\t0\t1\t1\t0\t1\t0"
    records = [f"P\t1\t0\t0\t\t0x{address}{counts}" for address in ("7f00", "7f16")]
    simulation.add_tool_counts(made, [f"N\t{os.getpid()}", "R\t1\t0\t8\t1\t0\t0", *records])
    assert {(line.function, line.place) for line in made.lines} == {
        ("look_up", "a b.py"),
        ("0x7f16", "?"),
    }
    assert [line.function for line in made.python] == ["look_up"]
    assert not perf_map.exists()


def _python_with_trampolines():
    """Return a CPython from 3.12, "" if there is none."""
    for name in (sys.executable, "python3.14", "python3.13", "python3.12"):
        asked = [
            name,
            "-c",
            "import sys; print(sys.executable if sys.version_info >= (3, 12) else '')",
        ]
        with suppress(OSError):
            if found := subprocess.run(asked, capture_output=True, text=True).stdout.strip():
                return found
    return ""


LOOK_UP = """
def fill(n):
    return {i * 7919 % n: i for i in range(n)}


def look_up(table, n):
    return sum([table[i * 104729 % n] for i in range(n)])


look_up(fill(1 << 17), 1 << 17)
"""


@pytest.mark.needs("valgrind")
@pytest.mark.endurance
def test_the_function_of_python_that_walks_is_named(tmp_path):
    if not (python := _python_with_trampolines()):
        pytest.skip("CPython names its functions from 3.12 on")
    script = tmp_path / "look_up.py"
    script.write_text(LOOK_UP)
    made = simulation.simulate([python, "-S", str(script)], GEOMETRY.option, LONG_S)
    most = max(made.lines, key=lambda line: made.lines[line].exposed)
    assert (most.function, most.place) == ("look_up", "look_up.py")
    assert made.lines[most].exposed > made.total.exposed / 2


def test_a_flame_graph_is_as_wide_as_its_walks_and_escapes_names():
    graph = flame_graph(Counter({("A", "f<int>", "x.c:1"): 3, ("A", "g", "x.c:2"): 1}))
    widths = [float(found) for found in re.findall(r'width="([\d.]+)" height', graph)]
    assert widths == [720, 540, 180, 540, 180]
    assert "f&lt;int&gt;: 3 exposed walks, 75.0%" in graph and "f<int>" not in graph
