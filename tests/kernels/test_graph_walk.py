"""graph_walk: the graph is the one described and proved whole, and the walk is the oracle's."""

from __future__ import annotations

import numpy as np
import pytest
from support.graph_walk import graph, parsed, visited, walking
from support.kernels import checksum, needs_c, run_c

from kernels.twins import walk
from kernels.twins.placement import places_in

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- the graph and the walk, by an independent account of them


PACKED = places_in(True, 4096, 4096)


GRAPHS = [(4, 4, 7), (1024, 1024, 7), (4096, 64, 2**63 - 1)]


@needs_c
@pytest.mark.parametrize(("vertices", "block", "seed"), GRAPHS)
def test_c_links_the_graph_that_the_oracle_names(probe, vertices: int, block: int, seed: int):
    assert [
        [int(word) for word in line.split()] for line in probe(vertices, block, seed).splitlines()
    ] == graph(vertices, block, seed)


# --- the walk


CASES: list[tuple[list[str], list[int]]] = [
    *(
        (walking(n, seed=seed), visited(n, seed))
        for n, seed in ((4, 7), (8, 0), (2**14, 2**63 - 1))
    ),
    *((walking(1024, "--walkers", k), visited(1024, 7, k)) for k in (2, 9, 32)),
    *(
        (
            walking(1024, "--mode", "blocked", "--block_vertices", b, "--block_steps", s),
            visited(1024, 7, 1, b, s),
        )
        for b, s in ((4, 1), (64, 100), (1024, 10))
    ),
    (
        walking(
            256, "--mode", "blocked", "--block_vertices", 16, "--block_steps", 7, "--walkers", 5
        ),
        visited(256, 7, 5, 16, 7),
    ),
    *(
        (walking(1024, "--mode", "prefetch", "--distance", n), visited(1024, 7))
        for n in (0, 8, 256)
    ),
    (walking(1024, "--per_hop", 1), visited(1024, 7)),
    (
        walking(1024, "--per_hop", 1, "--mode", "blocked", "--block_vertices", 64),
        visited(1024, 7, 1, 64, 1024),
    ),
    # Each vertex on a page of its own: the same walk.
    (walking(1024, "--walkers", 3, "--layout", "spread"), visited(1024, 7, 3)),
    (
        walking(
            1024,
            "--mode",
            "blocked",
            "--block_vertices",
            64,
            "--block_steps",
            100,
            "--layout",
            "spread",
        ),
        visited(1024, 7, 1, 64, 100),
    ),
]


@needs_c
def test_c_walks_as_the_oracle_does():
    for asked, path in CASES:
        done = run_c("graph_walk", asked)
        assert (done.returncode, done.stderr) == (0, ""), asked
        assert parsed(asked, done.stdout, "c").checksum == checksum(path), asked


# --- how many lines a walk visits


def walked(vertices: int, block: int, steps: int, turns: int, walkers: int = 1) -> np.ndarray:
    """The vertices of a walk by numba's hop-by-hop loop, which the oracle's checksums hold."""
    edges, (state, (key, step, *starts)) = (
        np.zeros(16 * vertices, dtype=np.uint32),
        walk.seeded(11, 2 + walkers),
    )
    walk.link_vertices(
        edges, 0, vertices, np.uint64(block), np.uint64(key), np.uint64(step | 1), *PACKED
    )
    at, segment = np.array([start % vertices for start in starts], dtype=np.uint64), steps or 2**62
    walker = walk.Walk(
        edges, vertices, block, at, state, segment, segment, np.empty(0, dtype=np.uint32), state
    )
    return walker.retraced(turns, turns * walkers)[2]


@pytest.mark.parametrize("hops", [2**10, 2**16, 2**19])
def test_a_walk_visits_as_many_lines_as_expected(hops: int):
    expected = walk.expected_lines(2**16, 2**16, hops, 0)
    assert np.unique(walked(2**16, 2**16, 0, hops)).size == pytest.approx(expected, rel=0.02)


@needs_c
def test_c_expects_what_numba_expects(probe):
    for vertices, block in ((2**16, 2**16), (2**16, 64), (2**24, 2**12), (2**22, 2**22)):
        *rows, hops = probe(vertices, block).splitlines()
        for row in rows:
            n, plain, blocked = map(float, row.split())
            assert plain == pytest.approx(walk.expected_lines(vertices, block, n, 0), rel=1e-9)
            assert blocked == pytest.approx(walk.expected_lines(vertices, block, n, 1000), rel=1e-3)
        assert int(hops) == pytest.approx(walk.hops_for(vertices, 4e6), rel=0.011)
