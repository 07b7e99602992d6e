"""Bad arguments: one sentence on stderr and exit 2, before anything is mapped, in C and in numba."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from support.common import needs_c
from support.kernels import (
    assert_refused,
    compiled,
    reason_of,
    refused_by_both,
    refused_by_c,
    run_c,
    run_program,
    run_twins,
)

from tlb.lab import build, measure
from tlb.lab.record import Point
from tlb.reasons import Unavailable

pytestmark = [pytest.mark.measures, pytest.mark.slow]
# A refused command line per kernel and rule; those of the first kernel are the rules that all
# share.
OF_BOTH = {
    "page_chase": [
        "--pages 9k",
        "--pages ",
        "--warm-hops 0",
        "--layout loose",
        "--order zigzag",
        "--lines 0",
        "--lines -1",
        "--lines +5",
        "--lines 12x",
        "--lines 4294967297",
        "--lines 99999999999999999999",
        "--seed 9223372036854775808",
        "--cpu x",
        "--cpu 1000000",
        "--region-ms 60001",
        "--region-ms 1.5",
        "--perf-fds 3",
        "--perf-fds 3,4,5",
        "--frobnicate",
        "--lines",
        "surplus",
        f"--order random --lines {2**26 + 1}",
    ],  # 256 GiB and a page: draws have 32 bits
    "page_gather": ["--order random", "--layout alias"],
    "graph_walk": [
        "--lines 1000",
        "--lines 2",
        "--lines 1024 --vertices 512",
        f"--lines {2**30}",
        "--walkers 33",
        "--mode blocked",
        "--mode blocked --block_vertices 100",
        "--mode blocked --block_vertices 8192",
        "--block_vertices 64",
        "--distance 4",
        "--mode prefetch --walkers 2",
        "--mode prefetch --per_hop 1",
        "--per_hop 1 --walkers 2",
        "--mode blocked --block_vertices 64 --block_steps 0",
        "--layout alias",
        "--order cycle",
    ],
    "radix_partition": [
        "--lines 1535",
        "--tuples 1024",
        "--tuples 1024 --lines 1537",
        "--lines 402653190",
        "--bits 5",
        "--bits 15",
        "--mode naive --passes 1",
        "--mode partition --bits 1 --passes 2",
        "--tuples 1023 --lines 1536",
    ],
    "random_touch": [
        "--bytes 1000",
        "--bytes 1025 --lines 16",
        "--bytes 0",
        f"--bytes {2**31} --lines {2**25}",
        f"--lines {2**25}",
    ],
    "stride_sum": [
        "--step_bytes 0",
        "--step_bytes 12",
        "--bytes 4096 --lines 64 --step_bytes 8192",
        "--bytes 4100 --lines 65",
        "--bytes 4096 --lines 65",
        "--order cycle",
    ],
}
OF_C = {
    "page_chase": [
        "--layout packed --stride-pages 2",
        "--pages 64k --stride-pages 2",
        "--pages thp --stride-pages 2",
        "--stride-pages 1048577",
        "--layout alias --order sequential",
        "--layout alias --pages 1g",
    ],
    "code_chase": [
        "--mode direct --order random",
        "--mode direct --layout alias",
        "--layout alias --pages 2m",
        "--every 2",
        "--lines 4 --every 5 --layout packed",
        "--every 2 --layout packed --mode direct",
    ],
    "cold_chase": ["--pages thp", "--stride-pages 2"],
    "collapse_chase": ["--lines 513", "--pages thp --lines 512"],
    "fork_write": ["--pages 2m", "--used 100000", "--stride-pages 2"],
    "guest_chase": ["--pages 64k", "--stride-pages 2", "--mode 64k", "--levels 3"],
    "map_churn": ["--lines 64", "--lines 448 --threads 0", "--lines 448 --pages thp"],
    "neighbour_chase": ["--stream_kib 64", "--mode other --stream_kib 1 --walk_lines 1"],
    "page_fault": [
        "--lines 8",
        "--pages thp",
        "--mode anonymous --written 2",
        "--stride-pages 2",
        "--lines 64 --mode anonymous --pages thp",
    ],
    "page_store": ["--pages thp", "--pages 1g"],
    "prefault": ["--threads 8193", "--stride-pages 2", "--threads 2 --lines 1"],
    "shootdown": [
        "--pages 2m",
        "--stride-pages 2",
        "--mode collapse --lines 3",
        "--mode collapse --pages thp --lines 512",
    ],
    "switch_chase": ["--mode fork"],
    "table_chase": [
        "--lines 64 --tables_1 3",
        "--tables_1 1",
        "--lines 64 --tables_1 64 --tables_2 7",
        "--lines 64 --hot 8",
        "--lines 64 --order random --hot 65",
        "--pages 2m --lines 64",
    ],
    "touch_again": ["--stride-pages 2", "--idle_ms 60001"],
}


def words(bad: str) -> list[str]:
    return bad.split(" ")


@pytest.mark.parametrize("kernel", OF_BOTH)
def test_both_engines_refuse_a_bad_argument_in_one_sentence(kernel: str):
    refused_by_both(kernel, [words(bad) for bad in OF_BOTH[kernel]])


@needs_c
@pytest.mark.parametrize("kernel", OF_C)
def test_c_refuses_a_bad_argument_in_one_sentence(kernel: str):
    for bad in OF_C[kernel]:
        refused_by_c(kernel, words(bad))


@needs_c
def test_pages_beyond_the_32_bits_of_a_visit_are_refused_before_anything_is_mapped():
    limit = (256 << 20, 256 << 20)  # bytes of address space: for the program, and for no arena
    for bad in (
        f"--layout alias --lines {2**26 + 1}",
        f"--order random --lines {2**20 + 1} --stride-pages 64",
    ):
        refused = refused_by_c(
            "page_chase",
            words(bad),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
        )
        assert "256 GiB" in refused


@needs_c
def test_a_span_that_overflows_64_bits_is_memory_short():
    assert (
        reason_of(run_c("page_chase", ["--lines", str(2**32), "--stride-pages", str(2**20)]))[0]
        == "memory-short"
    )


def test_numba_has_neither_strides_nor_aliased_pages(monkeypatch: pytest.MonkeyPatch):
    bad = [["--layout", "alias"], ["--stride-pages", "2"]]
    for one, done in zip(bad, run_twins([("page_chase", one) for one in bad]), strict=True):
        assert_refused(one, *done)
    monkeypatch.setattr(measure.perf, "run", lambda *_, **__: pytest.fail("a process was started"))
    for asked in ({"layout": "alias"}, {"stride_pages": 2}):
        with pytest.raises(Unavailable) as why:
            measure.measure(
                Point(kernel="page_chase", engine="numba", lines=64, **asked),
                state="0" * 12,
                usable_bytes=1 << 30,
            )
        assert why.value.code == "engine-lacks"


@needs_c
def test_any_detail_is_valid_json(tmp_path: Path):
    (tmp_path / "lacks.c").write_text(
        f'#include "{build.KERNELS}/arguments.h"\n'
        'int main(int argc, char **argv) { unavailable("kvm-permission", "%s", argv[argc - 1]); }\n'
    )
    lacks = compiled(tmp_path / "lacks.c", tmp_path / "lacks", "-Wno-unused-function")
    for detail in ("its group is CORP\\kvm", 'says "no"', "a\tb\nc\x1b", "größer", ""):
        assert reason_of(run_program(lacks, [detail])) == ("kvm-permission", detail)
