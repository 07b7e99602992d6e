"""A graph or a walk of graph_walk that is not the one described, and arguments that cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.common import ROOT
from support.graph_walk import MODES, walking
from support.kernels import (
    changed,
    needs_c,
    reason_of,
    refused_by_both,
    run_program,
)

pytestmark = [pytest.mark.measures, pytest.mark.endurance]


TURNS = "uint64_t turns, const int walkers)\n{"
FAULTS = [
    ("plain", "edge[0] = stand(g, cyclic(g, v));", "edge[0] = stand(g, v);"),
    ("plain", "edge[0] = stand(g, cyclic(g, v));", "edge[0] = stand(g, v == 77 ? 77 : cyclic(g, v));"),
    ("plain", "g.step = draw(seed) | 1;", "g.step = draw(seed) & ~1ull;"),
    ("plain", "#define MULTIPLIER 1664525ull", "#define MULTIPLIER 1664527ull"),
    ("plain", "stand(g, base | (third & mask));", "stand(g, base | third);"),
    ("blocked", "stand(g, base | (two & mask));", "stand(g, two & (g->vertices - 1));"),
    ("blocked", "stand(g, base | (two >> 32 & mask));", "stand(g, (base ^ 64) | (two >> 32 & mask));"),
    ("plain", "g->vertices * (i + 1) / threads", "g->vertices * (i + 1) / (threads + 1)"),  # neither filled nor looked at
    *((mode, TURNS, TURNS + fault) for mode in ("plain", "walkers", "blocked") for fault in (" turns = 1;", " turns /= 2;", " turns--;")),
    ("walkers", "k = 0; k < walkers; k++)\n            at[k] = line", "k = 1; k < walkers; k++)\n            at[k] = line"),
    ("plain", "at[k] = line[at[k]].edge[random >> 2 * k & 3];", "at[k] = line[at[k]].edge[random >> 2 * k & 1];"),
    ("prefetch", "for (uint64_t i = 0; i < turns; i++) {\n        __builtin", "for (uint64_t i = 1; i < turns; i++) {\n        __builtin"),
    ("prefetch", "at = line[at].edge[draw(&state) & 3];", "at = line[ahead[i]].edge[draw(&state) & 3];"),
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
from kernels.twins import graph_walk
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
       ["--per_hop", "2"], ["--per_hop", "1", "--walkers", "2"], ["--mode", "hop"], ["--layout", "alias"], ["--order", "cycle"],
       ["--bytes", "64"]]


def test_an_argument_that_cannot_be_is_one_sentence():
    refused_by_both("graph_walk", BAD)
