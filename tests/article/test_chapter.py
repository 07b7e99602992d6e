"""The object that a notebook talks to: its machine, its rows and documents, and what it puts on the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from support.common import make_record
from support.lab import put, tree
from support.pages import figure
from support.synthetic import Stated, Truth, frame, grid

from experiments.article import chapter as chapters
from experiments.article import render
from experiments.article.analysis import Analysis
from experiments.article.chapter import Chapter, begin
from experiments.article.render import Figure, Html
from experiments.article.verdicts import claims_of
from experiments.chapters.tlb_blocking import Analysis as Blocking
from experiments.chapters.tlb_blocking import claims
from experiments.lab import build, campaign
from experiments.lab.build import Kernel
from experiments.lab.perf import NO_COUNTERS
from experiments.lab.record import Point, Record
from experiments.lab.rig import Rig
from experiments.lab.store import Store
from experiments.machine import host
from experiments.words.prose import Prose
from experiments.words.reasons import Note, Unavailable

CHAPTER = "stlb_cliff"
DEFAULTS = {"machine": "reference", "profile": "quick", "max_working_set": "profile", "repeats": 0, "minutes": 10.0, "engine": "auto"}



@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data/ of the test's own."""
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def world(data: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """This computer is what `host` says, and has no counters."""
    stated: dict[str, Any] = {"host": Stated().host()}
    monkeypatch.setattr(chapters.hosts, "inspect", lambda: stated["host"])
    monkeypatch.setattr("experiments.lab.rig.perf.plan", lambda *_, **__: replace(NO_COUNTERS, lacking={"core_cycles": "no-pmu"}))
    return stated


def this(**changes: object) -> Chapter:
    return begin(CHAPTER, DEFAULTS | {"machine": "this"} | changes)


def code(call: Callable[[], object]) -> str:
    """Of the reason with which a call ends."""
    with pytest.raises(Unavailable) as why:
        call()
    return why.value.code


# --- which machine, and how much of it


def test_more_than_half_of_the_free_memory_is_refused_and_so_is_100_tib(world: dict):
    assert this(max_working_set="3.5GiB").profile.max_working_set == 7 << 29  # 7 GiB of it usable
    for size in ("3.75 GiB", "100TiB"):
        with pytest.raises(Unavailable, match=r"3\.5 GiB") as why:
            this(max_working_set=size).profile  # noqa: B018
        assert why.value.code == "bad-parameter"


def test_a_profile_larger_than_the_memory_is_cut_and_a_note_says_so_once(world: dict, capsys):
    little = {"total_bytes": 2 << 30, "available_bytes": 1 << 30, "usable_bytes": 1 << 30, "limit_source": "cgroup"}
    world["host"] = Stated(changes={"memory": little}).host()
    chapter = this()
    assert chapter.profile.max_working_set == chapter.scope.profile.max_working_set == 512 << 20
    (note,) = chapter.notes
    assert "512 MiB" in note.text and note.code == "" and capsys.readouterr().err.count(note.text) == 1


def test_repeats_given_stand_in_the_place_of_the_profiles(world: dict):
    assert this(repeats=3).profile.repeats == 3


def test_what_a_grid_may_ask_for_is_the_machines_own(world: dict):
    scope = this(engine="numba").scope
    assert (scope.entries, scope.cpus, scope.base_page_bytes, scope.engine) == ((64, 1536), 2, 4096, "numba")


# --- committed data


@pytest.fixture
def committed(data: Path) -> Store:
    """A store whose reference machine has the rows of a made-up one."""
    store = Store(data)
    store.write_machine("made-up", Stated().host().model_dump(mode="json"))
    rows = frame(Truth(), grid(1 << 20), repeats=1).to_dict("records")
    put(store, "made-up", CHAPTER, "a" * 16, *(
        make_record(**{name: value for name, value in row.items() if name != "kernel_digest"}) for row in rows))
    (data / "reference").write_text("made-up\n")
    return store


def test_a_chapter_about_the_reference_machine_reads_and_never_measures(committed: Store, monkeypatch):
    monkeypatch.setattr(campaign, "run", lambda *_, **__: pytest.fail("it measured"))
    chapter = begin(CHAPTER, DEFAULTS)
    rows = chapter.measure([])
    assert (chapter.machine, chapter.is_this, chapter.scope.entries) == ("made-up", False, (64, 1536))
    stored = committed.load("made-up", CHAPTER)
    assert len(rows) == (stored["engine"] == "c").sum() and chapter.notes == []
    assert len(begin(CHAPTER, DEFAULTS).measure(grid(1 << 20))) == len(stored)  # the published loop, in numpy, where it is asked for
    assert begin(CHAPTER, DEFAULTS | {"machine": "made-up"}).measure([]).equals(rows)
    assert begin("hugepages", DEFAULTS).measure([], CHAPTER).equals(rows)


def test_max_working_set_limits_what_is_shown_of_committed_data(committed: Store):
    rows = begin(CHAPTER, DEFAULTS | {"max_working_set": "256KiB"}).measure([])
    assert rows["lines"].max() == 64


def test_rows_of_an_older_kernel_are_not_shown_beside_newer_ones(committed: Store):
    put(committed, "made-up", CHAPTER, "b" * 16, make_record(lines=16, repeat=100))
    broken_off = begin(CHAPTER, DEFAULTS).measure([])
    assert "b" * 16 not in set(broken_off["kernel_digest"])  # a lone row hides no whole campaign
    put(committed, "made-up", CHAPTER, "b" * 16, *(make_record(lines=16, repeat=repeat) for repeat in range(len(broken_off))))
    rows = begin(CHAPTER, DEFAULTS).measure([])
    assert set(rows.loc[rows["kernel"] == "page_chase", "kernel_digest"]) == {"b" * 16}


@pytest.mark.parametrize("machine", ["reference", "nobody"])
def test_a_machine_without_rows_is_no_data(data: Path, machine: str):
    assert code(lambda: begin(CHAPTER, DEFAULTS | {"machine": machine}).measure([])) == "no-data"
    assert code(lambda: begin(CHAPTER, DEFAULTS | {"machine": machine}).survey()) == "no-data"


def test_this_machines_chapter_reads_the_reference_machine_and_never_measures_there(committed: Store, world: dict):
    reference = this().reference()
    assert (reference.is_this, reference.machine) == (False, "made-up") and len(reference.kept(CHAPTER))


def test_literature_is_a_table_with_a_source_in_each_row():
    table = chapters.literature("mitigations")
    assert len(table) and table["source"].notna().all()


# --- measuring


@pytest.fixture
def measuring(world: dict, own_lock: Path, kernel: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Chapter, list[Point]]]:
    """A chapter about this computer whose rig has another `measure`: what it is and what was asked of it."""
    kernel("exit 1")

    def begun(trouble: dict[str, Unavailable] | None = None, **changes: object) -> tuple[Chapter, list[Point]]:
        asked: list[Point] = []

        def measure(point: Point, repeat: int, state: str, **_: object) -> Record:
            asked.append(point)
            if why := (trouble or {}).get(point.pages):
                raise Unavailable(why.code, f"{point.lines} lines")
            return make_record(**point.model_dump(), repeat=repeat, state=state)

        chapter = this(**changes)
        chapter.rig = replace(Rig.of(world["host"], chapter.store, chapter.machine), measure=measure)
        return chapter, asked

    return begun


