"""graph_walk: the graph is the one described and proved whole, and the walk is the oracle's."""

import pytest
from support.graph_walk import graph, parsed, visited, walking
from support.kernels import checksum, needs_c, run_c

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- the graph and the walk, by an independent account of them


GRAPHS = [(4, 4, 7), (1024, 1024, 7), (4096, 64, 2**63 - 1)]


@needs_c
@pytest.mark.parametrize(("vertices", "block", "seed"), GRAPHS)
def test_c_links_the_graph_that_the_oracle_names(probe, vertices, block, seed):
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
        assert parsed(asked, done.stdout).checksum == checksum(path), asked


# --- how many lines a walk visits


@needs_c
@pytest.mark.parametrize(("block", "column", "first"), [(2**16, 1, 3), (64, 2, 5)])
def test_a_walk_visits_as_many_lines_as_expected(probe, block, column, first):
    """The oracle's walk: in one block, and in stays of 1000 hops."""
    for row in probe(2**16, block).splitlines()[first:7]:
        numbers = [*map(float, row.split())]
        hops = int(numbers[0])
        seen = visited(2**16, 11, 1, *((block, 1000) if column == 2 else ()), turns=hops)
        assert len(set(seen)) == pytest.approx(numbers[column], rel=0.03), hops


@needs_c
@pytest.mark.parametrize(("vertices", "block"), [(2**16, 64), (2**24, 2**12), (2**22, 2**22)])
def test_the_hops_of_a_warm_up_visit_the_lines_asked_for(probe, vertices, block):
    *_, last = probe(vertices, block).splitlines()
    assert float(last) == pytest.approx(min(4e6, 0.96 * vertices), rel=0.011)
