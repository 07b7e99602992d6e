"""The chapters: parameters that are checked, a notebook that tells which are wrong, and each chapter run on this computer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from support.common import ROOT, in_turn, make_record
from support.synthetic import Stated, Truth, frame, grid

from experiments.article import chapter as chapters
from experiments.article.chapter import begin, check_parameters, declared_parameters
from experiments.lab import campaign as experiment
from experiments.lab.grid import GRIDS
from experiments.lab.record import Point
from experiments.lab.store import Store
from experiments.machine import host
from experiments.words.reasons import Unavailable

CHAPTERS = chapters.table_of_contents()
CHAPTER = "stlb_cliff"
DEFAULTS = {"machine": "reference", "profile": "quick", "max_working_set": "profile", "repeats": 0, "engine": "auto"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data/ of the test's own."""
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def refused(call: Callable[[], object], word: str) -> None:
    """`call` is a bad parameter, said in one line that names `word`."""
    with pytest.raises(Unavailable) as why:
        call()
    assert why.value.code == "bad-parameter"
    assert len(str(why.value).splitlines()) == 1 and word in str(why.value)


# --- parameters


def test_the_table_of_contents_names_notebooks_that_exist():
    assert CHAPTER in CHAPTERS
    assert all((ROOT / "book" / f"{name}.ipynb").exists() for name in CHAPTERS)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_declares_the_same_parameters_typed(chapter: str):
    declared = declared_parameters(chapter)
    assert {name: default for name, (_, default) in declared.items()} == DEFAULTS
    assert {name: kind for name, (kind, _) in declared.items()} == {name: type(value) for name, value in DEFAULTS.items()}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_papermill_lists_the_parameters_typed_and_explained(chapter: str):
    papermill = [sys.executable, "-m", "papermill", "--help-notebook", f"book/{chapter}.ipynb"]
    listed = " ".join(subprocess.run(papermill, cwd=ROOT, capture_output=True, text=True, timeout=120).stdout.split())
    for name, default in DEFAULTS.items():
        shown = f'"{default}"' if isinstance(default, str) else default
        assert re.search(rf"{name}: {type(default).__name__} \(default {shown}\) \S.{{20}}", listed), name


def test_the_defaults_are_good_and_what_is_given_wins():
    assert check_parameters(CHAPTER, {}) == DEFAULTS
    given = {"machine": "zen-4-1a2b3c4d", "profile": "smoke", "max_working_set": "1.5 GiB", "repeats": 3, "engine": "numba"}
    assert check_parameters(CHAPTER, given) == given


BAD = [
    ("max_working_set", "12 bananas"), ("max_working_set", "-1"), ("max_working_set", ""), ("max_working_set", "0"),
    ("max_working_set", "63KiB"), ("max_working_set", "1e9"), ("max_working_set", "nan"), ("max_working_set", 268435456),
    ("max_working_set", None), ("max_working_set", "9" * 5000), ("repeats", -1), ("repeats", 101), ("repeats", 10**30),
    ("repeats", "3"), ("repeats", 3.0), ("repeats", True), ("engine", "x"), ("engine", ""), ("engine", "C"), ("engine", 1),
    ("profile", "x"), ("profile", "../profiles/quick"), ("profile", ""), ("machine", "../x"), ("machine", ""), ("machine", "a/b"),
    ("machine", "a" * 65), ("machine", "A"), ("machine", "x\n"), ("machine", 7), ("max_working_sise", "256MiB"), ("Machine", "this"),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}-{str(value)[:20]}" for name, value in BAD])
def test_a_bad_parameter_is_one_clear_sentence(name: str, value: object):
    refused(lambda: check_parameters(CHAPTER, {name: value}), name)


@pytest.mark.parametrize("name", ["nope", "../book/stlb_cliff", ""])
def test_an_unknown_chapter_is_refused_with_the_chapters_there_are(name: str):
    refused(lambda: check_parameters(name, {}), CHAPTER)


@pytest.mark.parametrize(("name", "value"), [("max_working_set", "12 bananas"), ("engine", "x"), ("repeats", "3"), ("machine", "../x")])
def test_a_notebook_that_begins_with_a_bad_parameter_is_refused(data: Path, name: str, value: object):
    refused(lambda: begin(CHAPTER, DEFAULTS | {name: value}), name)


def test_a_notebook_begins_with_what_its_cells_have_set(data: Path):
    chapter = begin(CHAPTER, DEFAULTS | {"repeats": 2, "unrelated": object(), "In": ["", "repeats = 2"]})
    assert (chapter.parameters, chapter.store.root) == (DEFAULTS | {"repeats": 2}, data)


