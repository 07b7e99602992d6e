"""Many points in one mapping: each as a process of its own measures it, however the others end, and
proved by a later smaps."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kernels import (
    changed,
    compiled,
    huge_page_bytes,
    needs_c,
    needs_thp,
    reason,
    run_c,
    run_program,
)

from tlb.measure import build
from tlb.measure.record import KernelOutput

pytestmark = [pytest.mark.measures, pytest.mark.slow, needs_c]
MAPPED = 10 << 20
SHARED = [
    "page_chase - spread cycle 700 1 7 1",
    "page_chase - spread random 700 1 9 1",
    "page_gather - spread cycle 700 1 7 1",
    "random_touch - packed random 16 1 7 1 --bytes 1000",
    "random_touch - packed random 64 1 7 1 --spare_draws 2",
    "stride_sum plain packed sequential 4096 1 7 1",
    "stride_sum listed packed cycle 4096 1 7 1 --step_bytes 128",
    "page_chase - packed cycle 131073 1 7 1 --warm-hops 1000",
]
BASE_ALONE = [
    f"page_store {mode} spread cycle 700 1 7 1"
    for mode in ("load", "store", "load-clean", "store-clean")
]
APART = [
    "page_chase - spread random 4000 1 7 1",
    "page_gather - spread cycle 4000 1 7 1",
]  # larger than the mapping
BASE_APART = ["page_chase - alias random 700 1 7 1", "page_chase - spread cycle 50 16 7 1"]
SAME = {"kernel", "engine", "pages", "backing", "layout", "order", "lines", "stride_pages", "mode"}
SAME |= {"options", "stride_bytes", "working_set_bytes", "arena_bytes", "seed", "cpu"}
SAME |= {"checksum", "fifo"}
FAILING = {
    "": "bad-parameter",
    "no_kernel - spread cycle 700 1 7 1": "bad-parameter",
    'page_chase - spread cycle 7"00 1 7 1': "bad-parameter",
    "page_chase load spread cycle 700 1 7 1": "bad-parameter",
    "page_chase - spread cycle 4294967296 1000 7 1": "memory-short",
    "page_chase - spread cycle 700 1 7 1 " + 60 * "--seed 7 ": "bad-parameter",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Path:
    return compiled(
        build.KERNELS_FOLDER / "session.c", tmp_path_factory.mktemp("session") / "session"
    )


def answers(
    program: Path, lines: list[str], *given: str, pages: str = "4k", mapped: int = MAPPED
) -> list[dict[str, Any]]:
    """Of a process that got through its plan: all that it printed."""
    plan = "".join(f"id{i} {line}\n" for i, line in enumerate(lines))
    done = run_program(program, ["--pages", pages, "--bytes", str(mapped), *given], input=plan)
    if (
        pages == "thp"
        and done.returncode == 3
        and reason(3, "", done.stderr)[0] == "backing-partial"
    ):
        pytest.skip("memory is too fragmented for huge pages now")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def alone(line: str, pages: str) -> KernelOutput:
    """The same point by the kernel's own program."""
    kernel, mode, *values = line.split()
    names = ("layout", "order", "lines", "stride-pages", "seed", "region-ms")
    words = ["--pages", pages, *(["--mode", mode] if mode != "-" else [])]
    for name, value in zip(names, values, strict=False):
        words += [f"--{name}", value]
    done = run_c(kernel, [*words, *values[len(names) :]])
    assert (done.returncode, done.stderr) == (0, "")
    return KernelOutput.model_validate_json(done.stdout)


def report_of(answer: dict[str, Any]) -> KernelOutput:
    return KernelOutput.model_validate(
        {name: value for name, value in answer.items() if name not in ("id", "proved")}
    )


