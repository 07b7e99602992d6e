"""stride_sum visits the elements that a second loop names, in their order, and sums the numbers
that they hold."""

import pytest
from support.kernels import checksum, needs_c, run_c, shuffled

from tlb.measure.record import KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.measuring]

# (bytes of the array, of a step): all elements, a line each, a page each, three pages and a bit, a
# step that does not divide, one visit
SHAPES = [(4096, 8), (65536, 64), (1 << 20, 4096), (1 << 20, 12344), (100_000, 4160), (4096, 4096)]


def given(size: int, step: int, *more: str) -> list[str]:
    return [
        "--lines",
        str(-(-size // 64)),
        "--bytes",
        str(size),
        "--step_bytes",
        str(step),
        "--seed",
        "7",
        "--region-ms",
        "1",
        *more,
    ]


def visited(size: int, step: int, is_shuffled: bool = False) -> list[int]:
    """The visits by a loop of their own."""
    order = [at // step for at in range(0, size, step)]
    return shuffled(len(order), 7, itself=True) if is_shuffled else order


WAYS = {(): False, ("--mode", "listed"): False, ("--mode", "listed", "--order", "cycle"): True}
JOBS = [
    (given(*shape, *way), visited(*shape, is_shuffled))
    for shape in SHAPES
    for way, is_shuffled in WAYS.items()
]


def agrees(status: int, out: str, err: str, order: list[int]) -> None:
    assert (status, err) == (0, "")
    report = KernelOutput.model_validate_json(out)
    assert report.checksum == checksum(order)
    assert (
        report.accesses % (len(order) * len(report.batch_ns_per_access)) == 0
        and report.ns_per_access > 0
    )


@needs_c
def test_c_visits_what_a_second_loop_names():
    for arguments, order in JOBS:
        done = run_c("stride_sum", arguments)
        agrees(done.returncode, done.stdout, done.stderr, order)
