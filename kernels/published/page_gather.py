"""page_gather in numpy: the operations of the published program.

    python -m kernels.published.page_gather --pages 4k --layout spread --lines 4096

One pass gathers a byte of each page into a new array and sums that, arr[indices].sum(). So beside a
load an access takes an index from memory, a check of its bounds, a byte written and read again. The
byte is each page's first, as published, so all lines of the spread layout share a few sets of a
first-level cache; page_gather.c staggers them.
"""

from __future__ import annotations

import hashlib
from argparse import Namespace

import numpy as np

from kernels.twins import arguments, region
from kernels.twins.arena import Arena

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB


# [timed]
def gather(arr: np.ndarray, indices: np.ndarray, rounds: int) -> int:
    total = 0
    for _ in range(rounds):
        total += int(arr[indices].sum())
    return total


# [end]


def asked(words: list[str] | None = None) -> Namespace:
    return arguments.parse_arguments(
        "page_gather", ["cycle", "sequential"], engine="numpy", words=words
    )


def measure_point(config: Namespace, arena: Arena) -> region.Record:
    arr = arena.words().view(np.uint8)
    apart = arguments.LINE if config.packed else arena.stride
    indices = np.arange(0, config.lines * apart, apart, dtype=np.int64)
    arr[indices] = 1
    if config.order == "cycle":
        np.random.default_rng(config.seed).shuffle(
            indices
        )  # a new order for each process: the published one is a single draw
    order = hashlib.blake2b(indices.tobytes(), digest_size=8).digest()
    arr[: config.lines * apart : apart].sum()  # in ascending order: region.measure() says why
    work = region.Work(
        lambda rounds: gather(arr, indices, rounds),
        lambda rounds: rounds * config.lines,
        config.lines,
    )
    return region.record(config, arena, region.measure(config, work), int.from_bytes(order))


def main() -> None:
    region.measure_one(asked, measure_point)


if __name__ == "__main__":
    main()
