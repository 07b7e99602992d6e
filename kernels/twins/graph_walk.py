"""graph_walk in numba: the twin of graph_walk.c, which explains it."""

from __future__ import annotations

import os
from argparse import Namespace

import numpy as np

from kernels.twins import arguments, region
from kernels.twins.arena import Arena, advise, base_page, map_arena, page_bytes
from kernels.twins.arguments import LINE
from kernels.twins.hops import BINS, clock_ticks, least_of, of_hops, read_nothing, read_stamp
from kernels.twins.placement import PART, lines_to_warm, places_in
from kernels.twins.walk import (
    MULTIPLIER,
    Walk,
    count_wrong,
    expected_lines,
    hops_for,
    link_vertices,
    on_all_cpus,
    seeded,
    stand,
    stay_on_this_node,
)

MOST_WALKERS, AHEAD, PATHS, TAIL, CHUNK = 32, 256, 4, 4, 1 << 19
SIDE_BY_SIDE = places_in(True, LINE, LINE)
NO_PATH, UNCOUNTED = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.int64)


def four_vertices_ns(walkers: int, seed: int) -> float:
    """What a hop takes at the least: the same loop over a graph of four vertices, which the first cache holds."""
    edges = np.zeros(64, dtype=np.uint32)
    _, (key, step) = seeded(seed, 2)
    link_vertices(edges, 0, 4, np.uint64(4), np.uint64(key), np.uint64(step | 1), *SIDE_BY_SIDE)
    forever, turns, ns = 2**62, (1 << 16) // walkers, []
    little = Walk(edges, 4, 4, np.zeros(walkers, dtype=np.uint64), 0, forever, forever, NO_PATH, 0)
    for _ in range(17):
        begin = arguments.now_ns()
        little.go(turns, UNCOUNTED)
        ns.append((arguments.now_ns() - begin) / (turns * walkers))
    return float(np.median(ns[1:]))


def checked(config: Namespace) -> None:
    """Refuses options that do not go together."""
    given, vertices = {name for name, _ in config.options}, config.vertices or config.lines
    blocked, ahead = config.mode == "blocked", config.mode == "prefetch"
    block = config.block_vertices if blocked else vertices
    most = (1 << 29) if config.packed else (1 << 32) // (base_page() // LINE)  # a line's number has 32 bits
    if vertices != config.lines or vertices & (vertices - 1) or not 4 <= vertices <= most:
        arguments.bad_argument(f"--vertices takes a power of two from 4 to {most}, and as many --lines.")
    if block & (block - 1) or not 0 < block <= vertices or (not blocked and given & {"block_vertices", "block_steps"}):
        arguments.bad_argument("--mode blocked, and no other, takes --block_vertices, a power of two up to --vertices, and --block_steps.")
    if (config.walkers > 1 and (ahead or config.per_hop)) or (ahead and config.per_hop) or ("distance" in given and not ahead):
        arguments.bad_argument("--distance takes --mode prefetch; --per_hop 1 takes another mode; and each of the two takes one walker.")


def placed(config: Namespace, arena: Arena) -> tuple[np.uint64, np.uint64]:
    return places_in(config.packed, arena.stride, arena.page)


def made_ready(config: Namespace, block: int, key: int, step: int, cpus: list[int]) -> tuple[Arena, np.ndarray, int]:
    """The arena with the graph in it, faulted in, filled and checked by all CPUs; its edges, uint32; how many CPUs there were."""
    chunk = max(page_bytes(config.pages), CHUNK)
    stay_on_this_node()
    arena = map_arena(config, lambda base, size, advice: max(on_all_cpus(
        lambda begin, end: advise(base + begin, end - begin, advice), size, chunk, cpus)))
    edges, places = arena.words().view(np.uint32), placed(config, arena)

    def vertices(begin: int, end: int) -> tuple[int, int]:
        return begin // int(places[0]), min(end // int(places[0]), config.lines)

    cycle = np.uint64(block), np.uint64(key), np.uint64(step)
    on_all_cpus(lambda *part: link_vertices(edges, *vertices(*part), *cycle, *places), arena.bytes, chunk, cpus)
    wrong = on_all_cpus(lambda *part: count_wrong(edges, *vertices(*part), *cycle[::2], *places), arena.bytes, chunk, cpus)
    if sum(wrong) or step % 2 == 0 or MULTIPLIER % 4 != 1:
        arguments.unavailable("kernel-garbage", f"{sum(wrong)} vertices lead out of their block or not to the next one of its cycle")
    return arena, edges, len(wrong)


