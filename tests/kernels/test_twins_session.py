"""A session of the numba twins measures the points of a plan as a process for each would, and
proves what it has shown."""

import json
import subprocess
import sys
from functools import cache

import pytest
from support.common import ROOT
from support.kernels import checksum, run_twins, visits

pytestmark = [pytest.mark.measures, pytest.mark.measuring]
SEED, SHARED = 7, 1000 * 4096
# kernel, mode, layout, order, lines, options
POINTS = [
    ("page_chase", "-", "spread", "cycle", 1000, []),
    ("page_chase", "-", "packed", "cycle", 2**17 + 1000, ["--warm-hops", 5000]),
    ("page_chase", "-", "packed", "random", 1000, []),
    ("page_chase", "-", "spread", "sequential", 300, []),
    ("page_gather", "-", "spread", "cycle", 1000, []),
    ("random_touch", "-", "packed", "random", 16, ["--bytes", 1000]),
    ("random_touch", "-", "packed", "random", 16, ["--bytes", 1000, "--spare_draws", 2]),
    ("stride_sum", "plain", "packed", "sequential", 1024, ["--bytes", 65536, "--step_bytes", 4160]),
    ("stride_sum", "listed", "packed", "cycle", 1024, ["--bytes", 65536, "--step_bytes", 64]),
]
CHASE, REFUSED = POINTS[2], ("page_chase", "-", "alias", "cycle", 8, [])


def line(
    id: object,
    kernel: str,
    mode: str,
    layout: str,
    order: str,
    lines: int,
    options: list[object],
    *more: object,
) -> str:
    return " ".join(map(str, [id, kernel, mode, layout, order, lines, 1, SEED, 1, *options, *more]))


def alone(point: tuple) -> list[str]:
    """The same point by a command line of its own."""
    _, mode, layout, order, lines, options = point
    return [
        "--layout",
        layout,
        "--order",
        order,
        "--lines",
        str(lines),
        "--seed",
        str(SEED),
        "--region-ms",
        "1",
        *(["--mode", mode] if mode != "-" else []),
        *map(str, options),
    ]


def session(lines: list[str], *words: object, program: str = "kernels.twins.session") -> list[dict]:
    """All that it prints for a plan."""
    done = subprocess.run(
        [sys.executable, "-m", program, *map(str, words)],
        input="".join(f"{one}\n" for one in lines),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(one) for one in done.stdout.splitlines()]


@cache
def planned() -> list[dict]:
    return session([line(i, *point) for i, point in enumerate(POINTS)], "--bytes", SHARED)


def test_points_of_a_plan_visit_what_processes_of_their_own_visit_whatever_was_in_the_arena_before():
    same = {
        "kernel",
        "engine",
        "pages",
        "layout",
        "order",
        "lines",
        "mode",
        "options",
        "seed",
        "arena_bytes",
        "working_set_bytes",
        "stride_bytes",
        "checksum",
    }
    singles = [
        json.loads(out) for _, out, _ in run_twins([(point[0], alone(point)) for point in POINTS])
    ]
    for single, shared in zip(singles, planned()[1:-1], strict=True):
        assert {name: shared[name] for name in same} == {name: single[name] for name in same}
        assert shared["mapping_bytes"] == max(shared["arena_bytes"], SHARED)


def test_answers_are_in_order_and_say_how_much_is_proved():
    mapped, *answers, end = planned()
    count = len(POINTS)
    assert mapped["mapped"] == SHARED and mapped["proved"] == 0 and mapped["populate_ns"] > 0
    assert mapped["page_table_bytes"] >= SHARED // 512 and "page_table_bytes" not in answers[0]
    assert [(one["id"], one["position"]) for one in answers] == [(str(i), i) for i in range(count)]
    assert {one["proved"] for one in answers} == {0} and end == {
        "end": count,
        "proved": count,
    }  # smaps was read at the end alone
    assert all(one["fifo"] == 0 and one["cpu_ns"] > 0 for one in answers)


