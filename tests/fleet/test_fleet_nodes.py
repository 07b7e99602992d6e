"""The worker that is silent while it measures, and who is let in by a scheduler: real ones, on loopback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.fleet import free_port

distributed = pytest.importorskip("distributed", reason="`make fleet` adds it")

from experiments.fleet import certificates, nodes  # noqa: E402
from experiments.fleet.courier import Courier  # noqa: E402


def beside_a_scheduler(folder: Path, look: Callable[[str, certificates.Pass], Awaitable[None]]) -> None:
    """Runs `look` with the address of a scheduler and its pass."""
    own = certificates.member(folder / "pass")

    async def both() -> None:
        address = f"tls://127.0.0.1:{free_port()}"
        async with nodes.scheduler(address, own):
            await look(address, own)

    with nodes.configured():
        asyncio.run(asyncio.wait_for(both(), 60))


def test_a_worker_does_nothing_by_itself_while_it_measures(tmp_path):
    async def look(address: str, shown: certificates.Pass) -> None:
        async with nodes.QuietWorker(address, nthreads=1, name="a", security=nodes.security(shown), memory_limit=0, data=dict,
                                     local_directory=str(tmp_path), dashboard=False, dashboard_address="127.0.0.1:0") as worker:
            await worker.heartbeat()  # after which the scheduler would have two a second
            rare = {name: callback.callback_time >= 1000 * nodes.QUIET_S for name, callback in worker.periodic_callbacks.items()}
            assert all(rare.values()) and {"heartbeat", "tick", "monitor"} <= rare.keys(), rare
            assert not {"profile", "profile-cycle", "memory_monitor"} & rare.keys()
            assert distributed.gc._gc_diagnosis_users <= 1 and worker.state.nthreads == 1  # the scheduler's, in this process
    beside_a_scheduler(tmp_path, look)


def test_a_task_is_of_its_computer_and_the_event_loop_of_the_other_cpus(monkeypatch):
    masks: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: masks.append(given), raising=False)
    monkeypatch.setattr(nodes, "CPUS_AT_START", frozenset({0, 1, 5}))
    assert nodes.keep_off(5) and masks == [(0, frozenset({0, 1}))]
    monkeypatch.setattr(nodes, "CPUS_AT_START", frozenset({5}))
    assert not nodes.keep_off(5) and not nodes.keep_off(None) and len(masks) == 1
    assert nodes.SETTINGS["distributed.scheduler.work-stealing"] is False


@pytest.mark.parametrize("who", ["another fleet's member", "nobody's"])
def test_a_scheduler_lets_in_nobody_but_members(tmp_path, who: str):
    async def look(address: str, shown: certificates.Pass) -> None:
        theirs = certificates.member(tmp_path / "theirs")
        stranger = theirs._replace(authority=shown.authority) if who == "another fleet's member" else None
        with pytest.raises((OSError, TimeoutError)):
            await distributed.core.connect(address if stranger else address.replace("tls", "tcp"), timeout=2,
                                           **nodes.security(stranger).get_connection_args("client"))
        comm = await distributed.core.connect(address, timeout=10, **nodes.security(shown).get_connection_args("client"))
        await comm.close()
    beside_a_scheduler(tmp_path, look)


def test_where_no_scheduler_is_patience_ends_it(tmp_path):
    from experiments.fleet.campaigns import Campaign
    from experiments.fleet.collected import collecting
    from experiments.words.reasons import Unavailable

    shown, address = certificates.member(tmp_path / "pass"), f"tls://127.0.0.1:{free_port()}"
    with nodes.configured(), collecting(tmp_path / "here") as collected, pytest.raises(Unavailable) as why:
        asyncio.run(Courier(collected, Campaign("smoke"), patience_s=0.1).run(address, shown))
    assert why.value.code == "fleet-gone"


def test_a_computer_that_never_comes_is_given_up_and_the_run_ends(tmp_path, monkeypatch):
    from experiments.fleet.campaigns import Campaign
    from experiments.fleet.collected import collecting

    async def look(address: str, shown: certificates.Pass) -> None:
        with collecting(tmp_path / "here") as collected:
            (visited,) = await Courier(collected, Campaign("smoke"), ["absent"], patience_s=1.0).run(address, shown)
        assert visited.why.code == "fleet-gone" and visited.over
    beside_a_scheduler(tmp_path, look)
