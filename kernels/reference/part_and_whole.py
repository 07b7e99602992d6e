"""Of a cycle too large to be timed whole, a part against the whole, for `make bench`: both of one
region, since two processes differ by more, in neighbours and in physical pages.

    python -m kernels.reference.part_and_whole PAGE_CHASE LAYOUT LINES

Prints the medians over ten processes: ns per hop of the first PART hops, of all hops of two or
three cycles, and of their ratio."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

PART = 1 << 17  # hops that are timed of a larger cycle at the least: kernels/placement.h
binary, layout, lines = sys.argv[1], sys.argv[2], int(sys.argv[3])


def record(region_ms: int, seed: int) -> dict:
    given = {"layout": layout, "lines": lines, "region-ms": min(region_ms, 60_000), "seed": seed}
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    return json.loads(subprocess.run([binary, *words], stdout=subprocess.PIPE, check=True).stdout)


three_cycles_ms = int(3 * lines * record(1, 0)["ns_per_access"] / 1e6) + 1
rounds = []
for seed in range(1, 11):
    long = record(three_cycles_ms, seed)
    batches, hops = long["batch_ns_per_access"], long["accesses"]
    part, whole = (
        statistics.mean(batches[: -(-PART * len(batches) // hops)]),
        statistics.mean(batches),
    )
    # else this process was slower by far than the first one, and has no whole cycle
    if hops >= lines:
        rounds.append((part, whole, part / whole))
print(*map(statistics.median, zip(*rounds, strict=True)))
