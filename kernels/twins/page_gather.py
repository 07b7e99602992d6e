"""page_gather in numba: the twin of page_gather.c, which explains it."""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from kernels.twins import arguments, region
from kernels.twins.arena import map_arena
from kernels.twins.placement import checksum_from, line_offset, places_in, shuffle


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


def main() -> None:
    config = arguments.parse_arguments("page_gather", ["cycle", "sequential"])
    region.start(config)
    tiny, two = np.zeros(4096, dtype=np.uint8), np.arange(2, dtype=np.uint32)
    shuffle(two, 1, np.uint64(1))
    place(tiny, two, np.zeros(2, dtype=np.int64), *places_in(True, 4096, 4096))
    checksum_from(two, 0, 2)
    gather(tiny, np.zeros(2, dtype=np.int64), 1)
    started_ns = arguments.now_ns()
    arena = map_arena(config)
    memory, index = arena.words().view(np.uint8), np.empty(config.lines, dtype=np.int64)
    visit = np.arange(config.lines, dtype=np.uint32)
    if config.order == "cycle":
        shuffle(visit, 1, np.uint64(config.seed))
    place(memory, visit, index, *places_in(config.packed, arena.stride, arena.page))
    work = region.Work(lambda rounds: int(gather(memory, index, rounds)), lambda rounds: rounds * config.lines, config.lines)
    checksum = int(checksum_from(visit, 0, config.lines))
    del visit
    region.report(config, arena, region.measure(config, arena, started_ns, work), checksum)


if __name__ == "__main__":
    main()
