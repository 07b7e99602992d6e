"""Workers that ssh starts: they are started again, end with their client however it dies, and say why where they cannot begin."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.common import in_turn
from support.fleet import free_port, lines_of

from experiments.fleet import certificates, starting
from experiments.fleet.campaigns import Campaign
from experiments.lab.store import Store
from experiments.system.files import ROOT


def await_that(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_that_ends_is_started_again_and_gets_its_pass_down_the_pipe_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "AGAIN_S", 0.0)
    shown = certificates.Pass("a\n", "b\n", "c\n")
    words = ["sh", "-c", f"head -n 3 >> {shlex.quote(str(tmp_path / 'got'))}; echo so >&2; printf 'no \\033way\n' >&2; kill -9 $$"]
    complaints: list[str] = []

    async def twice() -> None:
        task = asyncio.create_task(starting.keep(words, shown, complaints.append))
        while not (tmp_path / "got").exists() or (tmp_path / "got").read_text().count("a\n") < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(twice(), 60))
    assert (tmp_path / "got").read_text().startswith(shown.text * 2)
    assert {*complaints} == {"no  way"}  # the last line, of which a screen reads no commands
    quiet: list[str] = []
    asyncio.run(asyncio.wait_for(ended_once(["sh", "-c", "exit 3"], quiet), 60))
    assert "3" in quiet[0]


async def ended_once(words: list[str], complaints: list[str]) -> None:
    task = asyncio.create_task(starting.keep(words, None, complaints.append))
    while not complaints:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_what_ssh_runs_ends_when_its_client_is_killed(tmp_path, processes):
    """As the worker there: it hears of nothing but the end of its stdin."""
    words = ["sh", "-c", f"echo > {shlex.quote(str(tmp_path / 'begun'))}; cat; echo > {shlex.quote(str(tmp_path / 'ended'))}"]
    processes.start("client", lambda: asyncio.run(starting.keep(words, certificates.Pass("a\n", "b\n", "c\n"))))
    await_that((tmp_path / "begun").exists)
    assert not (tmp_path / "ended").exists()
    processes.kill("client")
    await_that((tmp_path / "ended").exists)


@pytest.mark.parametrize("how", ["its stdin ends", "SIGTERM", "Ctrl-C"])
def test_a_worker_ends_at_once_and_leaves_nothing(tmp_path, monkeypatch, processes, how: str):
    pytest.importorskip("distributed", reason="`make fleet` adds it")
    from experiments.cli import fleet

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reads, writes = os.pipe()

    def work() -> None:
        os.dup2(reads, 0)
        os.close(writes)
        fleet.worker(f"tcp://127.0.0.1:{free_port()}", "a", 0, tied=True, insecure=True)

    processes.start("worker", work)
    await_that(lambda: [*tmp_path.glob("tlb-fleet-*/*")])  # its signals are taken by then
    assert processes.running["worker"].is_alive()
    if how == "its stdin ends":
        os.close(writes)
    else:
        os.kill(processes.running["worker"].pid, signal.SIGTERM if how == "SIGTERM" else signal.SIGINT)
    processes.running["worker"].join(20)
    assert processes.running["worker"].exitcode == 0 and not [*tmp_path.iterdir()]


def test_a_computer_that_never_came_is_given_up_with_what_ssh_complained_of():
    pytest.importorskip("distributed", reason="`make fleet` adds it")
    from experiments.fleet.courier import Courier

    courier = Courier(None, Campaign("smoke"), ["a", "b"], patience_s=-1.0)
    courier.fleet["a"].complaint = "Permission denied (publickey)."
    courier._look(None, {})
    assert {name: visited.why.detail for name, visited in courier.fleet.items()} == {"a": "a: Permission denied (publickey).", "b": "b"}


# --- the whole of it

SSHD = "/usr/sbin/sshd"  # which wants its whole path


def served(folder: Path, data: Path) -> tuple[list[str], str]:
    """The words that start an sshd of this user's own on loopback, and those of an ssh that it lets in as `far`, as whose ledger `data`
    lies there. `strange` is the same computer, with a key that is not its own."""
    port = free_port()
    for name in ("host", "other", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    keys = {name: " ".join((folder / f"{name}.pub").read_text().split()[:2]) for name in ("host", "other")}
    (folder / "known").write_text(f"far {keys['host']}\nstrange {keys['other']}\n")
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nPidFile none\nStrictModes no\n"
        f"UsePAM no\nSetEnv TLB_DATA={data}\n")
    (folder / "ssh_config").write_text("".join(
        f"Host {name}\n HostName 127.0.0.1\n Port {port}\n HostKeyAlias {name}\n" for name in ("far", "strange"))
        + f"Host *\n IdentityFile {folder}/user\n IdentitiesOnly yes\n UserKnownHostsFile {folder}/known\n"
        " GlobalKnownHostsFile /dev/null\n")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # into which sshd shuts itself; Debian makes it with the service
    return [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")], f"{starting.SSH} -F {folder}/ssh_config"


def of(address: str) -> list[int]:
    """The processes of a fleet."""
    return [process.pid for process in psutil.process_iter(["cmdline"]) if any(address in word for word in process.info["cmdline"] or ())]


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.endurance
@pytest.mark.needs("a C compiler", "ssh", SSHD)
def test_over_a_real_ssh_a_killed_client_leaves_nothing_there_and_the_same_command_goes_on(tmp_path):
    pytest.importorskip("distributed", reason="`make fleet` adds it")
    for name in ("ssh", "there", "scratch"):
        (tmp_path / name).mkdir()
    daemon, ssh = served(tmp_path / "ssh", tmp_path / "there")
    address = f"127.0.0.1:{free_port()}"
    hosts = tmp_path / "hosts"
    command = [sys.executable, "-c", "from experiments.cli import main; main()", "fleet", "--hosts", str(hosts), "--ssh", ssh, "--listen",
               address, "--profile", "smoke", "--chapter", "stlb_cliff", "--minutes", "0.1", "--output", str(tmp_path / "here")]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(daemon, stderr=subprocess.DEVNULL) as served_by:
        try:
            hosts.write_text(f"far {shlex.quote(str(ROOT))}\n")
            with subprocess.Popen([*command, "--patience", "10"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as client:
                try:
                    await_that(lambda: [*(tmp_path / "there").glob("own/*/page_chase.jsonl")])
                finally:
                    client.kill()
            await_that(lambda: not of(address))
            hosts.write_text(f"far {shlex.quote(str(ROOT))}\nstrange\n")
            done = in_turn([*command, "--patience", "0.2"], timeout=120, env=environment)
            await_that(lambda: not of(address))
        finally:
            served_by.terminate()
    assert done.returncode == 1 and "Host key verification failed" in done.stderr  # of the strange one alone
    (machine,) = Store(tmp_path / "here").machines()
    rows = lines_of(tmp_path / "here" / machine)
    there = lines_of(tmp_path / "there" / "own" / machine)
    assert rows["page_chase.jsonl"] and all(len({*lines}) == len(lines) and {*lines} <= {*there[name]} for name, lines in rows.items())
    assert f"far: {sum(map(len, rows.values()))} rows" in done.stderr
