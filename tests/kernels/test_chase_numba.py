"""page_chase and page_gather in numba, and the published program in numpy, answer a plan as the C
kernels do."""

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from support.common import ROOT
from support.kernels import checksum, needs_c, needs_thp, visits

from tlb.measure import build
from tlb.measure.record import KernelEngine, KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.measuring]
SHARED = 5000 * 4096
CHASES = product(["page_chase"], ["spread", "packed"], ["cycle", "random", "sequential"])
GATHERS = product(["page_gather"], ["spread", "packed"], ["cycle", "sequential"])
SIZES = (1, 1000, 5000)
LONG = ("page_chase", "packed", "cycle", 2**17 + 1000)  # of which a part is timed
POINTS = [(*what, lines) for what in [*CHASES, *GATHERS] for lines in SIZES] + [LONG]
SAME = {"kernel", "pages", "backing", "layout", "order", "lines", "seed", "checksum", "arena_bytes"}
SAME |= {"working_set_bytes", "stride_bytes", "mapping_bytes", "position"}


def line(number: int, kernel: str, layout: str, order: str, lines: int) -> str:
    return f"{number} {kernel} - {layout} {order} {lines} 1 {7 + number} 1"


def answers(engine: KernelEngine, plan: Sequence[str], *words: object) -> list[dict[str, Any]]:
    """All that a session prints for a plan."""
    done = subprocess.run(
        [*build.session("session", engine), *map(str, words), "--plan"],
        input="".join(f"{one}\n" for one in plan),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    if done.returncode == 3 and json.loads(done.stderr)["reason"] == "backing-partial":
        pytest.skip("memory is too fragmented for huge pages now")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(one) for one in done.stdout.splitlines()]


@needs_c
@pytest.mark.parametrize("pages", ["4k", "thp"])
def test_numba_visits_what_c_visits_in_the_same_memory(pages):
    if pages == "thp":
        needs_thp()
    plan = [line(number, *point) for number, point in enumerate(POINTS)]
    c, numba = (
        answers(engine, plan, "--pages", pages, "--bytes", SHARED) for engine in ["c", "numba"]
    )
    assert len(c) == len(numba) == len(POINTS) + 2 and c[-1] == numba[-1]
    for one, other in zip(c[1:-1], numba[1:-1], strict=True):
        assert {name: one[name] for name in SAME} == {name: other[name] for name in SAME}
        fields = {name: value for name, value in other.items() if name not in ("id", "proved")}
        assert KernelOutput.model_validate_json(json.dumps(fields)).engine == "numba"


def test_a_point_that_numba_cannot_measure_has_its_reason_and_the_next_one_is_measured():
    good = line(0, "page_chase", "packed", "random", 1000)
    refused = {
        "b page_chase - alias cycle 8 1 7 1": "engine-lacks",
        "c page_chase": "engine-lacks",
        "d shootdown unmap spread sequential 8 1 7 1": "engine-lacks",
        "e page_chase - spread cycle 8 64 7 1": "engine-lacks",
    }
    _, *got, end = answers("numba", [good, *refused, good], "--bytes", SHARED)
    assert [one.get("reason", "") for one in got] == ["", *refused.values(), ""]
    expected = checksum(visits("page_chase", "random", 1000, 7))
    assert got[0]["checksum"] == got[-1]["checksum"] == expected
    assert end == {"end": 6, "proved": 6}


LOST = """
from kernels import chase_numba, plan
real, readings = plan.Arena.prove, iter([True, False])
def prove(arena):
    if not next(readings):
        raise plan.Lacking("backing-partial", "split")
    real(arena)
plan.Arena.prove = prove
plan.measure_plan_from_stdin("numba", {"page_chase": chase_numba.prepare_chase})
"""


def test_a_session_ends_where_the_shared_arena_is_lost_and_proves_nothing_of_it():
    done = subprocess.run(
        [sys.executable, "-c", LOST, "--bytes", str(SHARED), "--plan"],
        input=line(0, "page_chase", "packed", "cycle", 1000) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    *_, last = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 3 and json.loads(done.stderr)["reason"] == "backing-partial"
    assert (last["id"], last["proved"]) == ("0", 0)


def test_the_published_program_gathers_the_same_pages_in_each_layout():
    plan = [line(0, "page_gather", layout, "cycle", 1000) for layout in ("spread", "packed")]
    _, *got, _ = answers("numpy", plan, "--bytes", SHARED)
    assert [(one["engine"], one["working_set_bytes"]) for one in got] == [
        ("numpy", 1000 * 4096),
        ("numpy", 1000 * 64),
    ]
