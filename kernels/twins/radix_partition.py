"""radix_partition in numba: the twin of radix_partition.c and rows.h, which explain it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numba import njit, uint64

from kernels.twins import arguments, region
from kernels.twins.arena import Arena
from kernels.twins.placement import FNV_BASIS, GOLDEN, SIDE_BY_SIDE, mix, scramble, touch_lines

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB
ARRAYS, ROWS_A_LINE, LEAST, MOST = 6, 4, 1 << 10, 1 << 28
KEY, ROW = 0, 1


@njit(inline="always")
def radix(key, skip, bits):
    """`bits` bits of the hash below its topmost `skip`."""
    return key * GOLDEN << uint64(skip) >> uint64(64 - bits)


@njit(inline="always")
def slot_of(key, skip, slots):
    return (key * GOLDEN << uint64(skip) >> uint64(32)) * slots >> uint64(32)


# [timed: partition]
@njit(cache=True)
def count(source, cursors, skip, bits):
    """Where each partition begins, into cursors (2^bits,)."""
    cursors[:] = 0
    for i in range(len(source)):
        cursors[radix(source[i, KEY], skip, bits)] += np.uint32(1)
    at = np.uint32(0)
    for p in range(len(cursors)):
        cursors[p], at = at, at + cursors[p]


@njit(cache=True)
def scatter(source, target, cursors, skip, bits):
    """Each row to its partition's next place; the cursors end where the partitions end."""
    for i in range(len(source)):
        p = radix(source[i, KEY], skip, bits)
        to = uint64(cursors[p])
        target[to, KEY], target[to, ROW] = source[i, KEY], source[i, ROW]
        cursors[p] = to + uint64(1)


@njit(cache=True)
def partition(source, target, between, ends, coarse, bits):
    """Stable. ends, uint32 (2^bits,): where each partition ends in target. Two passes if coarse,
    uint32, has 2^(bits - bits // 2) places: the first leaves its partitions, by the upper bits, in
    between, as large as target. One pass if coarse is empty."""
    if len(coarse) == 0:
        count(source, ends, 0, bits)
        scatter(source, target, ends, 0, bits)
        return
    lower = bits // 2
    fine = 1 << lower
    count(source, coarse, 0, bits - lower)
    scatter(source, between, coarse, 0, bits - lower)
    begin = np.uint32(0)
    for p in range(len(coarse)):
        part, its_ends = between[begin : coarse[p]], ends[p * fine : (p + 1) * fine]
        count(part, its_ends, bits - lower, lower)
        scatter(part, target[begin : coarse[p]], its_ends, bits - lower, lower)
        its_ends += begin
        begin = coarse[p]


# [end]


# [timed: join]
@njit(cache=True)
def join(r, s, table, skip):
    """(pairs, sum of the products of their row numbers); r's keys are unique, table has at least
    two slots a row of r."""
    slots, pairs, total = uint64(2 * len(r)), 0, uint64(0)
    for at in range(slots):
        table[at, ROW] = 0  # free: rows count from 1
    for i in range(len(r)):
        at = slot_of(r[i, KEY], skip, slots)
        while table[at, ROW]:
            at = at + uint64(1) if at + uint64(1) < slots else uint64(0)
        table[at, KEY], table[at, ROW] = r[i, KEY], r[i, ROW]
    for i in range(len(s) if len(r) else 0):
        key = s[i, KEY]
        at = slot_of(key, skip, slots)
        while table[at, ROW]:
            if table[at, KEY] == key:
                pairs += 1
                total += table[at, ROW] * s[i, ROW]
                break
            at = at + uint64(1) if at + uint64(1) < slots else uint64(0)
    return pairs, total


@njit(cache=True)
def join_parts(r, s, table, r_ends, s_ends, bits):
    """join() by way of the partitions; ends as partition() leaves them."""
    pairs, total, r_begin, s_begin = 0, uint64(0), np.uint32(0), np.uint32(0)
    for p in range(len(r_ends)):
        r_end, s_end = r_ends[p], s_ends[p]
        some, of_them = join(r[r_begin:r_end], s[s_begin:s_end], table, bits)
        pairs, total, r_begin, s_begin = pairs + some, total + of_them, r_end, s_end
    return pairs, total


# [end]


# ---- the rows, and what is known of the answer without a join


@njit(inline="always")
def splitmix(seed, i):
    return scramble(seed + uint64(i) * GOLDEN)


@njit(inline="always")
def partner(seed, row, rows):
    return uint64(1) + ((splitmix(~seed, row) >> uint64(32)) * uint64(rows) >> uint64(32))


@njit(cache=True)
def fill(r, s, seed):
    """R and S; (the joined sum that is due, a checksum of all keys in their order)."""
    due, checksum = uint64(0), uint64(FNV_BASIS)
    for i in range(len(r)):
        r[i, KEY], r[i, ROW] = splitmix(seed, i + 1), i + 1
        checksum = mix(checksum, r[i, KEY])
    for i in range(len(s)):
        row = partner(seed, i + 1, len(r))
        s[i, KEY], s[i, ROW] = splitmix(seed, row), i + 1
        checksum = mix(checksum, s[i, KEY])
        due += row * uint64(i + 1)
    return due, checksum


@njit(cache=True)
def is_partitioned(parts, ends, seed, bits, foreign):
    """Whether these are the rows of R (or S if foreign), each once, in its partition and in the old
    order."""
    begin = 0
    for p in range(len(ends)):
        last = uint64(0)
        for i in range(begin, ends[p]):
            key, row = parts[i, KEY], parts[i, ROW]
            if radix(key, 0, bits) != uint64(p) or row <= last or row > uint64(len(parts)):
                return False
            if key != splitmix(seed, partner(seed, row, len(parts)) if foreign else row):
                return False
            last = row
        begin = ends[p]
    return begin == len(parts)


