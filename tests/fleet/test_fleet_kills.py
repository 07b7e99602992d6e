"""Fleets whose workers, scheduler and client are killed, lie, stall and fill up: no row is lost, none is there twice, none unproved.

`make endurance` runs twenty of eight workers in namespaces of their own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from support.common import needs_root
from support.fuzzing import SEED, times

distributed = pytest.importorskip("distributed", reason="`make fleet` adds it")

from support import fleet  # noqa: E402
from support.fleet import Processes, lines_of, plain  # noqa: E402

from experiments.fleet import certificates  # noqa: E402
from experiments.machine import host as hosts  # noqa: E402
from experiments.system import files  # noqa: E402

LONG_S = 60.0  # for a run of a few seconds, kills included


@pytest.fixture
def standing_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels that are none, and a lock of the test's own, in this process too."""
    monkeypatch.setattr(fleet.build, "kernel", lambda name, engine="c": fleet.Kernel(name, engine, ("true",), fleet.KERNEL))
    monkeypatch.setattr(fleet.campaign, "measuring_lock", lambda: files.measuring_lock(path=tmp_path / "lock"))
    monkeypatch.setattr(fleet, "PROCESS_S", 0.0)


def ended(processes: Processes, called: str, deadline: float) -> bool:
    processes.running[called].join(max(deadline - time.monotonic(), 0))
    return processes.running[called].exitcode == 0


def became(told: Path) -> dict[str, str]:
    return {name: why[0] for name, why in json.loads(told.read_text()).items()}


def machine(name: str) -> str:
    return hosts.machine_id(fleet.host_of(name))


def test_a_small_fleet_whose_worker_and_client_are_killed_gives_what_campaigns_by_hand_give(
        processes: Processes, standing_in: None, tmp_path: Path) -> None:
    shown, address, told = certificates.member(tmp_path / "pass"), f"tls://127.0.0.1:{fleet.free_port()}", tmp_path / "told"
    expected = {name: plain(name, tmp_path / "by hand" / name) for name in ("a", "b")}
    fleet.PROCESS_S = 0.01
    output = tmp_path / "collected"
    processes.start("scheduler", fleet.schedule, address, shown)
    for name in ("a", "b"):
        processes.start(name, fleet.work, name, address, shown, tmp_path / name)
    processes.start("liar", fleet.work, "liar", address, shown, tmp_path / "liar", sends="a flipped bit")
    processes.start("client", fleet.ask, address, shown, output, ["a", "b", "liar"], told)
    deadline = time.monotonic() + LONG_S
    while not (output / machine("a") / "page_chase.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    processes.kill("a")
    processes.kill("client")
    processes.again("a")
    processes.again("client")
    assert ended(processes, "client", deadline)
    assert became(told) == {"a": "", "b": "", "liar": "fleet-garbage"}
    for name in ("a", "b"):
        assert lines_of(output / machine(name)) == expected[name] == lines_of(tmp_path / name / "own" / machine(name))
    assert lines_of(output / machine("liar")) == {}
    processes.running["scheduler"].terminate()  # in order: it sends its workers home
    assert ended(processes, "b", deadline)


# --- eight in namespaces of their own

EIGHT = ("a", "a again", "b", "c", "liar", "old", "full", "clock")
DISK_BYTES = 24 << 10  # for the worker that fills up: less than its rows take


@pytest.fixture
def apart(tmp_path: Path) -> None:
    """Whether this computer gives namespaces: a process tries."""

    def look() -> None:
        (tmp_path / "look").mkdir()
        fleet.enter(tmp_path / "look", [files.ROOT], 0, tmp_path)

    trial = fleet.fork.Process(target=look)
    trial.start()
    trial.join()
    if trial.exitcode:
        pytest.skip("needs the right to mount, in a namespace")


def begin_eight(processes: Processes, address: str, shown: certificates.Pass, folder: Path, rng: random.Random) -> None:
    faults = {"a again": {"alike": "a"}, "old": {"other_version": True}, "full": {"disk_bytes": DISK_BYTES},
              "clock": {"clock_s": fleet.CLOCK_S},
              "liar": {"sends": rng.choice(["no parcel", "a flipped bit", "a flipped bit, digest and all", "another's rows"])}}
    for name in EIGHT:
        processes.start(name, fleet.work, name, address, shown, folder / name.removesuffix(" again"), own=folder / "tmp" / name,
                        **faults.get(name, {}))


def harm(processes: Processes, rng: random.Random, over_s: float) -> None:
    """Three workers, the scheduler once and the client twice, each killed at a moment of its own and started again; one worker stopped for
    a while, which is a connection on which nothing comes."""
    def again(called: str) -> None:
        processes.kill(called)
        processes.again(called)

    def stop() -> None:
        os.kill(processes.inside("c"), signal.SIGSTOP)

    def go_on() -> None:
        os.kill(processes.inside("c"), signal.SIGCONT)

    victims = [*rng.sample(["a", "b", "clock"], 2), rng.choice(["a", "b", "clock", "liar", "old"]), "scheduler", "client", "client"]
    stopped_s = rng.uniform(0, over_s)
    moments = [(rng.uniform(0, over_s), lambda called=called: again(called)) for called in victims]
    moments += [(stopped_s, stop), (stopped_s + rng.choice([0.2, 1.0, 8.0]), go_on)]  # eight seconds are longer than a scheduler waits
    began = time.monotonic()
    for moment, act in sorted(moments, key=lambda one: one[0]):
        time.sleep(max(began + moment - time.monotonic(), 0))
        act()


@needs_root
@pytest.mark.endurance
@times("number", 20)
def test_eight_workers_of_which_some_are_killed_lie_stall_and_fill_up_lose_and_double_no_row(
        number: int, processes: Processes, standing_in: None, apart: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{SEED} {number}")
    shown, address, told = certificates.member(tmp_path / "pass"), f"tls://127.0.0.1:{fleet.free_port()}", tmp_path / "told"
    clocks = {"a": 0, "b": 0, "c": 0, "full": 0, "clock": fleet.CLOCK_S}
    expected = {name: plain(name, tmp_path / "by hand" / name, clock_s) for name, clock_s in clocks.items()}
    monkeypatch.setattr(fleet, "PROCESS_S", 0.04)
    output = tmp_path / "collected"
    processes.start("scheduler", fleet.schedule, address, shown)
    begin_eight(processes, address, shown, tmp_path, rng)
    processes.start("client", fleet.ask, address, shown, output, list(EIGHT), told)
    deadline = time.monotonic() + LONG_S
    harm(processes, rng, 3.0)
    assert ended(processes, "client", deadline), f"run {number}, TLB_SEED={SEED}"
    codes = became(told)
    assert sorted([codes.pop("a"), codes.pop("a again")]) == ["", "fleet-twice"], told.read_text()
    assert codes == {"b": "", "c": "", "clock": "", "liar": "fleet-garbage", "old": "fleet-version", "full": "disk-full"}, told.read_text()
    for name in ("a", "b", "c", "clock"):
        assert lines_of(output / machine(name)) == expected[name] == lines_of(tmp_path / name / "own" / machine(name)), name
    full = Path(f"/proc/{processes.inside('full')}/root", *(tmp_path / "full/own" / machine("full")).parts[1:])
    collected = lines_of(output / machine("full"))
    assert collected == lines_of(full)  # nothing that was finished is lost to a full disk
    assert all(set(some) < set(expected["full"][name]) and len(set(some)) == len(some) for name, some in collected.items())
    assert not any(lines_of(output / machine(name)) for name in ("liar", "old"))
