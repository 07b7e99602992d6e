"""The `tlb` command: what it prints for a person, what for a program, and one line for whatever is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest
from rich.console import Console
from support.common import ROOT, in_turn, make_record
from support.synthetic import Paged, Stated, tlbs
from test_splinter import rows as pieces

from experiments import cli
from experiments.inference.geometry import Backing, Geometry
from experiments.lab import survey
from experiments.lab.record import Point, Record
from experiments.lab.store import Store
from experiments.machine import doctor, host
from experiments.machine.host import Host
from experiments.system import files
from experiments.words.reasons import REASONS

TLB = [sys.executable, "-c", "from experiments.cli import main; main()"]
needs_c = pytest.mark.needs("a C compiler")


def tlb(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    return in_turn([*TLB, *arguments], timeout=120, **how)


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_lists_every_command_with_what_it_does(arguments: list[str]):
    done = tlb(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    for command in cli.app.registered_commands:
        assert command.callback.__name__ in done.stdout
        assert command.callback.__doc__.split()[0] in done.stdout


def test_the_command_is_installed_under_its_name():
    installed = Path(sys.executable).with_name("tlb")
    assert subprocess.run([installed, "--help"], capture_output=True, cwd=ROOT, timeout=60).returncode == 0


def test_inspect_as_json_is_the_inspection_and_nothing_else():
    done = tlb("inspect", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert host.machine_id(Host.model_validate(json.loads(done.stdout))) == host.machine_id(host.inspect())


def test_inspect_for_a_person_has_a_line_for_everything():
    done = tlb("inspect", env=os.environ | {"COLUMNS": "300"})
    assert (done.returncode, done.stderr) == (0, "")
    assert [label for label, _ in doctor.describe(host.inspect()) if label not in done.stdout] == []


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
    ["run"], ["run", "nope"], ["run", "stlb_cliff", "-p"],
    ["run", "stlb_cliff", "-p", "engine"], ["run", "stlb_cliff", "--parameter", "engine=x"], ["book", "--profile", "x"], ["inspect", "me"],
], ids=" ".join)
def test_a_wrong_argument_is_one_line_on_stderr_and_exit_2(arguments: list[str], monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tlb", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, ""), said.err
    assert len(said.err.splitlines()) == 1 and len(said.err) > 20 and said.err.endswith(".\n")


def test_a_process_ends_as_the_command_does():
    done = tlb("frobnicate")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "No such command 'frobnicate'. `tlb --help` lists what there is.\n"


@pytest.mark.measures
@needs_c
@pytest.mark.parametrize("arguments", [["page_gather", "--order", "random"], ["page_chase", "--cpu", "1023"]])
def test_what_only_the_kernel_knows_to_be_wrong_is_one_line_too(arguments: list[str]):
    done = tlb("measure", *arguments)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.measures
@needs_c
def test_more_than_the_memory_is_refused_with_a_remedy():
    done = tlb("measure", "page_chase", "--lines", str(2**32))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("There is not enough memory for this working set (")


@pytest.mark.measures
@needs_c
def test_two_measurements_never_run_at_once():
    with files.measuring_lock(wait=True):
        done = subprocess.run([*TLB, "measure", "page_chase"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Another measurement is running on this computer (process {os.getpid()})")


# --- the geometry


def stairs(pages: str = "4k", steps: tuple[int, ...] = (64, 2048)) -> pd.DataFrame:
    """The rows of a survey of a made-up machine: 4 cycles, and ten more past each step, which every chase but packed takes."""
    rows = []
    near = [point.model_copy(update={"lines": n + k}) for point in survey.coarse(pages) if point.lines == survey.FROM_LINES
            for n in steps for k in (-2, -1, 1, 2)]
    for point in [*survey.coarse(pages), *near]:
        ns = (4 + 10 * sum(point.lines > n for n in steps if point.layout != "packed")) / 3.2
        records = (make_record(**point.model_dump(), repeat=k, ns_per_access=ns, batch_ns_per_access=[ns]) for k in range(3))
        rows += [record.model_dump(exclude={"counters"}) for record in records]
    return pd.DataFrame(rows)


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A made-up guest: `frame`, `lacking` and `pieces` are what its surveys give, `asked` and `torn` what they were asked for; nothing is
    measured."""
    machine = SimpleNamespace(frame=stairs(), lacking=[], asked=[], root=None, pieces=pieces(Paged()), torn=[])

    def fake(here: Host, pages: str, store: Store, name: str, **_: object) -> tuple[pd.DataFrame, list[str]]:
        machine.asked.append(pages)
        machine.root = store.root
        return machine.frame, machine.lacking

    def fake_pieces(here: Host, pages: str, store: Store, name: str, **_: object) -> pd.DataFrame:
        machine.torn.append(pages)
        return machine.pieces

    monkeypatch.setattr(survey, "here", fake)
    monkeypatch.setattr(survey, "pieces", fake_pieces)
    monkeypatch.setattr(host, "inspect", lambda *_: Stated(tlb=tlbs((64, 2048)), hypervisor="kvm").host())
    monkeypatch.setattr(cli, "out", Console(soft_wrap=True, width=300))
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return machine


