"""The kernels keep one contract, in C and in numba, on x86-64 and on arm64: what they visit, where, on which pages."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.common import ROOT

from experiments.lab import build, measure
from experiments.lab.record import KernelReport, Point
from experiments.machine.compiler import compiler
from experiments.words.reasons import Unavailable
from kernels import harness
from kernels.harness import line_offset

ORDERS = {"page_chase": ("cycle", "random", "sequential"), "page_gather": ("cycle", "sequential")}
SIZES = (1, 2, 3, 17, 63, 64, 65, 1000)  # around a line of 64, a block of 64 pages, and the unrolled loop's 16
THP = Path("/sys/kernel/mm/transparent_hugepage")
POOLS = Path("/sys/kernel/mm/hugepages")

pytestmark = pytest.mark.measures
needs_c = pytest.mark.needs("a C compiler")


def arguments(order: str, layout: str, lines: int, seed: int = 7) -> list[str]:
    """Of the shortest possible measurement."""
    return ["--order", order, "--layout", layout, "--lines", str(lines), "--seed", str(seed), "--region-ms", "1"]


def run_c(kernel: str, given: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*build.kernel(kernel, "c").command, *given], capture_output=True, text=True, timeout=60, **how)


# Many runs of the twins' own main() in one process: starting Python and numba takes a second each time.
TWINS = """
import contextlib, importlib, io, json, resource, sys
for kernel, arguments, address_space in json.load(sys.stdin):
    main = importlib.import_module(f"kernels.{kernel}").main
    if address_space:
        resource.setrlimit(resource.RLIMIT_AS, (address_space, resource.RLIM_INFINITY))
    sys.argv, out, err, status = [kernel, *arguments], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            status = stop.code
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


def run_twins(jobs: list[tuple[str, list[str]]], address_space: int = 0) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of each job in numba."""
    done = subprocess.run([sys.executable, "-c", TWINS], input=json.dumps([(*job, address_space) for job in jobs]),
                          capture_output=True, text=True, cwd=ROOT, timeout=250)
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


# --- the order of visits, by an independent account of it


def splitmix64(seed: int) -> Iterator[int]:
    """Steele, Lea and Flood's generator, from their paper."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) % 2**64
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        yield z ^ z >> 31


def draws(seed: int, limits: list[int]) -> list[int]:
    """One number below each limit: the generator's high 32 bits, scaled."""
    return [(z >> 32) * limit >> 32 for z, limit in zip(splitmix64(seed), limits, strict=False)]


def shuffled(lines: int, seed: int, itself: bool) -> list[int]:
    """The numbers below `lines`, each swapped with one at or below it (Fisher-Yates), or strictly below it (Sattolo)."""
    order, down = list(range(lines)), range(lines - 1, 0, -1)
    for i, j in zip(down, draws(seed, [i + itself for i in down]), strict=True):
        order[i], order[j] = order[j], order[i]
    return order


