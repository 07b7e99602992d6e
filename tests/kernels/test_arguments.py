"""Bad arguments: one sentence on stderr and exit 2, before anything is mapped."""

import resource

import pytest
from support.common import needs_c
from support.kernels import compiled, reason_of, refused_by_c, run_program

from tlb.measure import build

pytestmark = [pytest.mark.measures, pytest.mark.slow]


@needs_c
def test_any_detail_is_valid_json(tmp_path):
    (tmp_path / "lacks.c").write_text(
        f'#include "{build.KERNELS_FOLDER}/arguments.h"\n'
        'int main(int argc, char **argv) { unavailable("not-permitted", "%s", argv[argc - 1]); }\n'
    )
    lacks = compiled(tmp_path / "lacks.c", tmp_path / "lacks", "-Wno-unused-function")
    for detail in ("its group is CORP\\kvm", 'says "no"', "a\tb\nc\x1b", "größer", ""):
        assert reason_of(run_program(lacks, [detail])) == ("not-permitted", detail)


# Refused command lines. The first kernel's are the rules that all share.
REFUSED = f"""
page_chase --pages 9k
page_chase --warm-hops 0
page_chase --layout loose
page_chase --lines 0
page_chase --lines 12x
page_chase --lines 99999999999999999999
page_chase --cpu 1000000
page_chase --region-ms 1.5
page_chase --perf-fds 3
page_chase --frobnicate
page_chase surplus
page_chase --order random --lines {2**26 + 1}
page_gather --order random
random_touch --bytes 1025 --lines 16
random_touch --bytes {2**31} --lines {2**25}
stride_sum --step_bytes 12
stride_sum --bytes 4096 --lines 64 --step_bytes 8192
stride_sum --bytes 4096 --lines 65
stride_sum --order cycle
graph_walk --lines 1000
graph_walk --lines 1024 --vertices 512
graph_walk --walkers 33
graph_walk --mode blocked --block_vertices 100
graph_walk --block_vertices 64
graph_walk --mode prefetch --walkers 2
graph_walk --per_hop 1 --walkers 2
graph_walk --layout alias
radix_partition --lines 1535
radix_partition --tuples 1024 --lines 1537
radix_partition --bits 15
radix_partition --mode naive --passes 1
radix_partition --mode partition --bits 1 --passes 2
page_chase --layout packed --stride-pages 2
page_chase --pages thp --stride-pages 2
page_chase --layout alias --order sequential
page_chase --layout alias --pages 1g
code_chase --mode direct --order random
code_chase --layout alias --pages 2m
code_chase --every 2
cold_chase --pages thp
collapse_chase --lines 513
fork_write --pages 2m
fork_write --used 100000
guest_chase --pages 64k
guest_chase --levels 3
map_churn --lines 64
map_churn --lines 448 --pages thp
neighbour_chase --stream_kib 64
neighbour_chase --mode other --stream_kib 1 --walk_lines 1
page_fault --lines 8
page_fault --mode anonymous --written 2
page_store --pages thp
prefault --threads 2 --lines 1
shootdown --mode collapse --lines 3
switch_chase --mode fork
table_chase --lines 64 --tables_1 3
table_chase --lines 64 --hot 8
table_chase --lines 64 --order random --hot 65
touch_again --idle_ms 60001
"""


@needs_c
@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_c_refuses_a_bad_argument_in_one_sentence(line):
    kernel, *words = line.split()
    refused_by_c(kernel, words)


@needs_c
def test_pages_beyond_the_32_bits_of_a_visit_are_refused_before_anything_is_mapped():
    limit = (256 << 20, 256 << 20)  # bytes of address space: for the program, and for no arena
    words = ["--order", "random", "--lines", str(2**20 + 1), "--stride-pages", "64"]
    how = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, limit)}
    assert "256 GiB" in refused_by_c("page_chase", words, **how)