def geometry(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tlb", "geometry", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_geometry_says_in_its_help_what_it_does_and_takes():
    done = tlb("geometry", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("Infer", "--pages", "--json", "nothing is stored"):
        assert words in " ".join(done.stdout.split())


def test_geometry_prints_both_tables_and_what_they_mean(surveyed: SimpleNamespace, monkeypatch, capsys):
    assert geometry(monkeypatch) == 0
    said = capsys.readouterr()
    assert said.err == ""
    cells = {" ".join(line.split()[:4]) for line in said.out.splitlines()}
    assert "level entries by price" in cells and "page table in lines" in cells
    lines = said.out.splitlines()
    assert any(line.startswith("L1 dTLB ") and line.split().count("64") >= 2 for line in lines)
    assert any(line.startswith("STLB ") and "2,048" in line for line in lines)
    assert any(line.startswith("STLB: ") and "CPUID states 2,048 and agrees." in line for line in lines)
    assert (surveyed.asked, surveyed.torn) == (["4k"], []) and "Large pages" not in said.out


def test_geometry_as_json_is_the_geometry_and_nothing_else(surveyed: SimpleNamespace, monkeypatch, capsys):
    surveyed.lacking = ["Alias chases: a \"note\"."]
    assert geometry(monkeypatch, "--json") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out).keys() == Geometry.model_fields.keys()
    found = Geometry.model_validate_json(said.out)
    assert [one.stated for one in found.levels] == [64, 2048]
    assert [one.entries.low <= n <= one.entries.high for one, n in zip(found.levels, (64, 2048), strict=True)] == [True, True]
    assert found.levels[1].hit_cost.value == pytest.approx(10) and found.unit == "cycles" and found.core_ghz == pytest.approx(3.2)
    assert surveyed.lacking[0] in found.notes


def test_geometry_of_pages_of_2_mib_asks_the_survey_for_those(surveyed: SimpleNamespace, monkeypatch, capsys):
    surveyed.frame = stairs("2m")
    assert geometry(monkeypatch, "--pages", "2m", "--json") == 0
    found = Geometry.model_validate_json(capsys.readouterr().out)
    assert surveyed.asked == ["2m"] and found.pages == "2m"
    assert [one.stated for one in found.levels] == [None, None]  # this CPUID states nothing of 2 MiB
    assert surveyed.torn == ["2m"] and found.backing.verdict == "not splintered" and "An entry spans" in found.backing.evidence


@pytest.mark.parametrize(("guest", "verdict"), [(Paged(), "not splintered"), (Paged(splintered=True), "splintered by the host"),
                                                (Paged(pages=("4k",)), "cannot tell")])
def test_geometry_of_pages_of_2_mib_ends_with_whether_they_reach_the_tlb(surveyed: SimpleNamespace, monkeypatch, capsys, guest: Paged,
                                                                          verdict: str):
    surveyed.frame, surveyed.pieces = stairs("2m"), pieces(guest)
    assert geometry(monkeypatch, "--pages", "2m") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"Large pages: {verdict}. ") and last.endswith(".")
    assert ("translation costs" in last) == (verdict != "cannot tell")


@pytest.mark.parametrize("as_json", [False, True])
def test_whether_they_reach_the_tlb_is_told_where_their_own_survey_shows_no_step(surveyed: SimpleNamespace, monkeypatch, capsys,
                                                                                 as_json: bool):
    surveyed.frame, surveyed.pieces = stairs("2m", steps=()), pieces(Paged(splintered=True))
    assert geometry(monkeypatch, "--pages", "2m", *["--json"] * as_json) == 1
    said = capsys.readouterr()
    assert said.err.startswith(REASONS["no-step"].sentence.removesuffix(".")) and len(said.err.splitlines()) == 1
    if as_json:
        assert Backing.model_validate_json(said.out).verdict == "splintered by the host"
    else:
        assert said.out.startswith("Large pages: splintered by the host. ") and len(said.out.splitlines()) == 1


