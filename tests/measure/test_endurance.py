"""Runs killed at random moments and writers all at once: nothing that was finished is lost, nothing
broken stays.

A few here; `make endurance` kills a runner 100 times and lets eight writers fight for 15 rounds.
"""

import itertools
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.campaigns import MACHINE, NAME, a_rig, assert_whole, one_by_one
from support.common import alive, make_record, software_plan
from support.fuzzing import SEED, times

from tlb.measure import build, campaign, grid, kernels, mapping, perf
from tlb.measure.build import Kernel
from tlb.measure.grid import Scope
from tlb.measure.mapping import PointResult
from tlb.measure.plan import MeasuringConditions
from tlb.measure.record import Point, Record
from tlb.measure.store import Store, data_root
from tlb.system import files

fork = multiprocessing.get_context("fork")
Process = multiprocessing.process.BaseProcess


class Telling(Store):
    """A store that tells a pipe each key once `append` has returned: what this process holds for
    finished."""

    def __init__(self, root: Path, report: int):
        super().__init__(root)
        self.report = report

    def append(self, machine: str, record: Record) -> str:
        key = super().append(machine, record)
        os.write(self.report, key.encode() + b"\n")
        return key


# --- a runner killed with -9

REPEATS = 2
SCOPE = Scope(grid.load_profile("smoke"), base_page_bytes=4096)
SMALLEST = {
    "random_touch": {"bytes": 1 << 16},
    "graph_walk": {"vertices": 1 << 10},
    "radix_partition": {"tuples": 1 << 12},
}
CHASES = [point for lines in (16, 64, 128) for point in SCOPE.chase("page_chase", "4k", lines)]
POINTS = CHASES + [
    SCOPE.point(name, mode=mode, **SMALLEST.get(name, {}))
    for name, kernel in kernels.KERNEL_DECLARATIONS.items()
    for mode in kernel.modes or ("",)
    if (name, mode) != ("page_chase", "")
]
# the others would take seconds, or what not every computer has
REAL = ("page_chase", "page_gather", "random_touch")


def made_up(point: Point, repeat: int, *, state: str, **_: object) -> Record:
    time.sleep(0.01)
    made_by = build.kernel(point.kernel, point.engine).build._asdict()
    return make_record(**point.model_dump(), repeat=repeat, state=state, **made_by)


def real_or_not(
    points: Sequence[Point], repeat: int, setting: MeasuringConditions, **how: Any
) -> Iterator[PointResult]:
    """What one program measures, run or made up."""
    real = [point for point in points if point.kernel in REAL and not point.mode]
    yield from mapping.measured(real, repeat, setting, **how)
    others = [point for point in points if point not in real]
    yield from one_by_one(made_up)(others, repeat, setting, **how)


def run_to_the_end(report: int, grids: dict[str, list[Point]], **rig: object) -> None:
    store = Telling(data_root(), report)
    campaign.measuring_lock = lambda wait: files.measuring_lock(
        wait, store.root.with_name(f"{store.root.name}.lock")
    )
    campaign.run(a_rig(store, **rig), grids, REPEATS, quiet=True)


def start(grids: dict[str, list[Point]], **rig: object) -> tuple[Process, int]:
    """A campaign of `grids` as a process of its own, and the end of a pipe that tells what it has
    stored."""
    reader, report = os.pipe()
    runner = fork.Process(target=run_to_the_end, args=(report, grids), kwargs=rig)
    runner.start()
    os.close(report)
    return runner, reader


def told(reader: int) -> Counter[str]:
    """The keys of rows, each as often as it is in another grid."""
    with open(reader) as reported:
        return Counter(line[:-1] for line in reported if line.endswith("\n"))