@pytest.mark.parametrize("pages", ["4k", "thp"])
def test_a_point_of_a_plan_is_the_point_that_a_process_of_its_own_measures(session, pages):
    if pages == "thp":
        needs_thp()
    lines = [*SHARED, *APART] if pages == "thp" else [*SHARED, *BASE_ALONE, *APART, *BASE_APART]
    first, *given, last = answers(
        session,
        lines,
        pages=pages,
        mapped=max(MAPPED, huge_page_bytes()) if pages == "thp" else MAPPED,
    )
    assert (
        first["mapped"] >= MAPPED
        and first["populate_ns"] > 0
        and last == {"end": len(lines), "proved": len(lines)}
    )
    for position, (line, answer) in enumerate(zip(lines, given, strict=True)):
        report, expected = report_of(answer), alone(line, pages)
        assert report.model_dump(include=SAME) == expected.model_dump(include=SAME), line
        assert report.also.keys() == expected.also.keys() and len(report.batch_ns_per_access) >= 5
        assert (answer["id"], report.position) == (f"id{position}", position)
        assert report.mapping_bytes == (
            first["mapped"] if line in (*SHARED, *BASE_ALONE) else report.arena_bytes
        ), line


def test_a_point_that_fails_says_why_and_the_next_one_is_measured(session):
    good = SHARED[0]
    _, *given, last = answers(session, [line for bad in FAILING for line in (bad, good)])
    assert last["proved"] == 2 * len(FAILING)
    for (line, code), failed, measured in zip(
        FAILING.items(), given[::2], given[1::2], strict=True
    ):
        assert failed.keys() == {"id", "reason", "detail", "proved"} and failed["reason"] == code, (
            line
        )
        assert failed["detail"] and report_of(measured).checksum == report_of(given[1]).checksum


# --- what is proved

WATCHED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static FILE *watched(const char *path, const char *mode) /* says when smaps is read, and lies from the $LIES-th time on */
{
    static int reads;
    if (!strcmp(path, "/proc/self/smaps")) {
        puts("{\\"smaps\\": 1}");
        path = getenv("LIES") && ++reads >= atoi(getenv("LIES")) ? "/dev/null" : path;
    }
    return fopen(path, mode);
}
#define fopen watched
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "watched.c").write_text(
        f'#define _GNU_SOURCE{WATCHED}#include "{build.KERNELS_FOLDER}/session.c"\n'
    )
    return compiled(folder / "watched.c", folder / "watched")