POINTS = [Point(kernel="page_chase", lines=lines) for lines in (16, 64)]


def test_points_are_measured_once_and_come_back_as_rows_with_a_card_beside_them(measuring: Callable):
    chapter, asked = measuring(repeats=2)
    rows = chapter.measure(POINTS)
    assert len(asked) == len(rows) == 4 and set(rows["lines"]) == {16, 64}
    again, more = measuring(repeats=2)
    assert again.measure(POINTS).equals(rows) and more == []
    assert "| stlb_cliff | page_chase.jsonl | c | 4 |" in (chapter.store.root / chapter.machine / "README.md").read_text()


def test_rows_of_this_computer_and_published_ones_of_its_own_id_stay_apart(measuring: Callable):
    chapter, asked = measuring(repeats=1)
    chapter.data.write_machine(chapter.machine, Stated().host().model_dump(mode="json"))
    put(chapter.data, chapter.machine, CHAPTER, "0" * 16, make_record(lines=128))
    (chapter.data.root / "reference").write_text(f"{chapter.machine}\n")
    before = tree(chapter.data.root)
    assert set(chapter.measure(POINTS)["lines"]) == {16, 64} and len(asked) == 2
    for name in ("reference", chapter.machine):
        published = begin(CHAPTER, DEFAULTS | {"machine": name})
        assert published.measure(POINTS)["lines"].tolist() == published.kept(CHAPTER)["lines"].tolist() == [128]
    assert {name: text for name, text in tree(chapter.data.root).items() if not name.startswith("own/")} == before


