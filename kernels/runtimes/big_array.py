"""big_array: one large array in Python, as everybody allocates it or on huge pages; random reads of
single bytes, timed.

The contract is that of big_array.c. The loop is numba's: the interpreter's own work at each step
would hide the memory.
"""

import errno
import json
import mmap
import sys
import time

import numpy as np
from numba import njit

BATCHES, ACCESSES = 9, 1 << 20
HUGE_PAGE = 2 << 20


def huge_array(size: int) -> np.ndarray:
    # [recipe] Private: mmap's default is shared, and shared memory obeys a setting of its own
    # (shmem_enabled).
    region = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -np.frombuffer(region, np.uint8).ctypes.data % HUGE_PAGE
    region.madvise(mmap.MADV_HUGEPAGE, start, size)
    array = np.frombuffer(region, np.uint8, size, start)
    # [end]
    return array


def pool_array(size: int) -> np.ndarray:
    # [pool]
    map_hugetlb_2mb = 0x40000 | 21 << 26  # the module mmap has no name for them
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | map_hugetlb_2mb)
    array = np.frombuffer(region, np.uint8)
    # [end]
    return array


@njit
def read(array, state):
    total, pages = 0, np.uint64(array.size >> 12)
    for _ in range(ACCESSES):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        page = (state >> np.uint64(32)) * pages >> np.uint64(32)
        total += array[page << np.uint64(12) | state & np.uint64(4095)]
    return total, state


def main() -> None:
    size = int(sys.argv[2]) if len(sys.argv) == 3 and sys.argv[2].isdecimal() else 0
    ways = {"plain": lambda size: np.empty(size, np.uint8), "huge": huge_array, "pool": pool_array}
    if size == 0 or sys.argv[1] not in ways:
        sys.exit(2)
    try:
        array = ways[sys.argv[1]](size)
    except OSError as error:
        # EINVAL: madvise() without huge pages in Linux; ENOMEM: mmap() of an empty pool
        sys.exit(3 if error.errno == errno.EINVAL or sys.argv[1] == "pool" else 1)
    array[:] = 1
    state, total, batch_ns = np.uint64(88172645463325252), 0, []
    read(array, state)  # compiled
    for _ in range(BATCHES):
        begin = time.monotonic_ns()
        got, state = read(array, state)
        batch_ns.append(time.monotonic_ns() - begin)
        total, state = total + got, np.uint64(state)
    print(
        json.dumps(
            {
                "language": "python",
                "variant": sys.argv[1],
                "array_bytes": size,
                "address": array.ctypes.data,
                "accesses": ACCESSES,
                "sum": total,
                "batch_ns": batch_ns,
            }
        ),
        flush=True,
    )
    sys.stdin.readline()


if __name__ == "__main__":
    main()