def test_a_misspelt_parameter_in_papermills_cell_is_refused(data: Path):
    cells = ["", "machine: str = 'reference'", "# Parameters\nmachine = 'reference'\nmax_working_sise = '256MiB'\n"]
    refused(lambda: begin(CHAPTER, DEFAULTS | {"max_working_sise": "256MiB", "In": cells}), "max_working_sise")
    begin(CHAPTER, DEFAULTS | {"max_working_sise": "256MiB", "In": ["max_working_sise = '256MiB'"]})  # one's own variable is fine


def test_more_than_half_of_the_free_memory_is_refused_and_so_is_100_tib(data: Path, monkeypatch):
    monkeypatch.setattr(chapters.host, "inspect", lambda: Stated().host())  # 7 GiB of it usable
    assert begin(CHAPTER, DEFAULTS | {"machine": "this", "max_working_set": "3.5GiB"}).profile.max_working_set == 7 << 29
    for size in ("3.75 GiB", "100TiB"):
        refused(lambda size=size: begin(CHAPTER, DEFAULTS | {"machine": "this", "max_working_set": size}).profile, "3.5 GiB")


def test_a_profile_larger_than_the_memory_is_cut_and_a_note_says_so(data: Path, monkeypatch):
    little = {"total_bytes": 2 << 30, "available_bytes": 1 << 30, "usable_bytes": 1 << 30, "limit_source": "cgroup"}
    monkeypatch.setattr(chapters.host, "inspect", lambda: Stated(changes={"memory": little}).host())
    chapter = begin(CHAPTER, DEFAULTS | {"machine": "this"})
    assert chapter.profile.max_working_set == 512 << 20
    assert chapter.notes == ["The sweep ends at 512 MiB, half of the memory that is free here."]


# --- committed data


@pytest.fixture
def committed(data: Path) -> Store:
    """A store whose reference machine has the rows of a made-up one."""
    store = Store(data)
    store.write_machine("made-up", Stated().host().model_dump(mode="json"))
    for row in frame(Truth(), grid(1 << 20), repeats=1).to_dict("records"):
        known = {name: value for name, value in row.items() if name != "kernel_digest"}
        store.append("made-up", CHAPTER, make_record(**known), "a" * 16)
    (data / "reference").write_text("made-up\n")
    return store


def test_a_chapter_about_the_reference_machine_reads_and_never_measures(committed: Store, monkeypatch):
    monkeypatch.setattr(experiment, "run", lambda *_, **__: pytest.fail("it measured"))
    chapter = begin(CHAPTER, DEFAULTS)
    rows = chapter.measure(CHAPTER)
    assert (chapter.machine, chapter.is_this, chapter.tlb_entries()) == ("made-up", False, [64, 1536])
    assert len(rows) == len(committed.load("made-up", CHAPTER))
    assert begin(CHAPTER, DEFAULTS | {"machine": "made-up"}).measure(CHAPTER).equals(rows)


def test_max_working_set_limits_what_is_shown_of_committed_data(committed: Store):
    rows = begin(CHAPTER, DEFAULTS | {"max_working_set": "256KiB"}).measure(CHAPTER)
    assert rows["lines"].max() == 64


def test_rows_of_an_older_kernel_are_not_shown_beside_newer_ones(committed: Store):
    committed.append("made-up", CHAPTER, make_record(lines=16, repeat=5), "b" * 16)
    rows = begin(CHAPTER, DEFAULTS).measure(CHAPTER)
    assert set(rows.loc[rows["kernel"] == "page_chase", "kernel_digest"]) == {"b" * 16}


@pytest.mark.parametrize("machine", ["reference", "nobody"])
def test_a_machine_without_rows_is_no_data(data: Path, machine: str):
    with pytest.raises(Unavailable) as why:
        begin(CHAPTER, DEFAULTS | {"machine": machine}).measure(CHAPTER)
    assert why.value.code == "no-data"


def test_only_linux_measures(data: Path, monkeypatch):
    monkeypatch.setattr(chapters.host, "inspect", lambda: Stated(changes={"os": "Darwin"}).host())
    with pytest.raises(Unavailable) as why:
        begin(CHAPTER, DEFAULTS | {"machine": "this"}).measure(CHAPTER)
    assert why.value.code == "not-linux"


# --- documents


