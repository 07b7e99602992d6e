"""Who may speak in a fleet, how its workers end, and the commands of its guide."""

import asyncio
import os
import re
import shlex
import signal
import socket
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import distributed
import pytest
import typer
from support.common import LONG_S, ended, free_port, refusal, wait_until

from tlb import cli
from tlb.cli import fleet as commands
from tlb.fleet import accept, check, tls, worker
from tlb.fleet.client import Computer, Fleet
from tlb.fleet.worker import Campaign, Measured
from tlb.measure.store import Store
from tlb.system.files import ROOT
from tlb.system.reasons import REASONS, Unavailable

GUIDE = (ROOT / "book" / "fleet.md").read_text(encoding="utf-8")


# --- the certificate


def test_it_is_made_once_for_this_user_alone_and_one_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "state" / "fleet.pem"
    old = os.umask(0)
    try:
        with ThreadPoolExecutor(4) as pool:
            (pem,) = {*pool.map(tls.shared, [path] * 4)}
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and [*path.parent.iterdir()] == [path]
    assert tls.shared(path) == pem
    path.chmod(0o644)
    assert refusal(tls.shared, path) == "fleet-certificates"
    path.chmod(0o600)
    for text in ("none", pem[: len(pem) // 2], "\xff"):
        path.write_text(text)
        assert refusal(tls.shared, path) == "fleet-certificates"


def beside_a_scheduler(pem: str, look: Callable[[str], Awaitable[None]]) -> None:
    """Run `look` with the address of a scheduler."""

    async def both() -> None:
        address = f"tls://127.0.0.1:{free_port()}"
        serving = asyncio.create_task(worker.serve(address, pem))
        try:
            await look(address)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    worker.configure()
    asyncio.run(both())


@pytest.mark.parametrize("who", ["another fleet's member", "nobody's"])
def test_a_scheduler_lets_in_nobody_but_members(tmp_path, who):
    pem, other = tls.shared(tmp_path / "ours.pem"), tls.shared(tmp_path / "theirs.pem")
    theirs = tls.security(other if who == "another fleet's member" else "")
    theirs.tls_ca_file = tls.security(pem).tls_ca_file  # who trusts us, but is none of us

    async def look(address: str) -> None:
        ours = tls.security(pem).get_connection_args("client")
        comm = await distributed.core.connect(address, timeout=LONG_S, **ours)
        await comm.close()
        with pytest.raises((OSError, TimeoutError)):
            await distributed.core.connect(
                address if theirs.tls_client_cert else address.replace("tls", "tcp"),
                timeout=2,
                **theirs.get_connection_args("client"),
            )

    beside_a_scheduler(pem, look)


def test_a_worker_does_nothing_by_itself(tmp_path):
    pem = tls.shared(tmp_path / "fleet.pem")

    async def look(address: str) -> None:
        how = {"security": tls.security(pem), "local_directory": str(tmp_path), **worker.QUIET}
        async with worker.QuietWorker(address, nthreads=1, name="a", memory_limit=0, **how) as one:
            callbacks = one.periodic_callbacks.values()
            assert callbacks and not any(callback.is_running() for callback in callbacks)
            assert one.state.nthreads == 1

    beside_a_scheduler(pem, look)


def test_without_a_scheduler_or_a_computer_patience_ends_it(tmp_path):
    pem, address = tls.shared(tmp_path / "fleet.pem"), f"tls://127.0.0.1:{free_port()}"
    worker.configure()
    run = Fleet(Store(tmp_path / "here"), Campaign(), patience_s=0.1).run(address, pem)
    assert refusal(asyncio.run, run) == "fleet-gone"
    fleet = Fleet(Store(tmp_path / "here"), Campaign(), patience_s=1.0)
    fleet.computers["silent"] = Computer("silent", heard=time.monotonic())
    beside_a_scheduler(pem, lambda address: fleet.run(address, pem))
    assert fleet.computers["silent"].why.code == "fleet-gone" and fleet.finished


def test_with_fewer_computers_than_asked_patience_ends_it_and_says_how_many_came(tmp_path):
    pem = tls.shared(tmp_path / "fleet.pem")
    fleet = Fleet(Store(tmp_path / "here"), Campaign(), 64, patience_s=1.0)
    for name in ("a", "b", "c"):
        fleet.computers[name] = Computer(name, over=True)

    async def look(address: str) -> None:
        with pytest.raises(Unavailable) as why:
            await fleet.run(address, pem)
        assert (why.value.code, why.value.detail) == ("fleet-gone", "3 of 64 connected")

    beside_a_scheduler(pem, look)


def test_awaited_computers_are_counted_as_they_come(tmp_path, monkeypatch):
    async def visit(self: Fleet, client: object, computer: Computer) -> None:
        computer.over = True

    async def come(*arrivals: set[str]) -> None:
        for present in arrivals:
            fleet._update(None, dict.fromkeys(present, "tls://a:1"))
            await asyncio.sleep(0)

    monkeypatch.setattr(Fleet, "_visit", visit)
    counts = list[str]()
    fleet = Fleet(Store(tmp_path), Campaign(), 2, count=counts.append)
    asyncio.run(come({"a"}, {"a"}, {"a", "b"}, {"a", "b", "c"}))
    assert counts == ["1 of 2 connected", "2 of 2 connected"] and len(fleet.computers) == 3


@pytest.mark.parametrize("place", ["127.0.0.1", "192.0.2.1"], ids=["a used port", "no own address"])
def test_a_scheduler_that_cannot_listen_is_a_sentence(place, tmp_path):
    pem = tls.shared(tmp_path / "fleet.pem")
    worker.configure()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tls://{place}:{taken.getsockname()[1]}"
        assert refusal(asyncio.run, worker.serve(address, pem)) == "bad-parameter"


def test_a_worker_whose_port_is_used_is_a_sentence_at_once(tmp_path, monkeypatch):
    pem = tls.shared(tmp_path / "fleet.pem")
    monkeypatch.setattr(worker, "_keep_off", lambda cpu: None)
    monkeypatch.setattr(worker, "_on_end", lambda *given: None)

    async def look(address: str) -> None:
        with socket.create_server(("0.0.0.0", 0)) as taken, pytest.raises(Unavailable) as why:
            await worker.work(address, "a", pem, LONG_S, taken.getsockname()[1])
        assert why.value.code == "bad-parameter"

    beside_a_scheduler(pem, look)


# --- commands


def tlb(monkeypatch, capsys, *words: str) -> tuple[int, str]:
    status, (out, err) = ended(monkeypatch, "fleet", *words), capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    return status, err


def test_bad_arguments_and_a_lack_of_packages_are_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert tlb(monkeypatch, capsys)[0] == 2
    for how in (["--profile", "nope"], ["--chapter", "nope"], ["--chapter", "index"]):
        assert tlb(monkeypatch, capsys, "--scheduler", "tls://a:1", *how)[0] == 2
    for words in (["--scheduler", "tcp://a:1"], ["worker", "tcp://a:1"]):
        status, sentence = tlb(monkeypatch, capsys, *words)
        assert status == 1 and sentence.endswith(REASONS["fleet-insecure"].remedy + "\n")
    assert refusal(commands._checked, "tls://a:1", True) == "bad-parameter"
    for address in ("http://a:1", "a", "tls://a:x", ""):
        assert refusal(commands._checked, address, False) == "bad-parameter"
    assert [commands._checked("a:1", on) for on in (False, True)] == ["tls://a:1", "tcp://a:1"]
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("tls", "worker", "client"):
        monkeypatch.delitem(sys.modules, f"tlb.fleet.{name}", raising=False)
    status, sentence = tlb(monkeypatch, capsys, "--scheduler", "tls://a:1")
    assert status == 1 and sentence.endswith(REASONS["no-extra"].remedy + "\n")


def test_every_tlb_command_of_the_guide_is_understood():
    group = typer.main.get_command(cli.app)
    blocks = "".join(re.findall(r"^```(?:sh|bash)\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE))
    shown = [shlex.split(line) for line in re.findall(r"\btlb ([^'\n#&]+)", blocks)]
    for name, *arguments in shown:
        command = group.commands[name]
        if arguments and arguments[0] in getattr(command, "commands", {}):
            command, arguments = command.commands[arguments[0]], arguments[1:]
        command.make_context(name, arguments)
    used = {words[1] for words in shown if words[0] == "fleet"}
    assert {"worker", "scheduler", "--scheduler"} <= used


def test_a_worker_ends_at_once_and_leaves_nothing(tmp_path, monkeypatch, processes):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    processes.start(
        "worker", commands.worker, f"tcp://127.0.0.1:{free_port()}", "a", 0, insecure=True
    )
    # its signals are handled by then
    assert wait_until(lambda: any(tmp_path.glob("tlb-fleet-*/*")))
    os.kill(processes.running["worker"].pid, signal.SIGTERM)
    processes.running["worker"].join()
    assert processes.running["worker"].exitcode == 0 and not [*tmp_path.iterdir()]


def test_the_rows_of_all_visits_to_a_computer_count(tmp_path, monkeypatch):
    new = iter((4, 2))
    monkeypatch.setattr(check, "opened", lambda content: SimpleNamespace(machine="m"))
    monkeypatch.setattr(accept, "add", lambda *given: SimpleNamespace(rows=next(new)))
    fleet, computer = Fleet(Store(tmp_path), Campaign()), Computer("a")
    stopped = Measured(b"", Counter(), 7, Unavailable("state-changed"))
    assert refusal(asyncio.run, fleet._collect(stopped, computer)) == "state-changed"
    asyncio.run(fleet._collect(Measured(b"", Counter(), 0, None), computer))
    assert (computer.rows, computer.left, computer.over) == (6, 0, True)
