"""Accesses that a compiler left out are noticed by the kernel itself, and its timed loop is what it
claims."""

import json
import re
import subprocess
import sys

import pytest
from support.common import ROOT
from support.kernels import NOT_IN_A_TIMED_LOOP, disassembled

pytestmark = [pytest.mark.measures, pytest.mark.slow]


# --- accesses that are not made

CHASES = {
    "follow": [("cycle", "spread"), ("cycle", "packed"), ("sequential", "spread")],
    "follow_draws": [
        ("random", "spread"),
        ("random", "packed"),
        ("cycle", "alias"),
        ("random", "alias"),
    ],
    "gather": [("cycle", "spread"), ("sequential", "packed")],
}


def kernel_of(loop: str) -> str:
    return "page_gather" if loop == "gather" else "page_chase"


# A session whose timed loops in numba do nothing, half of their accesses, or what they do.
BROKEN = """
import sys
import numpy as np
from kernels import chase_numba, plan
loop, fault = sys.argv.pop(1), sys.argv.pop(1)
real = getattr(chase_numba, loop)
faults = {"nothing": {"follow": lambda words, at, hops: at,
                      "follow_draws": lambda words, at, loaded: loaded + np.uint64(len(at)),
                      "gather": lambda memory, index, rounds: 0},
          "half": {"follow": lambda words, at, hops: real(words, at, hops // 2),
                   "follow_draws": lambda words, at, loaded: real(words, at[: len(at) // 2], loaded),
                   "gather": lambda memory, index, rounds: real(memory, index, max(rounds // 2, 1))}}
setattr(chase_numba, loop, faults.get(fault, {}).get(loop, real))
plan.measure_plan_from_stdin("numba", {"page_chase": chase_numba.prepare_chase, "page_gather": chase_numba.prepare_gather})
"""


@pytest.mark.parametrize("fault", ["nothing", "half", "none"])
@pytest.mark.parametrize("loop", CHASES)
def test_numba_notices_accesses_that_were_left_out(loop, fault):
    cases = [case for case in CHASES[loop] if "alias" not in case]
    lines = [f"0 {kernel_of(loop)} - {layout} {order} 1000 1 7 1\n" for order, layout in cases]
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, loop, fault, "--plan"],
        input="".join(lines),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()][1:-1]
    expected = "" if fault == "none" else "kernel-failed"
    assert [answer.get("reason", "") for answer in answers] == [expected] * len(cases)


# --- the timed loop


@pytest.mark.needs("a C compiler", "objdump")
@pytest.mark.parametrize(
    ("kernel", "symbol", "loads"),
    [
        ("page_chase", "follow", 16),
        ("page_chase", "follow_draws", 32),
        ("page_gather", "gather", 2),
        ("radix_partition", "scatter", 3),
        ("radix_partition", "join", 4),
        ("graph_walk", "walk_on", 32 * 33 // 2),
        ("graph_walk", "walk_ahead", 2),
    ],
)
def test_the_timed_loop_loads_and_neither_calls_nor_divides(kernel, symbol, loads):
    code = disassembled(kernel, symbol)
    assert [line for line in code if NOT_IN_A_TIMED_LOOP.match(line)] == []
    from_memory = [
        line for line in code if re.match(r"mov\w*\s.*\(%.*\),|add\w*\s.*\(%.*\),|ldr\w*\s", line)
    ]
    assert len(from_memory) >= loads, code
