"""A fleet of made-up computers on loopback: what arrives, who is waited for, what is refused, and
what is lost when a worker or the scheduler is killed."""

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import dask
import pytest
from distributed import Client
from support import fleet
from support.common import LONG_S, ended, free_port, refusal, wait_until
from support.fleet import GRIDS, Processes, machine_of

from experiments.overview import campaign as book
from tlb.fleet import client
from tlb.fleet.bundle import Bundle, add
from tlb.fleet.client import Fleet
from tlb.measure import grid
from tlb.measure.store import Store
from tlb.report import claims

PROFILE = grid.load_profile("smoke").model_copy(update={"repeats": 5})


class Loopback:
    """A scheduler, workers and a client."""

    def __init__(self, processes: Processes, root: Path):
        self.processes, self.root = processes, root
        self.data, self.lines = Store(root / "client"), list[str]()
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        processes.start("scheduler", fleet.schedule, port)

    def workers(self, *names: str, **how: Any) -> None:
        for name in names:
            self.processes.start(name, fleet.work, name, self.address, self.root / name, **how)

    def keep(self, read: Bundle) -> int:
        return add(self.data, read).rows

    def run(self, expected: int, **how: float) -> Fleet:
        with dask.config.set(fleet.DASK), Client(self.address, timeout=LONG_S) as connection:
            made = Fleet(
                connection,
                PROFILE,
                (),
                600.0,
                self.keep,
                expected=expected,
                say=self.lines.append,
                **{"wait_s": LONG_S, "patience_s": LONG_S} | how,
            )
            self.made = made
            made.run()
        return made

    def killing_a(self, **how: float) -> threading.Thread:
        """Run with the workers a and b, and kill a while it measures; return what runs."""
        (pause := self.root / "pause").touch()
        self.workers("a", pause=pause)
        self.workers("b")
        running = threading.Thread(target=self.run, args=(2,), kwargs=how)
        running.start()
        assert wait_until(lambda: measured(self.root / "a", "a") > 3)
        self.processes.kill("a")
        return running


@pytest.fixture
def loopback(processes, tmp_path, monkeypatch) -> Iterator[Loopback]:
    monkeypatch.setattr(book, "points_by_chapter", lambda scope, names=None: GRIDS)
    monkeypatch.setattr(claims, "compared_points", lambda scope: lambda point: True)
    monkeypatch.setattr(client, "POLL_S", 0.1)
    monkeypatch.setattr(client, "STATUS_S", 0.2)
    yield Loopback(processes, tmp_path)


def measured(root: Path, name: str) -> int:
    """Return how many rows a computer's ledger has; 0 while it is being made."""
    try:
        return len(Store(root).own.records(machine_of(name)))
    except sqlite3.OperationalError:
        return 0


def codes(made: Fleet) -> dict[str, str]:
    return {name: one.why.code if one.why else "" for name, one in made.computers.items()}


def test_each_computer_gives_the_rows_of_a_campaign_by_hand(loopback, tmp_path, own_lock):
    names = ["a", "b", "c"]
    loopback.workers(*names)
    assert codes(loopback.run(3)) == dict.fromkeys(names, "")
    for name in names:
        own = fleet.by_hand(name, tmp_path / "by hand" / name, PROFILE.repeats)
        assert fleet.rows_of(loopback.data, machine_of(name)) == own
    assert loopback.lines[0] == "0 of 3 connected" and "3 of 3 connected" in loopback.lines
    assert any(re.search("[1-9]%", line) for line in loopback.lines)  # progress, while they measure
    again = loopback.run(3)
    assert sum(one.rows for one in again.computers.values()) == 0  # nothing is measured twice


def test_with_fewer_computers_than_expected_those_that_came_are_kept(loopback):
    loopback.workers("a", "b")
    found: list[str] = []
    running = threading.Thread(target=lambda: found.append(refusal(loopback.run, 64)))
    running.start()
    assert wait_until(lambda: "2 of 64 connected" in loopback.lines)
    loopback.made.wait_s = 0.0
    running.join()
    assert found == ["worker-failed"] and len(loopback.data.machines()) == 2