def proofs(printed: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """(answers that were proved by the last reading of smaps, those that are said to be)."""
    answered = proved = 0
    for line in printed:
        if "smaps" in line:
            proved = answered
        elif "proved" in line:
            answered += "id" in line
            yield proved, line["proved"]


@pytest.mark.parametrize(("pages", "often"), [("4k", 100), ("thp", 1)])
def test_no_more_answers_are_called_proved_than_smaps_has_proved_since(watched, pages, often):
    if pages == "thp":
        needs_thp()
    lines = ([SHARED[2], "", SHARED[0]] * 70)[: 203 if pages == "4k" else 7]
    printed = answers(watched, lines, pages=pages)
    assert all(said <= proved for proved, said in proofs(printed)) and printed[-1]["proved"] == len(
        lines
    )
    assert sum("smaps" in line for line in printed) >= 2 + (len(lines) - 1) // (often + 1)
    waiting = [line["position"] + 1 - line["proved"] for line in printed if "position" in line]
    assert max(waiting) <= often


# --- nothing is left of a point


def state_of(pid: int) -> tuple[int, int, int]:
    """Resident pages, mappings and open files."""
    process = Path(f"/proc/{pid}")
    return (
        int((process / "statm").read_text().split()[1]),
        len((process / "maps").read_text().splitlines()),
        len(list((process / "fd").iterdir())),
    )


def test_a_process_keeps_nothing_of_a_point(session):
    lines = [*SHARED[:2], BASE_ALONE[1], *BASE_APART, APART[0], *list(FAILING)[1:], SHARED[5]]
    with subprocess.Popen(
        [session, "--bytes", str(MAPPED)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        states = []
        process.stdout.readline()
        for n in range(200):
            process.stdin.write(f"{n} {lines[n % len(lines)]}\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == str(n)
            if n % len(lines) == len(lines) - 1:
                states.append(state_of(process.pid))
        process.stdin.close()
        assert json.loads(process.stdout.readline())["end"] == 200
    then, now = states[2], states[-1]
    assert now[0] - then[0] < 64 and abs(now[1] - then[1]) < 4 and now[2] == then[2]


# --- a program without a session


def switches(*lines: int) -> subprocess.CompletedProcess[str]:
    """A plan of switch_chase, whose points take a process each."""
    plan = [f"{i} switch_chase process spread cycle {n} 1 7 1\n" for i, n in enumerate(lines)]
    program = Path(build.kernel("switch_chase").command[0])
    return run_program(program, ["--pages", "4k", "--plan"], input="".join(plan))


def test_a_point_that_takes_a_process_is_measured_in_one_forked_for_its_line():
    done = switches(64, 700, 64)
    first, *given, last = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, first["mapped"], last) == (0, 0, {"end": 3, "proved": 3})
    assert [(answer["id"], answer["proved"]) for answer in given] == [("0", 1), ("1", 2), ("2", 3)]
    for lines, answer in zip((64, 700, 64), given, strict=True):
        expected = alone(f"switch_chase process spread cycle {lines} 1 7 1", "4k")
        assert report_of(answer).model_dump(include=SAME) == expected.model_dump(include=SAME)


def test_a_point_that_fails_in_its_process_ends_the_program_as_it_ended():
    done = switches(64, 2**33, 64)
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 2)
    assert "--lines" in done.stderr


# --- graph_walk

WALKS = [
    "plain packed random 4096 1 7 1",
    "plain packed random 4096 1 7 1 --walkers 3",
    "plain packed random 4096 1 7 1 --per_hop 1",
    "blocked packed random 4096 1 7 1 --block_vertices 64",
    "plain packed random 4096 1 8 1",
    "plain spread random 1024 1 8 1",
    "plain packed random 1024 1 8 1",
]


def test_points_that_walk_one_graph_share_it_and_walk_as_in_processes_of_their_own(tmp_path):
    filling = "made.threads = make_graph(&g);"
    program = changed("graph_walk", {filling: f'puts("{{\\"filled\\": 1}}");\n{filling}'}, tmp_path)
    lines = [f"graph_walk {walk}" for walk in WALKS]
    printed = answers(program, lines, "--plan")
    given = [line for line in printed if "id" in line]
    for line, answer in zip(lines, given, strict=True):
        expected = alone(line, "4k")
        assert (report_of(answer).checksum, report_of(answer).options) == (
            expected.checksum,
            expected.options,
        ), line
    ids = [
        "filled" if "filled" in line else line["id"]
        for line in printed
        if "id" in line or "filled" in line
    ]
    assert [after for before, after in zip(ids, ids[1:], strict=False) if before == "filled"] == [
        "id0",
        "id3",
        "id4",
        "id5",
        "id6",
    ]


# --- radix_partition

JOINS = [
    ("naive", 7, ""),
    ("partitioned", 7, " --bits 4"),
    ("partition", 7, " --bits 6 --passes 2"),
    ("partitioned", 8, " --bits 5"),
    ("naive", 7, ""),
]


def test_points_that_join_the_same_rows_share_them_and_find_as_in_processes_of_their_own(tmp_path):
    filling = "j.due = fill("
    program = changed(
        "radix_partition", {filling: f'puts("{{\\"filled\\": 1}}");\n    {filling}'}, tmp_path
    )
    lines = [
        f"radix_partition {mode} packed random 12288 1 {seed} 1 --tuples 8192{more}"
        for mode, seed, more in JOINS
    ]
    printed = answers(program, lines, "--plan", mapped=12288 * 64)
    given = [line for line in printed if "id" in line]
    for line, answer in zip(lines, given, strict=True):
        assert report_of(answer).checksum == alone(line, "4k").checksum, line
    assert ["filled" in line for line in printed[1:-1]] == [
        *(True, False, False, False),
        *(True, False, True, False),
    ]
