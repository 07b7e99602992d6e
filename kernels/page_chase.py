"""page_chase in numba: the twin of page_chase.c, which explains it."""

from __future__ import annotations

import mmap

import numpy as np
from numba import njit, uint64

from kernels import harness
from kernels.harness import line_offset, load, mix, next_random

STANDING = 64
FNV = 0xCBF29CE484222325


# [timed: cycle, sequential]
@njit(cache=True)
def follow(p, hops):
    for _ in range(hops // uint64(16)):
        p = load(load(load(load(load(load(load(load(p))))))))
        p = load(load(load(load(load(load(load(load(p))))))))
    for _ in range(hops % uint64(16)):
        p = load(p)
    return p
# [end]


# The visits made are added to what the last load brought, for work() to take off again.
# [timed: random]
@njit(cache=True)
def follow_draws(base, draw, loaded):
    for i in range(0, len(draw), 4):
        loaded = load(base + uint64(draw[i]) * uint64(64) + loaded)
        loaded = load(base + uint64(draw[i + 1]) * uint64(64) + loaded)
        loaded = load(base + uint64(draw[i + 2]) * uint64(64) + loaded)
        loaded = load(base + uint64(draw[i + 3]) * uint64(64) + loaded)
    return loaded + uint64(i + 4)
# [end]


@njit(cache=True)
def place_cycle(words, base, lines, packed, stride, shuffled, seed):
    """Link the lines into one cycle; (checksum of one walk, lines visited until the start came round again, whether it did,
    the line that links back to it)."""
    order = np.arange(lines, dtype=np.uint32) if shuffled else (np.arange(1, lines + 1) % lines).astype(np.uint32)
    if shuffled:
        state = uint64(seed)
        for i in range(lines - 1, 0, -1):
            state, j = next_random(state, i)
            order[i], order[j] = order[j], order[i]
    for i in range(lines):
        words[line_offset(i, packed, stride) >> uint64(3)] = base + line_offset(order[i], packed, stride)
    checksum, visited = uint64(FNV), 0
    first = uint64(base + line_offset(0, packed, stride))
    p = last = first
    while True:
        checksum = mix(checksum, (p - base) // uint64(64 if packed else stride))
        last = p
        p = words[(p - base) >> uint64(3)]
        visited += 1
        if visited == lines or p == first:
            break
    return checksum, visited, p == first, last


@njit(cache=True)
def place_draws(words, lines, packed, stride, seed, draw):
    for i in range(lines):
        at = line_offset(i, packed, stride) >> uint64(3)
        words[at] = words[at + uint64(1)] = uint64(STANDING)
    state, checksum = uint64(seed), uint64(FNV)
    for i in range(len(draw)):
        state, line = next_random(state, lines)
        draw[i] = line_offset(line, packed, stride) >> uint64(6)
        checksum = mix(checksum, line)
    return checksum


def main() -> None:
    config = harness.parse_arguments("page_chase", ["cycle", "random", "sequential"])
    harness.start(config)
    if config.order == "random" and config.lines * (64 if config.packed else mmap.PAGESIZE) > 1 << 38:
        harness.bad_argument("--order random reaches 256 GiB; use fewer lines.")
    tiny = np.zeros(8 * 64, dtype=np.uint64)  # compile, or load from numba's cache, before the clock starts
    place_cycle(tiny, np.uint64(tiny.ctypes.data), np.int64(2), True, np.int64(4096), False, np.uint64(1))
    place_draws(tiny, np.int64(2), True, np.int64(4096), np.uint64(1), np.zeros(16, dtype=np.uint32))
    follow_draws(np.uint64(tiny.ctypes.data), np.zeros(16, dtype=np.uint32), np.uint64(0))
    tiny[0] = tiny.ctypes.data
    follow(np.uint64(tiny.ctypes.data), np.uint64(16))
    started_ns = harness.now_ns()
    arena = harness.map_arena(config)
    words, base = arena.words(), np.uint64(arena.base)
    lines, stride, seed = np.int64(config.lines), np.int64(arena.stride), np.uint64(config.seed)
    if config.order == "random":
        draws = max(config.lines * 4, 1 << 18)
        draw = np.empty(-(-draws // 16) * 16, dtype=np.uint32)
        checksum = place_draws(words, lines, config.packed, stride, seed, draw)
        standing = np.uint64(STANDING)

        def work(rounds: int) -> int:
            loaded = STANDING
            for _ in range(rounds):
                loaded = int(follow_draws(base - standing, draw, np.uint64(loaded + 8))) - len(draw) & harness.UINT64
            return loaded

        harness.measure(config, arena, started_ns, work, len(draw), STANDING, int(checksum))
        return
    checksum, visited, closed, last = place_cycle(words, base, lines, config.packed, stride, config.order == "cycle", seed)
    if visited != lines or not closed:
        harness.unavailable("kernel-garbage", f"the chase is not one cycle: back after {visited} of {lines} lines")
    at, one = base + np.uint64(line_offset(0, config.packed, arena.stride)), np.uint64(1)

    def work(rounds: int) -> int:
        end = np.uint64(follow(at, np.uint64(rounds * config.lines - 1)))
        follow(end, one)  # the last hop
        return int(end)

    harness.measure(config, arena, started_ns, work, config.lines, int(last), int(checksum))


if __name__ == "__main__":
    main()