@pytest.mark.parametrize("changed", ["the state", "the kernel"])
def test_back_in_an_earlier_state_all_its_rows_are_there_and_none_is_measured(world: dict, measuring: Callable, monkeypatch, changed: str):
    def change(there: bool) -> None:
        if changed == "the state":
            world["host"] = Stated(changes={"kernel_release": "6.2.0"} if there else {}).host()
        else:
            monkeypatch.setattr(build, "kernel", lambda name, engine="c": Kernel(name, engine, ("true",), ("1" if there else "0") * 16))

    change(False)
    whole = measuring(repeats=3)[0].measure(POINTS)
    change(True)
    alone = measuring(repeats=1)[0].measure(POINTS[:1])
    assert alone["lines"].tolist() == [16]
    change(False)
    again, asked = measuring(repeats=3)
    assert again.measure(POINTS).equals(whole) and again.kept(CHAPTER).equals(whole) and asked == [] and len(whole) == 6


@pytest.mark.parametrize("changes", [
    pytest.param({"cpu_model": "Imaginary Processor 9001"}, id="another processor"),
    pytest.param({"installation": "another"}, id="another computer of the same kind"),
    pytest.param({"hypervisor": "kvm"}, id="moved into a guest")])
def test_of_a_computer_that_has_become_another_one_no_row_is_shown(world: dict, measuring: Callable, changes: dict):
    points = [Point(kernel="page_chase", lines=64, region_ms=2)]
    chapter, asked = measuring(repeats=2)
    before = chapter.measure(points)
    world["host"] = Stated(changes=changes).host()
    other, again = measuring(repeats=2)
    assert other.machine != chapter.machine and code(lambda: other.kept(CHAPTER)) == "no-data"
    assert (len(other.measure(points)), len(again)) == (len(before), len(asked))
    world["host"] = Stated().host()
    assert measuring()[0].kept(CHAPTER).equals(before)


def test_rows_of_two_engines_are_never_shown_together(measuring: Callable, monkeypatch):
    numba = [point.model_copy(update={"engine": "numba"}) for point in POINTS]
    monkeypatch.setattr(build, "engine_for", lambda *_: "numba")
    first, _ = measuring(repeats=2)
    assert set(first.measure(numba)["engine"]) == set(first.kept(CHAPTER)["engine"]) == {"numba"}
    monkeypatch.setattr(build, "engine_for", lambda *_: "c")  # a compiler was installed
    second, asked = measuring(repeats=2)
    assert set(second.measure(POINTS)["engine"]) == set(second.kept(CHAPTER)["engine"]) == {"c"} and len(asked) == 4
    both, asked = measuring(repeats=2)
    assert set(both.measure(POINTS + numba)["engine"]) == {"c", "numba"} and asked == []  # a grid may ask for both


def test_of_a_published_kernel_one_engine_is_read_c_where_it_has_rows_of_it(committed: Store):
    put(committed, "made-up", CHAPTER, "n" * 16, make_record(engine="numba"),
        make_record(kernel="page_gather", engine="numba", repeat=77))
    put(committed, "made-up", "blocks", "n" * 16, make_record(kernel="radix_partition", engine="numba"))
    chapter = begin(CHAPTER, DEFAULTS)
    assert set(chapter.measure(POINTS)["engine"]) == set(chapter.kept(CHAPTER)["engine"]) == {"c"}
    join = Point(kernel="radix_partition", lines=4096)
    assert chapter.measure([join], "blocks")["engine"].tolist() == chapter.kept("blocks")["engine"].tolist() == ["numba"]


def test_one_more_point_in_the_grid_is_one_more_measured(measuring: Callable):
    measuring(repeats=2)[0].measure(POINTS)
    chapter, asked = measuring(repeats=2)
    assert set(chapter.measure([*POINTS, Point(kernel="page_chase", lines=32)])["lines"]) == {16, 32, 64}
    assert {point.lines for point in asked} == {32}


def test_of_all_points_that_lack_the_same_the_largest_says_what_to_ask_for_and_each_lack_is_said_once(measuring: Callable, capsys):
    lacking = {"2m": Unavailable("pool-empty"), "1g": Unavailable("pool-empty"), "64k": Unavailable("mthp-off")}
    chapter, _ = measuring(lacking, repeats=1, max_working_set="1GiB")
    points = [Point(kernel="page_chase", pages=pages, lines=lines) for pages in ("4k", *lacking) for lines in (512, 2**18, 64)]
    for _ in range(2):
        chapter.measure(points)
    assert sorted(note.code for note in chapter.notes) == ["mthp-off", "pool-empty"]  # the two pools want the same pages
    assert all("262144 lines" in note.text for note in chapter.notes)
    told = capsys.readouterr().err
    assert all(told.count(note.text) == 1 for note in chapter.notes)