def test_a_killed_worker_is_noticed_and_goes_on_when_it_comes_back(loopback, tmp_path, own_lock):
    running = loopback.killing_a()
    assert wait_until(lambda: any(line.startswith("a is lost") for line in loopback.lines))
    (tmp_path / "pause").unlink()
    loopback.processes.again("a")
    running.join()
    assert codes(loopback.made) == {"a": "", "b": ""}
    own = fleet.by_hand("a", tmp_path / "by hand", PROFILE.repeats)
    assert fleet.rows_of(loopback.data, machine_of("a")) == own


def test_a_worker_that_stays_away_is_given_up_and_the_others_are_kept(loopback):
    running = loopback.killing_a(patience_s=1.0)
    running.join()
    assert codes(loopback.made) == {"a": "worker-failed", "b": ""}
    assert loopback.data.machines() == [machine_of("b")]


def test_a_lost_scheduler_ends_the_client_with_a_reason(loopback):
    loopback.workers("a")
    found: list[str] = []
    running = threading.Thread(
        target=lambda: found.append(refusal(loopback.run, 2, patience_s=2.0))
    )
    running.start()
    assert wait_until(lambda: "1 of 2 connected" in loopback.lines)
    loopback.processes.kill("scheduler")
    running.join()
    assert found == ["worker-failed"]


@pytest.mark.parametrize(
    ("sent", "code"), [("other units", "bundle-refused"), ("no bundle", "worker-failed")]
)
def test_what_is_no_bundle_is_refused_and_nothing_of_it_is_kept(sent, code, loopback):
    loopback.workers("a")
    loopback.workers("b", spoil=sent)
    assert codes(loopback.run(2)) == {"a": "", "b": code}
    assert loopback.data.machines() == [machine_of("a")]


def test_a_second_computer_of_one_identity_is_refused(loopback):
    loopback.workers("a")
    loopback.workers("b", alike="a")
    assert sorted(codes(loopback.run(2)).values()) == ["", "worker-failed"]


@pytest.mark.parametrize("words", [[], ["--scheduler", "tcp://a:1", "--local", "2"]])
def test_one_kind_of_cluster_is_named(words, monkeypatch, capsys):
    assert ended(monkeypatch, "fleet", *words) == 2
    assert "--ssh" in capsys.readouterr().err


def test_without_a_scheduler_there_is_a_sentence(monkeypatch, capsys):
    words = ["--scheduler", f"tcp://127.0.0.1:{free_port()}", "--wait", "0.01"]
    assert ended(monkeypatch, "fleet", *words) == 1
    assert "127.0.0.1" in capsys.readouterr().err


def test_a_worker_killed_before_its_bundle_is_fetched_is_given_up(loopback, monkeypatch):
    fetched = Fleet._fetched

    async def kill_first(made, computer, future):
        loopback.processes.kill("a")
        return await fetched(made, computer, future)

    monkeypatch.setattr(Fleet, "_fetched", kill_first)
    monkeypatch.setattr(client, "FETCH_S", 1.0)
    loopback.workers("a")
    assert codes(loopback.run(1, patience_s=1.0)) == {"a": "worker-failed"}


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(5))
def test_kills_of_workers_scheduler_and_client_lose_and_double_no_row(
    seed, loopback, tmp_path, own_lock
):
    names, random = ["a", "b", "c"], Random(seed)
    loopback.workers(*names)
    processes, repeats = loopback.processes, PROFILE.repeats
    given = loopback.address, loopback.data.root, repeats, len(names)
    processes.start("client", fleet.collect, *given)
    for _ in range(6):
        time.sleep(random.uniform(0.0, 2.0))
        processes.kill(random.choice([*names, "scheduler", "client"]))
        time.sleep(random.choice([0.0, 0.0, 8.0]))  # at times for longer than the client waits
        processes.revive()

    def is_done() -> bool:
        processes.revive()
        return processes.running["client"].exitcode == 0

    assert wait_until(is_done)
    for name in names:
        own = fleet.by_hand(name, tmp_path / "by hand" / name, repeats)
        assert fleet.rows_of(loopback.data, machine_of(name)) == own
