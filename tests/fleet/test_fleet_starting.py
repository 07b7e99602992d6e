"""How a fleet's computers are asked: which points, in which order, by which words; and what its guide says to copy."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import typer
import yaml
from support.common import in_turn
from support.fleet import GRIDS, Small, free_port, host_of, lines_of
from support.synthetic import Stated

from experiments import cli
from experiments.fleet import certificates, starting
from experiments.fleet.campaigns import Campaign
from experiments.fleet.starting import Listed, read_hosts
from experiments.front import campaign
from experiments.lab.campaign import MOST
from experiments.lab.store import Store
from experiments.system.files import ROOT
from experiments.words.reasons import REASONS, Unavailable

GUIDE = (ROOT / "book" / "fleet.md").read_text(encoding="utf-8")


# --- which points


def test_a_computer_is_asked_for_the_grids_of_the_book_that_it_would_measure_by_itself():
    host = host_of("a")
    grids = Campaign("smoke").grids(host)
    assert [*grids] == [name for name in campaign.gridded() if name in grids] and len(grids) > 5
    largest = max(point.lines for point in grids["stlb_cliff"])
    assert largest == (16 << 20) // host.base_page_bytes  # as the profile has it
    small = host.model_copy(update={"memory": host.memory.model_copy(update={"usable_bytes": 4 << 20})})
    assert max(point.lines for point in Campaign("smoke").grids(small)["stlb_cliff"]) < largest
    wide = host.model_copy(update={"base_page_bytes": 1 << 16})
    assert max(point.lines for point in Campaign("smoke").grids(wide)["stlb_cliff"]) == (16 << 20) // (1 << 16)
    bare = Stated(changes={"c_compiler": None}).host()
    assert {point.engine for point in Campaign("smoke").grids(bare)["stlb_cliff"]} == {"numba", "numpy"}


def test_chapters_that_are_named_are_asked_for_alone():
    assert [*Campaign("smoke", ("strides", "stlb_cliff")).grids(host_of("a"))] == [
        name for name in campaign.gridded() if name in ("strides", "stlb_cliff")]


@pytest.mark.parametrize("wrong", [Campaign("nope"), Campaign(chapters=("nope",)), Campaign(chapters=("your_machine",))])
def test_a_profile_or_a_chapter_that_there_is_not_is_a_reason(wrong: Campaign):
    with pytest.raises(Unavailable) as why:
        wrong.checked()
    assert why.value.code == "bad-parameter"


def test_every_kernel_has_its_first_process_before_any_has_its_second_and_wide_ones_get_more_at_the_end():
    rounds = [*Small(profile="quick", repeats=5).rounds(GRIDS)]
    assert [kernel for kernel, _, _ in rounds] == ["page_chase", "page_gather"] * 5
    assert [number for _, number, _ in rounds] == sorted(number for _, number, _ in rounds)
    assert [most for _, _, most in rounds] == [1, 1, 2, 2, 3, 3, 4, 4, MOST, MOST]


# --- by which words


def test_a_file_of_hosts_has_a_line_a_computer_and_each_once(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# all of them\ndb-17\n\n  me@10.0.0.9   'src/two loads'  # the odd one\ndb-17 other\n")
    assert read_hosts(path) == [Listed("db-17", starting.FOLDER), Listed("me@10.0.0.9", "src/two loads")]


@pytest.mark.parametrize("text", ["", "# none\n", "a b c\n", "-oProxyCommand=x\n", "'open\n", b"\xff\xfe"])
def test_a_file_that_is_none_is_a_reason(tmp_path, text: str | bytes):
    path = tmp_path / "hosts"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Unavailable) as why:
        read_hosts(path)
    assert why.value.code == "bad-parameter"
    with pytest.raises(Unavailable):
        read_hosts(tmp_path / "absent")


def test_the_words_start_a_worker_there_as_a_shell_reads_them():
    words = starting.command(Listed("h; reboot", "src/two loads"), "tls://c:1", starting.SSH, insecure=False, patience_s=90)
    assert words[0] == "ssh" and words[-2] == "h; reboot"  # of which no shell here makes two
    shell = shlex.split(words[-1])
    assert shell[:3] == ["cd", "src/two loads", "&&"] and shell[3:5] == ["exec", ".venv/bin/tlb"]
    group = typer.main.get_command(cli.app).commands["fleet"]
    context = group.commands["worker"].make_context("worker", shell[7:])
    assert (context.params["address"], context.params["name"], context.params["patience"]) == ("tls://c:1", "h; reboot", 1.5)
    assert context.params["certificates"] == "-" and context.params["tied"] and not context.params["insecure"]


# --- the command


def tlb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["tlb", "fleet", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr()
    assert told.out == "" and len(told.err.splitlines()) == 1
    return ended.value.code, told.err


def test_a_fleet_takes_hosts_or_a_scheduler(monkeypatch, capsys, tmp_path):
    assert tlb(monkeypatch, capsys)[0] == 2
    assert tlb(monkeypatch, capsys, "--hosts", str(tmp_path), "--scheduler", "tls://a:1")[0] == 2


def test_without_the_extra_it_is_a_reason_with_its_remedy(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "experiments.fleet.nodes", raising=False)  # what was imported before is there
    for words in (["--scheduler", "tls://a:1"], ["worker", "tls://a:1"], ["scheduler", "tls://a:1"]):
        status, told = tlb(monkeypatch, capsys, *words)
        assert status == 1 and told.endswith(REASONS["no-fleet"].remedy + "\n")


def test_a_scheduler_without_tls_is_refused_unless_it_is_asked_for(monkeypatch, capsys):
    pytest.importorskip("distributed", reason="`make fleet` adds it")
    for words in (["--scheduler", "tcp://a:1"], ["worker", "tcp://a:1"], ["scheduler", "tcp://a:1"]):
        status, told = tlb(monkeypatch, capsys, *words)
        assert status == 1 and told.endswith(REASONS["fleet-insecure"].remedy + "\n")
    from experiments.fleet import nodes

    asked = [("a:1", False), ("tls://a:1", False), ("tcp://a:1", True), ("a:1", True)]
    assert [nodes.checked(*one) for one in asked] == ["tls://a:1", "tls://a:1", "tcp://a:1", "tcp://a:1"]
    for address, insecure in (("tls://a:1", True), ("http://a:1", False), ("a", False), ("tls://a:x", False), ("", False)):
        with pytest.raises(Unavailable) as why:
            nodes.checked(address, insecure)
        assert why.value.code == "bad-parameter"


# --- the guide


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def test_every_tlb_command_of_the_guide_is_understood():
    group = typer.main.get_command(cli.app)
    lines = [shlex.split(line.removesuffix(" &"), comments=True) for block in blocks("sh") for line in block.splitlines()]
    containers = [container["command"] for document in yaml.safe_load_all(blocks("yaml")[0]) if "template" in document["spec"]
                  for container in document["spec"]["template"]["spec"]["containers"]]
    jobs = [shlex.split(line) for line in re.findall(r"\.venv/bin/tlb [^'\n]+", "".join(blocks("bash") + blocks("python")))]
    shown = [words[1:] for words in (*lines, *containers, *jobs) if words and words[0].rpartition("/")[2] == "tlb"]
    subcommands = group.commands["fleet"].commands
    for name, *arguments in shown:
        command = group.commands[name]
        if arguments and arguments[0] in subcommands and name == "fleet":
            command, arguments = subcommands[arguments[0]], arguments[1:]
        command.make_context(name, [*arguments])
    fleets = [words[1] for words in shown if words[0] == "fleet"]
    assert {"worker", "scheduler", "--hosts", "--scheduler"} <= {*fleets}


def test_the_job_is_a_script_that_a_shell_reads_with_directives_that_stand_first():
    (job,) = blocks("bash")
    assert subprocess.run(["bash", "-n"], input=job, text=True).returncode == 0
    lines = job.splitlines()
    assert lines[0] == "#!/bin/bash" and all(line.startswith("#SBATCH --") for line in lines[1:5])
    assert not any(line.startswith("#SBATCH") for line in lines[5:])  # which Slurm reads no more after the first command


@pytest.fixture
def jobqueue() -> Iterator[ModuleType]:
    """dask_jobqueue, which takes SIGINT and SIGTERM for itself as it is imported: given back, for Ctrl-C is tested elsewhere."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield import_module("dask_jobqueue")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_what_dask_jobqueue_would_submit_is_our_worker_on_a_node_of_its_own(jobqueue, tmp_path, monkeypatch):
    """The guide's own code, with its scheduler on a port of this computer, and nothing submitted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    scaled: list[int] = []
    monkeypatch.setattr(jobqueue.SLURMCluster, "scale", lambda self, jobs: scaled.append(jobs))
    (code,) = blocks("python")
    port, space = free_port(), {}
    from experiments.fleet import nodes

    with nodes.configured():
        exec(code.replace('"host": "login1", "port": 8786', f'"host": "127.0.0.1", "port": {port}'), space)
        cluster = space["cluster"]
        try:
            assert cluster.scheduler_address == f"tls://127.0.0.1:{port}" and scaled == [64]
            script = cluster.job_script()
        finally:
            cluster.close()
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert "#SBATCH --exclusive" in script and "exec .venv/bin/tlb fleet worker tls://login1:8786" in script.splitlines()[-1]
    assert "distributed.cli" not in script and {path.name for path in tmp_path.iterdir()} == {"every-load"}  # no key lies about


def test_the_manifest_s_parts_fit_together():
    service, scheduler, workers = yaml.safe_load_all(blocks("yaml")[0])
    assert [part["kind"] for part in (service, scheduler, workers)] == ["Service", "Deployment", "DaemonSet"]
    assert service["spec"]["selector"] == scheduler["spec"]["template"]["metadata"]["labels"]
    for part in (scheduler, workers):
        spec = part["spec"]["template"]["spec"]
        assert part["spec"]["selector"]["matchLabels"] == part["spec"]["template"]["metadata"]["labels"]
        assert {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
        assert next(volume["secret"] for volume in spec["volumes"] if "secret" in volume)["defaultMode"] == 0o400  # or it is refused
    (container,) = workers["spec"]["template"]["spec"]["containers"]
    assert f"tls://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}" in container["command"]
    command = next(line for line in "".join(blocks("sh")).splitlines() if "create secret" in line)
    assert {certificates.AUTHORITY, certificates.MEMBER, certificates.MEMBER_KEY} == {
        word.partition("--from-file=")[2] for word in command.split() if word.startswith("--from-file=")}


def test_the_guide_names_files_that_are(tmp_path: Path):
    assert all(name in GUIDE for name in (certificates.AUTHORITY, certificates.AUTHORITY_KEY, certificates.MEMBER, certificates.MEMBER_KEY))


# --- the whole of it


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.endurance
@pytest.mark.needs("a C compiler")
def test_hosts_are_measured_by_workers_that_a_shell_starts_and_their_rows_are_collected_to_the_byte(tmp_path):
    """A script stands for ssh; the processes are real."""
    pytest.importorskip("distributed", reason="`make fleet` adds it")
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nexport TLB_DATA={shlex.quote(str(tmp_path))}/there\nexec sh -c "$2"\n')
    ssh.chmod(0o755)
    (tmp_path / "hosts").write_text(f"one {shlex.quote(str(ROOT))}\n")
    done = in_turn([sys.executable, "-c", "from experiments.cli import main; main()", "fleet", "--hosts", str(tmp_path / "hosts"), "--ssh",
                    str(ssh), "--listen", f"127.0.0.1:{free_port()}", "--profile", "smoke", "--chapter", "stlb_cliff", "--minutes", "0.1",
                    "--patience", "1", "--output", str(tmp_path / "here")], timeout=120,
                   env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert done.returncode == 0, done.stderr
    (machine,) = Store(tmp_path / "here").machines()
    rows = lines_of(tmp_path / "here" / machine)
    assert rows == lines_of(tmp_path / "there" / "own" / machine) and rows["page_chase.jsonl"]
    assert f"one: {sum(map(len, rows.values()))} rows" in done.stderr and machine in done.stdout
