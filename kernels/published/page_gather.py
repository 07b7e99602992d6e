"""page_gather in numpy: the operations of the published program.

    python -m kernels.published.page_gather --pages 4k --bytes 16777216 --plan

One pass gathers a byte of each page into a new array and sums that, arr[indices].sum(). So beside a
load an access takes an index from memory, a check of its bounds, a byte written and read again. The
byte is each page's first, as published, so all lines of the spread layout share a few sets of a
first-level cache; page_gather.c staggers them.
"""

from __future__ import annotations

import hashlib

import numpy as np

from kernels.plan import LINE_BYTES, Point, TimedAccesses, measure_plan_from_stdin

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB


# [timed]
def gather(arr: np.ndarray, indices: np.ndarray, rounds: int) -> int:
    total = 0
    for _ in range(rounds):
        total += int(arr[indices].sum())
    return total


# [end]


def prepare_gather(point: Point, words: np.ndarray) -> TimedAccesses:
    arr = words.view(np.uint8)
    apart = LINE_BYTES if point.layout == "packed" else point.stride_bytes
    indices = np.arange(0, point.lines * apart, apart, dtype=np.int64)
    arr[indices] = 1
    if point.order == "cycle":
        # a new order for each process: the published one is a single draw
        np.random.default_rng(point.seed).shuffle(indices)
    order = hashlib.blake2b(indices.tobytes(), digest_size=8).digest()
    arr[: point.lines * apart : apart].sum()  # in ascending order, with which all placing ends

    def run(rounds: int) -> int:
        return gather(arr, indices, rounds)

    def due(rounds: int) -> int:
        return rounds * point.lines

    return TimedAccesses(run, due, point.lines, int.from_bytes(order))


if __name__ == "__main__":
    measure_plan_from_stdin("numpy", {"page_gather": prepare_gather})
