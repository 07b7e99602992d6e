"""page_gather in numba: the twin of page_gather.c, which explains it."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
from numba import njit, uint64

from kernels.twins import arguments, region
from kernels.twins.arena import Arena
from kernels.twins.placement import checksum_from, line_offset, places_in, shuffle, touch_lines

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB


# [timed]
@njit(cache=True)
def gather(memory, index, rounds):
    total = uint64(0)
    for _ in range(rounds):
        for i in range(len(index)):
            total += uint64(memory[uint64(index[i])])
    return total


# [end]


@njit(cache=True)
def place(memory, visit, index, stride, bits):
    for i in range(len(index)):
        index[i] = line_offset(visit[i], stride, bits)
        memory[index[i]] = 1


def asked(words: list[str] | None = None) -> Namespace:
    return arguments.parse_arguments("page_gather", ["cycle", "sequential"], words=words)


def measure_point(config: Namespace, arena: Arena) -> region.Record:
    memory, index = arena.words().view(np.uint8), np.empty(config.lines, dtype=np.int64)
    visit, places = (
        np.arange(config.lines, dtype=np.uint32),
        places_in(config.packed, arena.stride, arena.page),
    )
    if config.order == "cycle":
        shuffle(visit, 1, np.uint64(config.seed))
    place(memory, visit, index, *places)
    checksum = int(checksum_from(visit, 0, config.lines))
    del visit
    touch_lines(np.uint64(arena.base), config.lines, *places)
    work = region.Work(
        lambda rounds: int(gather(memory, index, rounds)),
        lambda rounds: rounds * config.lines,
        config.lines,
    )
    return region.record(config, arena, region.measure(config, work), checksum)


def main() -> None:
    region.measure_one(asked, measure_point)


if __name__ == "__main__":
    main()
