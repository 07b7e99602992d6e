"""Runs killed at random moments and writers all at once: nothing that was finished is lost, nothing broken stays.

A few here; `make endurance` kills a runner 200 times and lets eight writers fight for 50 rounds.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.common import make_record, software_plan
from support.fuzzing import SEED, times
from support.lab import KERNEL, MACHINE, NAME, ROWS, assert_whole, run

from experiments.lab import build, campaign, perf
from experiments.lab.record import Point
from experiments.lab.store import Store
from experiments.system import files

fork = multiprocessing.get_context("fork")
LONG_S = 20.0  # for what takes milliseconds and must only ever happen


def rows_file(root: Path) -> Path:
    return root / MACHINE / f"{ROWS}.jsonl"


class Telling(Store):
    """A store that tells a pipe each key once `append` has returned: what this process holds for finished."""

    def __init__(self, root: Path, report: int):
        super().__init__(root)
        self.report = report

    def append(self, *what: object) -> str:
        key = super().append(*what)
        os.write(self.report, key.encode() + b"\n")
        return key


def until_gone(folder: Path) -> list[psutil.Process]:
    """The processes that run a program in `folder`; [] as soon as two looks find none, for between fork and exec none shows."""
    deadline, quiet = time.monotonic() + LONG_S, 0
    while quiet < 2:
        left = [p for p in psutil.process_iter(["cmdline"]) if any(str(folder) in word for word in p.info["cmdline"] or [])]
        quiet = 0 if left else quiet + 1
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    return []


# --- a runner killed with -9

POINTS = [Point(kernel="page_chase", lines=lines, layout=layout, region_ms=1) for lines in (16, 64, 128) for layout in ("spread", "packed")]
REPEATS = 2


def run_to_the_end(root: Path, report: int, points: list[Point], plan: perf.Plan) -> None:
    campaign.measuring_lock = lambda: files.measuring_lock(path=root.with_name(f"{root.name}.lock"))
    run(Telling(root, report), points, REPEATS, plan=plan)


def start(root: Path, points: list[Point] = POINTS, plan: perf.Plan = perf.NO_COUNTERS) -> tuple[multiprocessing.process.BaseProcess, int]:
    reader, report = os.pipe()
    runner = fork.Process(target=run_to_the_end, args=(root, report, points, plan))
    runner.start()
    os.close(report)
    return runner, reader


def told(reader: int) -> set[str]:
    with open(reader) as reported:
        return {line[:-1] for line in reported if line.endswith("\n")}


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kernels that are this test's alone, so that its processes are known by it."""
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    build.kernel("page_chase", "c")
    return tmp_path / "build"


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
@times("part", 20)
def test_a_runner_killed_ten_times_at_random_moments_loses_no_finished_point(part: int, tmp_path: Path, kernels: Path) -> None:
    """Each run goes on where the one before it was killed. One that ends before its kill begins with nothing again."""
    rng = random.Random(f"{SEED} {part}")
    begin = time.monotonic()
    runner, reader = start(tmp_path / "whole")
    expected = told(reader)
    runner.join()
    whole_s = time.monotonic() - begin
    assert (runner.exitcode, len(expected)) == (0, len(POINTS) * REPEATS)
    root, finished, kills = tmp_path / "0", set(), 0
    while kills < 10:
        runner, reader = start(root)
        runner.join(rng.uniform(0, whole_s / 2))
        runner.kill()
        finished |= told(reader)
        runner.join()
        kills += runner.exitcode == -signal.SIGKILL
        assert until_gone(kernels) == []
        store = Store(root)
        whole = rows_file(root).read_bytes().count(b"\n") if rows_file(root).exists() else 0  # what follows the last is torn
        assert finished <= store.keys(MACHINE, NAME) <= expected and whole == len(store.load(MACHINE, NAME))
        if runner.exitcode == 0:
            assert store.keys(MACHINE, NAME) == expected and len(finished) <= whole == len(expected)
            root, finished = tmp_path / f"{kills} {time.monotonic()}", set()
    runner, reader = start(root)
    told(reader)
    runner.join()
    store = Store(root)
    assert runner.exitcode == 0 and store.keys(MACHINE, NAME) == expected
    assert_whole(store, len(expected))
    frame = store.load(MACHINE, NAME)
    assert sorted(zip(frame["lines"], frame["layout"], frame["repeat"], strict=True)) == sorted(
        (p.lines, p.layout, repeat) for p in POINTS for repeat in range(REPEATS))
    # nothing temporary, nothing quarantined
    assert {path.name for path in rows_file(root).parent.iterdir()} == {rows_file(root).name, "grids.json"}


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
@pytest.mark.parametrize("plan", [
    pytest.param(lambda: perf.NO_COUNTERS, id="alone"),
    pytest.param(software_plan, id="under perf", marks=pytest.mark.needs("perf that counts faults"))])
