"""page_gather in numba: the twin of page_gather.c, which explains it."""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from kernels import harness
from kernels.harness import line_offset, mix, next_random

FNV = 0xCBF29CE484222325


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
def place(memory, index, packed, stride, shuffled, seed):
    for i in range(len(index)):
        index[i] = line_offset(i, packed, stride)
        memory[index[i]] = 1
    if shuffled:
        state = uint64(seed)
        for i in range(len(index) - 1, 0, -1):
            state, j = next_random(state, i + 1)
            index[i], index[j] = index[j], index[i]
    checksum = uint64(FNV)
    for i in range(len(index)):
        checksum = mix(checksum, index[i] // (64 if packed else stride))
    return checksum


def main() -> None:
    config = harness.parse_arguments("page_gather", ["cycle", "sequential"])
    harness.start(config)
    tiny = np.zeros(4096, dtype=np.uint8)
    place(tiny, np.zeros(2, dtype=np.int64), True, np.int64(4096), True, np.uint64(1))
    gather(tiny, np.zeros(2, dtype=np.int64), 1)
    started_ns = harness.now_ns()
    arena = harness.map_arena(config)
    memory, index = arena.words().view(np.uint8), np.empty(config.lines, dtype=np.int64)
    checksum = place(memory, index, config.packed, np.int64(arena.stride), config.order == "cycle", np.uint64(config.seed))
    if gather(memory, index, 1) != config.lines:
        harness.unavailable("kernel-garbage", "the gather did not visit every line once")

    def work(rounds: int) -> int:
        return int(gather(memory, index, rounds)) - rounds * config.lines  # every byte is 1

    harness.measure(config, arena, started_ns, work, config.lines, 0, int(checksum))


if __name__ == "__main__":
    main()