def visits(kernel: str, order: str, lines: int, seed: int, layout: str = "spread") -> list[int]:
    """The lines that a kernel visits in one round, in their order."""
    if order == "sequential":
        return list(range(lines))
    if order == "random":
        return draws(seed, [lines] * max(2**16 if layout == "alias" else 2**18, -(-4 * lines // 16) * 16))
    if kernel == "page_gather" or layout == "alias":
        return shuffled(lines, seed, itself=True)
    successor, walk = shuffled(lines, seed, itself=False), [0]
    while len(walk) < lines:
        walk.append(successor[walk[-1]])
    return walk


def checksum(lines: list[int]) -> str:
    folded = 0xCBF29CE484222325  # FNV-1a's offset basis and, below, its prime
    for line in lines:
        folded = (folded ^ line) * 0x100000001B3 % 2**64
    return f"{folded:016x}"


def test_the_oracle_draws_the_published_numbers_of_splitmix64():
    numbers = [number for number, _ in zip(splitmix64(1234567), range(5), strict=False)]
    assert numbers == [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
@settings(max_examples=50, deadline=None)
def test_a_cycle_of_aliased_pages_visits_every_page_once(lines: int, seed: int):
    assert sorted(visits("page_chase", "cycle", lines, seed, "alias")) == list(range(lines))


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
@settings(max_examples=50, deadline=None)
def test_the_cycle_is_one_cycle_through_every_line(lines: int, seed: int):
    walk = visits("page_chase", "cycle", lines, seed)
    assert sorted(walk) == list(range(lines))
    assert shuffled(lines, seed, itself=False)[walk[-1]] == 0


CASES = [(kernel, order, layout) for kernel, orders in ORDERS.items() for order in orders for layout in ("spread", "packed")]


@pytest.fixture(scope="module")
def twins() -> dict[tuple[str, str, str, int], KernelReport]:
    """Every case at every size, measured by numba."""
    cases = [(*case, lines) for case in CASES for lines in SIZES]
    done = run_twins([(kernel, arguments(order, layout, lines)) for kernel, order, layout, lines in cases])
    assert [status for status, _, _ in done] == [0] * len(cases)
    return {case: KernelReport.model_validate_json(out) for case, (_, out, _) in zip(cases, done, strict=True)}


@pytest.mark.parametrize(("kernel", "order", "layout"), CASES)
def test_numba_visits_the_lines_that_the_oracle_names(twins, kernel: str, order: str, layout: str):
    found = {lines: twins[kernel, order, layout, lines].checksum for lines in SIZES}
    assert found == {lines: checksum(visits(kernel, order, lines, 7)) for lines in SIZES}


@needs_c
@pytest.mark.parametrize(("kernel", "order", "layout"), CASES)
def test_c_prints_the_checksum_of_numba(twins, kernel: str, order: str, layout: str):
    for lines in SIZES:
        done = run_c(kernel, arguments(order, layout, lines))
        report, twin = KernelReport.model_validate_json(done.stdout), twins[kernel, order, layout, lines]
        assert (done.returncode, done.stderr) == (0, "")
        assert report.checksum == twin.checksum, lines
        same = {"engine", "cpu", "accesses", "elapsed_ns", "ns_per_access", "batch_ns_per_access", "core_ghz", "prepare_ns",
                "minor_faults", "major_faults", "voluntary_switches", "involuntary_switches", "migrations"}
        assert report.model_dump(exclude=same) == twin.model_dump(exclude=same)


@needs_c
@pytest.mark.parametrize("stride", [1, 2, 64])
@pytest.mark.parametrize("layout", ["spread", "alias"])
@pytest.mark.parametrize("order", ["cycle", "random"])
def test_c_visits_far_and_aliased_pages_as_the_oracle_names_them(order: str, layout: str, stride: int):
    for lines in (1, 8, 65, 1000):
        done = run_c("page_chase", [*arguments(order, layout, lines), "--stride-pages", str(stride)])
        assert (done.returncode, done.stderr) == (0, "")
        report = KernelReport.model_validate_json(done.stdout)
        assert report.checksum == checksum(visits("page_chase", order, lines, 7, layout)), lines
        assert (report.layout, report.lines, report.stride_pages, report.stride_bytes) == (layout, lines, stride, 4096 * stride)
        assert report.working_set_bytes == lines * stride * 4096
        assert report.arena_bytes == 4096 * (8 if layout == "alias" else lines)


@needs_c
def test_another_seed_is_another_order_and_the_largest_is_taken():
    seeds = (0, 1, 2**63 - 1)
    sums = [json.loads(run_c("page_chase", arguments("cycle", "spread", 500, seed)).stdout)["checksum"] for seed in seeds]
    assert sums == [checksum(visits("page_chase", "cycle", 500, seed)) for seed in seeds]
    assert len(set(sums)) == 3


# --- the report


@needs_c
@pytest.mark.parametrize("layout", ["spread", "packed"])
def test_a_report_says_what_was_asked_and_what_was_mapped(layout: str):
    report = KernelReport.model_validate_json(run_c("page_chase", arguments("cycle", layout, 1000)).stdout)
    assert report.working_set_bytes == 1000 * (4096 if layout == "spread" else 64)
    assert report.arena_bytes == -(-report.working_set_bytes // 4096) * 4096
    assert (report.pages, report.backing, report.stride_bytes, report.seed) == ("4k", "4k", 4096, 7)
    assert report.accesses % (1000 * len(report.batch_ns_per_access)) == 0  # whole rounds, equal batches
    assert report.elapsed_ns / report.accesses == pytest.approx(np.mean(report.batch_ns_per_access), rel=1e-4)
    assert report.ns_per_access == pytest.approx(np.median(report.batch_ns_per_access), rel=1e-4)
    assert report.cpu in os.sched_getaffinity(0)


@needs_c
@pytest.mark.parametrize(("kernel", "order", "layout"), CASES)
def test_no_page_is_faulted_in_while_time_runs(kernel: str, order: str, layout: str):
    reports = (KernelReport.model_validate_json(run_c(kernel, arguments(order, layout, 1000)).stdout) for _ in range(3))
    assert any((report.minor_faults, report.major_faults) == (0, 0) for report in reports)  # NUMA balancing may unmap some


def test_numba_faults_no_page_of_its_arena_while_time_runs(twins):
    faults = {case: report.minor_faults for case, report in twins.items() if case[-1] == 1000}
    assert max(faults.values()) < 50, faults  # Python's own, at most: the arena has 1000 pages


@needs_c
def test_a_kernel_stays_on_the_cpu_that_it_was_given():
    for cpu in sorted(os.sched_getaffinity(0))[:2]:
        report = KernelReport.model_validate_json(run_c("page_chase", [*arguments("cycle", "spread", 64), "--cpu", str(cpu)]).stdout)
        assert (report.cpu, report.migrations) == (cpu, 0)


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


def compiled(source: Path, binary: Path) -> Path:
    subprocess.run([*compiler().command, *build.FLAGS, "-o", binary, source], check=True)
    return binary


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
        assert reason(done.returncode, done.stdout, done.stderr)[0] == ("pool-empty" if pool.exists() else "page-size-unsupported")


@needs_c
def test_pages_far_apart_may_span_more_than_there_is_memory():
    """4 MiB of pages over 32 GiB of addresses, and over 1 TiB."""
    for lines, stride in ((1024, 8192), (256, 2**20)):
        done = run_c("page_chase", [*arguments("cycle", "spread", lines), "--stride-pages", str(stride)])
        report = KernelReport.model_validate_json(done.stdout)
        assert report.arena_bytes == lines * 4096 and report.working_set_bytes == lines * stride * 4096


# --- accesses that are not made

NOTHING = {  # a timed loop that hands back what it was given, as if all accesses had been left out
    "follow": ("follow(void **p, uint64_t hops)\n{", "follow(void **p, uint64_t hops)\n{ hops = 0;"),
    "follow_draws": ("uint64_t draws, uint64_t loaded)\n{", "uint64_t draws, uint64_t loaded)\n{ draws = 0;"),
    "gather": ("uint64_t lines, uint64_t rounds)\n{", "uint64_t lines, uint64_t rounds)\n{ rounds = 0;"),
}
GONE = {  # a compiler that takes the loop's result for a constant
    "follow_draws": ("    return loaded + i;\n", "    return 0;\n"),
    "gather": ("    return sum;\n", "    return lines;\n"),
}
HALF = {  # every second access
    "follow_draws": ("uint64_t draws, uint64_t loaded)\n{", "uint64_t draws, uint64_t loaded)\n{ draws /= 2;"),
    "follow": ("follow(void **p, uint64_t hops)\n{", "follow(void **p, uint64_t hops)\n{ hops /= 2;"),
    "gather": ("uint64_t lines, uint64_t rounds)\n{", "uint64_t lines, uint64_t rounds)\n{ if (rounds > 1) lines /= 2;"),
}
ONE_SHORT = {
    "follow_draws": ("uint64_t draws, uint64_t loaded)\n{", "uint64_t draws, uint64_t loaded)\n{ draws -= 1;"),
    "follow": ("follow(void **p, uint64_t hops)\n{", "follow(void **p, uint64_t hops)\n{ hops -= 1;"),
    "gather": ("uint64_t lines, uint64_t rounds)\n{", "uint64_t lines, uint64_t rounds)\n{ if (rounds > 1) lines -= 1;"),
}
CHASES = {"follow": [("cycle", "spread"), ("cycle", "packed"), ("sequential", "spread")],
          "follow_draws": [("random", "spread"), ("random", "packed"), ("cycle", "alias"), ("random", "alias")],
          "gather": [("cycle", "spread"), ("sequential", "packed")]}
FAULTY = [(name, loop) for name, faults in (("NOTHING", NOTHING), ("GONE", GONE), ("HALF", HALF), ("ONE_SHORT", ONE_SHORT))
          for loop in faults]


def broken(loop: str, change: tuple[str, str], folder: Path) -> Path:
    """A kernel with one place of its timed loop changed, compiled."""
    kernel = "page_gather" if loop == "gather" else "page_chase"
    for path in (build.KERNELS / f"{kernel}.c", *build.KERNELS.glob("*.h")):
        (folder / path.name).write_text(path.read_text())
    place = folder / ("chase.h" if loop == "follow" else f"{kernel}.c")
    assert place.read_text().count(change[0]) == 1
    place.write_text(place.read_text().replace(*change))
    return compiled(folder / f"{kernel}.c", folder / kernel)


@needs_c
@pytest.mark.parametrize(("fault", "loop"), FAULTY)
def test_accesses_that_were_left_out_are_kernel_garbage(fault: str, loop: str, tmp_path: Path):
    kernel = broken(loop, globals()[fault][loop], tmp_path)
    for order, layout in CHASES[loop]:
        done = subprocess.run([kernel, *arguments(order, layout, 1000)], capture_output=True, text=True, timeout=60)
        code, detail = reason(done.returncode, done.stdout, done.stderr)
        assert code == "kernel-garbage" and detail


@needs_c
@pytest.mark.parametrize("loop", CHASES)
def test_a_kernel_that_is_compiled_anew_and_unchanged_finds_nothing_amiss(loop: str, tmp_path: Path):
    kernel = broken(loop, NOTHING[loop][:1] * 2, tmp_path)
    for order, layout in CHASES[loop]:
        done = subprocess.run([kernel, *arguments(order, layout, 1000)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


# What numba's timed loops are replaced with: nothing, or half of the accesses, or what they are.
BROKEN_TWINS = """
import contextlib, importlib, io, json, sys
import numpy as np
idle = {"follow": lambda p, hops: p, "follow_draws": lambda base, draw, loaded: loaded, "gather": lambda memory, index, rounds: 0}
def half(real):
    return {"follow": lambda p, hops: real(p, np.uint64(hops // 2)),
            "follow_draws": lambda base, draw, loaded: real(base, draw[: len(draw) // 2], loaded),
            "gather": lambda memory, index, rounds: real(memory, index, max(rounds // 2, 1))}
for kernel, loop, fault, arguments in json.load(sys.stdin):
    module = importlib.import_module(f"kernels.{kernel}")
    real = getattr(module, loop)
    setattr(module, loop, {"nothing": idle.get(loop), "half": half(real).get(loop), "none": real}[fault])
    sys.argv, out, err, status = [kernel, *arguments], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            module.main()
        except SystemExit as stop:
            status = stop.code
    setattr(module, loop, real)
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


def test_numba_notices_accesses_that_were_left_out():
    def job(loop: str, fault: str, order: str, layout: str) -> tuple[str, str, str, list[str]]:
        return "page_gather" if loop == "gather" else "page_chase", loop, fault, arguments(order, layout, 1000)

    chases = [(loop, *chase) for loop, chases in CHASES.items() for chase in chases if "alias" not in chase]
    jobs = [job(loop, fault, *chase) for loop, *chase in chases for fault in ("nothing", "half", "none")]
    done = subprocess.run([sys.executable, "-c", BROKEN_TWINS], input=json.dumps(jobs), capture_output=True, text=True, cwd=ROOT,
                          timeout=250)
    assert done.returncode == 0, done.stderr
    for (_, loop, fault, _), said in zip(jobs, map(json.loads, done.stdout.splitlines()), strict=True):
        if fault == "none":
            assert (said[0], said[2]) == (0, ""), loop
        else:
            assert reason(*said)[0] == "kernel-garbage", (loop, fault)


# --- arguments that cannot be

BAD = [["--pages", "9k"], ["--pages", ""], ["--layout", "loose"], ["--order", "zigzag"], ["--lines", "0"], ["--lines", "-1"],
       ["--lines", "+5"], ["--lines", " 5"], ["--lines", "12x"], ["--lines", ""], ["--lines", "4294967297"],
       ["--lines", "99999999999999999999"], ["--seed", "-1"], ["--seed", "9223372036854775808"], ["--seed", "x"],
       ["--cpu", "-1"], ["--cpu", "x"], ["--cpu", "1023"], ["--cpu", "1000000"], ["--region-ms", "0"], ["--region-ms", "60001"],
       ["--region-ms", "1.5"], ["--perf-fds", "3"], ["--perf-fds", "3,4,5"], ["--perf-fds", "a,b"], ["--frobnicate"],
       ["--lines"], ["surplus"]]


def assert_refused(bad: list[str], status: int, out: str, err: str) -> None:
    assert (status, out) == (2, ""), bad
    assert len(err.splitlines()) == 1 and err.strip(), (bad, err)


@needs_c
@pytest.mark.parametrize("bad", BAD, ids=" ".join)
def test_a_bad_argument_is_one_sentence_on_stderr_and_exit_2(bad: list[str]):
    done = run_c("page_chase", bad)
    assert_refused(bad, done.returncode, done.stdout, done.stderr)


def test_numba_refuses_what_c_refuses():
    for bad, said in zip(BAD, run_twins([("page_chase", bad) for bad in BAD]), strict=True):
        assert_refused(bad, *said)


@needs_c
def test_an_order_that_only_the_other_kernel_has_is_refused():
    done = run_c("page_gather", ["--order", "random"])
    assert_refused(["random"], done.returncode, done.stdout, done.stderr)
    assert "cycle, sequential" in done.stderr


def test_random_draws_beyond_their_32_bits_are_refused_before_anything_is_mapped():
    bad = ["--order", "random", "--lines", str(2**26 + 1)]  # 256 GiB and a page
    (said,) = run_twins([("page_chase", bad)])
    assert_refused(bad, *said)
    if compiler():
        done = run_c("page_chase", bad)
        assert_refused(bad, done.returncode, done.stdout, done.stderr)


ONLY_SPREAD_AND_ALIAS_TAKE_STRIDES = [
    ["--layout", "packed", "--stride-pages", "2"], ["--pages", "64k", "--stride-pages", "2"], ["--pages", "thp", "--stride-pages", "2"]]


@needs_c
@pytest.mark.parametrize(("bad", "words"), [
    *((bad, "--stride-pages above 1 takes") for bad in ONLY_SPREAD_AND_ALIAS_TAKE_STRIDES),
    (["--stride-pages", "0"], "from 1 to 1048576"), (["--stride-pages", "1048577"], "from 1 to 1048576"),
    (["--stride-pages", "x"], "from 1 to 1048576"), (["--stride-pages"], "Usage:"),
    (["--layout", "alias", "--order", "sequential"], "--layout alias takes"),
    (["--layout", "alias", "--pages", "64k"], "--layout alias takes"), (["--layout", "alias", "--pages", "thp"], "--layout alias takes"),
    (["--layout", "alias", "--pages", "1g"], "--layout alias takes"),
], ids=lambda given: " ".join(given) if isinstance(given, list) else "")
def test_a_stride_or_an_alias_that_cannot_be_is_one_sentence(bad: list[str], words: str):
    done = run_c("page_chase", bad)
    assert_refused(bad, done.returncode, done.stdout, done.stderr)
    assert words in done.stderr


@needs_c
def test_a_gather_has_no_aliased_pages():
    done = run_c("page_gather", ["--layout", "alias"])
    assert_refused(["alias"], done.returncode, done.stdout, done.stderr)
    assert "spread, packed" in done.stderr


@needs_c
@pytest.mark.parametrize("bad", [
    ["--layout", "alias", "--lines", str(2**26 + 1)], ["--layout", "alias", "--lines", str(2**20 + 1), "--stride-pages", "64"],
    ["--order", "random", "--lines", str(2**20 + 1), "--stride-pages", "64"],
    ["--layout", "alias", "--lines", str(2**32), "--stride-pages", "1048576"],
], ids=" ".join)
def test_pages_beyond_the_32_bits_of_a_visit_are_refused_before_anything_is_mapped(bad: list[str]):
    limit = (256 << 20, 256 << 20)  # room for the program, and for no arena
    done = run_c("page_chase", bad, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    assert_refused(bad, done.returncode, done.stdout, done.stderr)
    assert "256 GiB" in done.stderr


@needs_c
def test_a_span_that_overflows_64_bits_is_memory_short():
    for lines in (2**32, 2**32 - 1, 2**31 + 1):
        done = run_c("page_chase", ["--lines", str(lines), "--stride-pages", str(2**20)])
        assert reason(done.returncode, done.stdout, done.stderr)[0] == "memory-short"


def test_numba_has_neither_strides_nor_aliased_pages():
    bad = [["--layout", "alias"], ["--stride-pages", "2"], ["--layout", "alias", "--stride-pages", "2"]]
    for one, said in zip(bad, run_twins([("page_chase", one) for one in bad]), strict=True):
        assert_refused(one, *said)


@pytest.mark.parametrize("asked", [{"layout": "alias"}, {"stride_pages": 2}, {"layout": "alias", "stride_pages": 64}])
def test_a_point_that_numba_cannot_measure_says_that_the_engine_lacks_it(asked: dict, monkeypatch):
    monkeypatch.setattr(measure.perf, "run", lambda *_, **__: pytest.fail("a process was started"))
    with pytest.raises(Unavailable, match=str(asked.get("layout", "spread"))) as why:
        measure.measure(Point(kernel="page_chase", engine="numba", lines=64, **asked), state="0" * 12, usable_bytes=1 << 30)
    assert why.value.code == "engine-lacks"


# --- what the machine lacks


def reason(status: int, out: str, err: str) -> tuple[str, str]:
    assert (status, out) == (3, ""), err
    assert len(err.splitlines()) == 1
    said = json.loads(err)
    assert said.keys() == {"reason", "detail"}
    return said["reason"], said["detail"]


def in_both(given: list[str]) -> list[tuple[int, str, str]]:
    """By numba, and by C where there is a compiler."""
    done = run_c("page_chase", given) if compiler() else None
    return run_twins([("page_chase", given)]) + ([(done.returncode, done.stdout, done.stderr)] if done else [])


def setting(path: Path) -> str:
    """The word in brackets; "" where there is no such file."""
    found = re.search(r"\[(\w+)\]", path.read_text()) if path.exists() else None
    return found[1] if found else ""


@pytest.mark.parametrize(("pages", "kib"), [("2m", 2048), ("1g", 1048576)])
def test_a_pool_that_is_too_small_says_how_many_pages_are_needed_and_free(pages: str, kib: int):
    pool = POOLS / f"hugepages-{kib}kB"
    if not pool.exists():
        for said in in_both(["--pages", pages]):
            assert reason(*said)[0] == "page-size-unsupported"
        return
    if int((pool / "nr_overcommit_hugepages").read_text()):
        pytest.skip("this pool grows by itself")
    free = int((pool / "free_hugepages").read_text())
    needed = free + 3
    for said in in_both(["--pages", pages, "--lines", str(needed * kib // 4)]):  # a line a page of 4 KiB
        code, detail = reason(*said)
        assert code == "pool-empty"
        assert f"{needed} pages of {pages} needed" in detail and f"{free} free" in detail


def test_pages_of_64_kib_are_refused_where_they_are_off():
    enabled = setting(THP / "hugepages-64kB/enabled")
    if enabled in ("always", "madvise", "inherit"):
        pytest.skip("64 KiB pages are on here")
    for said in in_both(["--pages", "64k"]):
        assert reason(*said)[0] == ("mthp-off" if enabled else "page-size-unsupported")


MTHP_PROBE = """
int main(int argc, char **argv)
{
    (void)argc;
    return printf("%d\\n", mthp_on(atoi(argv[1]))) < 0;
}
"""
# The setting of all sizes, that of 64 kB (None: no such file), and whether a page of 64 kB may form.
MTHP = [("never", "inherit", False), ("madvise", "inherit", True), ("always", "inherit", True), ("never", "madvise", True),
        ("never", "always", True), ("always", "never", False), ("always", None, False), (None, "inherit", False)]


@pytest.mark.parametrize("engine", [pytest.param("c", marks=needs_c), "numba"])
def test_a_size_that_inherits_is_on_where_transparent_huge_pages_are(engine: str, tmp_path: Path, monkeypatch):
    if engine == "c":
        text, path = (build.KERNELS / "harness.h").read_text(), '#define THP "/sys/kernel/mm/transparent_hugepage/"'
        assert text.count(path) == 1
        (tmp_path / "probe.c").write_text(text.replace(path, f'#define THP "{tmp_path}/"') + MTHP_PROBE)
        probe = tmp_path / "probe"
        subprocess.run([*compiler().command, "-std=gnu11", "-w", "-o", probe, tmp_path / "probe.c"], check=True)
    monkeypatch.setattr(harness, "THP", tmp_path)
    for size in (64, 2048):
        (tmp_path / f"hugepages-{size}kB").mkdir()

    def write(path: Path, selected: str | None) -> None:
        words = ("always", "inherit", "madvise", "never")
        path.unlink(missing_ok=True)
        if selected:
            path.write_text(" ".join(f"[{word}]" if word == selected else word for word in words) + "\n")

    def is_on(size: int) -> bool:
        if engine == "numba":
            return harness._mthp_on(size)
        return bool(int(subprocess.run([probe, str(size)], capture_output=True, text=True, check=True).stdout))

    for of_all, own, on in MTHP:
        write(tmp_path / "enabled", of_all)
        write(tmp_path / "hugepages-64kB/enabled", own)
        write(tmp_path / "hugepages-2048kB/enabled", "never" if on else "always")  # another size's, which decides nothing
        assert is_on(64) == on, (of_all, own)


def test_transparent_huge_pages_are_refused_where_they_are_off():
    if setting(THP / "enabled") in ("always", "madvise"):
        pytest.skip("transparent huge pages are on here")
    for said in in_both(["--pages", "thp"]):
        assert reason(*said)[0] == "thp-never"


@pytest.mark.skipif(setting(THP / "enabled") not in ("always", "madvise"), reason="transparent huge pages are off here")
def test_transparent_huge_pages_back_the_arena_where_they_are_on():
    for status, out, err in in_both(["--pages", "thp", "--lines", "700", "--region-ms", "1"]):
        if status == 3 and reason(status, out, err)[0] == "backing-partial":
            pytest.skip("memory is too fragmented for huge pages now")
        report = KernelReport.model_validate_json(out)
        assert (report.pages, report.backing) == ("thp", "thp")
        assert report.arena_bytes == 4 << 20  # 700 pages, rounded up to two of 2 MiB


def memory_kb(pid: int) -> dict[str, int]:
    """A process's memory as the kernel sums it up from outside; empty once it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return {}
    return {name: int(kb) for name, kb in re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE)}


@needs_c
@pytest.mark.parametrize("pages", ["4k", "thp"])
def test_the_pages_of_the_arena_are_those_asked_for_as_seen_from_outside(pages: str):
    if pages == "thp" and setting(THP / "enabled") not in ("always", "madvise"):
        pytest.skip("transparent huge pages are off here")
    arena_kb = 16 << 10
    kernel = subprocess.Popen([*build.kernel("page_chase").command, "--pages", pages, "--lines", str(arena_kb // 4),
                               "--region-ms", "60000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        seen: dict[str, int] = {}
        while kernel.poll() is None and seen.get("Rss", 0) < arena_kb and time.monotonic() < deadline:
            seen = memory_kb(kernel.pid)
    finally:
        kernel.kill()
        _, err = kernel.communicate()
    if "backing-partial" in err and pages == "thp":
        pytest.skip("memory is too fragmented for huge pages now")
    assert seen.get("Rss", 0) >= arena_kb, err
    assert seen["AnonHugePages"] == (arena_kb if pages == "thp" else 0)


@needs_c
def test_a_small_limit_of_address_space_is_memory_short():
    limit = (256 << 20, 256 << 20)
    done = run_c("page_chase", [], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    code, detail = reason(done.returncode, done.stdout, done.stderr)
    assert code == "memory-short" and "address space" in detail


def test_numba_finds_a_small_limit_of_address_space_too():
    (said,) = run_twins([("page_chase", ["--lines", str(2**21)])], address_space=6 << 30)  # 8 GiB of lines
    assert reason(*said)[0] == "memory-short"


# --- the timed loop

NOT_IN_A_TIMED_LOOP = re.compile(r"^(call|i?div|bl|blr|[us]div|fdiv|divs|syscall|svc|rdtsc|mrs)", re.IGNORECASE)


@pytest.mark.needs("a C compiler", "objdump")
@pytest.mark.parametrize(("kernel", "symbol", "loads"), [("page_chase", "follow", 16), ("page_chase", "follow_draws", 32),
                                                         ("page_gather", "gather", 2)])
def test_the_timed_loop_loads_and_neither_calls_nor_divides(kernel: str, symbol: str, loads: int):
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", *build.kernel(kernel).command], capture_output=True, text=True,
                          check=True).stdout
    body = re.search(rf"<{symbol}(?:\.\w+)*>:\n(.*?)\n\n", text + "\n\n", re.DOTALL)[1]
    code = [line.split("\t", 1)[1].strip() for line in body.splitlines() if "\t" in line]
    assert [one for one in code if NOT_IN_A_TIMED_LOOP.match(one)] == []
    from_memory = [one for one in code if re.match(r"mov\w*\s.*\(%.*\),|add\w*\s.*\(%.*\),|ldr\w*\s", one)]
    assert len(from_memory) >= loads, code


@pytest.mark.parametrize("path", sorted(build.KERNELS.glob("*.c")), ids=lambda path: path.name)
def test_a_kernel_is_read_in_one_sitting(path: Path):
    assert len(path.read_text().splitlines()) <= (300 if path.stem == "guest_chase" else 200)


# --- the other architecture


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kernels for arm64, static, so that emulation needs no libraries."""
    folder = tmp_path_factory.mktemp("arm64")
    for kernel in ORDERS:
        subprocess.run(["aarch64-linux-gnu-gcc", "-static", *build.FLAGS, "-o", folder / kernel, build.KERNELS / f"{kernel}.c"],
                       check=True)
    return {kernel: folder / kernel for kernel in ORDERS}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has to emulate arm64")
@pytest.mark.needs("aarch64-linux-gnu-gcc", "qemu-aarch64-static")
@pytest.mark.parametrize(("kernel", "order", "layout"), [*CASES, ("page_chase", "cycle", "alias"), ("page_chase", "random", "alias")])
def test_the_arm64_build_visits_the_same_lines_under_emulation(arm64, kernel: str, order: str, layout: str):
    for lines in (1, 65, 1000):
        done = subprocess.run(["qemu-aarch64-static", arm64[kernel], *arguments(order, layout, lines)], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert KernelReport.model_validate_json(done.stdout).checksum == checksum(visits(kernel, order, lines, 7, layout))


# --- a runner that dies

RUNNER = """
import sys
from experiments.lab import measure, perf
from experiments.lab.record import Point
plan = perf.plan("no table has a row for this") if sys.argv[1] == "counted" else perf.NO_COUNTERS
measure.measure(Point(kernel="page_chase", engine=sys.argv[2], lines=777, region_ms=60_000), int(sys.argv[3]), state="0" * 12,
                usable_bytes=1 << 30, plan=plan)
"""


def processes_with(argument: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if argument in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_until(true: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(true())


@pytest.mark.parametrize(("engine", "counted"), [
    pytest.param("c", "timed", marks=needs_c),
    pytest.param("c", "counted", marks=[needs_c, pytest.mark.needs("perf that counts faults")]),
    ("numba", "timed"),
])
def test_a_runner_killed_with_9_leaves_no_kernel_behind(engine: str, counted: str):
    repeat = time.time_ns()  # so that the seed, and with it the command line, is of this run alone
    seed = str(measure.seed_of(Point(kernel="page_chase", engine=engine, lines=777), repeat))
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, counted, engine, str(repeat)], cwd=ROOT, stderr=subprocess.PIPE)

    busy_s = 0.5 if engine == "c" else 3  # CPU time that a kernel uses up to reach its region, and more

    def chasing() -> bool:
        return any(sum(p.cpu_times()[:2]) > busy_s for p in processes_with(seed) if "--delay=-1" not in p.cmdline())

    started: list[psutil.Process] = []
    try:
        assert wait_until(lambda: _quietly(chasing)), runner.stderr.read()
        started = processes_with(seed)
        assert any("--delay=-1" in process.cmdline() for process in started) == (counted == "counted")
    finally:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        gone = wait_until(lambda: all(ended(process) for process in started), seconds=5)  # alone it would chase for a minute
        for process in processes_with(seed):
            process.kill()
        runner.stderr.close()
    assert started and gone


def ended(process: psutil.Process) -> bool:
    """Also as a zombie: in a container nobody may take note of an orphan's end."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _quietly(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except psutil.Error:  # it ended while it was looked at
        return False
