"""The two engines' timed loops of page_chase in turn over one mapping, for `make bench`: a process
of its own, because numba and an arena of half a gigabyte are not the runner's to keep.

    python -m kernels.reference.engines_in_turn LIBRARY LAYOUT LINES    the library is
                                                                        kernels/page_chase.c,
                                                                        compiled without `static`

Prints the medians of both, ns per access, and of their ratio."""

from __future__ import annotations

import ctypes
import os
import statistics
import sys

import numpy as np

from kernels.twins import page_chase
from kernels.twins.arena import base_page, map_arena
from kernels.twins.arguments import now_ns
from kernels.twins.placement import line_offset, places_in

library, layout, lines = ctypes.CDLL(sys.argv[1]), sys.argv[2], int(sys.argv[3])
library.follow.restype, library.follow.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_void_p, ctypes.c_uint64],
)
packed = layout == "packed"
arena = map_arena("4k", lines * (64 if packed else base_page()), sorted(os.sched_getaffinity(0)))
places = places_in(packed, arena.stride, arena.page)
page_chase.place_cycle(arena.words(), np.uint64(arena.base), lines, places, True, np.uint64(7))
at, hops = arena.base + int(line_offset(0, *places)), max(lines, 1 << 18) // lines * lines
engines = {
    "numba": lambda: page_chase.follow(np.uint64(at), np.uint64(hops)),
    "c": lambda: library.follow(at, hops),
}
ns = {name: [] for name in engines}
for name in list(engines) * 31:
    begin = now_ns()
    engines[name]()
    ns[name].append((now_ns() - begin) / hops)
pairs = list(zip(ns["numba"][1:], ns["c"][1:], strict=True))
print(
    *(statistics.median(side) for side in zip(*pairs, strict=True)),
    statistics.median(n / c for n, c in pairs),
)
