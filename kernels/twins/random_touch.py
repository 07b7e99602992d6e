"""random_touch in numba: the twin of random_touch.c, which explains it."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

from kernels.twins import arguments, region
from kernels.twins.arena import Arena
from kernels.twins.arguments import LINE
from kernels.twins.assembly import ready
from kernels.twins.placement import FNV_BASIS, mix

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB
DRAWS = 1 << 20


@intrinsic
def remainder(typing, a, b):
    """a % b in 32 bits, as in C and in the JVM: numba's own takes 64, which on many cores is far
    slower."""

    def emit(context, builder, signature, args):
        a, b = (builder.trunc(arg, ir.IntType(32)) for arg in args)
        return builder.zext(builder.urem(a, b), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), emit


# [timed]
@njit(cache=True)
def draw(state, bound):
    """ThreadLocalRandom.nextInt(bound): (new state, a number in [0, bound)); bound from 1 to 2^31 -
    1."""
    while True:
        state = uint64(state + uint64(0x9E3779B97F4A7C15))
        z = (state ^ (state >> uint64(33))) * uint64(0xFF51AFD7ED558CCD)
        r = ready((z ^ (z >> uint64(33))) * uint64(0xC4CEB9FE1A85EC53) >> uint64(32))
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
    return state, total + (ready(thrown) & uint64(0))


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


def asked(words: list[str] | None = None) -> Namespace:
    config = arguments.parse_arguments(
        "random_touch",
        ["random"],
        ["packed"],
        own={"bytes": (0, 1, 2**31 - 1), "spare_draws": (0, 0, 16)},
        words=words,
    )
    config.bytes = size = config.bytes or config.lines * LINE
    if (lines := -(-size // LINE)) != config.lines or size >= 2**31:
        arguments.bad_argument(
            f"--bytes {size} takes --lines {lines}, its lines of 64 bytes, and is below 2^31."
        )
    return config


def measure_point(config: Namespace, arena: Arena) -> region.Record:
    state = seed = np.uint64(config.seed)
    memory, bound, spare = arena.words().view(np.uint8), np.uint64(config.bytes), config.spare_draws
    also = {"generator_ns_per_access": generator_ns(seed, bound)}
    memory[:] = 1  # last, and in ascending order

    def read(rounds: int) -> int:
        nonlocal state
        reads = rounds * DRAWS
        state, total = (
            touch_after(memory, np.uint64(state), bound, reads, spare)
            if spare
            else touch(memory, np.uint64(state), bound, reads)
        )
        return int(total)

    work = region.Work(read, lambda rounds: rounds * DRAWS, DRAWS)  # every byte is 1
    return region.record(
        config, arena, region.measure(config, work), int(checksum_of(seed, bound)), also
    )


def main() -> None:
    region.measure_one(asked, measure_point)


if __name__ == "__main__":
    main()
