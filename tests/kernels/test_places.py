"""Where a line stands, and which memory stands behind aliased and far pages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.common import ROOT, needs_c
from support.kernels import POOLS, arguments, checksum, compiled, reason_of, run_c, visits

from experiments.lab import build
from experiments.lab.record import KernelReport
from experiments.machine.compiler import compiler
from kernels.harness import line_offset

pytestmark = [pytest.mark.measures, pytest.mark.slow]


# --- where a line stands


offsets = line_offset.py_func  # the arithmetic, in numpy's 64 bits


def spread_offsets(lines: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # the hash is meant to overflow
        return offsets(lines.astype(np.uint64), False, 4096).astype(np.int64)


@given(st.integers(0, 2**25))
@settings(deadline=None)
def test_each_block_of_64_pages_takes_each_line_of_a_page_once(block: int):
    lines = np.arange(64 * block, 64 * block + 64)
    assert sorted(spread_offsets(lines) % 4096 // 64) == list(range(64))  # 64: the sets of a first-level cache of 4 KiB ways


@given(st.integers(0, 2**31))
@settings(deadline=None)
def test_a_page_holds_one_spread_line_and_packed_lines_touch(first: int):
    lines = np.arange(first, first + 200)
    found = spread_offsets(lines)
    assert (found // 4096 == lines).all() and (found % 64 == 0).all()
    assert (offsets(lines.astype(np.uint64), True, 4096) == lines * 64).all()


@pytest.mark.parametrize("sets", [512, 1024, 2048])
def test_contiguous_pages_spread_over_a_larger_cache_far_better_than_page_mod_64(sets: int):
    lines = np.arange(4 * sets)
    hashed = np.bincount(spread_offsets(lines) // 64 % sets, minlength=sets)
    plain = np.bincount((lines * 64 + lines % 64) % sets, minlength=sets)
    assert (plain > 0).sum() == 64  # of physically contiguous pages, bits 12 and up repeat bits 6 to 11
    assert (hashed > 0).sum() > 0.95 * sets and hashed.max() <= 2.5 * 4


@needs_c
def test_c_and_numba_put_a_line_in_the_same_place(tmp_path: Path):
    lines = [*range(300), *range(4095, 4200), 2**26 - 1, 2**31 + 12345, 2**32 - 1]
    (tmp_path / "places.c").write_text(
        f'#include "{build.KERNELS}/harness.h"\nint main(void) {{ unsigned long long i; while (scanf("%llu", &i) == 1)'
        ' printf("%" PRIu64 " %" PRIu64 "\\n", line_offset(i, 0, 4096), line_offset(i, 1, 4096)); return 0; }\n'
    )
    subprocess.run([*compiler().command, "-std=gnu11", "-O2", "-o", tmp_path / "places", tmp_path / "places.c"], check=True)
    said = subprocess.run([tmp_path / "places"], input="\n".join(map(str, lines)), capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [f"{line_offset(i, False, 4096)} {line_offset(i, True, 4096)}" for i in lines]


# --- aliased and far pages: which memory stands behind them


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """What tests/support/probe_chase.c says of page_chase's arguments."""
    binary = compiled(ROOT / "tests/support/probe_chase.c", tmp_path_factory.mktemp("probe") / "probe_chase")
    return lambda *given: subprocess.run([binary, *map(str, given)], capture_output=True, text=True, timeout=60, check=True).stdout


@needs_c
@pytest.mark.parametrize(("lines", "stride", "physical_pages"), [
    (1, 1, 8), (8, 1, 8), (1000, 1, 8), (2**16, 1, 8), (2**16 + 1, 1, 8), (2**16 + 8, 1, 16), (2**20, 1, 128), (1000, 8, 8),
    (2**14, 64, 128)])