class Rounds:
    """A walk in rounds of so many turns, and what each call of them was: where it began, its turns, its clock's ticks, its histogram."""

    def __init__(self, walker: Walk, turns: int, per_hop: bool) -> None:
        self.walker, self.turns, self.per_hop = walker, turns, per_hop
        self.tallies = np.ones((64, BINS), dtype=np.int64)  # faulted in; one for each call, for only the last ones are within the region
        self.done: list[tuple[Walk, int, int]] = []

    def run(self, rounds: int) -> int:
        before = Walk(**{**vars(self.walker), "at": self.walker.at.copy()})
        self.tallies[len(self.done)] = 0
        bins = self.tallies[len(self.done)] if self.per_hop else UNCOUNTED
        self.done.append((before, rounds * self.turns, self.walker.go(rounds * self.turns, bins)))
        return 0

    def must_stand(self, due: np.ndarray) -> None:
        if not np.array_equal(due, self.walker.at):
            arguments.unavailable("kernel-garbage", "walked hop by hop, the walkers end elsewhere: not all hops were made")

    def check_last(self) -> None:
        before, last, _ = self.done[-1]
        self.must_stand(before.retraced(last)[0])

    def of_last(self, batches: int, clock: float, ghz: float) -> tuple[dict[str, float], list[list[float]]]:
        """What the clock read of the last so many calls: quantiles, and the histogram."""
        last = slice(len(self.done) - batches, len(self.done))
        bins = self.tallies[last].sum(axis=0)
        full = np.flatnonzero(bins)
        histogram = [[float(f"{least / ghz:.7g}"), int(bins[i])] for i, least in zip(full, least_of(full), strict=True)]
        return of_hops(bins, sum(ticks for _, _, ticks in self.done[last]), clock, ghz), histogram


def compile_all(walkers: int, seed: int) -> tuple[float, float]:
    """Or load it from numba's cache; what a hop takes at the least, and the clock's own ticks."""
    four_ns, nothing = four_vertices_ns(walkers, seed), np.zeros(BINS, dtype=np.int64)
    count_wrong(np.zeros(16, dtype=np.uint32), 0, 1, np.uint64(1), np.uint64(1), *SIDE_BY_SIDE)
    Walk(np.zeros(16, dtype=np.uint32), 1, 1, np.zeros(1, dtype=np.uint64), 0, 1, 1, NO_PATH, 0).retraced(1)
    read_nothing(nothing, 1 << 16)
    return four_ns, clock_ticks(nothing)


def main() -> None:
    config = arguments.parse_arguments("graph_walk", ["random"], ["packed", "spread"], ["plain", "blocked", "prefetch"], {
        "vertices": (0, 4, 1 << 29), "walkers": (1, 1, MOST_WALKERS), "block_vertices": (0, 4, 1 << 29),
        "block_steps": (1024, 1, 1 << 30), "distance": (8, 0, AHEAD), "per_hop": (0, 0, 1)})
    checked(config)
    cpus = sorted(os.sched_getaffinity(0))
    region.start(config)
    blocked, ahead, vertices, walkers = config.mode == "blocked", config.mode == "prefetch", config.lines, config.walkers
    block = config.block_vertices if blocked else vertices
    state, (key, step, *starts) = seeded(config.seed, 2 + walkers)
    four_ns, clock = compile_all(walkers, config.seed)
    started_ns = arguments.now_ns()
    arena, edges, threads = made_ready(config, block, key, step | 1, cpus)
    also = {"prepare_graph_ns": float(arguments.now_ns() - started_ns), "prepare_threads": float(threads)}

    required = hops_for(vertices, PART * (TAIL if config.per_hop else 1))
    room = hops_for(vertices, PATHS * lines_to_warm(config)) + (1 << 18)
    segment = config.block_steps if blocked else room if ahead else 2**62
    places = placed(config, arena)
    at = np.array([stand(np.uint64(start & (vertices - 1)), *places) for start in starts], dtype=np.uint64)
    walker = Walk(edges, vertices, block, at, state, segment, segment, NO_PATH, state, config.distance if ahead else 0, *map(int, places))
    due, checksum, _ = walker.retraced(4096)
    if ahead:
        _, _, path = walker.retraced(room, room)
        walker.path = np.concatenate([path, path[:AHEAD]])
    rounds = Rounds(walker, -(-max(required, 1 << 14) // (region.MIN_BATCHES * walkers)), bool(config.per_hop))
    thrown = np.zeros(BINS, dtype=np.int64) if config.per_hop else UNCOUNTED
    walker.go(4096, thrown)
    rounds.must_stand(due)
    warm = hops_for(vertices, lines_to_warm(config)) // walkers + 4096
    walker.go(warm, thrown)
    also["warm_hops"] = float(warm * walkers)
    first_stamp, first_ns = read_stamp(), arguments.now_ns()
    measured = region.measure(config, arena, started_ns, region.Work(rounds.run, lambda _: 0, rounds.turns * walkers))
    ghz = (read_stamp() - first_stamp) / (arguments.now_ns() - first_ns)
    rounds.check_last()
    batches, more = len(measured.batch_ns), {}
    also["distinct_lines_expected"] = expected_lines(vertices, block, measured.accesses_a_batch * batches, segment if blocked else 0)
    if config.per_hop:
        quantiles, more["histogram"] = rounds.of_last(batches, clock, ghz)
        also |= quantiles
    elif not ahead:
        also["four_vertices_ns_per_access"] = four_ns
    region.report(config, arena, measured, checksum, also, **more)


if __name__ == "__main__":
    main()
