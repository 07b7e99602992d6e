"""Who may speak in a fleet, how its workers are started and end, and what its guide says to copy."""

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
import yaml
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


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("/var/lib/x", "/var/lib/x/every-load/fleet.pem"),
        ("relative", "~/.local/state/every-load/fleet.pem"),
    ],
)
def test_it_lies_where_the_xdg_specification_puts_state(monkeypatch, state: str, expected: str):
    monkeypatch.setenv("XDG_STATE_HOME", state)
    assert tls.default() == Path(expected).expanduser()


def test_it_is_read_from_a_pipe_that_stays_open(tmp_path, monkeypatch):
    pem = tls.shared(tmp_path / "fleet.pem")
    lines = iter([*pem.splitlines(keepends=True), "more\n"])
    monkeypatch.setattr(sys, "stdin", lines)
    assert commands._pem("-", False) == pem and [*lines] == ["more\n"]


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


def test_its_event_loop_is_kept_off_the_measured_cpu(monkeypatch, capsys):
    masks: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: masks.append(given), raising=False)
    monkeypatch.setattr(worker, "CPUS_AT_START", frozenset({0, 1, 5}))
    worker._keep_off(5)
    assert masks == [(0, frozenset({0, 1}))] and not capsys.readouterr().err
    monkeypatch.setattr(worker, "CPUS_AT_START", frozenset({5}))
    worker._keep_off(5)
    assert len(masks) == 1 and "shares the CPU" in capsys.readouterr().err


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


# --- by which words


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


def test_the_words_start_a_worker_there_as_a_shell_reads_them():
    words = ssh.command(
        "h; reboot", "src/two loads", "tls://c:1", ssh.SSH, insecure=False, patience_s=90
    )
    assert words[0] == "ssh" and words[-2] == "h; reboot"  # of which no shell here makes two
    shell = shlex.split(words[-1])
    assert shell[:5] == ["cd", "src/two loads", "&&", "exec", ".venv/bin/tlb"]
    given = (
        typer.main.get_command(cli.app)
        .commands["fleet"]
        .commands["worker"]
        .make_context("worker", shell[7:])
        .params
    )
    assert (given["address"], given["name"], given["patience"], given["certificate"]) == (
        "tls://c:1",
        "h; reboot",
        1.5,
        "-",
    )
    assert given["tied"] and not given["insecure"]


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
    assert (
        tlb(monkeypatch, capsys)[0]
        == tlb(monkeypatch, capsys, "--hosts", str(tmp_path), "--scheduler", "tls://a:1")[0]
        == 2
    )
    for how in (("--profile", "nope"), ("--chapter", "nope"), ("--chapter", "your_machine")):
        assert tlb(monkeypatch, capsys, "--scheduler", "tls://a:1", *how)[0] == 2
    for words in (
        ["--scheduler", "tcp://a:1"],
        ["worker", "tcp://a:1"],
        ["scheduler", "tcp://a:1"],
    ):
        status, told = tlb(monkeypatch, capsys, *words)
        assert status == 1 and told.endswith(REASONS["fleet-insecure"].remedy + "\n")
    for address, insecure in (
        ("tls://a:1", True),
        ("http://a:1", False),
        ("a", False),
        ("tls://a:x", False),
        ("", False),
    ):
        refused("bad-parameter", commands._checked, address, insecure)
    assert (
        commands._checked("a:1", False) == "tls://a:1"
        and commands._checked("a:1", True) == "tcp://a:1"
    )
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in ("tls", "worker", "client"):
        monkeypatch.delitem(sys.modules, f"tlb.fleet.{name}", raising=False)
    status, told = tlb(monkeypatch, capsys, "--scheduler", "tls://a:1")
    assert status == 1 and told.endswith(REASONS["no-fleet"].remedy + "\n")


# --- the guide


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def test_every_tlb_command_of_the_guide_is_understood():
    group = typer.main.get_command(cli.app)
    lines = [
        shlex.split(line.removesuffix(" &"), comments=True)
        for block in blocks("sh")
        for line in block.splitlines()
    ]
    containers = [
        container["command"]
        for document in yaml.safe_load_all(blocks("yaml")[0])
        if "template" in document["spec"]
        for container in document["spec"]["template"]["spec"]["containers"]
    ]
    jobs = [
        shlex.split(line) for line in re.findall(r"\.venv/bin/tlb [^'\n]+", "".join(blocks("bash")))
    ]
    shown = [
        words[1:]
        for words in (*lines, *containers, *jobs)
        if words and words[0].rpartition("/")[2] == "tlb"
    ]
    for name, *arguments in shown:
        command = group.commands[name]
        if arguments and arguments[0] in getattr(command, "commands", {}):
            command, arguments = command.commands[arguments[0]], arguments[1:]
        command.make_context(name, [*arguments])
    assert {"worker", "scheduler", "--hosts", "--scheduler"} <= {
        words[1] for words in shown if words[0] == "fleet"
    }


