"""What a page offers for download: its notebook, its rows and its kernels."""

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pandas as pd
from support.common import ROOT, extension
from support.site import soup

from tlb.machine import host
from tlb.measure.store import Store
from tlb.report import notebooks


def test_every_chapter_gives_its_notebook_its_rows_and_its_kernels(site):
    for name in notebooks.chapter_names_in_order():
        links = soup(site / f"book/{name}.html").select(".tlb-files a[download]")
        files = {Path(link["href"]).name: site / "book" / link["href"] for link in links}
        notebook = nbformat.read(files.pop(f"{name}.ipynb"), as_version=4)
        assert not any(cell.get("outputs") for cell in notebook.cells), name  # the page has them
        kernels, measured = [path for path in files.values() if path.suffix == ".c"], set()
        for path in files.values():
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as packed:
                    rows = packed.read(f"{path.stem}/rows.parquet")
                    measured = {*pd.read_parquet(io.BytesIO(rows))["kernel"]}
                    assert (
                        packed.testzip() is None
                        and f"{path.stem}/machine.json" in packed.namelist()
                    )
        assert {path.stem for path in kernels} <= measured, name
        assert all(
            path.read_bytes() == (ROOT / "kernels" / path.name).read_bytes() for path in kernels
        )
        assert measured or "machine" not in notebooks.declared_parameters(name), name
        measures = (
            ROOT / "experiments" / name / "grid.py"
        ).exists() and name != "your_program"  # which runs other people's
        assert kernels or not measured or not measures, name


def test_a_machine_s_folder_is_packed_to_the_same_bytes_without_what_was_set_aside(tmp_path):
    rows = tmp_path / "zen-9-00000000"
    rows.mkdir()
    for name in ("rows.parquet", "machine.json", "rows.sqlite-shm"):
        (rows / name).write_text("{}\n", encoding="utf-8")
    for name in ("a.zip", "b.zip"):
        extension("tlb_files").pack(rows, tmp_path / name)
    with zipfile.ZipFile(tmp_path / "a.zip") as packed:
        assert packed.namelist() == ["zen-9-00000000/machine.json", "zen-9-00000000/rows.parquet"]
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_file_of_a_site_has_an_address_where_the_site_has_one():
    def address(base: str) -> str:
        app = SimpleNamespace(config=SimpleNamespace(html_baseurl=base))
        return extension("tlb_files").address(app, "book/index.html")

    bases = ("https://example.org/a", "https://example.org/a/")
    assert {*map(address, bases)} == {"https://example.org/a/book/index.html"}
    assert address("") == ""


def test_this_computer_is_not_called_by_the_id_that_a_published_one_may_have(tmp_path, monkeypatch):
    monkeypatch.setenv("TLB_DATA", str(tmp_path))
    files, id = extension("tlb_files"), host.machine_id(host.inspect_machine())
    for store in (Store(tmp_path), Store(tmp_path).own):
        store.write_machine(id, {})
    called = {}
    for machine in ("this", id):
        cell = nbformat.v4.new_code_cell(metadata={"tags": ["parameters"]})
        notebook = nbformat.v4.new_notebook(cells=[cell])
        notebook.metadata["papermill"] = {"parameters": {"machine": machine}}
        nbformat.write(notebook, tmp_path / "hugepages.ipynb")
        called[machine] = files.files_of(tmp_path / "hugepages.ipynb", tmp_path).machine
    assert called == {"this": files.THIS, id: id}
