"""graph_walk in numba: the twin of graph_walk.c, which explains it."""

from __future__ import annotations

import sys
from argparse import Namespace

import numpy as np

from kernels.twins import arguments, region, session
from kernels.twins.arena import CHUNK, Arena, base_page, on_all_cpus
from kernels.twins.arguments import LINE
from kernels.twins.hops import BINS, clock_ticks, least_of, of_hops, read_nothing, read_stamp
from kernels.twins.placement import PART, SIDE_BY_SIDE, lines_to_warm, places_in, touch_lines
from kernels.twins.walk import (
    MULTIPLIER,
    Walk,
    count_wrong,
    expected_lines,
    hops_for,
    link_vertices,
    seeded,
    stand,
)

MEASURES = 2  # 1 read smaps after the warm-up: up to 1.5x too slow above 256 MiB
MOST_WALKERS, AHEAD, PATHS, TAIL = 32, 256, 4, 4
NO_PATH, UNCOUNTED = np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.int64)


def four_vertices_ns(walkers: int, seed: int) -> float:
    """Least time of a hop: the same loop over four vertices, in the first cache."""
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
    given, vertices = {name for name, _ in config.options}, config.vertices or config.lines
    blocked, ahead = config.mode == "blocked", config.mode == "prefetch"
    block = config.block_vertices if blocked else vertices
    # a line's number has 32 bits
    most = (1 << 29) if config.packed else (1 << 32) // (base_page() // LINE)
    if vertices != config.lines or vertices & (vertices - 1) or not 4 <= vertices <= most:
        arguments.bad_argument(
            f"--vertices takes a power of two from 4 to {most}, and as many --lines."
        )
    if (
        block & (block - 1)
        or not 0 < block <= vertices
        or (not blocked and given & {"block_vertices", "block_steps"})
    ):
        arguments.bad_argument(
            "--mode blocked, and no other, takes --block_vertices, a power of two up to --vertices, and --block_steps."
        )
    if (
        (config.walkers > 1 and (ahead or config.per_hop))
        or (ahead and config.per_hop)
        or ("distance" in given and not ahead)
    ):
        arguments.bad_argument(
            "--distance takes --mode prefetch; --per_hop 1 takes another mode; and each of the two takes one walker."
        )


def link_graph(
    config: Namespace, arena: Arena, block: int, key: int, step: int
) -> tuple[np.ndarray, dict[str, float]]:
    """Link and check the edges, uint32, by all CPUs; also: time and CPUs."""
    begin_ns, edges, chunk = (
        arguments.now_ns(),
        arena.words().view(np.uint32),
        max(arena.page, CHUNK),
    )
    places = places_in(config.packed, arena.stride, arena.page)

    def vertices(begin: int, end: int) -> tuple[int, int]:
        return begin // int(places[0]), min(end // int(places[0]), config.lines)

    cycle = np.uint64(block), np.uint64(key), np.uint64(step)
    on_all_cpus(
        lambda *part: link_vertices(edges, *vertices(*part), *cycle, *places),
        arena.bytes,
        chunk,
        config.cpus,
    )
    wrong = on_all_cpus(
        lambda *part: count_wrong(edges, *vertices(*part), *cycle[::2], *places),
        arena.bytes,
        chunk,
        config.cpus,
    )
    if sum(wrong) or step % 2 == 0 or MULTIPLIER % 4 != 1:
        arguments.unavailable(
            "kernel-garbage",
            f"{sum(wrong)} vertices lead out of their block or not to the next one of its cycle",
        )
    return edges, {
        "prepare_graph_ns": float(arguments.now_ns() - begin_ns),
        "prepare_threads": float(len(wrong)),
    }


def bins_of(config: Namespace) -> np.ndarray:
    return np.zeros(BINS, dtype=np.int64) if config.per_hop else UNCOUNTED


def must_stand(due: np.ndarray, at: np.ndarray) -> None:
    if not np.array_equal(due, at):
        arguments.unavailable(
            "kernel-garbage", "walked hop by hop, the walkers end elsewhere: not all hops were made"
        )


