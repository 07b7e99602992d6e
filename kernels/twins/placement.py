"""Where lines lie and in which order they are visited: kernels/placement.h. Equal seeds give equal
orders."""

from __future__ import annotations

import argparse

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

from kernels.twins.arena import largest_cache_bytes
from kernels.twins.arguments import LINE
from kernels.twins.assembly import ready

UINT64 = (1 << 64) - 1
FNV_BASIS = 0xCBF29CE484222325
PART, STEP, MOST_WARM = 1 << 17, 16, 1 << 19
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(inline="always")
def scramble(z):
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(inline="always")
def draw(state):
    """splitmix64: (new state, 64 random bits)."""
    state = uint64(state + uint64(GOLDEN))
    return state, scramble(state)


@njit(inline="always")
def next_random(state, below):
    """(new state, a number in [0, below))."""
    state, random = draw(state)
    return state, (random >> uint64(32)) * uint64(below) >> uint64(32)


@njit(inline="always")
def mix(checksum, line):
    return uint64((checksum ^ uint64(line)) * uint64(0x100000001B3))


def places_in(packed: bool, stride: int, page: int) -> tuple[np.uint64, np.uint64]:
    """Stride in bytes, and the bits of a line's place in its page."""
    room = page if stride > page else stride & -stride
    return (
        (np.uint64(LINE), np.uint64(0))
        if packed
        else (np.uint64(stride), np.uint64((room // LINE).bit_length() - 1))
    )


@njit(inline="always")
def line_offset(line, stride, bits):
    """Byte offset of a line in the arena."""
    turned, digits = uint64(0), uint64(line)
    while bits > uint64(0) and digits > uint64(0):
        turned += digits
        digits >>= bits
    return uint64(line) * stride + (turned & ((uint64(1) << bits) - uint64(1))) * uint64(64)


@njit(cache=True)
def shuffle(number, below, seed):
    """As Fisher and Yates (below 1: any permutation) or Sattolo (0: one cycle); number: uint32
    (n,)."""
    state = uint64(seed)
    for i in range(len(number) - 1, 0, -1):
        state, j = next_random(state, i + below)
        number[i], number[j] = number[j], number[i]


@njit(cache=True)
def visits_of(next_line):
    """(lines in the cycle's visiting order, uint32 (lines,); how many until line 0 came round;
    whether it did)."""
    visit, visited, line = np.empty_like(next_line), 0, np.uint32(0)
    while True:
        visit[visited] = line
        visited += 1
        line = next_line[line]
        if line == 0 or visited == len(next_line):
            return visit, visited, line == 0


@njit(cache=True)
def checksum_from(visit, first, visits):
    """Of so many visits from `first` on, of an order that repeats."""
    checksum = uint64(FNV_BASIS)
    for i in range(visits):
        checksum = mix(checksum, visit[(first + i) % len(visit)])
    return checksum


def lines_to_warm(config: argparse.Namespace) -> int:
    """Visits that fill the caches: as many lines as the largest has, at most MOST_WARM, or as
    given; at most all lines."""
    asked = config.warm_hops or min(largest_cache_bytes(config.cpu) // LINE, MOST_WARM)
    return min(asked or config.lines, config.lines)


def visits_to_warm(config: argparse.Namespace) -> int:
    """Visits to warm up before a part is timed; 0: every round visits all lines."""
    return (
        0
        if config.lines <= PART or config.order == "sequential"
        else -(-lines_to_warm(config) // STEP) * STEP
    )


@intrinsic
def load(typing, address):
    """The uint64 at an address: the same instruction as in C."""

    def emit(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.uint64(types.uint64), emit


@njit(cache=True)
def touch_lines(base, lines, stride, bits):
    """Read the lines in ascending order, with which every placing ends."""
    total = uint64(0)
    for i in range(lines):
        total += ready(load(base + line_offset(i, stride, bits)))
    return total
