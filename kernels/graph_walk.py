"""graph_walk in numba: the twin of graph_walk.c and its headers graph.h, walk.h and hops.h, which explain it.

Two things differ. Several walkers stand in an array and not in registers; and the parts are faulted in first and filled afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

from kernels import harness
from kernels.harness import LINE, mix

GOLDEN, MULTIPLIER, FNV = 0x9E3779B97F4A7C15, 1664525, 0xCBF29CE484222325
MOST_WALKERS, AHEAD, DISTINCT, WARM, MOST_THREADS, CHUNK = 32, 256, 4e6, 1 << 21, 256, 1 << 19
SUB, BINS = 128, 26 * 128
QUANTILES = {"p5_ns": 0.05, "p25_ns": 0.25, "p50_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95, "p99_ns": 0.99, "p999_ns": 0.999}
ARM64 = os.uname().machine == "aarch64"


def _assembly(builder, text: str, constraints: str, arguments: tuple = (), result: ir.Type | None = None):
    kind = ir.FunctionType(result or ir.IntType(64), [ir.IntType(64)] * len(arguments))
    return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), arguments)


@intrinsic
def stamp(typing):
    """The clock's ticks, read after all loads before it and before any load behind it."""
    x86 = "rdtscp\nlfence\nshlq $$32, %rdx\norq %rdx, %rax", "={rax},~{rdx},~{rcx},~{memory},~{flags}"
    arm = "dsb ishld\nisb\nmrs $0, cntvct_el0\nisb", "=r,~{memory}"
    return types.uint64(), lambda context, builder, signature, args: _assembly(builder, *(arm if ARM64 else x86))


@intrinsic
def ready(typing, number):
    """The number itself, known before any clock is read that comes behind it."""
    return types.uint64(types.uint64), lambda context, builder, signature, args: _assembly(builder, "", "=r,0", args)


@intrinsic
def prefetch(typing, address):
    def emit(context, builder, signature, args):
        _assembly(builder, "prfm pldl1keep, [$0]" if ARM64 else "prefetcht0 ($0)", "r", args, ir.VoidType())
        return context.get_dummy_value()

    return types.void(types.uint64), emit


@intrinsic
def leading_zeros(typing, number):
    return types.uint64(types.uint64), lambda context, builder, signature, args: builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))


# ---- the graph


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
def cyclic(v, block, step):
    mask = block - uint64(1)
    return (v & ~mask) | ((v * uint64(MULTIPLIER) + step) & mask)


@njit(cache=True, nogil=True)
def link_vertices(edges, first, last, block, key, step):
    mask = block - uint64(1)
    for i in range(first, last):
        v = uint64(i)
        two = scramble(key + uint64(2) * v * uint64(GOLDEN))
        third = scramble(key + (uint64(2) * v + uint64(1)) * uint64(GOLDEN))
        base, at = v & ~mask, v << uint64(4)
        edges[at] = cyclic(v, block, step)
        edges[at + uint64(1)] = base | (two & mask)
        edges[at + uint64(2)] = base | ((two >> uint64(32)) & mask)
        edges[at + uint64(3)] = base | (third & mask)


@njit(cache=True, nogil=True)
def count_wrong(edges, first, last, block, step):
    mask, wrong = block - uint64(1), 0
    for i in range(first, last):
        v = uint64(i)
        away, at = uint64(0), v << uint64(4)
        for k in range(4):
            away |= (uint64(edges[at + uint64(k)]) ^ v) & ~mask
        wrong += away != uint64(0) or uint64(edges[at]) != cyclic(v, block, step)
    return wrong