@pytest.fixture
def built(tmp_path, monkeypatch) -> Path:
    """The folder of kernels that are this test's alone, so that its processes are known by it."""
    monkeypatch.setenv("TLB_BUILD", str(tmp_path / "build"))
    return tmp_path / "build"


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.endurance)])
def test_a_runner_killed_again_and_again_at_random_moments_loses_nothing_and_measures_nothing_twice(
    kills, tmp_path, built, monkeypatch
):
    """Each run goes on where the one before it was killed, and one that would end before its last
    kill begins anew elsewhere."""
    rng, killed = random.Random(SEED), 0
    points = POINTS if kills > 3 else POINTS[::4]
    grids = {NAME: points, "another": points[::2]}
    made = {name: build.kernel(name) for name in REAL}
    others = partial(Kernel, command=("true",), digest="a" * 16)
    monkeypatch.setattr(build, "kernel", lambda *name: made.get(name[0]) or others(*name))
    has_session = build.has_session
    monkeypatch.setattr(build, "has_session", lambda p: p.kernel in REAL and has_session(p))
    # the first run tells how long a run is, and the moments of the kills follow from that
    monkeypatch.setattr(build, "compile_all", lambda points: None)
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "whole"))
    began = time.monotonic()
    runner, reader = start(grids, measure=real_or_not)
    expected = told(reader)
    runner.join()
    whole_s = time.monotonic() - began
    assert runner.exitcode == 0 and len(expected) >= REPEATS * len(points)

    root, finished, before = tmp_path / "0", Counter[str](), list[Record]()
    while True:
        monkeypatch.setenv("TLB_DATA", str(root))
        runner, reader = start(grids, measure=real_or_not)
        if killed < kills:
            runner.join(rng.uniform(0, 4 * whole_s / kills + 0.1))
            runner.kill()
        finished += told(reader)
        runner.join()
        killed += runner.exitcode == -signal.SIGKILL
        assert alive(str(built)) == []
        rows = Store(root).records(MACHINE)
        kept = {record.key: record for record in before}
        assert kept.items() <= rows.items(), f"kill {killed}, TLB_SEED={SEED}"
        assert finished.keys() <= rows.keys() <= expected.keys()
        before = [*rows.values()]
        if runner.exitcode == 0:
            assert rows.keys() == expected.keys()
            assert {*Store(root).kernels(MACHINE)} == {point.kernel for point in points}
            if killed == kills:
                return
            root, finished, before = tmp_path / str(killed), Counter(), []


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(lambda: perf.NO_COUNTERS, id="alone"),
        pytest.param(
            software_plan, id="under perf", marks=pytest.mark.needs("perf that counts faults")
        ),
    ],
)
@times("part", 5)
def test_no_kernel_outlives_a_runner_killed_while_it_starts_one(
    part, plan, tmp_path, built, monkeypatch
):
    """The kernel would run for a minute. Killed before it asked to die with its parent, it must
    find that out by itself."""
    rng = random.Random(f"{SEED} {part}")
    build.kernel("page_chase")
    for number in range(4):
        monkeypatch.setenv("TLB_DATA", str(tmp_path / str(number)))
        runner, reader = start(
            {NAME: [Point(kernel="page_chase", lines=16, region_ms=60_000)]}, plan=plan()
        )
        time.sleep(rng.uniform(0, 0.03))
        runner.kill()
        runner.join()
        os.close(reader)
        left = alive(str(built))
        for process in left:
            process.kill()
        assert not left, f"kill {number} of part {part}, TLB_SEED={SEED}"


# --- eight writers

WRITERS, APPENDS = 8, 6


def write(root: Path, report: int, number: int, seed: str) -> None:
    """Appends with a store of its own, now and then with a new one, which must find the file as it
    is; the eighth without end."""
    rng = random.Random(seed)
    store = Telling(root, report)
    for repeat in range(APPENDS) if number < WRITERS else itertools.count():
        if rng.random() < 0.3:
            store = Telling(root, report)
        store.append(MACHINE, make_record(repeat=1000 * number + repeat))


@pytest.mark.slow
@times("number", 15, 2)
def test_eight_writers_at_once_lose_and_tear_nothing(number, tmp_path):
    """All create the file at once; one is killed with -9 again and again."""
    rng = random.Random(f"{SEED} {number}")
    root = tmp_path / "data"
    Store(root).ask(MACHINE, NAME, [make_record().point])
    reader, report = os.pipe()

    def begin(what, name: int) -> Process:
        process = fork.Process(target=what, args=(root, report, name, f"{SEED} {number} {name}"))
        process.start()
        return process

    writers = [begin(write, name) for name in range(1, WRITERS)]
    victims = []
    for name in range(20, 23):  # the eighth writer
        victims.append(begin(write, name))
        time.sleep(rng.uniform(0, 0.05))
        victims[-1].kill()
        victims[-1].join()
    os.close(report)
    finished = set(told(reader))
    for process in writers:
        process.join()
        assert process.exitcode == 0
    store = Store(root)
    last = store.append(MACHINE, make_record(repeat=9))
    keys = store.keys(MACHINE, NAME)
    assert_whole(store, len(keys))
    assert finished | {last} <= keys
    assert len(keys) <= len(finished) + 1 + len(victims)  # at most what was in flight at a kill
    written = {1000 * name + repeat for name in range(1, WRITERS) for repeat in range(APPENDS)}
    assert written <= set(store.load(MACHINE, NAME)["repeat"])
