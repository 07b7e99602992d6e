"""What a page gives away: the pages before and after it, its notebook, its rows, its kernels, and the repository if there is one."""

from __future__ import annotations

import importlib.util
import re
import zipfile
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
from support.common import ROOT, make_record
from support.site import soup

from experiments.article import parameters
from experiments.lab.store import Store

NAME = "strides"


@pytest.fixture(scope="module")
def tlb_files() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tlb_files", ROOT / "book/_ext/tlb_files.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def test_every_page_leads_to_the_one_before_and_the_one_after_it(site: Path):
    contents = re.findall(r"(?:root|file): (book/\w+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    for before, page, after in zip([None, *contents], contents, [*contents[1:], None], strict=False):
        around = [soup(site / f"{page}.html").select_one(f"footer a.{link}") for link in ("left-prev", "right-next")]
        assert [link and Path(link["href"]).stem for link in around] == [name and Path(name).name for name in (before, after)], page


def test_every_chapter_gives_its_notebook_its_rows_and_its_kernels(site: Path):
    for name in parameters.table_of_contents():
        links = soup(site / f"book/{name}.html").select(".tlb-files a[download]")
        files = {Path(link["href"]).name: site / "book" / link["href"] for link in links}
        nbformat.read(files.pop(f"{name}.ipynb"), as_version=4)
        kernels, measured = [path for path in files.values() if path.suffix == ".c"], set()
        for path in files.values():
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as packed:
                    measured = {Path(entry).stem for entry in packed.namelist() if entry.endswith(".jsonl")}
                    assert packed.testzip() is None and f"{path.stem}/machine.json" in packed.namelist()
        assert {path.stem for path in kernels} <= measured, name
        assert all(path.read_bytes() == (ROOT / "kernels" / path.name).read_bytes() for path in kernels)
        assert measured or "machine" not in parameters.declared(name), name
        measures = (ROOT / "experiments/chapters" / name / "grid.py").exists() and name != "your_program"  # which runs other people's
        assert kernels or not measured or not measures, name


def test_a_machine_s_folder_is_packed_to_the_same_bytes_without_what_was_set_aside(tlb_files: ModuleType, tmp_path: Path):
    rows = tmp_path / "zen-9-00000000"
    rows.mkdir()
    for name in ("page_chase.jsonl", "machine.json", "page_chase.quarantine.jsonl"):
        (rows / name).write_text("{}\n", encoding="utf-8")
    for name in ("a.zip", "b.zip"):
        tlb_files.pack(rows, tmp_path / name)
    with zipfile.ZipFile(tmp_path / "a.zip") as packed:
        assert packed.namelist() == ["zen-9-00000000/machine.json", "zen-9-00000000/page_chase.jsonl"]
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a chapter executed about a machine, in a checkout of which two machines have rows, one of them its own."""
    store = Store(tmp_path / "data")
    for folder, machine in ((store, "zen-8-00000000"), (store.own, "zen-9-00000000")):
        folder.write_machine(machine, {})
        folder.ask(machine, NAME, [make_record(kernel=kernel).point for kernel in ("numa_chase", "stride_sum")])
        (folder.root / machine / "stride_sum.jsonl").touch()
    (tmp_path / "data/reference").write_text("zen-8-00000000\n", encoding="ascii")
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("experiments.machine.host.machine_id", lambda _: "zen-9-00000000")

    def write(machine: str | None) -> Path:
        cells = [nbformat.v4.new_code_cell('machine: str = "reference"', metadata={"tags": ["parameters"]})]
        metadata = {"papermill": {"parameters": {"machine": machine}}} if machine else {}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path := tmp_path / f"{NAME}.ipynb")
        return path

    return write


@pytest.mark.parametrize(("machine", "folder"), [
    (None, "data/zen-8-00000000"), ("zen-8-00000000", "data/zen-8-00000000"), ("this", "data/own/zen-9-00000000"),
    ("zen-7-00000000", None)])
def test_rows_are_those_of_the_machine_that_the_page_is_about(tlb_files: ModuleType, notebook, tmp_path: Path, machine, folder):
    files = tlb_files.files_of(notebook(machine), ROOT / "kernels")
    assert (files and files.rows) == (folder and tmp_path / folder)
    assert not files or files.kernels == [ROOT / "kernels/stride_sum.c"]


def test_a_page_that_measures_nothing_rests_on_nothing(tlb_files: ModuleType, tmp_path: Path):
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Words")]), tmp_path / "words.ipynb")
    assert tlb_files.files_of(tmp_path / "words.ipynb", ROOT / "kernels") is None
