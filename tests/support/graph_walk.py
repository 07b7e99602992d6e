"""What tests of graph_walk share: an independent account of the graph and the walk, its reports,
and parts of its C file alone."""

import mmap
import os
import subprocess
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from support.kernels import compiled, splitmix64
from tlb.measure import build
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


PROBE = f"""
#define main kernel_main
#include "{build.KERNELS_FOLDER}/graph_walk.c"
#undef main
static struct tally tally;
int main(int argc, char **argv)
{{
    if (argc > 3) {{
        uint64_t n = strtoull(argv[1], NULL, 10), seed = strtoull(argv[3], NULL, 10);
        struct graph g = plan_graph(aligned_alloc(64, n * LINE), places_in(1, LINE, LINE), n, strtoull(argv[2], NULL, 10), &seed);
        link_vertices(&g, n / 2, n);
        link_vertices(&g, 0, n / 2);
        for (uint64_t v = 0; v < n; v++)
            printf("%u %u %u %u\\n", g.line[v].edge[0], g.line[v].edge[1], g.line[v].edge[2], g.line[v].edge[3]);
        return count_wrong(&g, 0, n) != 0;
    }}
    if (argc > 2) {{
        struct graph g = {{.vertices = strtoull(argv[1], NULL, 10), .block = strtoull(argv[2], NULL, 10)}};
        for (double hops = 1; hops < 1e9; hops *= 7)
            printf("%.17g %.17g %.17g\\n", hops, expected_lines(&g, hops, 0), expected_lines(&g, hops, 1000));
        return printf("%.17g\\n", expected_lines(&g, (double)hops_for(g.vertices, 4e6), 0)) < 0;
    }}
    unsigned long long ticks;
    static const double asked[] = {{0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999}};
    while (scanf("%llu", &ticks) == 1)
        count(&tally, ticks);
    for (unsigned i = 0; i < 7; i++)
        printf("%.17g ", quantile(&tally, asked[i]));
    for (uint64_t bin = 0; bin < BINS; bin++)
        if (tally.bin[bin])
            printf("\\n%" PRIu64 " %" PRIu64, least_of(bin), tally.bin[bin]);
    return 0;
}}
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory) -> Callable[..., str]:
    """Parts of graph_walk.c by themselves: a graph, what is expected of a walk, or the histogram of
    the ticks on stdin."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(PROBE)
    binary = compiled(folder / "probe.c", folder / "probe")
    how = {"capture_output": True, "text": True, "check": True}
    return lambda *given, text="": (
        subprocess.run([binary, *map(str, given)], input=text, **how).stdout
    )