class Rounds:
    """A walk in rounds of turns, and of each call its beginning, turns, ticks and histogram."""

    def __init__(self, walker: Walk, turns: int, per_hop: bool) -> None:
        self.walker, self.turns, self.per_hop = walker, turns, per_hop
        self.tallies = np.ones(
            (64, BINS), dtype=np.int64
        )  # faulted in; one a call: only the last ones are in the region
        self.done: list[tuple[Walk, int, int]] = []

    def run(self, rounds: int) -> int:
        before = Walk(**{**vars(self.walker), "at": self.walker.at.copy()})
        self.tallies[len(self.done)] = 0
        bins = self.tallies[len(self.done)] if self.per_hop else UNCOUNTED
        self.done.append((before, rounds * self.turns, self.walker.go(rounds * self.turns, bins)))
        return 0

    def check_last(self) -> None:
        before, last, _ = self.done[-1]
        must_stand(before.retraced(last)[0], self.walker.at)

    def of_last(
        self, batches: int, clock: float, ghz: float
    ) -> tuple[dict[str, float], list[list[float]]]:
        """Quantiles and histogram of the last calls."""
        last = slice(len(self.done) - batches, len(self.done))
        bins = self.tallies[last].sum(axis=0)
        full = np.flatnonzero(bins)
        histogram = [
            [float(f"{least / ghz:.7g}"), int(bins[i])]
            for i, least in zip(full, least_of(full), strict=True)
        ]
        return of_hops(bins, sum(ticks for _, _, ticks in self.done[last]), clock, ghz), histogram


def asked(words: list[str] | None = None) -> Namespace:
    config = arguments.parse_arguments(
        "graph_walk",
        ["random"],
        ["packed", "spread"],
        ["plain", "blocked", "prefetch"],
        {
            "vertices": (0, 4, 1 << 29),
            "walkers": (1, 1, MOST_WALKERS),
            "block_vertices": (0, 4, 1 << 29),
            "block_steps": (1024, 1, 1 << 30),
            "distance": (8, 0, AHEAD),
            "per_hop": (0, 0, 1),
        },
        words=words,
    )
    checked(config)
    return config


def walk_of(config: Namespace, arena: Arena, room: int) -> tuple[Walk, int, dict[str, float]]:
    """Link a graph, record a path if needed, make the first turns and check them hop by hop: (walk,
    checksum, also)."""
    blocked, ahead = config.mode == "blocked", config.mode == "prefetch"
    block = config.block_vertices if blocked else config.lines
    state, (key, step, *starts) = seeded(config.seed, 2 + config.walkers)
    edges, also = link_graph(config, arena, block, key, step | 1)
    places = places_in(config.packed, arena.stride, arena.page)
    at = np.array(
        [stand(np.uint64(start & (config.lines - 1)), *places) for start in starts], dtype=np.uint64
    )
    segment = config.block_steps if blocked else room if ahead else 2**62
    walker = Walk(
        edges,
        config.lines,
        block,
        at,
        state,
        segment,
        segment,
        NO_PATH,
        state,
        config.distance * ahead,
        *map(int, places),
    )
    due, checksum, _ = walker.retraced(4096)
    if ahead:
        _, _, path = walker.retraced(room, room)
        walker.path = np.concatenate([path, path[:AHEAD]])
    touch_lines(np.uint64(arena.base), config.lines, *places)
    walker.go(4096, bins_of(config))
    must_stand(due, walker.at)
    return walker, checksum, also


def measure_point(config: Namespace, arena: Arena) -> region.Record:
    four_ns, nothing = four_vertices_ns(config.walkers, config.seed), np.zeros(BINS, dtype=np.int64)
    read_nothing(nothing, 1 << 16)
    vertices, walkers, cache = config.lines, config.walkers, lines_to_warm(config)
    walker, checksum, also = walk_of(config, arena, hops_for(vertices, PATHS * cache) + (1 << 18))
    required = hops_for(vertices, PART * (TAIL if config.per_hop else 1))
    rounds = Rounds(
        walker, -(-max(required, 1 << 14) // (region.MIN_BATCHES * walkers)), bool(config.per_hop)
    )
    warm = hops_for(vertices, cache) // walkers + 4096
    with region.Fifo(config):
        walker.go(warm, bins_of(config))
    first_stamp, first_ns = read_stamp(), arguments.now_ns()
    measured = region.measure(config, region.Work(rounds.run, lambda _: 0, rounds.turns * walkers))
    ghz = (read_stamp() - first_stamp) / (arguments.now_ns() - first_ns)
    rounds.check_last()
    more, stay = {}, config.block_steps if config.mode == "blocked" else 0
    also |= {
        "warm_hops": float(warm * walkers),
        "distinct_lines_expected": expected_lines(
            vertices, walker.block, measured["accesses"], stay
        ),
    }
    if config.per_hop:
        quantiles, more["histogram"] = rounds.of_last(
            len(measured["batch_ns_per_access"]), clock_ticks(nothing), ghz
        )
        also |= quantiles
    elif config.mode != "prefetch":
        also["four_vertices_ns_per_access"] = four_ns
    return region.record(config, arena, measured, checksum, also, **more)


def main() -> None:
    if "--plan" in sys.argv:
        session.serve()
    else:
        region.measure_one(asked, measure_point)


if __name__ == "__main__":
    main()
