"""What tests of graph_walk share: an independent account of the graph and the walk, its reports,
and parts of its C file alone."""

import mmap
import os
import subprocess
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from support.common import SUPPORT
from support.kernels import compiled, splitmix64
from tlb.measure.record import KernelOutput

GOLDEN = 0x9E3779B97F4A7C15
PER_HOP = {"tsc_ghz", "clock_ns", "clock_step_ns", "mean_ns"}
PER_HOP |= {f"p{part}_ns" for part in (5, 25, 50, 75, 95, 99, 999)}


def graph(vertices: int, block: int, seed: int) -> list[list[int]]:
    """Four out-edges of each vertex."""
    key, step = islice(splitmix64(seed), 2)
    numbers = islice(splitmix64(key - GOLDEN), 2 * vertices)
    edges = []
    for v, (two, third) in enumerate(zip(numbers, numbers, strict=True)):
        first = v // block * block
        cycle = (1664525 * (v - first) + (step | 1)) % block
        edges.append(
            [first + cycle, *(first + to % block for to in (two % 2**32, two >> 32, third))]
        )
    return edges


def visited(
    vertices: int, seed: int, walkers: int = 1, block: int = 0, steps: int = 0, turns: int = 4096
) -> list[int]:
    """The vertices that the walkers stand on, turn by turn and walker by walker."""
    edges, draws = graph(vertices, block or vertices, seed), splitmix64(seed)
    at = [next(draws) % vertices for _ in range(2 + walkers)][2:]
    seen, blocks = [], vertices // block if block else 1
    for turn in range(1, turns + 1):
        seen += at
        random = next(draws)
        at = [edges[v][random >> 2 * k & 3] for k, v in enumerate(at)]
        if steps and turn % steps == 0:
            for k, v in enumerate(at):
                random = next(draws)
                other = (v // block + 1 + ((random >> 32) * (blocks - 1) >> 32)) % blocks
                at[k] = other * block + random % block
    return seen


def walking(vertices: int, *more: object, seed: int = 7, pages: str = "4k") -> list[str]:
    """Of the shortest possible measurement."""
    words = f"--pages {pages} --lines {vertices} --seed {seed} --region-ms 1"
    return [*words.split(), *map(str, more)]


MODES = {
    "plain": [],
    "walkers": ["--walkers", 3],
    "blocked": ["--mode", "blocked", "--block_vertices", 64, "--block_steps", 50],
    "prefetch": ["--mode", "prefetch"],
    "per hop": ["--per_hop", 1],
}


def parsed(asked: list[str], out: str) -> KernelOutput:
    report = KernelOutput.model_validate_json(out)
    words = dict(zip(asked[::2], asked[1::2], strict=True))
    lines, walkers = int(words["--lines"]), int(words.get("--walkers", 1))
    layout = words.get("--layout", "packed")
    found = report.engine, report.layout, report.order, report.lines
    assert found == ("c", layout, "random", lines)
    own = {
        name[2:]: int(value)
        for name, value in words.items()
        if "_" in name or name in ("--vertices", "--walkers", "--distance")
    }
    assert (report.mode, dict(report.options)) == (words.get("--mode", "plain"), own)
    apart = 64 if layout == "packed" else mmap.PAGESIZE
    assert report.working_set_bytes == apart * lines and report.arena_bytes == max(
        apart * lines, mmap.PAGESIZE
    )
    assert report.accesses % (walkers * len(report.batch_ns_per_access)) == 0
    assert report.ns_per_access == pytest.approx(np.median(report.batch_ns_per_access), rel=1e-4)
    assert (
        1 <= report.also["prepare_threads"] <= len(os.sched_getaffinity(0))
        and report.also["prepare_graph_ns"] > 0
    )
    per_hop, timed = own.get("per_hop") == 1, report.mode != "prefetch" and own.get("per_hop") != 1
    assert report.also.keys() == (
        {"prepare_threads", "prepare_graph_ns", "distinct_lines_expected", "warm_hops"}
        | (PER_HOP if per_hop else set())
        | ({"four_vertices_ns_per_access"} if timed else set())
    )
    if report.mode == "plain":
        assert 0.95 * lines < report.also["distinct_lines_expected"] <= lines
    assert sum(hops for _, hops in report.histogram) == (report.accesses if per_hop else 0)
    return report


@pytest.fixture(scope="module")
def probe(tmp_path_factory) -> Callable[..., str]:
    """Parts of graph_walk.c by themselves: a graph, what is expected of a walk, or the histogram of
    the ticks on stdin."""
    target = tmp_path_factory.mktemp("probe") / "probe"
    binary = compiled(SUPPORT / "probe_graph_walk.c", target)
    how = {"capture_output": True, "text": True, "check": True}
    return lambda *given, text="": (
        subprocess.run([binary, *map(str, given)], input=text, **how).stdout
    )
