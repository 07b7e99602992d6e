"""Who may speak in a fleet, how its workers are started and end, and the commands of its guide."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import typer
from support.common import in_turn
from support.fleet import free_port, lines_of

distributed = pytest.importorskip("distributed", reason="`make fleet` adds it")

from tlb import cli  # noqa: E402
from tlb.cli import fleet as commands  # noqa: E402
from tlb.fleet import ssh, tls, worker  # noqa: E402
from tlb.fleet.client import Fleet  # noqa: E402
from tlb.fleet.worker import Campaign  # noqa: E402
from tlb.lab.store import Store  # noqa: E402
from tlb.reasons import REASONS, Unavailable  # noqa: E402
from tlb.system.files import ROOT  # noqa: E402

GUIDE = (ROOT / "book" / "fleet.md").read_text(encoding="utf-8")


def refused(code: str, act: Callable[..., object], *given: object) -> None:
    with pytest.raises(Unavailable) as why:
        act(*given)
    assert why.value.code == code


def await_that(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
    assert tls.shared(path) == tls.checked(pem) == pem
    for spoil in (
        lambda: path.chmod(0o644),
        lambda: path.write_text("none"),
        lambda: path.write_text(pem[: len(pem) // 2]),
    ):
        path.write_text(pem)
        path.chmod(0o600)
        spoil()
        refused("fleet-certificates", tls.shared, path)


def beside_a_scheduler(pem: str, look: Callable[[str], Awaitable[None]]) -> None:
    """Runs `look` with the address of a scheduler."""

    async def both() -> None:
        address = f"tls://127.0.0.1:{free_port()}"
        async with worker.scheduler(address, pem):
            await look(address)

    worker.configure()
    asyncio.run(asyncio.wait_for(both(), 120))


@pytest.mark.parametrize("who", ["another fleet's member", "nobody's"])
def test_a_scheduler_lets_in_nobody_but_members(tmp_path, who: str):
    pem, other = tls.shared(tmp_path / "ours.pem"), tls.shared(tmp_path / "theirs.pem")
    theirs = tls.security(other if who == "another fleet's member" else "")
    theirs.tls_ca_file = tls.security(pem).tls_ca_file  # who trusts us, but is none of us

    async def look(address: str) -> None:
        with pytest.raises((OSError, TimeoutError)):
            await distributed.core.connect(
                address if theirs.tls_client_cert else address.replace("tls", "tcp"),
                timeout=2,
                **theirs.get_connection_args("client"),
            )
        comm = await distributed.core.connect(
            address, timeout=10, **tls.security(pem).get_connection_args("client")
        )
        await comm.close()

    beside_a_scheduler(pem, look)


def test_a_worker_does_nothing_by_itself(tmp_path):
    pem = tls.shared(tmp_path / "fleet.pem")

    async def look(address: str) -> None:
        async with worker.QuietWorker(
            address,
            nthreads=1,
            name="a",
            security=tls.security(pem),
            memory_limit=0,
            local_directory=str(tmp_path),
            **worker.QUIET,
        ) as quiet:
            assert quiet.periodic_callbacks and not any(
                callback.is_running() for callback in quiet.periodic_callbacks.values()
            )
            assert quiet.state.nthreads == 1

    beside_a_scheduler(pem, look)


def test_without_a_scheduler_or_a_computer_patience_ends_it(tmp_path):
    pem, address = tls.shared(tmp_path / "fleet.pem"), f"tls://127.0.0.1:{free_port()}"
    worker.configure()
    refused(
        "fleet-gone",
        asyncio.run,
        Fleet(Store(tmp_path / "here"), Campaign(), patience_s=0.1).run(address, pem),
    )
    fleet = Fleet(Store(tmp_path / "here"), Campaign(), ["absent"], patience_s=1.0)
    fleet.computers["absent"].complaint = "Permission denied (publickey)."
    beside_a_scheduler(pem, lambda address: fleet.run(address, pem))
    assert (
        fleet.computers["absent"].why.detail == "absent: Permission denied (publickey)."
        and fleet.finished
    )


# --- commands


def test_a_file_of_hosts_has_a_line_a_computer_and_each_once(tmp_path):
    path = tmp_path / "hosts"
    path.write_text(
        "# all of them\ndb-17\n\n  me@10.0.0.9   'src/two loads'  # the odd one\ndb-17 other\n"
    )
    assert ssh.read_hosts(path) == {"db-17": ssh.FOLDER, "me@10.0.0.9": "src/two loads"}
    for text in (b"", b"# none\n", b"a b c\n", b"-oProxyCommand=x\n", b"'open\n", b"\xff\xfe"):
        path.write_bytes(text)
        refused("bad-parameter", ssh.read_hosts, path)
    refused("bad-parameter", ssh.read_hosts, tmp_path / "absent")


def test_a_worker_is_started_by_words_that_a_shell_reads_as_they_are():
    words = ssh.command("h; reboot", "a b", "tls://c:1", ssh.SSH, insecure=False, patience_s=90)
    assert words[0] == "ssh" and words[-2] == "h; reboot"  # of which no shell here makes two
    shell = shlex.split(words[-1])
    assert shell[:5] == ["cd", "a b", "&&", "exec", ".venv/bin/tlb"]
    command = typer.main.get_command(cli.app).commands["fleet"].commands["worker"]
    given = command.make_context("worker", shell[7:]).params
    assert given == given | {"address": "tls://c:1", "name": "h; reboot", "patience": 1.5}
    assert given["certificate"] == "-" and given["tied"] and not given["insecure"]


def tlb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["tlb", "fleet", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr()
    assert told.out == "" and len(told.err.splitlines()) == 1
    return ended.value.code, told.err


def test_what_cannot_be_asked_is_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for words in ([], ["--hosts", str(tmp_path), "--scheduler", "tls://a:1"]):
        assert tlb(monkeypatch, capsys, *words)[0] == 2
    for how in (["--profile", "nope"], ["--chapter", "nope"], ["--chapter", "your_machine"]):
        assert tlb(monkeypatch, capsys, "--scheduler", "tls://a:1", *how)[0] == 2
    for words in (["--scheduler", "tcp://a:1"], ["worker", "tcp://a:1"]):
        status, told = tlb(monkeypatch, capsys, *words)
        assert status == 1 and told.endswith(REASONS["fleet-insecure"].remedy + "\n")
    refused("bad-parameter", commands._checked, "tls://a:1", True)
    for address in ("http://a:1", "a", "tls://a:x", ""):
        refused("bad-parameter", commands._checked, address, False)
    assert [commands._checked("a:1", on) for on in (False, True)] == ["tls://a:1", "tcp://a:1"]
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("tls", "worker", "client"):
        monkeypatch.delitem(sys.modules, f"tlb.fleet.{name}", raising=False)
    status, told = tlb(monkeypatch, capsys, "--scheduler", "tls://a:1")
    assert status == 1 and told.endswith(REASONS["no-fleet"].remedy + "\n")


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
    assert {"worker", "scheduler", "--hosts", "--scheduler"} <= used


# --- over ssh


def test_a_worker_that_ends_is_started_again_with_its_certificate_and_says_why(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(ssh, "AGAIN_S", 0.0)
    got, complaints = tmp_path / "got", list[str]()
    words = [
        "sh",
        "-c",
        f"head -n 3 >> {shlex.quote(str(got))}; echo so >&2; printf 'no \\033way\n' >&2; kill -9 "
        "$$",
    ]

    async def twice() -> None:
        task = asyncio.create_task(ssh.keep(words, "a\nb\nc\n", complaints.append))
        while not got.exists() or got.read_text().count("a\n") < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(twice(), 120))
    assert got.read_text().startswith("a\nb\nc\n" * 2) and {*complaints} == {
        "no  way"
    }  # of which a screen reads no commands


@pytest.mark.parametrize("how", ["its stdin ends", "SIGTERM"])
def test_a_worker_ends_at_once_and_leaves_nothing(tmp_path, monkeypatch, processes, how: str):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reads, writes = os.pipe()

    def work() -> None:
        os.dup2(reads, 0)
        os.close(writes)
        commands.worker(f"tcp://127.0.0.1:{free_port()}", "a", 0, tied=True, insecure=True)

    processes.start("worker", work)
    await_that(lambda: [*tmp_path.glob("tlb-fleet-*/*")])  # its signals are taken by then
    if how == "its stdin ends":
        os.close(writes)
    else:
        os.kill(processes.running["worker"].pid, signal.SIGTERM)
    processes.running["worker"].join(60)
    assert processes.running["worker"].exitcode == 0 and not [*tmp_path.iterdir()]


SSHD = "/usr/sbin/sshd"  # which wants its whole path
SSHD_CONFIG = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
SetEnv TLB_DATA={data}
"""
SSH_CONFIG = """
Host far
 HostKeyAlias far
Host strange
 HostKeyAlias strange
Host *
 HostName 127.0.0.1
 Port {port}
 IdentityFile {folder}/user
 IdentitiesOnly yes
 UserKnownHostsFile {folder}/known
 GlobalKnownHostsFile /dev/null
"""


