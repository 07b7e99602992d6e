"""random_touch in numba: the twin of random_touch.c, which explains it."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

from kernels.twins import arguments, region
from kernels.twins.arena import map_arena
from kernels.twins.arguments import LINE
from kernels.twins.placement import FNV_BASIS, mix, one_at_a_time

DRAWS = 1 << 20


@intrinsic
def remainder(typing, a, b):
    """a % b in 32 bits, as in C and in the JVM: numba's own takes 64, which on many cores is far slower."""

    def emit(context, builder, signature, args):
        a, b = (builder.trunc(arg, ir.IntType(32)) for arg in args)
        return builder.zext(builder.urem(a, b), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), emit


# [timed]
@njit(cache=True)
def draw(state, bound):
    """ThreadLocalRandom.nextInt(bound): (new state, a number in [0, bound)); bound from 1 to 2^31 - 1."""
    while True:
        state = uint64(state + uint64(0x9E3779B97F4A7C15))
        z = (state ^ (state >> uint64(33))) * uint64(0xFF51AFD7ED558CCD)
        r = one_at_a_time((z ^ (z >> uint64(33))) * uint64(0xC4CEB9FE1A85EC53) >> uint64(32))
        most, u = bound - uint64(1), r >> uint64(1)
        if bound & most == uint64(0):
            return state, r & most
        rest = remainder(u, bound)
        if (u - rest + most) >> uint64(31) == uint64(0):
            return state, rest


@njit(cache=True)
def touch(memory, state, bound, draws):
    total = uint64(0)
    for _ in range(draws):
        state, at = draw(state, bound)
        total += uint64(memory[at])
    return state, total
# [end]


@njit(cache=True)
def touch_after(memory, state, bound, draws, spare):
    total, thrown = uint64(0), uint64(0)
    for _ in range(draws):
        for _ in range(spare):
            state, at = draw(state, bound)
            thrown += at
        state, at = draw(state, bound)
        total += uint64(memory[at])
    return state, total + (one_at_a_time(thrown) & uint64(0))


@njit(cache=True)
def generate(state, bound, draws):
    total = uint64(0)
    for _ in range(draws):
        state, at = draw(state, bound)
        total += at
    return state, total


@njit(cache=True)
def checksum_of(state, bound):
    checksum = uint64(FNV_BASIS)
    for _ in range(4096):
        state, at = draw(state, bound)
        checksum = mix(checksum, at)
    return checksum


def generator_ns(state: np.uint64, bound: np.uint64) -> float:
    """What the draws alone cost, in ns each."""
    ns, (state, _) = [], generate(state, bound, DRAWS)
    for _ in range(region.MOST_BATCHES):
        begin = arguments.now_ns()
        state, _ = generate(np.uint64(state), bound, DRAWS)
        ns.append((arguments.now_ns() - begin) / DRAWS)
    return float(np.median(ns))


def main() -> None:
    config = arguments.parse_arguments("random_touch", ["random"], ["packed"], own={
        "bytes": (0, 1, 2**31 - 1), "spare_draws": (0, 0, 16)})
    size = config.bytes or config.lines * LINE
    if (lines := -(-size // LINE)) != config.lines or size >= 2**31:
        arguments.bad_argument(f"--bytes {size} takes --lines {lines}, its lines of 64 bytes, and is below 2^31.")
    region.start(config)
    seed, bound = np.uint64(config.seed), np.uint64(size)
    checksum = checksum_of(seed, bound)
    generate(seed, bound, 1)  # compiled, or loaded from numba's cache, before the clock starts
    touch(np.ones(64, dtype=np.uint8), seed, np.uint64(1), 1)
    touch_after(np.ones(64, dtype=np.uint8), seed, np.uint64(1), 1, 1)
    started_ns = arguments.now_ns()
    arena = map_arena(config)
    memory = arena.words().view(np.uint8)
    memory[:] = 1
    state, also = seed, {"generator_ns_per_access": generator_ns(seed, bound)}

    def read(rounds: int) -> int:
        nonlocal state
        reads, spare = rounds * DRAWS, config.spare_draws
        state, total = (touch_after(memory, np.uint64(state), bound, reads, spare) if spare else
                        touch(memory, np.uint64(state), bound, reads))
        return int(total)

    reads = region.Work(read, lambda rounds: rounds * DRAWS, DRAWS)  # every byte is 1
    region.report(config, arena, region.measure(config, arena, started_ns, reads), int(checksum), also)


if __name__ == "__main__":
    main()
