"""Every chapter executed on this computer: it measures once, keeps what it measured, and shows
neither an error nor a warning."""

import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import nbformat
import pytest

from tlb.machine import host
from tlb.measure.record import Point, Record
from tlb.measure.store import UNMEASURED_POINTS_DOCUMENT, Store
from tlb.report import notebooks, page, publish
from tlb.report.publish import Kernel
from tlb.system.reasons import none_if_unavailable

# Whoever else measures does not wait for this: so it is one of them, one after the other.
pytestmark = pytest.mark.measuring

CHAPTERS = notebooks.chapter_names_in_order()
CHAPTER = "stlb_cliff"
ENDURES = bool(
    os.environ.get("TLB_ENDURANCE")
)  # all chapters; else one, for each measures half a minute
SMOKE = {"machine": "this", "profile": "smoke", "max_working_set": "4MiB"}
BRIEF = {
    "your_program": {"minutes": 0.5}
}  # programs take no profile: what there is no time for is left out


def rows_of(folder: Path) -> dict[str, Record]:
    return Store(folder).own.records(host.machine_id(host.inspect_machine()))


def lacking(folder: Path) -> set[Point]:
    """The points that this computer could not do, which are tried again the next time."""
    machine = host.machine_id(host.inspect_machine())
    document = none_if_unavailable(
        Store(folder).own.read_document, machine, UNMEASURED_POINTS_DOCUMENT
    ) or {"points": []}
    return {Point.model_validate(line["point"]) for line in document["points"]}


@contextmanager
def notebook_kernel(data: Path) -> Iterator[Kernel]:
    """Run a kernel whose rows are in `data`, for one chapter after the other (nbval runs each in a
    kernel of its own)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLB_DATA", str(data))
        with publish.kernel() as within:
            yield within


def execute(chapter: str, output: Path, within: Kernel) -> str:
    """Run a chapter and return what it printed to stderr. Its outputs hold neither an error nor a
    warning."""
    given = SMOKE | BRIEF.get(chapter, {})
    with redirect_stderr(io.StringIO()) as printed:
        while True:
            try:
                publish.execute(chapter, output, given, within)
                break
            except SystemExit as why:
                assert "Another measurement is running" in str(why), why
                time.sleep(2)
    outputs = [
        shown
        for cell in nbformat.read(output, 4).cells
        if cell.cell_type == "code"
        for shown in cell.outputs
    ]
    assert outputs and not [shown for shown in outputs if shown.output_type == "error"]
    assert not [
        shown.text for shown in outputs if shown.get("name") == "stderr" and "Warning" in shown.text
    ]
    return printed.getvalue()


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A data/ with what the chapters that measure have measured on this computer."""
    folder = tmp_path_factory.mktemp("smoke")
    with notebook_kernel(folder / "data") as within:
        printed = execute(CHAPTER, folder / "first.ipynb", within)
        assert re.search(r"stlb_cliff: \d+ measured, 0 already there", printed)
        for chapter in CHAPTERS[1:] if ENDURES else ():  # the first page has no experiment
            execute(chapter, folder / f"{chapter}.ipynb", within)
    return folder / "data"


@pytest.fixture(scope="module")
def second_kernel(measured) -> Iterator[Kernel]:
    """A kernel that has none of those rows in memory."""
    with notebook_kernel(measured) as within:
        yield within


@pytest.mark.measures
def test_what_a_chapter_measures_is_kept_under_this_machines_id_with_its_description(measured):
    machine = host.machine_id(host.inspect_machine())
    rows = Store(measured).own.load(machine, CHAPTER)
    assert (set(rows["repeat"]), rows["lines"].max(), set(rows["pages"])) == ({0, 1}, 1024, {"4k"})
    kept = {path.name for path in (measured / "own" / machine).iterdir()}
    assert {"machine.json", "rows.sqlite"} <= kept
    assert all(re.fullmatch(r"machine\.json|documents|rows\.sqlite(-wal|-shm)?", n) for n in kept)


@pytest.mark.measures
@pytest.mark.parametrize(
    "chapter",
    [
        name if name == CHAPTER else pytest.param(name, marks=pytest.mark.endurance)
        for name in CHAPTERS
    ],
)
def test_a_chapter_runs_on_this_computer_and_measures_nothing_a_second_time(
    measured, second_kernel, tmp_path, chapter
):
    before, lacked = rows_of(measured), lacking(measured)
    printed = execute(chapter, tmp_path / "out.ipynb", second_kernel)
    after = rows_of(measured)
    assert before.items() <= after.items()
    late = [after[key].point for key in after.keys() - before.keys()]
    assert {*late} <= lacked  # as where huge pages were to be had this time
    assert sum(map(int, re.findall(r": (\d+) measured", printed))) == len(late)


def test_a_notebook_s_kernel_listens_on_no_port(tmp_path, monkeypatch):
    asks = (
        "import json, ipykernel; "
        "print(json.load(open(ipykernel.get_connection_file()))['transport'])"
    )
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(asks)], metadata={"kernelspec": spec}
    )
    nbformat.write(notebook, tmp_path / "asks.ipynb")
    for module in (publish, page):
        monkeypatch.setattr(module, "BOOK_FOLDER", tmp_path)
    monkeypatch.setattr(publish.notebooks, "check_parameters", lambda *given: {})
    publish.execute("asks", tmp_path / "out.ipynb", {})
    assert nbformat.read(tmp_path / "out.ipynb", 4).cells[-1].outputs[0].text == "ipc\n"


def test_a_page_without_results_has_one_line_at_its_head_and_the_text_of_the_reference(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    given = {"machine": "this", "minutes": 0.0}
    publish.execute("your_program", tmp_path / "out.ipynb", given)
    cells = nbformat.read(tmp_path / "out.ipynb", 4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    (head,) = [cell for cell in code if cell.source.startswith("chapter = begin(")]
    assert "tlb-head-line" in head.outputs[0].data["text/html"]
    committed = {text for cell in page.notebook_cells("your_program") for text in cell.texts}
    shown = [output.data for cell in code for output in cell.outputs if "data" in output]
    said = [data["text/markdown"] for data in shown if "text/markdown" in data]
    assert said and len(committed & {*said}) >= len(said) - 2  # two describe the machine
    assert not any("tlb-lacking" in data.get("text/html", "") for data in shown)
