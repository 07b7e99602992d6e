"""stride_sum in numba: the twin of stride_sum.c, which explains it."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
from numba import njit, uint64

from kernels.twins import arguments, region
from kernels.twins.arena import Arena
from kernels.twins.arguments import LINE
from kernels.twins.assembly import ready
from kernels.twins.placement import FNV_BASIS, UINT64, checksum_from, mix, shuffle

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB
ELEMENT = 8


# [timed: sum]
@njit(cache=True)
def sum_every(array, step, passes):
    total = uint64(0)
    for _ in range(passes):
        for i in range(0, len(array), step):
            total = ready(total + array[uint64(i)])
    return total


# [end]


# [timed: listed]
@njit(cache=True)
def sum_listed(array, numbers, step, passes):
    total = uint64(0)
    for _ in range(passes):
        for i in range(len(numbers)):
            total = ready(total + array[uint64(numbers[i]) * step])
    return total


# [end]


@njit(cache=True)
def in_order(visits):
    """The checksum of so many visits in order."""
    checksum = uint64(FNV_BASIS)
    for i in range(visits):
        checksum = mix(checksum, i)
    return checksum


@njit(cache=True)
def number(array):
    """Into each element its own number, in ascending order, right before they are read."""
    for i in range(len(array)):
        array[i] = i


def asked(words: list[str] | None = None) -> Namespace:
    config = arguments.parse_arguments(
        "stride_sum",
        ["sequential", "cycle"],
        ["packed"],
        ["plain", "listed"],
        words=words,
        own={"bytes": (0, ELEMENT, 1 << 40), "step_bytes": (4096, ELEMENT, 1 << 40)},
    )
    config.bytes = size = config.bytes or config.lines * LINE
    if (lines := -(-size // LINE)) != config.lines or size % ELEMENT:
        arguments.bad_argument(
            f"--bytes {size} takes --lines {lines}, its lines of 64 bytes, and is a multiple of 8."
        )
    if config.step_bytes % ELEMENT or config.step_bytes > size:
        arguments.bad_argument(
            f"--step_bytes takes a multiple of 8 within the array of {size} bytes, "
            f"not {config.step_bytes}."
        )
    if config.order == "cycle" and config.mode != "listed":
        arguments.bad_argument("--order cycle takes --mode listed.")
    return config


def measure_point(config: Namespace, arena: Arena) -> region.Record:
    array, visits = arena.words()[: config.bytes // ELEMENT], -(-config.bytes // config.step_bytes)
    step, is_listed = config.step_bytes // ELEMENT, config.mode == "listed"
    if is_listed:
        numbers = np.arange(visits, dtype=np.uint32)
        if config.order == "cycle":
            shuffle(numbers, 1, np.uint64(config.seed))
    checksum = checksum_from(numbers, 0, visits) if is_listed else in_order(visits)
    number(array)

    def run(passes: int) -> int:
        return int(
            sum_listed(array, numbers, np.uint64(step), passes)
            if is_listed
            else sum_every(array, step, passes)
        )

    work = region.Work(
        run, lambda passes: passes * step * (visits * (visits - 1) // 2) & UINT64, visits
    )
    return region.record(config, arena, region.measure(config, work), int(checksum))


def main() -> None:
    region.measure_one(asked, measure_point)


if __name__ == "__main__":
    main()