def test_the_job_is_a_script_that_a_shell_reads_with_directives_that_stand_first():
    (job,) = blocks("bash")
    assert subprocess.run(["bash", "-n"], input=job, text=True).returncode == 0
    lines = job.splitlines()
    assert lines[0] == "#!/bin/bash" and all(line.startswith("#SBATCH --") for line in lines[1:5])


def test_the_manifest_s_parts_fit_together():
    service, scheduler, workers = yaml.safe_load_all(blocks("yaml")[0])
    assert [part["kind"] for part in (service, scheduler, workers)] == [
        "Service",
        "Deployment",
        "DaemonSet",
    ]
    assert service["spec"]["selector"] == scheduler["spec"]["template"]["metadata"]["labels"]
    for part in (scheduler, workers):
        spec = part["spec"]["template"]["spec"]
        assert (
            part["spec"]["selector"]["matchLabels"]
            == part["spec"]["template"]["metadata"]["labels"]
        )
        assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == {
            volume["name"] for volume in spec["volumes"]
        }
        assert (
            next(volume["secret"] for volume in spec["volumes"] if "secret" in volume)[
                "defaultMode"
            ]
            == 0o400
        )  # or it is refused
        assert spec["containers"][0]["command"][-1] == f"/pass/{tls.default().name}"
    (container,) = workers["spec"]["template"]["spec"]["containers"]
    assert (
        f"tls://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
        in container["command"]
    )


# --- over ssh


def test_a_worker_that_ends_is_started_again_with_its_certificate_and_says_why(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(ssh, "AGAIN_S", 0.0)
    got, complaints = tmp_path / "got", list[str]()
    words = [
        "sh",
        "-c",
        f"head -n 3 >> {shlex.quote(str(got))}; echo so >&2; printf 'no \\033way\n' >&2; kill -9 $$",
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


def served(folder: Path, data: Path) -> tuple[list[str], str]:
    """The words that start an sshd of this user's own on loopback, and those of an ssh that it lets
    in as `far`, as whose ledger `data` lies there. `strange` is the same computer, with a key that
    is not its own."""
    port = free_port()
    for name in ("host", "other", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    keys = {
        name: " ".join((folder / f"{name}.pub").read_text().split()[:2])
        for name in ("host", "other")
    }
    (folder / "known").write_text(f"far {keys['host']}\nstrange {keys['other']}\n")
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nPidFile none\nStrictModes no\n"
        f"UsePAM no\nSetEnv TLB_DATA={data}\n"
    )
    (folder / "ssh_config").write_text(
        "".join(
            f"Host {name}\n HostName 127.0.0.1\n Port {port}\n HostKeyAlias {name}\n"
            for name in ("far", "strange")
        )
        + f"Host *\n IdentityFile {folder}/user\n IdentitiesOnly yes\n UserKnownHostsFile {folder}/known\n"
        " GlobalKnownHostsFile /dev/null\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(
            mode=0o755, exist_ok=True
        )  # into which sshd shuts itself; Debian makes it with the service
    return [
        SSHD,
        "-D",
        "-e",
        "-f",
        str(folder / "sshd_config"),
    ], f"{ssh.SSH} -F {folder}/ssh_config"


def of(address: str) -> list[int]:
    """The processes of a fleet."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(address in word for word in process.info["cmdline"] or ())
    ]


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.endurance
@pytest.mark.needs("a C compiler", "ssh", SSHD)
def test_over_a_real_ssh_a_killed_client_leaves_nothing_there_and_the_same_command_goes_on(
    tmp_path,
):
    for name in ("ssh", "there"):
        (tmp_path / name).mkdir()
    daemon, shell = served(tmp_path / "ssh", tmp_path / "there")
    address = f"127.0.0.1:{free_port()}"
    hosts = tmp_path / "hosts"
    command = [
        sys.executable,
        "-c",
        "from tlb.cli import main; main()",
        "fleet",
        "--hosts",
        str(hosts),
        "--ssh",
        shell,
        "--listen",
        address,
        "--profile",
        "smoke",
        "--chapter",
        "stlb_cliff",
        "--minutes",
        "2",
        "--output",
        str(tmp_path / "here"),
    ]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(daemon, stderr=subprocess.DEVNULL) as served_by:
        try:
            hosts.write_text(f"far {shlex.quote(str(ROOT))}\n")
            with subprocess.Popen(
                [*command, "--patience", "10"],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as client:
                try:
                    await_that(lambda: [*(tmp_path / "there").glob("own/*/page_chase.jsonl")])
                finally:
                    client.kill()
            await_that(lambda: not of(address))
            hosts.write_text(f"far {shlex.quote(str(ROOT))}\nstrange\n")
            done = in_turn([*command, "--patience", "0.5"], timeout=280, env=environment)
            await_that(lambda: not of(address))
        finally:
            served_by.terminate()
    assert done.returncode == 1 and "Host key verification failed" in done.stderr, (
        done.stderr
    )  # of the strange one alone
    (machine,) = Store(tmp_path / "here").machines()
    rows = lines_of(tmp_path / "here" / machine)
    assert rows["page_chase.jsonl"] and rows == lines_of(tmp_path / "there/own" / machine)
    assert f"far: {sum(map(len, rows.values()))} rows" in done.stderr and machine in done.stdout
