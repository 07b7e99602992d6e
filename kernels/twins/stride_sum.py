"""stride_sum in numba: the twin of stride_sum.c, which explains it."""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from kernels.twins import arguments, region
from kernels.twins.arena import map_arena
from kernels.twins.arguments import LINE
from kernels.twins.placement import FNV_BASIS, UINT64, checksum_from, mix, one_at_a_time, shuffle

ELEMENT = 8


# [timed: sum]
@njit(cache=True)
def sum_every(array, step, passes):
    total = uint64(0)
    for _ in range(passes):
        for i in range(0, len(array), step):
            total = one_at_a_time(total + array[uint64(i)])
    return total
# [end]


# [timed: listed]
@njit(cache=True)
def sum_listed(array, numbers, step, passes):
    total = uint64(0)
    for _ in range(passes):
        for i in range(len(numbers)):
            total = one_at_a_time(total + array[uint64(numbers[i]) * step])
    return total
# [end]


@njit(cache=True)
def in_order(visits):
    """The checksum of so many visits in order."""
    checksum = uint64(FNV_BASIS)
    for i in range(visits):
        checksum = mix(checksum, i)
    return checksum


def main() -> None:
    config = arguments.parse_arguments("stride_sum", ["sequential", "cycle"], ["packed"], ["plain", "listed"],
                                       own={"bytes": (0, ELEMENT, 1 << 40), "step_bytes": (4096, ELEMENT, 1 << 40)})
    size, is_listed = config.bytes or config.lines * LINE, config.mode == "listed"
    if (lines := -(-size // LINE)) != config.lines or size % ELEMENT:
        arguments.bad_argument(f"--bytes {size} takes --lines {lines}, its lines of 64 bytes, and is a multiple of 8.")
    if config.step_bytes % ELEMENT or config.step_bytes > size:
        arguments.bad_argument(f"--step_bytes takes a multiple of 8 within the array of {size} bytes, not {config.step_bytes}.")
    if config.order == "cycle" and not is_listed:
        arguments.bad_argument("--order cycle takes --mode listed.")
    region.start(config)
    tiny, two = np.ones(64, dtype=np.uint64), np.arange(2, dtype=np.uint32)
    shuffle(two, 1, np.uint64(1))
    sum_every(tiny, 1, 1), sum_listed(tiny, two, np.uint64(1), 1), in_order(1), checksum_from(two, 0, 2)
    started_ns = arguments.now_ns()
    arena = map_arena(config)
    array, step, visits = arena.words()[: size // ELEMENT], config.step_bytes // ELEMENT, -(-size // config.step_bytes)
    array[:] = np.arange(len(array), dtype=np.uint64)
    if is_listed:
        numbers = np.arange(visits, dtype=np.uint32)
        if config.order == "cycle":
            shuffle(numbers, 1, np.uint64(config.seed))
        checksum = checksum_from(numbers, 0, visits)
    else:
        checksum = in_order(visits)

    def run(passes: int) -> int:
        return int(sum_listed(array, numbers, np.uint64(step), passes) if is_listed else sum_every(array, step, passes))

    work = region.Work(run, lambda passes: passes * step * (visits * (visits - 1) // 2) & UINT64, visits)
    region.report(config, arena, region.measure(config, arena, started_ns, work), int(checksum))


if __name__ == "__main__":
    main()
