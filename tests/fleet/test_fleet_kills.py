"""Fleets whose workers, scheduler and client are killed, lie, stall and fill up: no row is lost,
none is there twice, none unproved.

`make endurance` runs twenty of eight workers in namespaces of their own.
"""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import psutil
import pytest
from support import fleet
from support.common import LONG_S, fake_kernel, free_port, needs_root
from support.fleet import Processes, by_hand, machine_of, rows_of
from support.fuzzing import SEED, times

from tlb.fleet import tls
from tlb.system import files

REFUSED = {"fleet-garbage", "bundle-unsafe", "bundle-broken", "bundle-impossible"}


@pytest.fixture
def standing_in(monkeypatch, tmp_path) -> None:
    """Kernels that are none, and a lock of the test's own, in this process too."""
    monkeypatch.setattr(fleet.build, "kernel", fake_kernel())
    monkeypatch.setattr(fleet.build, "has_session", lambda point: False)
    monkeypatch.setattr(
        fleet.campaign, "measuring_lock", lambda: files.measuring_lock(path=tmp_path / "lock")
    )
    monkeypatch.setattr(fleet, "PROCESS_S", 0.0)


def ended(processes: Processes, called: str, deadline: float) -> bool:
    processes.running[called].join(max(deadline - time.monotonic(), 0))
    return processes.running[called].exitcode == 0


def became(told: Path) -> dict[str, str]:
    return {name: why[0] for name, why in json.loads(told.read_text()).items()}