def test_a_rig_is_made_once_and_says_once_what_it_lacks(world: dict, monkeypatch, capsys):
    monkeypatch.setattr(build, "engine_for", lambda engine: "numba")
    chapter = this()
    assert chapter.rig is chapter.rig
    assert [note.code for note in chapter.notes] == ["no-compiler", "no-pmu"]
    assert capsys.readouterr().err.count("\n") == 2
    assert chapter.store.read_machine(chapter.machine)["microarchitecture"] == "Ice Lake server"


def test_only_linux_measures(world: dict):
    world["host"] = Stated(changes={"os": "Darwin"}).host()
    assert code(lambda: this().measure(POINTS)) == code(lambda: this().survey()) == "not-linux"


# --- documents


@pytest.fixture
def making(world: dict) -> Callable[[str], dict]:
    """What makes a document: `made` has the profiles that it was asked with, `trouble` what it raises."""
    world |= {"made": [], "trouble": None}

    def make(profile: str) -> dict:
        if world["trouble"]:
            raise world["trouble"]
        world["made"].append(profile)
        return {"state": host.state(world["host"]), "made": len(world["made"])}

    return make


def test_a_document_is_made_once_and_read_from_then_on(world: dict, making: Callable, capsys):
    first = this(profile="smoke")
    assert first.document("runtimes", making) == first.document("runtimes", making) == this().document("runtimes", making)
    assert world["made"] == ["smoke"] and capsys.readouterr().err.count("runtimes: ") == 1
    assert first.store.read_document(first.machine, "runtimes")["made"] == 1


def test_a_document_of_another_state_of_the_machine_is_made_again(world: dict, making: Callable):
    assert this().document("runtimes", making)["made"] == 1
    world["host"] = Stated(changes={"kernel_release": "6.2.0"}).host()
    assert host.machine_id(world["host"]) == host.machine_id(Stated().host())
    assert [this().document("runtimes", making)["made"] for _ in range(2)] == [2, 2]


def test_a_document_is_made_again_where_there_is_a_program_or_a_pool_more(world: dict, making: Callable, monkeypatch):
    monkeypatch.setattr(chapters.shutil, "which", lambda tool: None)
    assert this().document("runtimes", making)["made"] == 1
    monkeypatch.setattr(chapters.shutil, "which", lambda tool: "/usr/bin/go" if tool == "go" else None)
    assert [this().document("runtimes", making)["made"] for _ in range(2)] == [2, 2]
    world["host"] = Stated(changes={"pools": [{"page": "2m", "total": 8, "free": 8, "reserved": 0, "surplus": 0}]}).host()
    assert this().document("runtimes", making)["made"] == 3


def test_a_document_that_is_not_whole_is_made_again(making: Callable):
    assert this().document("runtimes", making)["made"] == 1
    wanted = [this().document("runtimes", making, lambda known: known["made"] > 1)["made"] for _ in range(2)]
    assert wanted == [2, 2]


def test_a_document_that_is_torn_is_made_again(making: Callable):
    first = this()
    first.document("runtimes", making)
    (first.store.root / first.machine / "runtimes.json").write_text("{")
    assert this().document("runtimes", making)["made"] == 2


def test_a_document_that_cannot_be_made_is_its_reason_and_leaves_the_one_before(world: dict, making: Callable):
    before = this()
    before.document("runtimes", making)
    world["host"], world["trouble"] = Stated(changes={"kernel_release": "6.2.0"}).host(), Unavailable("no-toolchain", "none at all")
    assert code(lambda: this().document("runtimes", making)) == "no-toolchain"
    assert before.store.read_document(before.machine, "runtimes")["made"] == 1


def test_only_linux_makes_a_document(world: dict, making: Callable):
    world["host"] = Stated(changes={"os": "Darwin"}).host()
    assert (code(lambda: this().document("runtimes", making)), world["made"]) == ("not-linux", [])


def test_a_document_on_request_is_read_in_its_own_state_and_never_made(world: dict):
    chapter = this()
    assert code(lambda: chapter.document("housekeeping", None)) == "no-data"
    chapter.store.write_document(chapter.machine, "housekeeping", {"state": host.state(world["host"])})
    assert this().document("housekeeping", None) == {"state": host.state(world["host"])}
    world["host"] = Stated(changes={"kernel_release": "6.2.0"}).host()
    assert code(lambda: this().document("housekeeping", None)) == "no-data"