@times("part", 20)
def test_no_kernel_outlives_a_runner_killed_while_it_starts_one(
        part: int, plan: Callable[[], perf.Plan], tmp_path: Path, kernels: Path) -> None:
    """The kernel would run for a minute. Killed before it asked to die with its parent, it must find that out by itself."""
    rng = random.Random(f"{SEED} {part}")
    for number in range(10):
        runner, reader = start(tmp_path / str(number), [Point(kernel="page_chase", lines=16, region_ms=60_000)], plan())
        time.sleep(rng.uniform(0, 0.03))
        runner.kill()
        runner.join()
        os.close(reader)
        left = until_gone(kernels)
        for process in left:
            process.kill()
        assert not left, f"kill {number} of part {part}, TLB_SEED={SEED}"


# --- eight writers

WRITERS, APPENDS = 8, 6


def write_some(root: Path, report: int, number: int, seed: str) -> None:
    """Appends with a store of its own, now and then with a new one, which must find the file as it is."""
    rng = random.Random(seed)
    store = Telling(root, report)
    for repeat in range(APPENDS):
        if rng.random() < 0.3:
            store = Telling(root, report)
        store.append(MACHINE, make_record(repeat=1000 * number + repeat), KERNEL)


def write_for_ever(root: Path, report: int, number: int, seed: str) -> None:
    store = Telling(root, report)
    for repeat in itertools.count():
        store.append(MACHINE, make_record(repeat=1000 * number + repeat), KERNEL)


def break_lines(root: Path, report: int, number: int, seed: str) -> None:
    """What a crash or a disk may leave: corrupt lines, and half a line at the end. Each time the next writer finds them."""
    rng = random.Random(seed)
    path = rows_file(root)
    for turn in range(4):
        time.sleep(rng.uniform(0, 0.02))
        while True:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if path.parent.is_dir() else None
            if fd is None:
                continue
            try:
                files.lock(fd)
                if files.is_at(fd, path):
                    os.write(fd, f'{{"broken":{turn}}}\n'.encode() + b'{"digest":"torn' * rng.randrange(2))
                    break
            finally:
                os.close(fd)


@pytest.mark.slow
@times("number", 50, 3)
def test_eight_writers_at_once_lose_and_tear_nothing(number: int, tmp_path: Path) -> None:
    """All create the file at once; one is killed with -9 again and again; corrupt lines appear and are moved away meanwhile."""
    rng = random.Random(f"{SEED} {number}")
    root = tmp_path / "data"
    Store(root).ask(MACHINE, NAME, [make_record().point])
    reader, report = os.pipe()

    def begin(what, name: int) -> multiprocessing.process.BaseProcess:
        process = fork.Process(target=what, args=(root, report, name, f"{SEED} {number} {name}"))
        process.start()
        return process

    writers = [begin(write_some, name) for name in range(1, WRITERS)]
    breaker = begin(break_lines, 99)
    victims = []
    for name in range(20, 23):  # the eighth writer
        victims.append(begin(write_for_ever, name))
        time.sleep(rng.uniform(0, 0.05))
        victims[-1].kill()
        victims[-1].join()
    os.close(report)
    finished = told(reader)
    for process in (*writers, breaker):
        process.join()
        assert process.exitcode == 0
    store = Store(root)
    last = store.append(MACHINE, make_record(repeat=9), KERNEL)  # mends what the breaker left last
    keys = store.keys(MACHINE, NAME)
    assert_whole(store, len(keys))
    assert finished | {last} <= keys and len(keys) <= len(finished) + 1 + len(victims)  # at most what was in flight at a kill
    repeats = set(store.load(MACHINE, NAME)["repeat"])
    assert {1000 * name + repeat for name in range(1, WRITERS) for repeat in range(APPENDS)} <= repeats
    quarantined = rows_file(root).with_name(f"{ROWS}.quarantine.jsonl").read_bytes().splitlines()
    torn = b'{"digest":"torn'  # in front where no writer came between two turns of the breaker
    assert [json.loads(line.removeprefix(torn)) for line in quarantined] == [{"broken": turn} for turn in range(4)]