def test_a_small_fleet_that_is_killed_gives_what_campaigns_by_hand_give(
    processes, standing_in, tmp_path
):
    pem, address, told = (
        tls.shared(tmp_path / "fleet.pem"),
        f"tls://127.0.0.1:{free_port()}",
        tmp_path / "told",
    )
    expected = {name: by_hand(name, tmp_path / "by hand" / name) for name in ("a", "b")}
    fleet.PROCESS_S = 0.04
    output = tmp_path / "collected"
    processes.start("scheduler", fleet.schedule, address, pem)
    for name in ("a", "b"):
        processes.start(name, fleet.work, name, address, pem, tmp_path / name)
    processes.start(
        "liar", fleet.work, "liar", address, pem, tmp_path / "liar", sends="a changed row"
    )
    processes.start("client", fleet.ask, address, pem, output, ["a", "b", "liar"], told)
    deadline = time.monotonic() + LONG_S
    while (
        not (tmp_path / "a/own" / machine_of("a") / "rows.sqlite").exists()
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
    for victim in ("a", "client", "scheduler"):
        processes.kill(victim)
        processes.again(victim)
    assert ended(processes, "client", deadline)
    codes = became(told)
    assert codes.pop("liar") in REFUSED and codes == {"a": "", "b": ""}
    for name in ("a", "b"):
        assert (
            rows_of(output / machine_of(name))
            == expected[name]
            == rows_of(tmp_path / name / "own" / machine_of(name))
        )
    assert expected["a"] and not rows_of(output / machine_of("liar"))
    processes.running["scheduler"].terminate()  # in order: it sends its workers home
    assert ended(processes, "b", deadline)


# --- eight in namespaces of their own

EIGHT = ("a", "a again", "b", "c", "d", "liar", "full", "clock")
DISK_BYTES = 128 << 10  # for the worker that fills up: less than its rows take


@pytest.fixture
def apart(tmp_path) -> None:
    """Whether this computer gives namespaces: a process tries."""

    def look() -> None:
        (tmp_path / "look").mkdir()
        fleet.enter(tmp_path / "look", [files.ROOT], 0, tmp_path)

    trial = fleet.fork.Process(target=look)
    trial.start()
    trial.join()
    if trial.exitcode:
        pytest.skip("needs the right to mount, in a namespace")


def inside(processes: Processes, called: str) -> int:
    """The process that `enter` started: the worker itself, as it is called outside of its
    namespaces."""
    return psutil.Process(processes.running[called].pid).children()[0].pid


def begin_eight(
    processes: Processes, address: str, pem: str, folder: Path, rng: random.Random
) -> None:
    faults = {
        "a again": {"alike": "a"},
        "full": {"disk_bytes": DISK_BYTES},
        "clock": {"hour": 13},
        "liar": {"sends": rng.choice(["no bundle", "a flipped bit", "a changed row"])},
    }
    for name in EIGHT:
        computer = name.removesuffix(" again")
        processes.start(
            name,
            fleet.work,
            name,
            address,
            pem,
            folder / computer,
            own=folder / "tmp" / computer,
            **faults.get(name, {}),
        )


def harm(processes: Processes, rng: random.Random, over_s: float) -> None:
    """Three workers, the scheduler once and the client twice, each killed at a moment of its own
    and started again; one worker stopped for a while, which is a connection on which nothing comes.
    """

    def again(called: str) -> None:
        processes.kill(called)
        processes.again(called)

    def send(number: signal.Signals) -> None:
        os.kill(inside(processes, "c"), number)

    victims = [*rng.sample(["a", "b", "clock"], 2), rng.choice(["a", "b", "clock", "liar", "d"])]
    victims += ["scheduler", "client", "client"]
    stopped_s = rng.uniform(0, over_s)
    moments = [(rng.uniform(0, over_s), lambda called=called: again(called)) for called in victims]
    moments += [
        (stopped_s, lambda: send(signal.SIGSTOP)),
        (stopped_s + rng.choice([0.2, 1.0, 8.0]), lambda: send(signal.SIGCONT)),
    ]
    began = time.monotonic()
    for moment, act in sorted(moments, key=lambda one: one[0]):
        time.sleep(max(began + moment - time.monotonic(), 0))
        act()


@needs_root
@pytest.mark.endurance
@times("number", 20)
def test_eight_workers_of_which_some_are_killed_lie_stall_and_fill_up_lose_and_double_no_row(
    number, processes, standing_in, apart, tmp_path, monkeypatch
):
    rng = random.Random(f"{SEED} {number}")
    pem, address, told = (
        tls.shared(tmp_path / "fleet.pem"),
        f"tls://127.0.0.1:{free_port()}",
        tmp_path / "told",
    )
    hours = {"a": 12, "b": 12, "c": 12, "d": 12, "full": 12, "clock": 13}
    expected = {
        name: by_hand(name, tmp_path / "by hand" / name, hour) for name, hour in hours.items()
    }
    monkeypatch.setattr(fleet, "PROCESS_S", 0.06)
    output = tmp_path / "collected"
    processes.start("scheduler", fleet.schedule, address, pem)
    begin_eight(processes, address, pem, tmp_path, rng)
    processes.start("client", fleet.ask, address, pem, output, list(EIGHT), told)
    deadline = time.monotonic() + LONG_S
    harm(processes, rng, 4.0)
    assert ended(processes, "client", deadline), f"run {number}, TLB_SEED={SEED}"
    codes = became(told)
    assert sorted([codes.pop("a"), codes.pop("a again")]) == ["", "fleet-twice"], told.read_text()
    assert codes.pop("liar") in REFUSED
    assert codes == {"b": "", "c": "", "d": "", "clock": "", "full": "disk-full"}, told.read_text()
    for name in ("a", "b", "c", "d", "clock"):
        assert (
            rows_of(output / machine_of(name))
            == expected[name]
            == rows_of(tmp_path / name / "own" / machine_of(name))
        ), name
    full = Path(
        f"/proc/{inside(processes, 'full')}/root",
        *(tmp_path / "full/own" / machine_of("full")).parts[1:],
    )
    # SQLite reads no log where its index finds no room.
    full = Path(shutil.copytree(full, tmp_path / "copy of full" / full.name))
    collected = rows_of(output / machine_of("full"))
    assert (
        collected == rows_of(full) and collected
    )  # nothing that was finished is lost to a full disk
    assert set(collected) < set(expected["full"]) and len({*collected}) == len(collected)
    assert not rows_of(output / machine_of("liar"))