@pytest.mark.parametrize("machine", ["reference", "made-up"])
def test_a_document_of_committed_data_is_read_whatever_its_state_and_never_made(
        committed: Store, world: dict, making: Callable, machine: str):
    chapter = begin(CHAPTER, DEFAULTS | {"machine": machine})
    assert code(lambda: chapter.document("runtimes", making)) == "no-data"
    committed.write_document("made-up", "runtimes", {"state": "of long ago"})
    assert chapter.document("runtimes", making) == {"state": "of long ago"} and world["made"] == []


# --- the page


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is glued, by name, and whether it is displayed as well."""
    glued: dict[str, Any] = {}
    monkeypatch.setattr(chapters, "glue", lambda name, thing, display=True: glued.__setitem__(name, (thing, display)))
    return glued


@pytest.fixture
def a(committed: Store) -> tuple[Chapter, Analysis]:
    chapter = begin(CHAPTER, DEFAULTS)
    return chapter, Analysis(chapter.measure([]), chapter)


def test_a_figure_is_shown_under_the_name_of_its_function_and_a_table_too(a: tuple, page: dict):
    def the_cliff(a: Analysis) -> Figure:
        return figure("another")

    def the_table(a: Analysis) -> Html:
        return Html("<p>", "a table")

    def nothing(a: Analysis) -> Figure:
        raise Unavailable("no-pmu", "here")

    chapter, analysis = a
    for make in (the_cliff, the_table, nothing):
        chapter.show(make, analysis)
    assert {name: (type(thing), display) for name, (thing, display) in page.items()} == {
        "the_cliff": (Figure, True), "the_table": (Html, True), "nothing": (Html, True)}
    assert page["the_cliff"][0].name == "the_cliff" and str(Unavailable("no-pmu", "here")) in page["nothing"][0].text


def test_what_a_module_says_is_glued_by_kind_and_a_reason_in_full_once(a: tuple, page: dict, monkeypatch: pytest.MonkeyPatch):
    bundles: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(render, "display", lambda bundle, raw, metadata: bundles.update({metadata["scrapbook"]["name"]: bundle}))
    def lacking(a: Analysis) -> Prose:
        raise Unavailable("no-pmu")

    prose = ModuleType("prose")
    vars(prose).update(sentence=lambda a: Prose("A {term}`walk` in {doc}`code <code>`."), phrase=lambda a: "a *phrase*",
                       number=lambda a: pd.Series([2]).sum(), first=lacking, second=lacking, hidden=lambda a: "x")
    vars(prose)["__all__"] = ["sentence", "phrase", "number", "first", "second"]
    a[0].say(prose, a[1])
    assert {*page, *bundles} == set(prose.__all__) and not any(display for _, display in page.values())
    assert page["phrase"][0] == "a *phrase*" and type(page["number"][0]) is float
    said = {name: bundle["application/papermill.record/text/markdown"] for name, bundle in bundles.items()}
    assert said["sentence"] == "A {term}`walk` in {doc}`code <code>`."
    assert said["first"] == str(Unavailable("no-pmu")) and said["second"] != said["first"]
    assert bundles["sentence"]["text/markdown"] == "A *walk* in *code*."  # what JupyterLab shows below the cell


def test_the_verdicts_of_a_chapter_take_bands_by_the_names_of_predicates(a: tuple):
    table, other = (a[0].verdicts(claims, Blocking(a[1].frame, a[0]), **bands) for bands in ({}, {"fan_out_limit": {"jump": 0.5}}))
    assert table.text == other.text and table.text.count("CANNOT TELL") == len(claims_of(claims))  # of rows of another chapter
    with pytest.raises(TypeError):
        a[0].verdicts(claims, Blocking(a[1].frame, a[0]), fan_out_limit={"jumps": 0.5})


def test_what_is_assigned_to_a_derived_quantity_stands_in_its_place(a: tuple):
    analysis = Blocking(a[1].frame, a[0])
    analysis.blocks = "another definition"
    assert analysis.blocks == "another definition" and analysis.entries == [64, 1536] and not analysis.is_simulated
    assert analysis.splintering() is None and analysis.two_levels() == (64, 1536) and list(analysis.notes) == []


# --- how a notebook begins


def test_a_notebook_begins_with_what_its_cells_have_set(data: Path):
    chapter = begin(CHAPTER, DEFAULTS | {"repeats": 2, "unrelated": object(), "In": ["", "repeats = 2"]})
    assert (chapter.parameters, chapter.store.root, this().store.root) == (DEFAULTS | {"repeats": 2}, data, data / "own")


def test_notes_are_a_runs_own():
    chapter = begin(CHAPTER, DEFAULTS)
    chapter.notes.append(Note("One."))
    assert begin(CHAPTER, DEFAULTS).notes == [] and re.fullmatch("One.", chapter.notes[0].text)
