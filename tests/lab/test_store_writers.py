"""Writers of one file at once, and writers that are killed: nothing is lost and nothing torn."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import time
from pathlib import Path

import pytest
from support.common import make_record
from support.lab import KERNEL, MACHINE, NAME, ROWS, assert_whole, repeats

from experiments.lab.store import Store

fork = multiprocessing.get_context("fork")


# --- writers at once, writers killed


def write_some(root: Path, writer: int, rounds: int) -> None:
    store = Store(root)
    for number in range(rounds):
        store.append(MACHINE, make_record(repeat=1000 * writer + number), KERNEL)


def wait_for(processes: list) -> None:
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


def test_eight_writers_at_once_lose_and_tear_nothing(store: Store) -> None:
    rounds = 6
    store.ask(MACHINE, NAME, [make_record().point])
    writers = [fork.Process(target=write_some, args=(store.root, w, rounds)) for w in range(8)]
    for writer in writers:
        writer.start()
    wait_for(writers)
    assert sorted(repeats(store)) == sorted(1000 * w + n for w in range(8) for n in range(rounds))
    assert_whole(store, 8 * rounds)


@pytest.mark.slow
def test_writers_at_once_mend_a_broken_file_once_and_lose_nothing(store: Store, path: Path) -> None:
    for turn in range(5):
        path.write_bytes(path.read_bytes() + f"broken {turn}\n".encode() + b'{"digest":"torn')
        writers = [fork.Process(target=write_some, args=(store.root, 10 * turn + w, 2)) for w in range(1, 5)]
        for writer in writers:
            writer.start()
        wait_for(writers)
    expected = {0, 1, 2} | {1000 * (10 * t + w) + n for t in range(5) for w in range(1, 5) for n in range(2)}
    assert set(repeats(store)) == expected
    quarantine = path.with_name(f"{ROWS}.quarantine.jsonl").read_bytes()
    assert quarantine.splitlines() == [f"broken {turn}".encode() for turn in range(5)]


def write_for_ever(root: Path, start: int, report: int) -> None:
    store = Store(root)
    for repeat in itertools.count(start):
        store.append(MACHINE, make_record(repeat=repeat), KERNEL)
        os.write(report, b"%d\n" % repeat)


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_loses_no_finished_record(store: Store) -> None:
    rng = random.Random(2)
    finished: set[int] = set()
    store.ask(MACHINE, NAME, [make_record().point])
    kills = 12  # tests/test_endurance.py has 200, of a whole runner
    for turn in range(kills):
        reader, report = os.pipe()
        writer = fork.Process(target=write_for_ever, args=(store.root, 1000 * turn, report))
        writer.start()
        os.close(report)
        with open(reader) as reported:
            finished.add(int(reported.readline()))  # it is in its loop
            time.sleep(rng.uniform(0, 0.01))
            writer.kill()
            finished |= {int(line) for line in reported}
        writer.join()
        assert finished <= set(repeats(store))
    whole = (store.root / MACHINE / f"{ROWS}.jsonl").read_bytes().count(b"\n")  # what follows the last is torn
    assert whole == len(repeats(store)) <= len(finished) + kills  # at most the one in flight each time