def ssh_server(folder: Path, data: Path) -> tuple[list[str], str]:
    """The words that start an sshd of this user's own on loopback, and those of an ssh that it lets
    in as `far`, where `data` is the ledger. `strange` is the same computer with a key that is not
    its own."""
    port = free_port()
    for name in ("host", "other", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(key, check=True)
    public = {name: (folder / f"{name}.pub").read_text() for name in ("host", "other")}
    (folder / "known").write_text(f"far {public['host']}strange {public['other']}")
    for name, text in (("sshd_config", SSHD_CONFIG), ("ssh_config", SSH_CONFIG)):
        (folder / name).write_text(text.format(folder=folder, port=port, data=data))
    if os.geteuid() == 0:  # sshd shuts itself into a folder that Debian makes with the service
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return [SSHD, "-D", "-e", "-f", f"{folder}/sshd_config"], f"{ssh.SSH} -F {folder}/ssh_config"


def processes_of(address: str) -> list[int]:
    """The processes of a fleet."""
    running = psutil.process_iter(["cmdline"])
    return [one.pid for one in running if address in " ".join(one.info["cmdline"] or ())]


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.endurance
@pytest.mark.needs("a C compiler", "ssh", SSHD)
def test_over_a_real_ssh_a_killed_client_leaves_nothing_there_and_the_same_command_goes_on(
    tmp_path,
):
    for name in ("ssh", "there"):
        (tmp_path / name).mkdir()
    daemon, shell = ssh_server(tmp_path / "ssh", tmp_path / "there")
    address, hosts = f"127.0.0.1:{free_port()}", tmp_path / "hosts"
    command = [sys.executable, "-c", "from tlb.cli import main; main()", "fleet"]
    command += ["--hosts", str(hosts), "--ssh", shell, "--listen", address, "--profile", "smoke"]
    command += ["--chapter", "stlb_cliff", "--minutes", "2", "--output", str(tmp_path / "here")]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(daemon, stderr=subprocess.DEVNULL) as server:
        try:
            hosts.write_text(f"far {shlex.quote(str(ROOT))}\n")
            first = [*command, "--patience", "10"]
            with subprocess.Popen(first, cwd=ROOT, env=environment, **silent) as client:
                try:
                    await_that(lambda: [*(tmp_path / "there").glob("own/*/page_chase.jsonl")])
                finally:
                    client.kill()
            await_that(lambda: not processes_of(address))
            hosts.write_text(f"far {shlex.quote(str(ROOT))}\nstrange\n")
            done = in_turn([*command, "--patience", "0.5"], timeout=280, env=environment)
            await_that(lambda: not processes_of(address))
        finally:
            server.terminate()
    assert done.returncode == 1 and "Host key verification failed" in done.stderr  # of `strange`
    (machine,) = Store(tmp_path / "here").machines()
    rows = lines_of(tmp_path / "here" / machine)
    assert rows["page_chase.jsonl"] and rows == lines_of(tmp_path / "there/own" / machine)
    assert f"far: {sum(map(len, rows.values()))} rows" in done.stderr and machine in done.stdout
