"""page_chase in numba: the twin of page_chase.c, which explains it."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
from numba import njit, uint64

from kernels.twins import arguments, region
from kernels.twins.arena import Arena
from kernels.twins.placement import (
    PART,
    STEP,
    UINT64,
    checksum_from,
    line_offset,
    load,
    next_random,
    places_in,
    shuffle,
    touch_lines,
    visits_of,
    visits_to_warm,
)

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB
STANDING = 64


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
def link(words, base, next_line, stride, bits):
    """Link the lines, each to its next one; how many then lead elsewhere."""
    for i in range(len(next_line)):
        words[line_offset(i, stride, bits) >> uint64(3)] = base + line_offset(
            next_line[i], stride, bits
        )
    wrong = 0
    for i in range(len(next_line)):
        wrong += load(base + line_offset(i, stride, bits)) != base + line_offset(
            next_line[i], stride, bits
        )
    return wrong


@njit(cache=True)
def stand(words, lines, stride, bits):
    for i in range(lines):
        at = line_offset(i, stride, bits) >> uint64(3)
        words[at] = words[at + uint64(1)] = uint64(STANDING)


@njit(cache=True)
def draw_lines(draw, lines, seed):
    state = uint64(seed)
    for i in range(len(draw)):
        state, draw[i] = next_random(state, lines)


@njit(cache=True)
def to_places(visit, stride, bits):
    """Lines' numbers into where they stand, in units of a line."""
    for i in range(len(visit)):
        visit[i] = line_offset(visit[i], stride, bits) >> uint64(6)


def place_cycle(
    words: np.ndarray,
    base: np.uint64,
    lines: int,
    places: tuple[np.uint64, np.uint64],
    shuffled: bool,
    seed: np.uint64,
) -> np.ndarray:
    """Link the lines into one cycle; the lines in the order of their visits, uint32 (lines,)."""
    next_line = np.arange(lines, dtype=np.uint32)
    if shuffled:
        shuffle(next_line, 0, seed)
    else:
        next_line = np.roll(next_line, -1)
    wrong = link(words, base, next_line, *places)
    visit, visited, closed = visits_of(next_line)
    if wrong or visited != lines or not closed:
        detail = f"back after {visited} of {lines} lines, {wrong} links lead astray"
        arguments.unavailable("kernel-garbage", f"the chase is not one cycle: {detail}")
    return visit


def chase(
    config: Namespace, arena: Arena, places: tuple[np.uint64, np.uint64]
) -> tuple[region.Work, int]:
    """The chase through a cycle, and the checksum of what it visits."""
    base, hops, warm = np.uint64(arena.base), 0, visits_to_warm(config)
    visit = place_cycle(
        arena.words(), base, config.lines, places, config.order == "cycle", np.uint64(config.seed)
    )
    a_round, one = STEP if warm else config.lines, np.uint64(1)

    def after(more: int) -> int:
        return arena.base + int(line_offset(visit[(hops + more) % config.lines], *places))

    at = np.uint64(after(0))

    def run(rounds: int) -> int:
        nonlocal at, hops
        last = np.uint64(follow(at, np.uint64(rounds * a_round - 1)))
        at = np.uint64(follow(last, one))  # the last hop
        hops += rounds * a_round
        return int(last)

    first, visits = (warm + region.SETTLE * STEP, PART) if warm else (0, config.lines)
    work = region.Work(
        run,
        lambda rounds: after(rounds * a_round - 1),
        a_round,
        warm // STEP,
        PART // STEP if warm else 0,
    )
    return work, int(checksum_from(visit, first, visits))


def draws(
    config: Namespace, arena: Arena, places: tuple[np.uint64, np.uint64]
) -> tuple[region.Work, int]:
    """Lines drawn one by one, and the checksum of what is visited."""
    draw = np.empty(-(-max(config.lines * 4, 1 << 18) // STEP) * STEP, dtype=np.uint32)
    stand(arena.words(), config.lines, *places)
    draw_lines(draw, config.lines, np.uint64(config.seed))
    warm, base, loaded, at = visits_to_warm(config), np.uint64(arena.base - STANDING), STANDING, 0
    a_round = STEP if warm else len(draw)
    checksum = (
        checksum_from(draw, warm + region.SETTLE * STEP, PART)
        if warm
        else checksum_from(draw, 0, len(draw))
    )
    to_places(draw, *places)

    def run(rounds: int) -> int:
        nonlocal loaded, at
        left = rounds * a_round
        while left:
            some = draw[at : at + left]
            loaded = int(follow_draws(base, some, np.uint64(loaded + 8))) - len(some) & UINT64
            at, left = (at + len(some)) % len(draw), left - len(some)
        return loaded

    return region.Work(
        run, lambda _: STANDING, a_round, warm // STEP, PART // STEP if warm else 0
    ), int(checksum)


def asked(words: list[str] | None = None) -> Namespace:
    config = arguments.parse_arguments("page_chase", ["cycle", "random", "sequential"], words=words)
    if config.order == "random" and region.working_set(config) > 1 << 38:
        arguments.bad_argument("--order random reaches 256 GiB; use fewer lines.")
    return config


def measure_point(config: Namespace, arena: Arena) -> region.Record:
    places = places_in(config.packed, arena.stride, arena.page)
    work, checksum = (draws if config.order == "random" else chase)(config, arena, places)
    touch_lines(np.uint64(arena.base), config.lines, *places)
    measured = region.measure(config, work)
    return region.record(
        config,
        arena,
        measured,
        checksum,
        {"warm_hops": float(work.warm * STEP)} if work.warm else {},
    )


def main() -> None:
    region.measure_one(asked, measure_point)


if __name__ == "__main__":
    main()