def on_all_cpus(work: Callable[[int, int], int], size: int, chunk: int, cpus: list[int]) -> list[int]:
    """work(from, to) on each CPU's part of `size` bytes, in whole chunks; what it returned, in order."""
    chunks = -(-size // chunk)
    threads = min(len(cpus), chunks, MOST_THREADS)
    found = [0] * threads

    def part(i: int) -> None:
        os.sched_setaffinity(0, {cpus[i]})
        found[i] = work(chunks * i // threads * chunk, min(chunks * (i + 1) // threads * chunk, size))

    running = [threading.Thread(target=part, args=(i,)) for i in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found


def stay_on_this_node() -> None:
    """On this CPU's node, page table included, whichever CPU writes first."""
    cpu, node = ctypes.c_uint(), ctypes.c_uint()
    if not harness.libc.getcpu(ctypes.byref(cpu), ctypes.byref(node)) and node.value < 64:
        harness.libc.syscall(237 if ARM64 else 238, 1, ctypes.byref(ctypes.c_ulong(1 << node.value)), ctypes.c_ulong(64))


# ---- the walk


# [timed: plain]
@njit(cache=True)
def walk_one(edges, at, state, turns):
    for _ in range(turns):
        state, random = draw(state)
        at = uint64(edges[(at << uint64(4)) + (random & uint64(3))])
    return at, state


@njit(cache=True)
def walk_many(edges, at, state, turns):
    for _ in range(turns):
        state, random = draw(state)
        for k in range(len(at)):
            at[k] = edges[(at[k] << uint64(4)) + (random & uint64(3))]
            random >>= uint64(2)
    return state
# [end]


# [timed: prefetch]
@njit(cache=True)
def walk_ahead(edges, base, at, state, path, first, turns):
    for i in range(first, first + turns):
        prefetch(base + (uint64(path[i]) << uint64(6)))
        state, random = draw(state)
        at = uint64(edges[(at << uint64(4)) + (random & uint64(3))])
    return at, state
# [end]


@njit(inline="always")
def bin_of(ticks):
    shift = uint64(0) if ticks < uint64(2 * SUB) else uint64(56) - leading_zeros(ticks)
    return min(shift * uint64(SUB) + (ticks >> shift), uint64(BINS - 1))


# [timed: per hop]
@njit(cache=True)
def walk_clocked(edges, at, state, turns, bins):
    total = uint64(0)
    for _ in range(turns):
        state, random = draw(state)
        edge = ready((at << uint64(4)) + (random & uint64(3)))
        begin = stamp()
        at = uint64(edges[edge])
        ticks = stamp() - begin
        total += ticks
        bins[bin_of(ticks)] += 1
    return at, state, total
# [end]


@njit(cache=True)
def read_nothing(bins, times):
    for _ in range(times):
        begin = stamp()
        bins[bin_of(stamp() - begin)] += 1


@njit(cache=True)
def jump(at, state, vertices, block):
    others = vertices // block - uint64(1)
    for k in range(len(at)):
        state, random = draw(state)
        to = (at[k] // block + uint64(1) + (((random >> uint64(32)) * others) >> uint64(32))) & others
        at[k] = to * block + (random & (block - uint64(1)))
    return state


@njit(cache=True)
def begin_segment(at, state, vertices, block, path, path_state):
    """Where a stay ends: back to the beginning of the path that is followed, or on to another block; the new state."""
    if len(path):
        at[0] = path[0]
        return path_state
    return jump(at, state, vertices, block)


@njit(cache=True)
def walk(edges, at, state, left, segment, turns, vertices, block, path, path_state, distance, bins):
    """Moves `at` on; (state, left, ticks)."""
    ticks = uint64(0)
    while turns:
        now = min(turns, left)
        if len(bins):
            at[0], state, total = walk_clocked(edges, at[0], state, now, bins)
            ticks += total
        elif distance:
            at[0], state = walk_ahead(edges, uint64(edges.ctypes.data), at[0], state, path, segment - left + distance, now)
        elif len(at) == 1:
            at[0], state = walk_one(edges, at[0], state, now)
        else:
            state = walk_many(edges, at, state, now)
        turns -= now
        left -= now
        if left == 0:
            left, state = segment, begin_segment(at, state, vertices, block, path, path_state)
    return state, left, ticks


@njit(cache=True)
def retrace(edges, at, state, left, segment, turns, vertices, block, path, path_state, record):
    """The same hop by hop; (state, left, checksum). record: where the vertices go, as far as there is room."""
    checksum, written = uint64(FNV), 0
    for _ in range(turns):
        state, random = draw(state)
        for k in range(len(at)):
            checksum = mix(checksum, at[k])
            if written < len(record):
                record[written] = at[k]
                written += 1
            at[k] = edges[uint64(16) * at[k] + (random >> uint64(2 * k)) % uint64(4)]
        left -= 1
        if left == 0:
            left, state = segment, begin_segment(at, state, vertices, block, path, path_state)
    return state, left, checksum


@dataclass
class Walk:
    edges: np.ndarray
    vertices: int
    block: int
    at: np.ndarray  # uint64, where each walker stands
    state: int
    segment: int
    left: int
    path: np.ndarray  # uint32, empty without one
    path_state: int
    distance: int = 0

    def go(self, turns: int, bins: np.ndarray) -> int:
        state, left, ticks = walk(self.edges, self.at, np.uint64(self.state), self.left, self.segment, turns, np.uint64(self.vertices),
                                  np.uint64(self.block), self.path, np.uint64(self.path_state), self.distance, bins)
        self.state, self.left = int(state), int(left)
        return int(ticks)

    def retraced(self, turns: int, room: int = 0) -> tuple[np.ndarray, int, np.ndarray]:
        """Where the walkers would stand, the checksum of the visits, the first of them; this walk stays where it is."""
        at, record = self.at.copy(), np.empty(room, dtype=np.uint32)
        _, _, checksum = retrace(self.edges, at, np.uint64(self.state), self.left, self.segment, turns, np.uint64(self.vertices),
                                 np.uint64(self.block), self.path, np.uint64(self.path_state), record)
        return at, int(checksum), record


def unvisited(hops: float) -> float:
    """The share of lines that `hops` hops a line leave unvisited (walk.h derives it)."""
    return (1 + hops / 4) ** -4


def expected_lines(vertices: int, block: int, hops: float, stay: float) -> float:
    """Lines that so many hops are expected to visit; stay: hops in a block before the next one, 0 for a graph of one block."""
    stay = min(stay, hops)
    stays = hops / stay * block / vertices if stay else 0
    if not stay or block >= vertices or stays > 8:
        return vertices * (1 - unvisited(hops / vertices))
    share, left = float(np.exp(-stays)), 0.0
    for k in range(64):
        left += share * unvisited(k * stay / block)
        share *= stays / (k + 1)
    return vertices * (1 - left)


def hops_for(vertices: int, distinct: float) -> int:
    """Hops of a plain walk that visit so many lines, or 96 % of all where that is less."""
    return int(4 * vertices * ((1 - min(distinct / vertices, 0.96)) ** -0.25 - 1)) + 1


def least_of(bins: np.ndarray) -> np.ndarray:
    """The least ticks in each of the bins with these numbers."""
    return np.where(bins < 2 * SUB, bins, (bins % SUB + SUB) << np.maximum(bins // SUB - 1, 0))


def quantile(bins: np.ndarray, q: float) -> float:
    """The least ticks that a share q of the hops did not exceed, as the middle of their bin."""
    at = int(np.searchsorted(np.cumsum(bins), q * bins.sum()))
    least, after = least_of(np.array([at, at + 1]))
    return float(least + after - 1) / 2


def clock_ticks(bins: np.ndarray) -> float:
    """What two readings around nothing differ by: the mean of the fastest 99 %."""
    last = int(np.searchsorted(np.cumsum(bins), 0.99 * bins.sum()))
    return float(np.average(least_of(np.arange(last + 1)), weights=bins[: last + 1]))


def of_hops(bins: np.ndarray, ticks: int, clock: float, ghz: float) -> dict[str, float]:
    single = np.flatnonzero(bins[: 2 * SUB])
    step = int(np.diff(single).min(initial=2 * SUB))
    return {"tsc_ghz": ghz, "clock_ns": clock / ghz, "clock_step_ns": step / ghz, "mean_ns": (ticks / int(bins.sum()) - clock) / ghz,
            **{name: max(quantile(bins, q) - clock, 0) / ghz for name, q in QUANTILES.items()}}


def seeded(seed: int, times: int) -> tuple[int, list[int]]:
    drawn, state = [], np.uint64(seed)
    for _ in range(times):
        state, number = draw(np.uint64(state))
        drawn.append(int(number))
    return int(state), drawn


def four_vertices_ns(walkers: int, seed: int) -> float:
    """What a hop takes at the least: the same loop over a graph of four vertices, which the first cache holds."""
    edges, none = np.zeros(64, dtype=np.uint32), np.empty(0, dtype=np.uint32)
    _, (key, step) = seeded(seed, 2)
    link_vertices(edges, 0, 4, np.uint64(4), np.uint64(key), np.uint64(step | 1))
    forever, turns, ns = 2**62, (1 << 16) // walkers, []
    little = Walk(edges, 4, 4, np.zeros(walkers, dtype=np.uint64), 0, forever, forever, none, 0)
    for _ in range(17):
        begin = harness.now_ns()
        little.go(turns, np.empty(0, dtype=np.int64))
        ns.append((harness.now_ns() - begin) / (turns * walkers))
    return float(np.median(ns[1:]))


def checked(config) -> None:
    given, vertices = {name for name, _ in config.options}, config.vertices or config.lines
    blocked, ahead = config.mode == "blocked", config.mode == "prefetch"
    block = config.block_vertices if blocked else vertices
    if vertices != config.lines or vertices & (vertices - 1) or not 4 <= vertices <= 1 << 29:
        harness.bad_argument("--vertices takes a power of two from 4 to 536870912, and as many --lines.")
    if block & (block - 1) or not 0 < block <= vertices or (not blocked and given & {"block_vertices", "block_steps"}):
        harness.bad_argument("--mode blocked, and no other, takes --block_vertices, a power of two up to --vertices, and --block_steps.")
    if (config.walkers > 1 and (ahead or config.per_hop)) or (ahead and config.per_hop) or ("distance" in given and not ahead):
        harness.bad_argument("--distance takes --mode prefetch; --per_hop 1 takes another mode; and each of the two takes one walker.")


def main() -> None:
    config = harness.parse_arguments("graph_walk", ["random"], ["packed"], ["plain", "blocked", "prefetch"], {
        "vertices": (0, 4, 1 << 29), "walkers": (1, 1, MOST_WALKERS), "block_vertices": (0, 4, 1 << 29),
        "block_steps": (1024, 1, 1 << 30), "distance": (8, 0, AHEAD), "per_hop": (0, 0, 1)})
    checked(config)
    cpus = sorted(os.sched_getaffinity(0))
    harness.start(config)
    blocked, ahead, vertices, walkers = config.mode == "blocked", config.mode == "prefetch", config.lines, config.walkers
    none, uncounted = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.int64)
    block = config.block_vertices if blocked else vertices
    state, (key, step, *starts) = seeded(config.seed, 2 + walkers)
    step |= 1
    four_ns = four_vertices_ns(walkers, config.seed)  # and all is compiled, or loaded from numba's cache
    count_wrong(np.zeros(16, dtype=np.uint32), 0, 1, np.uint64(1), np.uint64(1))
    Walk(np.zeros(16, dtype=np.uint32), 1, 1, np.zeros(1, dtype=np.uint64), 0, 1, 1, none, 0).retraced(1)
    nothing = np.zeros(BINS, dtype=np.int64)
    read_nothing(nothing, 1 << 16)
    clock = clock_ticks(nothing)

    started_ns = harness.now_ns()
    chunk = max(harness._page_bytes(config.pages, os.sysconf("SC_PAGESIZE")), CHUNK)
    stay_on_this_node()
    arena = harness.map_arena(config, lambda base, size, advice: max(on_all_cpus(
        lambda begin, end: harness._advise(base + begin, end - begin, advice), size, chunk, cpus)))
    edges = arena.words().view(np.uint32)[: 16 * vertices]

    def lines(begin: int, end: int) -> tuple[int, int]:
        return begin // LINE, min(end // LINE, vertices)

    cycle = np.uint64(block), np.uint64(key), np.uint64(step)
    on_all_cpus(lambda *part: link_vertices(edges, *lines(*part), *cycle), arena.bytes, chunk, cpus)
    wrong = on_all_cpus(lambda *part: count_wrong(edges, *lines(*part), *cycle[::2]), arena.bytes, chunk, cpus)
    if sum(wrong) or step % 2 == 0 or MULTIPLIER % 4 != 1:
        harness.unavailable("kernel-garbage", f"{sum(wrong)} vertices lead out of their block or not to the next one of its cycle")
    also = {"prepare_graph_ns": float(harness.now_ns() - started_ns), "prepare_threads": float(len(wrong))}

    required = hops_for(vertices, DISTINCT)
    room = max(required, 1 << 18)
    segment = config.block_steps if blocked else room if ahead else 2**62
    at = np.array([start & (vertices - 1) for start in starts], dtype=np.uint64)
    walker = Walk(edges, vertices, block, at, state, segment, segment, none, state, config.distance if ahead else 0)
    due, checksum, _ = walker.retraced(4096)
    if ahead:
        _, _, path = walker.retraced(room, room)
        walker.path = np.concatenate([path, path[:AHEAD]])
    turns = -(-max(required, 1 << 14) // (harness.MIN_BATCHES * walkers))
    tallies = np.ones((64, BINS), dtype=np.int64)  # faulted in; one for each call, for only the last ones are within the region
    done: list[tuple[Walk, int, int]] = []

    def work(rounds: int) -> int:
        before = Walk(**{**vars(walker), "at": walker.at.copy()})
        tallies[len(done)] = 0
        done.append((before, rounds * turns, walker.go(rounds * turns, tallies[len(done)] if config.per_hop else uncounted)))
        return 0

    def must_stand(due: np.ndarray) -> None:
        if not np.array_equal(due, walker.at):
            harness.unavailable("kernel-garbage", "walked hop by hop, the walkers end elsewhere: not all hops were made")

    walker.go(4096, nothing if config.per_hop else uncounted)
    must_stand(due)
    walker.go(min(4 * vertices, WARM) // walkers + 4096, nothing if config.per_hop else uncounted)
    first_stamp, first_ns, said = read_stamp(), harness.now_ns(), io.StringIO()
    with contextlib.redirect_stdout(said):
        harness.measure(config, arena, started_ns, work, turns * walkers, 0, checksum)
    ghz = (read_stamp() - first_stamp) / (harness.now_ns() - first_ns)
    before, last, _ = done[-1]
    must_stand(before.retraced(last)[0])
    report = json.loads(said.getvalue())
    also["distinct_lines_expected"] = expected_lines(vertices, block, report["accesses"], segment if blocked else 0)
    if config.per_hop:
        batches = slice(len(done) - len(report["batch_ns_per_access"]), len(done))
        bins = tallies[batches].sum(axis=0)
        also |= of_hops(bins, sum(ticks for _, _, ticks in done[batches]), clock, ghz)
        full = np.flatnonzero(bins)
        report["histogram"] = [[float(f"{least / ghz:.7g}"), int(bins[i])] for i, least in zip(full, least_of(full), strict=True)]
    elif not ahead:
        also["four_vertices_ns_per_access"] = four_ns
    print(json.dumps(report | {"also": also}))


@njit(cache=True)
def read_stamp():
    return stamp()


if __name__ == "__main__":
    main()
