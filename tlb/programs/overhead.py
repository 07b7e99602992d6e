"""What being watched costs a program: a table of `tlb bench`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from math import inf

from tlb.inference.pairs import LEAST_PAIRS, paired_ratio
from tlb.programs.watch import running, watch
from tlb.units import format_ns, format_size

TITLE = "A program of fixed work, watched and not (to reach: 1 %)"
COLUMNS = ("it touches", "most asked", "looks", "a look", "watched over not", "looks' cost as told")
SIZES, ASKED = (64 << 20, 1 << 30), 0.01
SECONDS = 12.0  # a look at 1 GiB takes 20 to 60 ms, and is paid for in 4 to 12 s

# It reads a byte of pages drawn at random again and again, a number of times that takes about so
# many seconds, and prints how many they were. It is NumPy's loop, and shares nothing with what
# looks at it.
_WORK = """import sys, time
import numpy as np
size, rounds = int(sys.argv[1]), int(sys.argv[2])
array = np.ones(size, np.uint8)
drawn = np.random.default_rng(1).integers(0, size, 1 << 20)
print("ready", flush=True)
begin = time.perf_counter()
for _ in range(rounds):
    array[drawn].sum()
print(time.perf_counter() - begin, flush=True)
"""


def overhead() -> Iterator[tuple[str, ...]]:
    """A row a size: six pairs of the same work, watched and not, in turn."""
    for size in SIZES:
        rounds = max(int(100 * SECONDS / _seconds(size, 100, False)[0]), 1)
        pairs = [
            (_seconds(size, rounds, True), _seconds(size, rounds, False))
            for _ in range(LEAST_PAIRS)
        ]
        ratio = paired_ratio(
            [with_looks[0] for with_looks, _ in pairs], [without[0] for _, without in pairs]
        )
        seen = [watched for (_, watched), _ in pairs if watched]
        looks, look_s, cost = (
            sum(column)
            for column in zip(*((len(w.sights), w.look_s, w.cost) for w in seen), strict=True)
        )
        yield (
            format_size(size),
            f"{ASKED:.0%}",
            str(looks),
            format_ns(1e9 * look_s / looks),
            f"{ratio:.4f}",
            f"{cost / len(seen):.2%}",
        )


def _seconds(size: int, rounds: int, is_watched: bool):
    """How long the work took by its own clock, and what was seen of it."""
    with subprocess.Popen(
        [sys.executable, "-c", _WORK, str(size), str(rounds)], stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdout.readline()
        watched = None
        if is_watched:
            with running(child.pid) as target:
                watched = watch(target, inf, ASKED, lambda watched: None)
        return float(child.stdout.readline()), watched