@pytest.fixture
def making(data: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """A made-up computer: `host` is what it is, `made` the profiles that its document was made with, `trouble` what making raises."""
    world: dict = {"host": Stated().host(), "made": [], "trouble": None}

    def make(profile: str) -> dict:
        if world["trouble"]:
            raise world["trouble"]
        world["made"].append(profile)
        return {"state": host.state(world["host"]), "made": len(world["made"])}

    monkeypatch.setattr(chapters.host, "inspect", lambda: world["host"])
    monkeypatch.setitem(chapters.DOCUMENTS, "runtimes", make)
    return world


def this(**changes: object) -> chapters.Chapter:
    return begin(CHAPTER, DEFAULTS | {"machine": "this"} | changes)


def test_a_document_is_made_once_and_read_from_then_on(making: dict, capsys):
    first = this(profile="smoke")
    assert first.document("runtimes") == first.document("runtimes") == this().document("runtimes")
    assert making["made"] == ["smoke"]
    assert capsys.readouterr().err.count("runtimes: building and running") == 1
    assert first.store.read_document(first.machine, "runtimes")["made"] == 1


def test_a_document_of_another_state_of_the_machine_is_made_again(making: dict):
    assert this().document("runtimes")["made"] == 1
    making["host"] = Stated(changes={"kernel_release": "6.2.0"}).host()
    assert host.machine_id(making["host"]) == host.machine_id(Stated().host())
    assert [this().document("runtimes")["made"] for _ in range(2)] == [2, 2]


def test_a_document_that_is_torn_is_made_again(making: dict):
    first = this()
    first.document("runtimes")
    (first.store.root / first.machine / "runtimes.json").write_text("{")
    assert this().document("runtimes")["made"] == 2


def test_a_document_that_cannot_be_made_is_its_reason_and_leaves_the_one_before(making: dict):
    before = this()
    before.document("runtimes")
    making["host"], making["trouble"] = Stated(changes={"kernel_release": "6.2.0"}).host(), Unavailable("no-toolchain", "none at all")
    with pytest.raises(Unavailable) as why:
        this().document("runtimes")
    assert (why.value.code, why.value.detail) == ("no-toolchain", "none at all")
    assert before.store.read_document(before.machine, "runtimes")["made"] == 1


def test_only_linux_makes_a_document(making: dict):
    making["host"] = Stated(changes={"os": "Darwin"}).host()
    with pytest.raises(Unavailable) as why:
        this().document("runtimes")
    assert (why.value.code, making["made"]) == ("not-linux", [])


@pytest.mark.parametrize("machine", ["reference", "made-up"])
def test_a_document_of_committed_data_is_read_whatever_its_state_and_never_made(committed: Store, making: dict, machine: str):
    chapter = begin(CHAPTER, DEFAULTS | {"machine": machine})
    for name in chapters.DOCUMENTS:
        with pytest.raises(Unavailable) as why:
            chapter.document(name)
        assert (why.value.code, f"{name}.json" in why.value.detail) == ("no-data", True)
    committed.write_document("made-up", "runtimes", {"state": "of long ago"})
    assert chapter.document("runtimes") == {"state": "of long ago"} and making["made"] == []


def test_a_profile_decides_how_much_a_document_holds(monkeypatch):
    asked: list[tuple] = []
    monkeypatch.setattr(chapters.runtimes, "survey", lambda *given, **named: asked.append((*given, named)) or chapters.host.inspect())
    monkeypatch.setattr(chapters.jmh, "survey", lambda *given, **named: asked.append((*given, named)) or chapters.host.inspect())
    for profile in experiment.profile_names():
        for make in chapters.DOCUMENTS.values():
            assert json.dumps(make(profile))
    assert sorted({size for size, *_ in asked if isinstance(size, int)}) == [16 << 20, 256 << 20]
    assert [named["quick"] for _, named in asked if "quick" in named] == [name != "full" for name in experiment.profile_names()]


def test_of_all_points_that_lack_the_same_the_largest_says_what_to_ask_for(data: Path, monkeypatch):
    lacking = {Point(kernel="page_chase", pages=pages, lines=lines): Unavailable(code, f"{lines} lines")
               for pages, code in (("2m", "pool-empty"), ("1g", "pool-empty"), ("64k", "mthp-off")) for lines in (512, 2**18, 64)}
    monkeypatch.setattr(chapters.host, "inspect", lambda: Stated().host())
    monkeypatch.setattr(chapters.experiment, "run", lambda *_, **__: experiment.Outcome(lacking=lacking))
    chapter = begin("hugepages", DEFAULTS | {"machine": "this", "engine": "numba"})
    with pytest.raises(Unavailable):
        chapter.measure("hugepages")
    told = [note for note in chapter.notes if "lines" in note]
    assert len(told) == len(set(told)) == 2 and all("262144 lines" in note for note in told)  # the two pools want the same pages


# --- from the command line


def tlb(*arguments: str, **how: object) -> subprocess.CompletedProcess[str]:
    return in_turn([sys.executable, "-c", "from experiments.cli import main; main()", *arguments], timeout=250, **how)


@pytest.mark.parametrize(("name", "value"), [("max_working_set", "12 bananas"), ("max_working_sise", "256MiB"), ("machine", "../x")])
def test_tlb_run_refuses_a_bad_parameter_before_it_starts_anything(data: Path, tmp_path: Path, name: str, value: str):
    done = tlb("run", CHAPTER, "-p", name, value, "--output", str(tmp_path / "out.ipynb"))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and name in done.stderr
    assert not (tmp_path / "out.ipynb").exists() and not data.exists()


@pytest.mark.parametrize(("given", "sentence"), [
    (["-p", "max_working_set", "12 bananas"], "'12 bananas' is not a size"),
    (["-p", "max_working_sise", "256MiB"], "has no parameter 'max_working_sise'"),
])
def test_papermill_alone_ends_with_the_sentence(data: Path, tmp_path: Path, given: list[str], sentence: str):
    papermill = [sys.executable, "-m", "papermill", f"book/{CHAPTER}.ipynb", str(tmp_path / "out.ipynb"), "--cwd", "book", *given]
    done = subprocess.run(papermill, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.strip()][-1]
    assert told.startswith("Unavailable: A parameter has a value that cannot be measured (") and sentence in told
    assert not data.exists()


@pytest.mark.measures
def test_more_than_this_computers_memory_is_one_sentence_at_the_end_of_tlb_run(data: Path, tmp_path: Path):
    done = tlb("run", CHAPTER, "-p", "max_working_set", "1000TiB", "--output", str(tmp_path / "out.ipynb"))
    assert done.returncode != 0
    assert "max_working_set 1000 TiB is more than" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr and not list(data.rglob("*.jsonl"))


# --- every chapter, on this computer

SMOKE = {"machine": "this", "profile": "smoke", "max_working_set": "4MiB"}
EXECUTE = "import json, sys; from pathlib import Path; from experiments.article import chapter as chapters; " \
          "chapters.execute(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))"


def tree(folder: Path) -> dict[str, bytes]:
    """What measuring writes: not machine.json, which holds the load."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.json*") if path.name != "machine.json"}


def execute(chapter: str, output: Path, data: Path) -> str:
    """Runs a chapter as `make book` does; what it told on stderr. Its outputs hold neither an error nor a warning."""
    command = [sys.executable, "-c", EXECUTE, chapter, str(output), json.dumps(SMOKE)]
    done = in_turn(command, env=os.environ | {"TLB_DATA": str(data)}, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    outputs = [shown for cell in nbformat.read(output, 4).cells if cell.cell_type == "code" for shown in cell.outputs]
    assert outputs and not [shown for shown in outputs if shown.output_type == "error"]
    assert not [shown.text for shown in outputs if shown.get("name") == "stderr" and "Warning" in shown.text]
    return done.stderr


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data/ with what the chapters that measure have measured on this computer."""
    folder = tmp_path_factory.mktemp("smoke")
    told = execute(CHAPTER, folder / "first.ipynb", folder / "data")
    assert re.search(r"stlb_cliff: \d+ measured, 0 already there", told)
    for chapter in CHAPTERS[1:]:  # the first page has no experiment of its own
        execute(chapter, folder / f"{chapter}.ipynb", folder / "data")
    return folder / "data"


@pytest.mark.measures
@pytest.mark.timeout(900)  # every experiment, one after the other
def test_what_a_chapter_measures_is_kept_under_this_machines_id_with_a_card(measured: Path):
    machine = host.machine_id(host.inspect())
    rows = Store(measured).load(machine, CHAPTER)
    assert (set(rows["repeat"]), rows["lines"].max(), set(rows["pages"])) == ({0, 1}, 1024, {"4k"})
    toolchains = {f"{name}.json" for name in chapters.DOCUMENTS}  # where there are any
    assert {path.name for path in (measured / machine).iterdir()} - toolchains == {
        "README.md", "machine.json", "geometry.jsonl", *(f"{name}.jsonl" for name in GRIDS)}
    assert Store(measured).check(machine, CHAPTER) == (len(rows), 0, 0, 0)


@pytest.mark.measures
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_runs_on_this_computer_and_measures_nothing_a_second_time(measured: Path, tmp_path: Path, chapter: str):
    before = tree(measured)
    told = execute(chapter, tmp_path / "out.ipynb", measured)
    assert tree(measured) == before
    assert set(re.findall(r": (\d+) measured", told)) <= {"0"}