def test_aliased_pages_are_few_pages_of_memory_in_at_most_8192_mappings_and_a_part(probe, lines: int, stride: int, physical_pages: int):
    found = json.loads(probe("memory", "--layout", "alias", "--lines", lines, "--stride-pages", stride))
    pages = lines * stride
    assert (found["bytes"], found["physical"]) == (pages * 4096, physical_pages * 4096)
    assert found["mappings"] == -(-pages // physical_pages) <= 8193
    assert found["aliased"] == found["mappings"]  # each begins where the one little file begins
    if not found["unknown_frames"]:  # root is told which frames stand behind the pages
        assert found["frames"] == len({page * stride % physical_pages for page in range(lines)})


@needs_c
@pytest.mark.parametrize("stride", [1, 5, 64])
@pytest.mark.parametrize("lines", [1, 7, 64, 1000])
def test_page_i_is_visited_on_its_line_8_times_i_mod_8_once_a_cycle(probe, lines: int, stride: int):
    played = [int(visit) for visit in probe("visits", "--layout", "alias", "--lines", lines, "--stride-pages", stride, "--seed", 7).split()]
    cycle = visits("page_chase", "cycle", lines, 7, "alias")
    times = len(played) // lines
    assert times * lines == len(played) > 4096  # so many that a call costs nothing beside them
    assert played == [page * stride * 64 + page % 8 * 8 for page in cycle] * times  # in lines of 64 bytes, 64 to a page


@needs_c
def test_random_draws_of_aliased_pages_stand_on_the_same_lines(probe):
    played = [int(visit) for visit in probe("visits", "--layout", "alias", "--order", "random", "--lines", 300, "--seed", 7).split()]
    assert played == [page * 64 + page % 8 * 8 for page in visits("page_chase", "random", 300, 7, "alias")]


@needs_c
@pytest.mark.parametrize("order", ["cycle", "random"])
def test_of_pages_that_stand_apart_only_those_with_a_line_are_memory(probe, order: str):
    found = json.loads(probe("memory", "--layout", "spread", "--order", order, "--lines", 1000, "--stride-pages", 64))
    assert (found["bytes"], found["physical"]) == (1000 * 64 * 4096, 1000 * 4096)
    assert (found["resident_pages"], found["resident_lines"]) == (1000, 1000)
    if not found["unknown_frames"]:
        assert found["frames"] == 1000  # each a page of its own


@needs_c
def test_aliased_pages_reach_256_gib_and_visits_do_not_wrap():
    done = run_c("page_chase", [*arguments("cycle", "alias", 2**10), "--stride-pages", str(2**16)])
    report = KernelReport.model_validate_json(done.stdout)
    assert (report.working_set_bytes, report.arena_bytes) == (256 << 30, 32 << 20)
    assert report.checksum == checksum(visits("page_chase", "cycle", 2**10, 7, "alias"))


@needs_c
def test_the_last_visit_of_256_gib_is_its_last_page(probe):
    played = probe("visits", "--layout", "alias", "--lines", 2**10, "--stride-pages", 2**16).split()
    assert max(map(int, played)) == (2**10 - 1) * 2**16 * 64 + 7 * 8 < 2**32


@needs_c
def test_aliased_pages_of_2_mib_take_a_pool():
    done = run_c("page_chase", [*arguments("cycle", "alias", 40), "--pages", "2m", "--stride-pages", "512"])
    pool = POOLS / "hugepages-2048kB/free_hugepages"
    if pool.exists() and int(pool.read_text()) >= 8:
        report = KernelReport.model_validate_json(done.stdout)
        assert (report.backing, report.arena_bytes, report.stride_pages) == ("2m", 16 << 20, 512)
        assert report.checksum == checksum(visits("page_chase", "cycle", 40, 7, "alias"))
    else:
        assert reason_of(done)[0] == ("pool-empty" if pool.exists() else "page-size-unsupported")


@needs_c
def test_pages_far_apart_may_span_more_than_there_is_memory():
    """4 MiB of pages over 32 GiB of addresses, and over 1 TiB."""
    for lines, stride in ((1024, 8192), (256, 2**20)):
        done = run_c("page_chase", [*arguments("cycle", "spread", lines), "--stride-pages", str(stride)])
        report = KernelReport.model_validate_json(done.stdout)
        assert report.arena_bytes == lines * 4096 and report.working_set_bytes == lines * stride * 4096
