"""Accesses that a compiler left out are noticed by the kernel itself, and its timed loop is what it
claims."""

import json
import re
import subprocess
import sys

import pytest
from support.common import ROOT
from support.kernels import NOT_IN_A_TIMED_LOOP, arguments, disassembled, reason

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


# What numba's timed loops are replaced with: nothing, or half of the accesses, or what they are.
BROKEN_TWINS = """
import contextlib, importlib, io, json, sys
import numpy as np
idle = {"follow": lambda p, hops: p, "follow_draws": lambda base, draw, loaded: loaded, "gather": lambda memory, index, rounds: 0}
def half(real):
    return {"follow": lambda p, hops: real(p, np.uint64(hops // 2)),
            "follow_draws": lambda base, draw, loaded: real(base, draw[: len(draw) // 2], loaded),
            "gather": lambda memory, index, rounds: real(memory, index, max(rounds // 2, 1))}
for kernel, loop, fault, arguments in json.load(sys.stdin):
    module = importlib.import_module(f"kernels.twins.{kernel}")
    real = getattr(module, loop)
    setattr(module, loop, {"nothing": idle.get(loop), "half": half(real).get(loop), "none": real}[fault])
    sys.argv, out, err, status = [kernel, *arguments], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            module.main()
        except SystemExit as stop:
            status = stop.code
    setattr(module, loop, real)
    print(json.dumps([status, out.getvalue(), err.getvalue()]), flush=True)
"""


def test_numba_notices_accesses_that_were_left_out():
    def job(loop: str, fault: str, order: str, layout: str) -> tuple[str, str, str, list[str]]:
        return kernel_of(loop), loop, fault, arguments(order, layout, 1000)

    chases = [
        (loop, *chase)
        for loop, chases in CHASES.items()
        for chase in chases
        if "alias" not in chase
    ]
    jobs = [
        job(loop, fault, *chase) for loop, *chase in chases for fault in ("nothing", "half", "none")
    ]
    done = subprocess.run(
        [sys.executable, "-c", BROKEN_TWINS],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    for (_, loop, fault, _), said in zip(
        jobs, map(json.loads, done.stdout.splitlines()), strict=True
    ):
        if fault == "none":
            assert (said[0], said[2]) == (0, ""), loop
        else:
            assert reason(*said)[0] == "kernel-garbage", (loop, fault)


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
    ],
)
def test_the_timed_loop_loads_and_neither_calls_nor_divides(kernel, symbol, loads):
    code = disassembled(kernel, symbol)
    assert [line for line in code if NOT_IN_A_TIMED_LOOP.match(line)] == []
    from_memory = [
        line for line in code if re.match(r"mov\w*\s.*\(%.*\),|add\w*\s.*\(%.*\),|ldr\w*\s", line)
    ]
    assert len(from_memory) >= loads, code
