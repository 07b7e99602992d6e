"""What each kernel does under a clock that the test sets: which lines it visits, how it asks for
memory, how it warms up and what it times.

Rows are told apart by the version that a kernel's file declares. What changes what is measured
changes this vector or the code of a timed function (test_timed_code.py), and then MEASURES has to
be raised, so that old and new rows are never mixed. TLB_ACCEPT=1 writes the vector anew.

Four kernels are left out: guest_chase asks a hypervisor, numa_chase a second node, collapse_chase
waits for what Linux does meanwhile, and page_fault has no result where touching a page takes no
longer than mapping it.
"""

import json
import os
import subprocess
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from support.common import ROOT, needs_c
from support.fuzzing import ENDURANCE
from support.kernels import emulated, for_arm64, needs_emulator, needs_thp, on_x86

from tlb.measure import build

VECTOR = Path(__file__).with_name("conformance.json")
CASES = [
    line.strip()
    for line in """
    page_chase --order cycle --layout spread --lines 512
    page_chase --order cycle --layout packed --lines 512
    page_chase --order cycle --layout spread --lines 512 --stride-pages 3
    page_chase --order cycle --layout alias --lines 512
    page_chase --order random --layout spread --lines 512
    page_chase --order sequential --layout spread --lines 512
    page_chase --order cycle --layout spread --lines 512 --pages thp
    page_gather --order cycle --layout spread --lines 512
    page_gather --order sequential --layout packed --lines 512
    page_store --order cycle --layout spread --lines 512 --mode load
    page_store --order cycle --layout spread --lines 512 --mode store
    page_store --order cycle --layout spread --lines 512 --mode load-clean
    page_store --order cycle --layout spread --lines 512 --mode store-clean
    random_touch --order random --layout packed --lines 16384 --bytes 1048576
    stride_sum --order sequential --layout packed --lines 512 --mode plain
    stride_sum --order cycle --layout packed --lines 512 --mode listed
    graph_walk --order random --layout packed --lines 512 --mode plain
    graph_walk --order random --layout packed --lines 512 --mode blocked --block_vertices 512
    graph_walk --order random --layout packed --lines 512 --mode prefetch
    radix_partition --order random --layout packed --lines 1536 --mode naive
    radix_partition --order random --layout packed --lines 1536 --mode partitioned
    table_chase --order cycle --layout alias --lines 512 --tables_1 8 --tables_2 1 --tables_3 1
    code_chase --order cycle --layout spread --lines 512 --mode listed
    code_chase --order cycle --layout spread --lines 512 --mode direct
    cold_chase --order cycle --layout spread --lines 512
    first_touch --order cycle --layout spread --lines 512
    fork_write --order sequential --layout spread --lines 512
    map_churn --order random --layout packed --lines 448
    neighbour_chase --order cycle --layout spread --lines 512 --mode alone
    prefault --order sequential --layout spread --lines 512
    shootdown --order sequential --layout spread --lines 512
    switch_chase --order cycle --layout spread --lines 512 --mode alone
    touch_again --order sequential --layout spread --lines 512
""".strip().splitlines()
]
KEPT = ("checksum", "accesses", "arena_bytes", "working_set_bytes")
pytestmark = [
    needs_c,
    pytest.mark.measures,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.sysconf("SC_PAGESIZE") != 4096, reason="the vector is of base pages of 4 KiB"
    ),
]


def words(case: str) -> list[str]:
    return ["--pages", "4k", *case.split()[1:], "--seed", "7", "--region-ms", "1"]


def did(program: Path, case: str) -> dict[str, Any]:
    """What a kernel's program reports of a case, and how it asked for memory and the time."""
    if "thp" in case.split():
        needs_thp()
    library = build.build_preload_library(ROOT / "tests/support/watched_calls.c")
    with tempfile.TemporaryFile() as file:
        environment = os.environ | {"LD_PRELOAD": str(library), "WATCHED_FD": str(file.fileno())}
        done = subprocess.run(
            [program, *words(case)],
            capture_output=True,
            text=True,
            pass_fds=[file.fileno()],
            env=environment,
        )
        if "thp" in case.split() and done.returncode == 3 and "backing-partial" in done.stderr:
            pytest.skip("memory is too fragmented for huge pages now")
        assert (done.returncode, done.stderr) == (0, ""), case
        file.seek(0)
        calls = file.read().decode().splitlines()
    report = json.loads(done.stdout)
    alike = [(call, len(list(group))) for call, group in groupby(calls)]
    return {name: report[name] for name in KEPT} | {
        "batches": len(report["batch_ns_per_access"]),
        "calls": [f"{call} x {times}" if times > 1 else call for call, times in alike],
    }


@pytest.fixture(scope="module")
def vector() -> dict[str, dict[str, Any]]:
    if os.environ.get("TLB_ACCEPT"):
        kept = {
            case: {"measures": build.declared_measures(case.split()[0], "c")}
            | did(*program_of(case))
            for case in CASES
        }
        lines = [json.dumps({case: of}, separators=(",", ":"))[1:-1] for case, of in kept.items()]
        VECTOR.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return json.loads(VECTOR.read_text())


def program_of(case: str) -> tuple[Path, str]:
    return Path(build.kernel(case.split()[0]).command[0]), case


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_does_what_rows_of_its_version_were_measured_by(vector, case):
    declared = build.declared_measures(case.split()[0], "c")
    assert {"measures": declared} | did(*program_of(case)) == vector[case]


def test_the_vector_has_every_kernel_in_c_but_those_that_no_machine_must_be_able_to_run():
    named = {case.split()[0] for case in CASES}
    left_out = {"collapse_chase", "guest_chase", "numa_chase", "page_fault"}
    assert {path.stem for path in build.KERNELS_FOLDER.glob("*.c")} - named == {
        *left_out,
        "session",
    }


# Not table_chase, which an emulator takes 20 s to map, nor what it cannot do: MADV_FREE,
# populating, forks.
EMULATED = [
    "page_chase",
    "page_gather",
    "random_touch",
    "stride_sum",
    "graph_walk",
    "radix_partition",
    "code_chase",
    "first_touch",
    "map_churn",
    "prefault",
    "touch_again",
]


@on_x86
@needs_emulator
@pytest.mark.parametrize("kernel", EMULATED)
def test_the_arm64_build_visits_the_same_lines_under_emulation(vector, kernel, tmp_path):
    program = for_arm64(kernel, tmp_path)
    cases = [case for case in CASES if case.split()[0] == kernel and "thp" not in case.split()]
    for case in cases if ENDURANCE else cases[:1]:
        assert emulated(program, *words(case)).checksum == vector[case]["checksum"], case
