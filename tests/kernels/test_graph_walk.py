"""graph_walk: the graph is the one described and proved whole, the walk is the oracle's, the histogram tells the quantiles."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from support.common import ROOT
from support.kernels import (
    NOT_IN_A_TIMED_LOOP,
    both_engines,
    changed,
    checksum,
    compiled,
    disassembled,
    emulated,
    for_arm64,
    measured,
    needs_c,
    needs_emulator,
    needs_thp,
    on_x86,
    reason_of,
    refused_by_both,
    run_c,
    run_program,
    run_twins,
    splitmix64,
    unless_fragmented,
    why_not,
)

from experiments.lab import build, kernels
from experiments.lab.kernels import arena_bytes
from experiments.lab.record import KernelReport, Point
from kernels import graph_walk

GOLDEN = 0x9E3779B97F4A7C15
QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999]
PER_HOP = {"tsc_ghz", "clock_ns", "clock_step_ns", "mean_ns", "p5_ns", "p25_ns", "p50_ns", "p75_ns", "p95_ns", "p99_ns", "p999_ns"}

pytestmark = [pytest.mark.measures, pytest.mark.measuring]


# --- the graph and the walk, by an independent account of them


def graph(vertices: int, block: int, seed: int) -> list[list[int]]:
    """Four out-edges of each vertex."""
    key, step = islice(splitmix64(seed), 2)
    numbers = islice(splitmix64(key - GOLDEN), 2 * vertices)
    edges = []
    for v, (two, third) in enumerate(zip(numbers, numbers, strict=True)):
        first = v // block * block
        cycle = (1664525 * (v - first) + (step | 1)) % block
        edges.append([first + cycle, *(first + to % block for to in (two % 2**32, two >> 32, third))])
    return edges


def visited(vertices: int, seed: int, walkers: int = 1, block: int = 0, steps: int = 0, turns: int = 4096) -> list[int]:
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


def reached(edges: list[list[int]], start: int) -> set[int]:
    found, new = {start}, [start]
    while new:
        new = [to for to in {to for v in new for to in edges[v]} if to not in found]
        found.update(new)
    return found


sizes = st.integers(2, 9).flatmap(lambda k: st.tuples(st.just(2**k), st.integers(2, k).map(lambda b: 2**b)))


@given(sizes, st.integers(0, 2**63 - 1))
@settings(max_examples=40, deadline=None)
def test_every_vertex_leads_to_every_other_one_of_its_block_and_to_no_other_block(size: tuple[int, int], seed: int):
    vertices, block = size
    edges = graph(vertices, block, seed)
    for start in (0, vertices - 1, seed % vertices):
        assert reached(edges, start) == set(range(start // block * block, start // block * block + block))


@given(sizes, st.integers(0, 2**63 - 1), st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_a_blocked_walk_stays_in_its_block_for_its_steps_and_then_leaves_it(size: tuple[int, int], seed: int, steps: int):
    vertices, block = size
    stays = np.array(visited(vertices, seed, block=block, steps=steps, turns=20 * steps)).reshape(20, steps) // block
    assert (stays == stays[:, :1]).all()
    assert (stays[1:, 0] != stays[:-1, 0]).all() or vertices == block


def linked(vertices: int, block: int, seed: int) -> list[list[int]]:
    """The graph as numba fills it, by parts and from behind."""
    edges, (_, (key, step)) = np.zeros(16 * vertices, dtype=np.uint32), graph_walk.seeded(seed, 2)
    for first, last in ((vertices // 2, vertices), (0, vertices // 2)):
        graph_walk.link_vertices(edges, first, last, np.uint64(block), np.uint64(key), np.uint64(step | 1))
    assert graph_walk.count_wrong(edges, 0, vertices, np.uint64(block), np.uint64(step | 1)) == 0
    return edges.reshape(vertices, 16)[:, :4].tolist()


GRAPHS = [(4, 4, 0), (4, 4, 7), (1024, 1024, 7), (1024, 64, 7), (4096, 4, 2**63 - 1)]


@pytest.mark.parametrize(("vertices", "block", "seed"), GRAPHS)
def test_numba_links_the_graph_that_the_oracle_names(vertices: int, block: int, seed: int):
    assert linked(vertices, block, seed) == graph(vertices, block, seed)


@pytest.mark.parametrize(("vertices", "block", "seed"), GRAPHS)
def test_each_single_wrong_edge_is_counted(vertices: int, block: int, seed: int):
    edges, (_, (_, step)) = np.zeros((vertices, 16), dtype=np.uint32), graph_walk.seeded(seed, 2)
    edges[:, :4] = graph(vertices, block, seed)

    def wrong() -> int:
        return graph_walk.count_wrong(edges.reshape(-1), 0, vertices, np.uint64(block), np.uint64(step | 1))

    for v in (0, vertices // 2, vertices - 1):
        for k, to in [(0, edges[v, 0] ^ 1), *((k, v ^ block) for k in range(4)), *((k, 2**31) for k in range(4))]:
            right, edges[v, k] = edges[v, k], to
            assert wrong() == 1, (v, k, to)
            edges[v, k] = right
    assert wrong() == 0


PROBE = f"""
#define main kernel_main
#include "{build.KERNELS}/graph_walk.c"
#undef main
static struct tally tally;
int main(int argc, char **argv)
{{
    if (argc > 3) {{
        uint64_t n = strtoull(argv[1], NULL, 10), seed = strtoull(argv[3], NULL, 10);
        struct graph g = plan_graph(aligned_alloc(64, n * LINE), n, strtoull(argv[2], NULL, 10), &seed);
        link_vertices(&g, n / 2, n);
        link_vertices(&g, 0, n / 2);
        for (uint64_t v = 0; v < n; v++)
            printf("%u %u %u %u\\n", g.vertex[v].edge[0], g.vertex[v].edge[1], g.vertex[v].edge[2], g.vertex[v].edge[3]);
        return count_wrong(&g, 0, n) != 0;
    }}
    if (argc > 2) {{
        struct graph g = {{NULL, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), 0, 0}};
        for (double hops = 1; hops < 1e9; hops *= 7)
            printf("%.17g %.17g %.17g\\n", hops, expected_lines(&g, hops, 0), expected_lines(&g, hops, 1000));
        return printf("%" PRIu64 "\\n", hops_for(g.vertices, DISTINCT)) < 0;
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
def probe(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Parts of graph_walk.c by themselves: a graph, what is expected of a walk, or the histogram of the ticks on stdin."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(PROBE)
    binary = compiled(folder / "probe.c", folder / "probe")
    return lambda *given, text="": subprocess.run([binary, *map(str, given)], input=text, capture_output=True, text=True, timeout=60,
                                                  check=True).stdout


@needs_c
@pytest.mark.parametrize(("vertices", "block", "seed"), GRAPHS)
def test_c_links_the_graph_that_the_oracle_names(probe, vertices: int, block: int, seed: int):
    assert [[int(word) for word in line.split()] for line in probe(vertices, block, seed).splitlines()] == graph(vertices, block, seed)


# --- the walk


def walking(vertices: int, *more: object, seed: int = 7, pages: str = "4k") -> list[str]:
    """Of the shortest possible measurement."""
    return ["--pages", pages, "--lines", str(vertices), "--seed", str(seed), "--region-ms", "1", *map(str, more)]


CASES: list[tuple[list[str], list[int]]] = [
    *((walking(n, "--vertices", n, seed=seed), visited(n, seed)) for n in (4, 8, 1024, 2**14) for seed in (0, 7, 2**63 - 1)),
    *((walking(1024, "--walkers", k), visited(1024, 7, k)) for k in (1, 2, 3, 8, 9, 31, 32)),
    *((walking(1024, "--mode", "blocked", "--block_vertices", b, "--block_steps", s), visited(1024, 7, 1, b, s))
      for b, s in ((4, 1), (64, 100), (512, 5000), (1024, 10))),
    (walking(256, "--mode", "blocked", "--block_vertices", 16), visited(256, 7, 1, 16, 1024)),
    (walking(256, "--mode", "blocked", "--block_vertices", 16, "--block_steps", 7, "--walkers", 5), visited(256, 7, 5, 16, 7)),
    *((walking(1024, "--mode", "prefetch", *more), visited(1024, 7)) for more in ([], ["--distance", 0], ["--distance", 256])),
    (walking(1024, "--per_hop", 1), visited(1024, 7)),
    (walking(1024, "--per_hop", 0), visited(1024, 7)),
    (walking(1024, "--per_hop", 1, "--mode", "blocked", "--block_vertices", 64), visited(1024, 7, 1, 64, 1024)),
]


def parsed(asked: list[str], out: str, engine: str) -> KernelReport:
    report = KernelReport.model_validate_json(out)
    words = dict(zip(asked[::2], asked[1::2], strict=True))
    lines, walkers = int(words["--lines"]), int(words.get("--walkers", 1))
    assert (report.engine, report.layout, report.order, report.lines) == (engine, "packed", "random", lines)
    own = {name[2:]: int(value) for name, value in words.items() if "_" in name or name in ("--vertices", "--walkers", "--distance")}
    assert (report.mode, dict(report.options)) == (words.get("--mode", "plain"), own)
    assert report.working_set_bytes == 64 * lines and report.arena_bytes == max(64 * lines, 4096)
    assert report.accesses % (walkers * len(report.batch_ns_per_access)) == 0
    assert report.ns_per_access == pytest.approx(np.median(report.batch_ns_per_access), rel=1e-4)
    assert 1 <= report.also["prepare_threads"] <= len(os.sched_getaffinity(0)) and report.also["prepare_graph_ns"] > 0
    per_hop, timed = own.get("per_hop") == 1, report.mode != "prefetch" and own.get("per_hop") != 1
    assert report.also.keys() == ({"prepare_threads", "prepare_graph_ns", "distinct_lines_expected"} | (PER_HOP if per_hop else set())
                                  | ({"four_vertices_ns_per_access"} if timed else set()))
    if report.mode == "plain":
        assert 0.95 * lines < report.also["distinct_lines_expected"] <= lines
    assert sum(hops for _, hops in report.histogram) == (report.accesses if per_hop else 0)
    return report


def test_numba_walks_as_the_oracle_does():
    done = run_twins([("graph_walk", asked) for asked, _ in CASES])
    assert [(status, err) for status, _, err in done] == [(0, "")] * len(CASES)
    for (asked, path), (_, out, _) in zip(CASES, done, strict=True):
        assert parsed(asked, out, "numba").checksum == checksum(path), asked


@needs_c
@pytest.mark.parametrize(("asked", "path"), CASES, ids=lambda one: " ".join(one[3:]) if isinstance(one[0], str) else "")
def test_c_walks_as_the_oracle_does(asked: list[str], path: list[int]):
    done = run_c("graph_walk", asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert parsed(asked, done.stdout, "c").checksum == checksum(path)


@needs_c
def test_the_graph_is_the_same_whoever_fills_it():
    alone = {min(os.sched_getaffinity(0))}
    done = [run_c("graph_walk", walking(2**16), **how) for how in ({}, {"preexec_fn": lambda: os.sched_setaffinity(0, alone)})]
    all_cpus, one_cpu = (KernelReport.model_validate_json(one.stdout) for one in done)
    assert all_cpus.checksum == one_cpu.checksum == checksum(visited(2**16, 7))
    assert one_cpu.also["prepare_threads"] == 1
    assert all_cpus.also["prepare_threads"] == min(len(os.sched_getaffinity(0)), 8)  # 4 MiB, in parts of half a MiB at the least


@needs_c
def test_no_page_of_the_graph_is_faulted_in_while_time_runs():
    reports = (KernelReport.model_validate_json(run_c("graph_walk", walking(2**16)).stdout) for _ in range(3))
    assert any((report.minor_faults, report.major_faults) == (0, 0) for report in reports)


@needs_c
def test_a_small_graph_on_a_transparent_huge_page_has_one_of_its_own():
    needs_thp()
    done = run_c("graph_walk", walking(1024, pages="thp"))
    report = unless_fragmented(done.returncode, done.stdout, done.stderr)
    assert (report.backing, report.checksum) == ("thp", checksum(visited(1024, 7))) and report.arena_bytes >= 1 << 21


# --- how many lines a walk visits


def walked(vertices: int, block: int, steps: int, turns: int, walkers: int = 1) -> np.ndarray:
    """The vertices of a walk by numba's hop-by-hop loop, which the oracle's checksums hold."""
    edges, (state, (key, step, *starts)) = np.zeros(16 * vertices, dtype=np.uint32), graph_walk.seeded(11, 2 + walkers)
    graph_walk.link_vertices(edges, 0, vertices, np.uint64(block), np.uint64(key), np.uint64(step | 1))
    at, segment = np.array([start % vertices for start in starts], dtype=np.uint64), steps or 2**62
    walk = graph_walk.Walk(edges, vertices, block, at, state, segment, segment, np.empty(0, dtype=np.uint32), state)
    return walk.retraced(turns, turns * walkers)[2]


@pytest.mark.parametrize("hops", [2**10, 2**14, 2**16, 2**17, 2**18, 2**19])
def test_a_walk_visits_as_many_lines_as_expected(hops: int):
    expected = graph_walk.expected_lines(2**16, 2**16, hops, 0)
    assert np.unique(walked(2**16, 2**16, 0, hops)).size == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("block", "steps"), [(64, 16), (64, 1024), (1024, 1024), (4096, 10_000), (2**16, 100)])
@pytest.mark.parametrize("walkers", [1, 8])
def test_a_blocked_walk_visits_as_many_lines_as_expected(block: int, steps: int, walkers: int):
    vertices, turns = 2**16, 2**18 // walkers
    expected = graph_walk.expected_lines(vertices, block, turns * walkers, min(steps, turns))
    assert np.unique(walked(vertices, block, steps, turns, walkers)).size == pytest.approx(expected, rel=0.15 if block > 1024 else 0.06)


def test_a_point_past_the_caches_walks_far_enough_for_four_million_lines():
    for k in range(2, 30):
        hops = graph_walk.hops_for(2**k, 4e6)
        lines = graph_walk.expected_lines(2**k, 2**k, hops, 0)
        assert lines >= min(4e6, 0.96 * 2**k) - 1e-6
        assert hops < 20e6
        assert graph_walk.expected_lines(2**k, 2**k, 0.98 * hops - 2, 0) < min(4e6, 0.96 * 2**k)
        assert 8 * (hops + 256) <= kernels.PATH_BYTES  # numba's path, and its copy


@needs_c
def test_c_expects_what_numba_expects(probe):
    for vertices, block in ((2**16, 2**16), (2**16, 64), (2**24, 2**12), (2**22, 2**22)):
        *rows, hops = probe(vertices, block).splitlines()
        for row in rows:
            n, plain, blocked = map(float, row.split())
            assert plain == pytest.approx(graph_walk.expected_lines(vertices, block, n, 0), rel=1e-9)
            assert blocked == pytest.approx(graph_walk.expected_lines(vertices, block, n, 1000), rel=1e-3)
        assert int(hops) == pytest.approx(graph_walk.hops_for(vertices, 4e6), rel=0.011)


# --- the histogram


@njit
def binned(ticks, bins):
    for one in ticks:
        bins[graph_walk.bin_of(one)] += 1


def histogram(ticks: list[int]) -> np.ndarray:
    bins = np.zeros(graph_walk.BINS, dtype=np.int64)
    binned(np.array(ticks, dtype=np.uint64), bins)
    return bins


TICKS = st.lists(st.one_of(st.integers(0, 1000), st.integers(0, 2**32 - 1)), min_size=1, max_size=300)


@given(TICKS)
@settings(deadline=None)
def test_quantiles_of_the_histogram_are_within_one_percent_of_exact_ones(ticks: list[int]):
    bins = histogram(ticks)
    for q in QUANTILES:
        exact = int(np.quantile(ticks, q, method="inverted_cdf"))
        assert graph_walk.quantile(bins, q) == pytest.approx(exact, rel=0.01, abs=0)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300))
@settings(deadline=None)
def test_a_bin_begins_at_or_below_what_it_counts_and_ends_within_one_percent_above(ticks: list[int]):
    for one in ticks:
        (at,) = np.flatnonzero(histogram([one]))
        least, after = graph_walk.least_of(np.array([at, at + 1]))
        assert least <= one < after and (after - 1 - least) <= 0.01 * one


def test_what_takes_longer_than_the_last_bin_is_counted_there():
    assert np.flatnonzero(histogram([2**32, 2**63, 2**64 - 1])).tolist() == [graph_walk.BINS - 1]


def in_c(probe: Callable[..., str], ticks: list[int]) -> tuple[list[float], np.ndarray]:
    first, *rows = probe(text=" ".join(map(str, ticks))).splitlines()
    return [float(word) for word in first.split()], np.array([[int(word) for word in row.split()] for row in rows])


@needs_c
@given(ticks=TICKS)
@settings(deadline=None, max_examples=30)
def test_c_counts_into_the_same_bins_and_tells_the_same_quantiles(probe, ticks: list[int]):
    quantiles, rows = in_c(probe, ticks)
    bins = histogram(ticks)
    full = np.flatnonzero(bins)
    assert rows.tolist() == np.column_stack([graph_walk.least_of(full), bins[full]]).tolist()
    assert quantiles == [graph_walk.quantile(bins, q) for q in QUANTILES]


@needs_c
def test_quantiles_of_a_trace_of_hops_are_within_one_percent_of_exact_ones(probe):
    """Three modes as a walk has them: a cache, memory, memory after a page walk; half a million hops."""
    random = np.random.default_rng(1)
    trace = np.concatenate([random.normal(40, 5, 100_000), random.gamma(60, 5, 300_000), 500 + random.gamma(9, 40, 100_000)])
    ticks = np.maximum(trace, 1).astype(int)
    for found, q in zip(in_c(probe, ticks.tolist())[0], QUANTILES, strict=True):
        assert found == pytest.approx(np.quantile(ticks, q), rel=0.01)


@both_engines
def test_quantiles_and_mean_in_the_report_follow_from_its_histogram(engine: str):
    asked = walking(2**16, "--per_hop", 1)
    out = run_c("graph_walk", asked).stdout if engine == "c" else run_twins([("graph_walk", asked)])[0][1]
    report = parsed(asked, out, engine)
    least, hops = np.array(report.histogram).T
    also, reached = report.also, np.cumsum(hops)
    named = [also[f"p{str(100 * q).rstrip('0').rstrip('.').replace('.', '')}_ns"] for q in QUANTILES]
    for q, ns in zip(QUANTILES, named, strict=True):
        at = least[np.searchsorted(reached, q * reached[-1])]
        width = max(1 / also["tsc_ghz"], at / 128)
        assert ns == pytest.approx(max(at + width / 2 - also["clock_ns"], 0), abs=0.51 * width + 1e-6)
    assert named == sorted(named)
    mean = np.average(least, weights=hops)
    assert mean * 0.999 - also["clock_ns"] <= also["mean_ns"] <= mean * 1.009 - also["clock_ns"]
    assert also["clock_ns"] > 0 and also["clock_step_ns"] >= 0.99 / also["tsc_ghz"]
    assert also["mean_ns"] + also["clock_ns"] < report.elapsed_ns / report.accesses  # which holds the counting too


@needs_c
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the stamp's own instructions")
@pytest.mark.needs("objdump")
def test_each_hop_stands_between_two_readings_that_wait_for_it():
    code = disassembled("graph_walk", "walk_clocked")
    stamps = [i for i, one in enumerate(code) if one.startswith("rdtscp")]
    assert len(stamps) == 2 and all(code[i + 1].startswith("lfence") for i in stamps)
    loads = [one for one in code[stamps[0] + 2: stamps[1]] if re.match(r"mov\w*\s.*\(%.*\),", one)]
    assert len(loads) == 1, code[stamps[0]: stamps[1]]


@pytest.mark.needs("a C compiler", "objdump")
@pytest.mark.parametrize(("symbol", "loads"), [("walk_on", 32 * 33 // 2), ("walk_ahead", 2)])
def test_the_timed_loops_load_and_neither_call_nor_divide(symbol: str, loads: int):
    code = disassembled("graph_walk", symbol)
    assert [one for one in code if NOT_IN_A_TIMED_LOOP.match(one)] == []
    assert sum(bool(re.match(r"mov\w*\s.*\(%.*\),|ldr\w*\s", one)) for one in code) >= loads
    assert any(re.match(r"prefetch|prfm", one) for one in code) == (symbol == "walk_ahead")


# --- a graph or a walk that is not the one described


MODES = {"plain": [], "walkers": ["--walkers", 3], "blocked": ["--mode", "blocked", "--block_vertices", 64, "--block_steps", 50],
         "prefetch": ["--mode", "prefetch"], "per hop": ["--per_hop", 1]}
TURNS = "uint64_t turns, const int walkers)\n{"
FAULTS = [
    ("plain", "edge[0] = (uint32_t)cyclic(g, v);", "edge[0] = (uint32_t)v;"),
    ("plain", "edge[0] = (uint32_t)cyclic(g, v);", "edge[0] = (uint32_t)(v == 77 ? 77 : cyclic(g, v));"),
    ("plain", "g.step = draw(seed) | 1;", "g.step = draw(seed) & ~1ull;"),
    ("plain", "#define MULTIPLIER 1664525ull", "#define MULTIPLIER 1664527ull"),
    ("plain", "(uint32_t)(base | (third & mask));", "(uint32_t)(base | third);"),
    ("blocked", "(uint32_t)(base | (two & mask));", "(uint32_t)(two & (g->vertices - 1));"),
    ("blocked", "(uint32_t)(base | (two >> 32 & mask));", "(uint32_t)((base ^ 64) | (two >> 32 & mask));"),
    ("plain", "last = end / LINE;", "last = end / LINE - 1;"),  # neither filled nor looked at
    ("plain", "(uint64_t)CPU_COUNT(allowed), wrong = 0;", "(uint64_t)CPU_COUNT(allowed), wrong = 0; chunks -= chunks > 1;"),
    *((mode, TURNS, TURNS + fault) for mode in ("plain", "walkers", "blocked") for fault in (" turns = 1;", " turns /= 2;", " turns--;")),
    ("walkers", "k = 0; k < walkers; k++)\n            at[k] = vertex", "k = 1; k < walkers; k++)\n            at[k] = vertex"),
    ("plain", "at[k] = vertex[at[k]].edge[random >> 2 * k & 3];", "at[k] = vertex[at[k]].edge[random >> 2 * k & 1];"),
    ("prefetch", "for (uint64_t i = 0; i < turns; i++) {\n        __builtin", "for (uint64_t i = 1; i < turns; i++) {\n        __builtin"),
    ("prefetch", "at = vertex[at].edge[draw(&state) & 3];", "at = vertex[ahead[i]].edge[draw(&state) & 3];"),
    ("per hop", "w->at[0] = *edge;", "w->at[0] = *(edge - 0) & 1;"),
    ("per hop", "for (; turns; turns--) {\n        const", "for (turns /= 2; turns; turns--) {\n        const"),
]


@needs_c
@pytest.mark.parametrize(("mode", "before", "after"), FAULTS)
def test_a_faulty_graph_or_walk_is_kernel_garbage(mode: str, before: str, after: str, tmp_path: Path):
    kernel = changed("graph_walk", {before: after}, tmp_path)
    code, detail = reason_of(run_program(kernel, walking(2**14, *MODES[mode])))
    assert code == "kernel-garbage" and detail


BROKEN_TWIN = """
import sys
import numpy as np
from kernels import graph_walk
fault = sys.argv.pop(1)
link, go = graph_walk.link_vertices, graph_walk.Walk.go
def self_loop(edges, first, last, *rest):
    link(edges, first, last, *rest)
    edges[16 * (last - 1)] = last - 1
def astray(edges, first, last, *rest):
    link(edges, first, last, *rest)
    edges[16 * first + 2] ^= 1 << 10 if last > 4 else 0
if fault in ("self_loop", "astray"):
    graph_walk.link_vertices = {"self_loop": self_loop, "astray": astray}[fault]
if fault == "half":
    graph_walk.Walk.go = lambda self, turns, bins: go(self, turns // 2, bins)
graph_walk.main()
"""


@pytest.mark.parametrize("fault", ["self_loop", "astray", "half", "none"])
def test_numba_notices_a_faulty_graph_and_hops_that_were_left_out(fault: str):
    done = subprocess.run([sys.executable, "-c", BROKEN_TWIN, fault, *walking(1024)], capture_output=True, text=True, cwd=ROOT, timeout=120)
    if fault == "none":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert reason_of(done)[0] == "kernel-garbage"


# --- arguments that cannot be

BAD = [["--lines", "1000"], ["--lines", "2"], ["--vertices", "1024"], ["--lines", "1024", "--vertices", "512"], ["--vertices", "3"],
       ["--lines", str(2**30)], ["--lines", str(2**30), "--vertices", str(2**30)], ["--walkers", "0"], ["--walkers", "33"],
       ["--walkers", "x"],
       ["--mode", "blocked"], ["--mode", "blocked", "--block_vertices", "100"], ["--mode", "blocked", "--block_vertices", "2"],
       ["--mode", "blocked", "--block_vertices", "8192"], ["--mode", "blocked", "--block_vertices", "64", "--block_steps", "0"],
       ["--block_vertices", "64"], ["--block_steps", "64"], ["--mode", "prefetch", "--block_vertices", "64"], ["--distance", "4"],
       ["--mode", "prefetch", "--distance", "257"], ["--mode", "prefetch", "--walkers", "2"], ["--mode", "prefetch", "--per_hop", "1"],
       ["--per_hop", "2"], ["--per_hop", "1", "--walkers", "2"], ["--mode", "hop"], ["--layout", "spread"], ["--order", "cycle"],
       ["--bytes", "64"]]


def test_an_argument_that_cannot_be_is_one_sentence():
    refused_by_both("graph_walk", BAD)


# --- a point and its record


@both_engines
@pytest.mark.parametrize(("mode", "options"), [
    ("plain", {}), ("plain", {"walkers": 4}), ("blocked", {"block_vertices": 256, "block_steps": 64}), ("prefetch", {"distance": 4}),
    ("plain", {"per_hop": 1})])
def test_a_point_of_graph_walk_is_measured(engine: str, mode: str, options: dict[str, int]):
    point = Point(kernel="graph_walk", engine=engine, layout="packed", order="random", lines=1024, mode=mode,
                  options={"vertices": 1024} | options, region_ms=1)
    record = measured(point)
    assert record.point == point and record.arena_bytes <= arena_bytes(point)
    assert bool(record.histogram) == ("per_hop" in options)
    assert type(record).model_validate(json.loads(record.model_dump_json())) == record


@needs_c
def test_a_point_whose_lines_are_not_its_vertices_is_a_bad_parameter():
    point = Point(kernel="graph_walk", layout="packed", order="random", lines=1024, mode="plain", options={"vertices": 512}, region_ms=1)
    assert "--vertices takes" in why_not(point, "bad-parameter")


def test_a_graph_that_memory_cannot_hold_is_not_begun():
    point = Point(kernel="graph_walk", engine="numba", layout="packed", order="random", lines=2**29, mode="plain")
    why_not(point, "memory-short", usable_bytes=1 << 30)
    assert arena_bytes(point) == 32 << 30


# --- the other architecture


@on_x86
@needs_emulator
def test_the_arm64_build_walks_the_same_under_emulation(tmp_path: Path):
    program = for_arm64("graph_walk", tmp_path)
    for more, path in [(MODES["plain"], visited(1024, 7)), (["--walkers", 32], visited(1024, 7, 32)), (MODES["prefetch"], visited(1024, 7)),
                       (MODES["blocked"], visited(1024, 7, 1, 64, 50)), (MODES["per hop"], visited(1024, 7))]:
        assert emulated(program, *walking(1024, *more)).checksum == checksum(path)
