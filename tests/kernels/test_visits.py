"""What the chases visit: the lines that an independent account names, in C and in numba alike, with a true report of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.common import needs_c
from support.kernels import arguments, checksum, run_c, run_twins, shuffled, visits

from experiments.lab.record import KernelReport

pytestmark = [pytest.mark.measures, pytest.mark.slow]
ORDERS = {"page_chase": ("cycle", "random", "sequential"), "page_gather": ("cycle", "sequential")}
SIZES = (1, 2, 3, 17, 63, 64, 65, 1000)  # around a line of 64, a block of 64 pages, and the unrolled loop's 16


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
                "minor_faults", "major_faults", "voluntary_switches", "involuntary_switches", "migrations", "page_table_bytes", "cpu_ns",
                "mapping_bytes", "position", "fifo"}
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


# --- a part of a large cycle

LARGE, WARM, SETTLED = 2**17 + 1000, 5000, 4096
PART = [(order, layout) for order in ("cycle", "random") for layout in ("spread", "packed")]


def part(order: str, layout: str, warm: int) -> list[str]:
    return [*arguments(order, layout, LARGE), "--warm-hops", str(warm)]


def visited_in_part(order: str, warm: int) -> str:
    """The checksum of the first 2^17 visits after warming up, in whole steps of 16, and settling; round and round."""
    whole, first = visits("page_chase", order, LARGE, 7), -(-min(warm, LARGE) // 16) * 16 + SETTLED
    return checksum([whole[(first + i) % len(whole)] for i in range(2**17)])


@needs_c
@pytest.mark.parametrize("warm", [1, WARM, 10**9])
@pytest.mark.parametrize(("order", "layout"), PART)
def test_of_a_large_cycle_a_part_is_visited_after_as_many_hops_as_asked(order: str, layout: str, warm: int):
    done = run_c("page_chase", part(order, layout, warm))
    assert (done.returncode, done.stderr) == (0, "")
    report = KernelReport.model_validate_json(done.stdout)
    assert report.checksum == visited_in_part(order, warm)
    assert report.also["warm_hops"] == -(-min(warm, LARGE) // 16) * 16
    assert report.accesses >= 2**17 and report.accesses % (16 * len(report.batch_ns_per_access)) == 0


def test_numba_visits_the_same_part():
    done = run_twins([("page_chase", part(order, layout, WARM)) for order, layout in PART])
    for (order, layout), (status, out, err) in zip(PART, done, strict=True):
        assert (status, err) == (0, ""), (order, layout)
        report = KernelReport.model_validate_json(out)
        assert report.checksum == visited_in_part(order, WARM) and report.accesses >= 2**17
        assert report.also["warm_hops"] == -(-WARM // 16) * 16


@needs_c
@pytest.mark.parametrize("given", [arguments("sequential", "spread", LARGE), arguments("cycle", "alias", LARGE),
                                   arguments("cycle", "packed", 2**17)])
def test_what_is_no_large_random_cycle_is_visited_whole(given: list[str]):
    report = KernelReport.model_validate_json(run_c("page_chase", given).stdout)
    assert report.accesses % report.lines == 0 and "warm_hops" not in report.also


@needs_c
def test_by_default_as_many_hops_as_the_largest_cache_has_lines_warm_it():
    report = KernelReport.model_validate_json(run_c("page_chase", arguments("cycle", "packed", LARGE)).stdout)
    sizes = [int(path.read_text().strip().removesuffix("K")) for path in
             Path(f"/sys/devices/system/cpu/cpu{report.cpu}/cache").glob("index*/size")]
    assert report.also["warm_hops"] == -(-min(max(sizes, default=LARGE) * 16, LARGE) // 16) * 16


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
def test_a_kernel_stays_on_the_cpu_that_it_was_given():
    for cpu in sorted(os.sched_getaffinity(0))[:2]:
        report = KernelReport.model_validate_json(run_c("page_chase", [*arguments("cycle", "spread", 64), "--cpu", str(cpu)]).stdout)
        assert (report.cpu, report.migrations) == (cpu, 0)
