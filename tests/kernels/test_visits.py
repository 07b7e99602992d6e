"""What the chases in C visit: the lines that an independent account names, with a true report of
it. (numba: test_chase_numba.py.)"""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.common import needs_c
from support.kernels import arguments, checksum, run_c, shuffled, visits

from tlb.measure.record import KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.slow]
SIZES = (1, 17, 64, 1000)  # around a line of 64, a block of 64 pages, and the unrolled loop's 16
CASES = [
    ("page_chase", "cycle", "spread"),
    ("page_chase", "cycle", "packed"),
    ("page_chase", "random", "packed"),
    ("page_chase", "sequential", "spread"),
    ("page_gather", "cycle", "spread"),
    ("page_gather", "sequential", "packed"),
]


def reported(kernel: str, given: list[str]) -> KernelOutput:
    done = run_c(kernel, given)
    assert (done.returncode, done.stderr) == (0, ""), given
    return KernelOutput.model_validate_json(done.stdout)


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
@settings(max_examples=50)
def test_the_cycle_is_one_cycle_through_every_line(lines, seed):
    walk = visits("page_chase", "cycle", lines, seed)
    assert sorted(walk) == list(range(lines)) and shuffled(lines, seed, itself=False)[walk[-1]] == 0


@needs_c
@pytest.mark.parametrize(("kernel", "order", "layout"), CASES)
def test_c_visits_the_lines_that_the_oracle_names(kernel, order, layout):
    for lines in SIZES:
        report = reported(kernel, arguments(order, layout, lines))
        assert report.checksum == checksum(visits(kernel, order, lines, 7)), lines
    assert report.working_set_bytes == 1000 * (4096 if layout == "spread" else 64)
    assert report.arena_bytes == -(-report.working_set_bytes // 4096) * 4096
    assert (report.pages, report.backing, report.stride_bytes, report.seed, report.layout) == (
        "4k",
        "4k",
        4096,
        7,
        layout,
    )
    batches, whole = report.batch_ns_per_access, 2**18 if order == "random" else 1000
    assert report.accesses % (whole * len(batches)) == 0  # whole rounds, equal batches
    assert report.elapsed_ns / report.accesses == pytest.approx(np.mean(batches), rel=1e-4)
    assert report.ns_per_access == pytest.approx(np.median(batches), rel=1e-4)
    again = (reported(kernel, arguments(order, layout, 1000)) for _ in range(3))
    assert any(
        (one.minor_faults, one.major_faults) == (0, 0) for one in again
    )  # NUMA balancing may unmap some


@needs_c
@pytest.mark.parametrize(
    ("order", "layout", "stride"),
    [
        ("cycle", "spread", 2),
        ("random", "spread", 64),
        ("cycle", "alias", 1),
        ("random", "alias", 2),
        ("cycle", "alias", 64),
    ],
)
def test_c_visits_far_and_aliased_pages_as_the_oracle_names_them(order, layout, stride):
    for lines in (1, 65, 1000):
        report = reported(
            "page_chase", [*arguments(order, layout, lines), "--stride-pages", str(stride)]
        )
        assert report.checksum == checksum(visits("page_chase", order, lines, 7, layout)), lines
        assert (report.layout, report.lines, report.stride_pages, report.stride_bytes) == (
            layout,
            lines,
            stride,
            4096 * stride,
        )
        assert report.working_set_bytes == lines * stride * 4096
        assert report.arena_bytes == 4096 * (
            max(8, lines * stride // 8192) if layout == "alias" else lines
        )


# --- a part of a large cycle

LARGE, WARM, SETTLED = 2**17 + 1000, 5000, 4096


def part(order: str, warm: int) -> list[str]:
    return [*arguments(order, "packed", LARGE), "--warm-hops", str(warm)]


def visited_in_part(order: str, warm: int) -> str:
    """The checksum of the first 2^17 visits after warming up, in whole steps of 16, and settling;
    round and round."""
    whole, first = visits("page_chase", order, LARGE, 7), -(-min(warm, LARGE) // 16) * 16 + SETTLED
    return checksum([whole[(first + i) % len(whole)] for i in range(2**17)])


@needs_c
@pytest.mark.parametrize(("order", "warm"), [("cycle", 1), ("random", WARM), ("cycle", 10**9)])
def test_of_a_large_cycle_a_part_is_visited_after_as_many_hops_as_asked(order, warm):
    report = reported("page_chase", part(order, warm))
    assert report.checksum == visited_in_part(order, warm)
    assert report.also["warm_hops"] == -(-min(warm, LARGE) // 16) * 16
    assert (
        report.accesses >= 2**17 and report.accesses % (16 * len(report.batch_ns_per_access)) == 0
    )


@needs_c
def test_a_kernel_stays_on_the_cpu_that_it_was_given():
    for cpu in sorted(os.sched_getaffinity(0))[:2]:
        report = reported("page_chase", [*arguments("cycle", "spread", 64), "--cpu", str(cpu)])
        assert (report.cpu, report.migrations) == (cpu, 0)
