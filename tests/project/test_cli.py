"""The `tlb` command: what it prints for a person, what for a program, and one line for whatever is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.common import ROOT, descendants_with, in_turn, living, make_record, needs_c
from support.lab import put
from support.synthetic import Stated

from experiments import cli
from experiments.article import parameters, publish
from experiments.article.card import card
from experiments.front import campaign, judged, profile
from experiments.lab.record import Point, Record, read_options
from experiments.lab.rig import Rig
from experiments.lab.store import Store
from experiments.machine import doctor, host
from experiments.machine.host import Host
from experiments.system import files

TLB = [sys.executable, "-c", "from experiments.cli import main; main()"]


def tlb(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    return in_turn([*TLB, *arguments], timeout=120, **how)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_lists_every_command_with_what_it_does(arguments: list[str]):
    done = tlb(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for command in cli.app.registered_commands:
        assert (command.name or command.callback.__name__.replace("_", "-")) in done.stdout
        assert command.callback.__doc__.split()[0] in done.stdout


@pytest.mark.slow
def test_the_command_is_installed_under_its_name():
    installed = Path(sys.executable).with_name("tlb")
    assert subprocess.run([installed, "--help"], capture_output=True, cwd=ROOT, timeout=60).returncode == 0


@pytest.mark.slow
def test_inspect_as_json_is_the_inspection_and_nothing_else():
    done = tlb("inspect", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert host.machine_id(Host.model_validate(json.loads(done.stdout))) == host.machine_id(host.inspect())


@pytest.mark.slow
def test_inspect_for_a_person_has_a_line_for_everything():
    done = tlb("inspect", env=os.environ | {"COLUMNS": "300"})
    assert (done.returncode, done.stderr) == (0, "")
    assert [label for label, _ in doctor.describe(host.inspect()) if label not in done.stdout] == []


@pytest.mark.slow
def test_doctor_gives_each_finding_its_remedy():
    done = tlb("doctor", env=os.environ | {"COLUMNS": "1000"})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    findings, remedies = lines[::2], lines[1::2]
    assert len(findings) == len(remedies) > 0
    assert all(not line.startswith(" ") for line in findings) and all(line.startswith("    ") for line in remedies)
    topics = {advice.topic for advice in doctor.advice(host.inspect())} - {"load"}  # which comes and goes
    assert [topic for topic in topics if not any(line.startswith(topic) for line in findings)] == []


@pytest.mark.measures
@pytest.mark.measuring
@pytest.mark.parametrize("engine", [pytest.param("c", marks=needs_c), "numba", "auto"])
def test_measure_prints_one_record_as_json(engine: str):
    done = tlb("measure", "page_chase", "--pages", "4k", "--layout", "spread", "--lines", "256", "--region-ms", "1", "--engine", engine)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert json.loads(done.stdout)["ns_per_access"] > 0
    record = Record.model_validate_json(done.stdout)
    assert (record.kernel, record.pages, record.layout, record.lines) == ("page_chase", "4k", "spread", 256)
    assert record.engine in ({engine} if engine != "auto" else {"c", "numba"})
    assert {"minor_faults", "walk", "core_cycles"} <= record.counters.keys()  # a value or a reason, each


@pytest.mark.measures
@pytest.mark.measuring
@needs_c
def test_measure_stores_nothing(tmp_path: Path):
    data = tmp_path / "data"
    assert tlb("measure", "page_gather", "--lines", "64", "--region-ms", "1", env=os.environ | {"TLB_DATA": str(data)}).returncode == 0
    assert not data.exists()


@pytest.mark.parametrize("arguments", [
    ["frobnicate"], ["--frobnicate"], ["measure"], ["measure", "nope"], ["measure", "page_chase", "--frobnicate"],
    ["measure", "page_chase", "--lines", "x"], ["measure", "page_chase", "--lines", "0"], ["measure", "page_chase", "--lines", "-5"],
    ["measure", "page_chase", "--lines", str(10**30)], ["measure", "page_chase", "--pages", "9k"],
    ["measure", "page_chase", "--engine", "rust"], ["measure", "page_chase", "--region-ms", "0"],
    ["measure", "page_chase", "--order", "zigzag"], ["geometry", "--pages", "thp"], ["geometry", "--pages", "9k"],
    ["geometry", "--pages", ""], ["geometry", "--pages"], ["geometry", "--frobnicate"], ["geometry", "all"],
    ["measure", "prefault", "--threads"], ["measure", "prefault", "--threads", "x"], ["measure", "prefault", "--threads", "-1"],
    ["measure", "prefault", "--threads=1.5"], ["measure", "prefault", "--threads", "1", "2"], ["measure", "prefault", "-t", "1"],
    ["measure", "prefault", "threads=1"], ["measure", "prefault", "--threads", "1", "--threads", "2"], ["measure", "prefault", "--", "1"],
    ["measure", "prefault", "--Threads", "1"], ["measure", "prefault", "--threads", str(2**53 + 1)],
    ["measure", "prefault", "--threads", "7" * 30], ["measure", "prefault", "--threads", "²"], ["measure", "prefault", "--mode", "a b"],
    ["run"], ["run", "nope"], ["refresh", "nope"], ["refresh", "stlb_cliff", "nope"], ["run", "stlb_cliff", "-p"],
    ["run", "stlb_cliff", "-p", "engine"], ["run", "stlb_cliff", "--parameter", "engine=x"], ["book", "--profile", "x"], ["inspect", "me"],
], ids=" ".join)
def test_a_wrong_argument_is_one_line_on_stderr_and_exit_2(arguments: list[str], monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tlb", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, ""), said.err
    assert len(said.err.splitlines()) == 1 and len(said.err) > 20 and said.err.endswith(".\n")


@pytest.mark.slow
def test_a_process_ends_as_the_command_does():
    done = tlb("frobnicate")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "No such command 'frobnicate'. `tlb --help` lists what there is.\n"


@pytest.mark.measures
@pytest.mark.measuring
@needs_c
@pytest.mark.parametrize("arguments", [["page_gather", "--order", "random"], ["page_chase", "--cpu", "1023"]])
def test_what_only_the_kernel_knows_to_be_wrong_is_one_line_too(arguments: list[str]):
    done = tlb("measure", *arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.measures
@pytest.mark.measuring
@needs_c
def test_more_than_the_memory_is_refused_with_a_remedy():
    done = tlb("measure", "page_chase", "--lines", str(2**32))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("There is not enough memory for this working set (")


@pytest.mark.measures
@pytest.mark.measuring
@needs_c
def test_two_measurements_never_run_at_once():
    with files.measuring_lock(wait=True):
        done = subprocess.run([*TLB, "measure", "page_chase"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Another measurement is running on this computer (process {os.getpid()})")


@pytest.mark.measures
@pytest.mark.measuring
@needs_c
def test_ctrl_c_ends_the_kernel_and_says_that_nothing_is_lost():
    with files.measuring_lock(wait=True):
        pass  # nobody else measures, most likely for the next seconds
    process = subprocess.Popen([*TLB, "measure", "page_chase", "--region-ms", "60000"], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's & ignores it
    seen: list[psutil.Process] = []
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not seen:
        seen = descendants_with("60000", process.pid)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    if "Another measurement is running" in err:
        pytest.skip("another measurement runs on this computer")
    assert seen and (process.returncode, out) == (130, "")
    assert err == "Interrupted; what was finished is kept, and the same command goes on from there.\n"
    psutil.wait_procs(seen, timeout=20)
    assert not [child for child in seen if living(child)]


# --- a kernel's own options


@pytest.mark.parametrize(("words", "options"), [
    ([], []), (["--bytes", "1000"], [("bytes", 1000)]), (["--bytes=1000"], [("bytes", 1000)]),
    (["--threads", "2", "--bytes=0"], [("threads", 2), ("bytes", 0)])])
def test_a_kernels_own_options_follow_its_name_in_either_form(words: list[str], options: list[tuple[str, int]]):
    assert read_options(words) == options


@pytest.mark.parametrize("arguments", [["--threads", "2", "--mode", "populate", "--pages", "4k"],
                                       ["--pages", "4k", "--mode=populate", "--threads=2"]])
def test_measure_hands_a_kernels_own_options_on_and_keeps_its_own(arguments: list[str], monkeypatch, capsys, own_lock: Path):
    asked: list[Point] = []

    def fake(point: Point, repeat: int, **_: object) -> Record:
        asked.append(point)
        return make_record(**point.model_dump(), repeat=repeat, also={"free_ns_per_access": 50.5})

    monkeypatch.setattr(Rig, "take", lambda _, point, repeat: fake(point, repeat))
    monkeypatch.setattr(cli, "measuring_lock", lambda: files.measuring_lock(path=own_lock))
    monkeypatch.setattr(sys, "argv", ["tlb", "measure", "prefault", "--engine", "numba", "--order", "sequential", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert asked == [Point(kernel="prefault", engine="numba", order="sequential", lines=4096, mode="populate", options=(("threads", 2),))]
    told = json.loads(capsys.readouterr().out)
    assert (told["options"], told["mode"], told["also"]) == ([["threads", 2]], "populate", {"free_ns_per_access": 50.5})


def test_a_number_too_long_to_read_is_one_line_too(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tlb", "measure", "prefault", "--threads", "9" * 5000])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out, len(said.err.splitlines())) == (2, "", 1)


# --- parameters as Papermill takes them


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tlb", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize(("given", "read"), [
    ([], {}),
    (["-p", "repeats", "3"], {"repeats": 3}),
    (["-p", "repeats=3", "-p", "engine", "c"], {"repeats": 3, "engine": "c"}),
    (["-p", "max_working_set", "256MiB"], {"max_working_set": "256MiB"}),
    (["-p", "max_working_set", "12 bananas"], {"max_working_set": "12 bananas"}),
    (["-p", "machine", "a=b"], {"machine": "a=b"}),
    (["--parameter", "x=True"], {"x": "True"}),
    (["-p", "repeats", "many"], {"repeats": "many"}),
    (["-p", "x"], {"x": ""}),
    (["-p"], {"": ""}),
])
def test_a_pair_is_read_in_either_form_and_has_the_type_that_the_chapter_declares(given: list[str], read: dict, monkeypatch, capsys):
    executed: list[tuple[str, Path, dict]] = []
    monkeypatch.setattr(publish, "execute", lambda *what: executed.append(what))
    monkeypatch.setattr(campaign, "book", executed.append)
    assert call(monkeypatch, "run", "stlb_cliff", *given) == 0
    assert executed == [("stlb_cliff", ROOT / "_build/runs/stlb_cliff.ipynb", {"machine": "this"} | read)]
    assert call(monkeypatch, "book", "--profile", "smoke", *given) == 0
    assert executed[1] == {"machine": "this", "profile": "smoke", "minutes": 10.0} | read


# --- committed chapters


@pytest.mark.parametrize("arguments", [[], ["stlb_cliff"], ["index", "hugepages"], ["scorecard"]])
def test_refresh_executes_the_chapters_named_or_all_in_their_order(arguments: list[str], monkeypatch, capsys):
    refreshed: list[str] = []
    monkeypatch.setattr(publish, "refresh", lambda name: refreshed.append(name) or parameters.BOOK / f"{name}.ipynb")
    monkeypatch.setattr(judged, "refresh", lambda: refreshed.append("verdicts") or [])
    monkeypatch.setattr(profile, "refresh", lambda: refreshed.append("profiles") or [])
    assert call(monkeypatch, "refresh", *arguments) == 0
    pages = [name for name in refreshed if name not in ("verdicts", "profiles")]
    derived = ["verdicts"] * (judged.PAGE in pages) + ["profiles"] * (profile.PAGE in pages)
    assert refreshed == derived + pages  # they stand before the pages that show them
    refreshed = pages
    assert refreshed == (arguments or parameters.table_of_contents())
    assert capsys.readouterr().out.splitlines() == [str(parameters.BOOK / f"{name}.ipynb") for name in refreshed]


def test_publish_puts_own_rows_in_the_place_of_published_ones_with_a_card_of_their_own(tmp_path, monkeypatch, capsys, own_lock: Path):
    monkeypatch.setenv("TLB_DATA", str(tmp_path))
    monkeypatch.setattr(publish, "measuring_lock", lambda: files.measuring_lock(path=own_lock))
    monkeypatch.setattr(host, "inspect", Stated().host)
    store, name = Store(tmp_path), host.machine_id(Stated().host())
    put(store, name, "walks", "a" * 16, make_record(lines=16))
    put(store.own, name, "walks", "a" * 16, make_record(lines=32))
    store.own.write_machine(name, Stated().host().model_dump(mode="json"))
    for given in ([], [name]):
        assert call(monkeypatch, "publish", *given) == 0
        assert capsys.readouterr().out == f"{tmp_path / name}\n"
        assert store.load(name, "walks")["lines"].tolist() == [32]
        assert judged.refresh() == profile.refresh() == []  # what is made from rows is made from these
        assert (tmp_path / name / "README.md").read_text() == card(store, name, Stated().host())
    with files.measuring_lock(path=own_lock):
        assert call(monkeypatch, "publish") == 1  # a campaign appends


@pytest.mark.parametrize(("name", "status"), [("zen-9-00000000", 1), ("reference", 2), ("own", 2), ("../x", 2), ("", 2)])
def test_publish_of_what_is_no_measured_machine_is_one_sentence(tmp_path, monkeypatch, capsys, own_lock: Path, name: str, status: int):
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(publish, "measuring_lock", lambda: files.measuring_lock(path=own_lock))
    assert call(monkeypatch, "publish", name) == status
    told = capsys.readouterr()
    assert (told.out, len(told.err.splitlines()), (tmp_path / "data").exists()) == ("", 1, False)


def test_refresh_of_a_chapter_that_is_none_changes_no_other(monkeypatch, capsys):
    monkeypatch.setattr(publish, "refresh", lambda name: pytest.fail(f"{name} was executed"))
    assert call(monkeypatch, "refresh", "stlb_cliff", "nope") == 2
    assert "there is no chapter 'nope'" in capsys.readouterr().err