def test_a_machine_without_pages_of_2_mib_is_not_asked_about_their_pieces(surveyed: SimpleNamespace, monkeypatch):
    surveyed.frame, surveyed.lacking = pd.DataFrame(), [REASONS["pool-empty"].sentence]
    assert geometry(monkeypatch, "--pages", "2m") == surveyed.lacking[0] and surveyed.torn == []


def test_geometry_stores_nothing(surveyed: SimpleNamespace, monkeypatch, capsys, tmp_path: Path):
    assert geometry(monkeypatch) == 0
    assert surveyed.root is not None and not surveyed.root.exists() and not surveyed.root.is_relative_to(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_geometry_of_a_flat_machine_is_one_line_and_exit_1(surveyed: SimpleNamespace, monkeypatch, capsys):
    surveyed.frame = stairs(steps=())
    assert geometry(monkeypatch) == 1
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1
    assert said.err.startswith(REASONS["no-step"].sentence.removesuffix("."))


def test_a_survey_that_could_measure_nothing_says_why_and_ends_with_1():
    script = ("import pandas as pd\nfrom experiments import cli; from experiments.machine import host; from experiments.lab import survey\n"
              "survey.here = lambda *_, **__: (pd.DataFrame(), ['Alias chases: none.', 'Spread chases: none.'])\ncli.main()")
    done = subprocess.run([sys.executable, "-c", script, "geometry"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Alias chases: none.\nSpread chases: none.\n")


def test_geometry_without_a_compiler_is_one_line_and_exit_1(monkeypatch, capsys):
    monkeypatch.setattr(survey, "compiler", lambda: None)
    assert geometry(monkeypatch) == 1
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1
    assert said.err.startswith(REASONS["engine-lacks"].sentence.removesuffix("."))


def running(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.measures
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
        seen = [child for child in running(psutil.Process(process.pid)) if any("page_chase" in word for word in child.cmdline()[:1])]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    if "Another measurement is running" in err:
        pytest.skip("another measurement runs on this computer")
    assert seen and (process.returncode, out) == (130, "")
    assert err == "Interrupted; what was finished is kept, and the same command goes on from there.\n"
    gone, alive = psutil.wait_procs(seen, timeout=20)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


# --- a kernel's own options


@pytest.mark.parametrize(("words", "options"), [
    ([], []), (["--bytes", "1000"], [("bytes", 1000)]), (["--bytes=1000"], [("bytes", 1000)]),
    (["--threads", "2", "--bytes=0"], [("threads", 2), ("bytes", 0)])])
def test_a_kernels_own_options_follow_its_name_in_either_form(words: list[str], options: list[tuple[str, int]]):
    assert cli._own_options(words) == options


@pytest.mark.parametrize("arguments", [["--threads", "2", "--mode", "populate", "--pages", "4k"],
                                       ["--pages", "4k", "--mode=populate", "--threads=2"]])
def test_measure_hands_a_kernels_own_options_on_and_keeps_its_own(arguments: list[str], monkeypatch, capsys, own_lock: Path):
    asked: list[Point] = []

    def fake(point: Point, repeat: int, **_: object) -> Record:
        asked.append(point)
        return make_record(**point.model_dump(), repeat=repeat, also={"free_ns_per_access": 50.5})

    monkeypatch.setattr(cli, "measure_point", fake)
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


@pytest.mark.parametrize(("given", "read"), [
    (["-p", "repeats", "3"], {"repeats": 3}),
    (["-p", "repeats=3", "-p", "engine", "c"], {"repeats": 3, "engine": "c"}),
    (["-p", "max_working_set", "256MiB"], {"max_working_set": "256MiB"}),
    (["-p", "max_working_set", "12 bananas"], {"max_working_set": "12 bananas"}),
    (["-p", "max_working_set", "-1"], {"max_working_set": -1}),
    (["-p", "machine", "a=b"], {"machine": "a=b"}),
    (["--parameter", "x=True"], {"x": True}),
    (["-p", "x"], {"x": ""}),
    (["-p"], {"": ""}),
])
def test_a_pair_is_read_in_either_form_and_typed_as_papermill_types_it(given: list[str], read: dict):
    arguments = cli._pairs(["run", "stlb_cliff", *given])
    pairs = [after for option, after in zip(arguments, arguments[1:], strict=False) if option in ("-p", "--parameter")]
    assert cli._values(pairs) == read