def test_a_point_that_numba_cannot_measure_has_its_reason_and_the_next_one_is_measured():
    lines = [
        line("a", *CHASE),
        line("b", *REFUSED),
        "c page_chase",
        "",
        "e region - packed cycle 8 1 7 1",
        line("f", *CHASE, "--odd", 1),
        "g page_chase - spread cycle 8 64 7 1",
        line("h", *CHASE),
    ]
    _, *answers, end = session(lines, "--bytes", SHARED)
    assert [one.get("reason", "") for one in answers] == [
        "",
        *["bad-parameter"] * 5,
        "engine-lacks",
        "",
    ]
    assert [one["id"] for one in answers] == ["a", "b", "c", "", "e", "f", "g", "h"]
    assert (
        answers[0]["checksum"]
        == answers[-1]["checksum"]
        == checksum(visits("page_chase", "random", 1000, SEED))
    )
    assert answers[-1]["position"] == 7 and end == {"end": 8, "proved": 8}


LOST = """
from kernels.twins import arena, session
real, readings = session.verify_backing, iter([True, False])
session.verify_backing = lambda shared: real(shared) if next(readings) else arena.unavailable("backing-partial", "split")
session.serve()
"""


def test_a_session_ends_where_the_shared_arena_is_lost_and_proves_nothing_of_it():
    done = subprocess.run(
        [sys.executable, "-c", LOST, "--bytes", str(SHARED)],
        input=line(0, *CHASE) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    *_, last = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 3 and json.loads(done.stderr)["reason"] == "backing-partial"
    assert (last["id"], last["proved"]) == ("0", 0)


def test_a_session_of_the_published_program_gathers_what_its_own_process_gathers():
    own = subprocess.run(
        [
            sys.executable,
            "-m",
            "kernels.published.page_gather",
            "--lines",
            "100",
            "--seed",
            str(SEED),
            "--region-ms",
            "1",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    _, one, _ = session(
        [line(0, "page_gather", "-", "spread", "cycle", 100, [])],
        "--bytes",
        SHARED,
        "--plan",
        program="kernels.published.session",
    )
    assert (one["checksum"], one["engine"], one["core_ghz"]) == (
        json.loads(own.stdout)["checksum"],
        "numpy",
        0,
    )


FIFO = """
import json, os
from types import SimpleNamespace
from kernels.twins import region
seen, clock = [], 0
def policy(_, policy, parameter):
    seen.append((clock, policy == os.SCHED_FIFO))
def sleep(seconds):
    global clock
    clock += int(seconds * 1e9)
region.os = SimpleNamespace(**{name: getattr(os, name) for name in ("SCHED_FIFO", "SCHED_OTHER", "sched_param")}, sched_setscheduler=policy)
region.now_ns, region.time = lambda: clock, SimpleNamespace(sleep=sleep)
for point in range(40):
    for pieces, outside in ((point % 7, 3_000_000), (1, 1_000_000)):
        with region.Fifo(SimpleNamespace(fifo=True)) as fifo:
            for _ in range(pieces):
                clock += 90_000_000
                fifo.rest_if_due()
        clock += outside
print(json.dumps(seen))
"""


def test_a_twin_under_sched_fifo_never_takes_so_much_of_a_second_that_linux_stops_it():
    seen = json.loads(
        subprocess.run(
            [sys.executable, "-c", FIFO], capture_output=True, check=True, cwd=ROOT
        ).stdout
    )
    spans = [
        (begin, end) for (begin, inside), (end, _) in zip(seen, seen[1:], strict=False) if inside
    ]
    assert len(spans) > 80
    for at in range(0, spans[-1][1], 10_000_000):
        assert (
            sum(max(0, min(end, at + 10**9) - max(begin, at)) for begin, end in spans) <= 0.95e9
        ), at