# ---- rounds: how many of their answers were wrong


@njit(cache=True)
def naive_rounds(rounds, r, s, table, due):
    wrong = 0
    for _ in range(rounds):
        wrong += join(r, s, table, 0) != (len(s), due)
    return wrong


@njit(cache=True)
def partition_rounds(
    rounds, r, s, r_parts, s_parts, table, r_ends, s_ends, coarse, bits, spots, wanted, joining, due
):
    """wanted: row numbers at the spots, (2, spots), which are wiped before each round so that the
    last one's do not count."""
    wrong = 0
    for _ in range(rounds):
        for spot in spots:
            r_parts[spot], s_parts[spot] = 0, 0
        partition(r, r_parts, table, r_ends, coarse, bits)
        partition(s, s_parts, table, s_ends, coarse, bits)
        for i, spot in enumerate(spots):
            wrong += r_parts[spot, ROW] != wanted[0, i] or s_parts[spot, ROW] != wanted[1, i]
        if joining:
            wrong += join_parts(r_parts, s_parts, table, r_ends, s_ends, bits) != (len(s), due)
    return wrong


def median_ns(run, *given) -> float:
    """Of three runs."""
    ns = []
    for _ in range(3):
        begin = arguments.now_ns()
        run(*given)
        ns.append(arguments.now_ns() - begin)
    return float(np.median(ns))


def asked(words: list[str] | None = None) -> argparse.Namespace:
    config = arguments.parse_arguments(
        "radix_partition",
        ["random"],
        ["packed"],
        ["naive", "partitioned", "partition"],
        own={"tuples": (0, LEAST, MOST), "bits": (6, 1, 14), "passes": (1, 1, 2)},
        words=words,
    )
    tuples = config.tuples or config.lines // ARRAYS * ROWS_A_LINE
    if not LEAST <= tuples <= MOST:
        least, most = (ARRAYS * rows // ROWS_A_LINE for rows in (LEAST, MOST))
        arguments.bad_argument(
            f"--lines takes a whole number from {least} to {most}, not {config.lines}."
        )
    if config.tuples and config.lines != (lines := ARRAYS * -(-tuples // ROWS_A_LINE)):
        arguments.bad_argument(
            f"--tuples {tuples} takes --lines {lines}, those of {ARRAYS} arrays of 16 bytes a tuple."
        )
    if config.mode == "naive" and dict(config.options).keys() - {"tuples"}:
        arguments.bad_argument("--mode naive takes no --bits and no --passes.")
    if config.passes == 2 and config.bits < 2:
        arguments.bad_argument("--passes 2 takes --bits 2 or more, one for each pass.")
    config.tuples = tuples
    return config


def prepared(
    words: np.ndarray, tuples: int, mode: str, bits: int, passes: int, seed: np.uint64
) -> tuple[Callable, int, dict]:
    """Fill rows and tables in words (uint64): (rounds, checksum, also). rounds(n) works n times and
    returns the wrong answers."""
    room = -(-tuples // ROWS_A_LINE) * ROWS_A_LINE
    rows = words[: ARRAYS * room * 2].reshape(-1, 2)
    r, s, r_parts, s_parts = (rows[i * room : i * room + tuples] for i in range(4))
    table = rows[4 * room :]
    due, checksum = fill(r, s, seed)
    due = np.uint64(due)  # of an int, numba would take the signed type
    if mode == "naive":
        return lambda rounds: naive_rounds(rounds, r, s, table, due), checksum, {}
    r_ends, s_ends = np.zeros((2, 1 << bits), np.uint32)
    coarse = np.zeros(1 << (bits - bits // 2) if passes == 2 else 0, np.uint32)
    given = r, s, r_parts, s_parts, table, r_ends, s_ends, coarse, bits
    partition(r, r_parts, table, r_ends, coarse, bits)
    partition(s, s_parts, table, s_ends, coarse, bits)
    if not (
        is_partitioned(r_parts, r_ends, seed, bits, False)
        and is_partitioned(s_parts, s_ends, seed, bits, True)
    ):
        arguments.unavailable("kernel-garbage", "the partitions do not hold what they should")
    spots = np.linspace(0, tuples - 1, min(tuples // 1024, 64)).astype(
        np.uint32
    )  # so few that they cost nothing
    known = spots, np.stack([r_parts[spots, ROW], s_parts[spots, ROW]]), mode == "partitioned", due
    also = (
        {}
        if mode == "partitioned"
        else {"histogram_ns_per_access": median_ns(count, r, r_ends, 0, bits) / tuples}
    )
    return lambda rounds: partition_rounds(rounds, *given, *known), checksum, also


def measure_point(config: argparse.Namespace, arena: Arena) -> region.Record:
    seed, is_partition = np.uint64(config.seed), config.mode == "partition"
    rounds, checksum, also = prepared(
        arena.words(), config.tuples, config.mode, config.bits, config.passes, seed
    )
    touch_lines(np.uint64(arena.base), config.lines, *SIDE_BY_SIDE)
    work = region.Work(
        lambda n: int(rounds(n)), lambda _: 0, config.tuples * (1 + is_partition)
    )  # none is wrong
    return region.record(config, arena, region.measure(config, work), int(checksum), also)


def main() -> None:
    region.measure_one(asked, measure_point)


if __name__ == "__main__":
    main()
