"""page_chase and page_gather in numba, for a computer without a C compiler.

    python -m kernels.chase_numba --pages 4k --bytes 16777216 --plan

Equal seeds give the checksums of page_chase.c and page_gather.c, which explain the loops and the
orders. A chase goes by indices into the arena's words of 8 bytes, not by addresses.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit, uint64

from kernels.plan import LINE_BYTES, SETTLING_ROUNDS, Point, TimedAccesses, measure_plan_from_stdin

compiled = njit(cache=True)  # numba keeps it in $NUMBA_CACHE_DIR
MEASURES = 3  # 2 chased by addresses, in loops written out sixteen times
PART, STEP, MOST_WARM = 1 << 17, 16, 1 << 19  # kernels/placement.h


# ---- timed


@compiled
def follow(words, at, hops):
    for _ in range(hops):
        at = words[at]
    return at


@compiled
def follow_draws(words, draws, loaded):
    for line in draws:
        loaded = words[uint64(line) * uint64(8) + loaded]
    return loaded + uint64(len(draws))


@compiled
def gather(memory, index, rounds):
    total = uint64(0)
    for _ in range(rounds):
        for at in index:
            total += uint64(memory[at])
    return total


# ---- orders and places


@compiled
def draw(state, below):
    """Return splitmix64's next state, and a number below `below`."""
    state = uint64(state + uint64(0x9E3779B97F4A7C15))
    z = (state ^ (state >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    z ^= z >> uint64(31)
    return state, (z >> uint64(32)) * uint64(below) >> uint64(32)


@compiled
def draw_lines(visit, lines, seed):
    state = uint64(seed)
    for i in range(len(visit)):
        state, visit[i] = draw(state, lines)


@compiled
def shuffle(numbers, below, seed):
    """Shuffle as Fisher and Yates (below 1: any permutation) or Sattolo (0: one cycle)."""
    state = uint64(seed)
    for i in range(len(numbers) - 1, 0, -1):
        state, j = draw(state, i + below)
        numbers[i], numbers[j] = numbers[j], numbers[i]


@compiled
def cycle_of(after):
    visit, line = np.empty_like(after), np.uint32(0)
    for i in range(len(visit)):
        visit[i] = line
        line = after[line]
    return visit


@compiled
def checksum_of(visit, first, visits):
    checksum = uint64(0xCBF29CE484222325)
    for i in range(first, first + visits):
        checksum = (checksum ^ uint64(visit[i % len(visit)])) * uint64(0x100000001B3)
    return checksum


@compiled
def place(line, stride, bits):
    """Return where a line lies in the arena, in lines."""
    turned, digits = uint64(0), uint64(line)
    while bits > uint64(0) and digits > uint64(0):
        turned += digits
        digits >>= bits
    return uint64(line) * stride + (turned & ((uint64(1) << bits) - uint64(1)))


@compiled
def to_places(visit, stride, bits):
    for i in range(len(visit)):
        visit[i] = place(visit[i], stride, bits)


@compiled
def touch(words, lines, stride, bits):
    """Read the lines in ascending order, with which all placing ends."""
    total = uint64(0)
    for i in range(lines):
        total += words[place(i, stride, bits) * uint64(8)]
    return total


@compiled
def link(words, at):
    for i in range(len(at)):
        words[uint64(at[i]) * uint64(8)] = uint64(at[(i + 1) % len(at)]) * uint64(8)


def places_in(point: Point) -> tuple[np.uint64, np.uint64]:
    """Return the stride in lines, and the bits of a line's place within its page."""
    if point.layout == "packed":
        return np.uint64(1), np.uint64(0)
    room = min(point.stride_bytes & -point.stride_bytes, point.page_bytes) // LINE_BYTES
    return np.uint64(point.stride_bytes // LINE_BYTES), np.uint64(room.bit_length() - 1)


def visits_to_warm(point: Point) -> int:
    """Return how many visits fill the largest cache; 0 if every round visits all lines."""
    if point.lines <= PART or point.order == "sequential":
        return 0
    caches = Path(f"/sys/devices/system/cpu/cpu{point.cpu}/cache").glob("index*/size")
    largest = max((int(size.read_text().strip("K\n")) << 10 for size in caches), default=0)
    lines = min(largest // LINE_BYTES, MOST_WARM, point.lines) or point.lines
    return -(-lines // STEP) * STEP


# ---- points


def prepare_chase(point: Point, words: np.ndarray) -> TimedAccesses:
    warm, places = visits_to_warm(point), places_in(point)
    if point.order == "random":
        at = np.empty(-(-max(point.lines * 4, 1 << 18) // STEP) * STEP, dtype=np.uint32)
        draw_lines(at, point.lines, np.uint64(point.seed))
    else:
        at = np.arange(point.lines, dtype=np.uint32)
        if point.order == "cycle":
            shuffle(at, 0, np.uint64(point.seed))
            at = cycle_of(at)
    first, visits = (warm + SETTLING_ROUNDS * STEP, PART) if warm else (0, len(at))
    checksum = int(checksum_of(at, first, visits))
    to_places(at, *places)
    of_order = draws if point.order == "random" else hops
    run, due = of_order(words, at, STEP if warm else len(at))
    touch(words, point.lines, *places)
    rounds = (warm // STEP, PART // STEP) if warm else (0, 0)
    return TimedAccesses(run, due, STEP if warm else len(at), checksum, *rounds)


def hops(words, at, step):
    """Return what follows a cycle through these places, and where that ends."""
    done = 0
    link(words, at)
    follow(words, np.uint64(0), 0)  # compiles it

    def after(rounds):
        return int(at[(done + rounds * step - 1) % len(at)]) * 8

    def run(rounds):
        nonlocal done
        last = follow(words, np.uint64(int(at[done % len(at)]) * 8), rounds * step - 1)
        is_linked = int(words[last]) == int(at[(done + rounds * step) % len(at)]) * 8
        done += rounds * step
        return int(last) if is_linked else -1

    return run, after


def draws(words, at, step):
    """Return what visits these places, each load's address from the last load, and 1.

    Each line has 1 in its second and third word, which is added to the next place. A run begins
    with 2, so that it would end with 2 if it loaded nothing.
    """
    done = 0
    words[:] = 1
    follow_draws(words, at[:0], np.uint64(2))  # compiles it

    def run(rounds):
        nonlocal done
        left, loaded = rounds * step, 2
        while left:
            some = at[done : done + left]
            loaded = int(follow_draws(words, some, np.uint64(loaded))) - len(some)
            done, left = (done + len(some)) % len(at), left - len(some)
        return loaded

    return run, lambda rounds: 1


def prepare_gather(point: Point, words: np.ndarray) -> TimedAccesses:
    visit, places = np.arange(point.lines, dtype=np.uint32), places_in(point)
    if point.order == "cycle":
        shuffle(visit, 1, np.uint64(point.seed))
    checksum = int(checksum_of(visit, 0, point.lines))
    to_places(visit, *places)
    memory, index = words.view(np.uint8), visit.astype(np.int64) * LINE_BYTES
    words[:] = 1
    touch(words, point.lines, *places)
    gather(memory, index, 0)  # compiles it

    def run(rounds: int) -> int:
        return int(gather(memory, index, rounds))

    return TimedAccesses(run, lambda rounds: rounds * point.lines, point.lines, checksum)


if __name__ == "__main__":
    measure_plan_from_stdin("numba", {"page_chase": prepare_chase, "page_gather": prepare_gather})
