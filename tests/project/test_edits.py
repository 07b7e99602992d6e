"""A page is its experiment: a notebook edited as a reader would, with a point more or another timed
loop, measures it."""

import json
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from tlb.report.parameters import BOOK

pytestmark = pytest.mark.endurance

_CHASE = "for (uint64_t i = hops / 16; i; i--) {"
_WAIT = "for (volatile int n = 0; n < 9; n++)\n            ;\n"
# A chapter's kernel, a point more, its lines, and the timed loop, before and after a change.
MEASURED = {
    "stlb_cliff": (
        "page_chase",
        "chapter.scope.chase('page_chase', '4k', 49)",
        49,
        _CHASE,
        f"{_CHASE}\n        {_WAIT}",
    )
}


def sources(name: str) -> nbformat.NotebookNode:
    notebook = nbformat.read(BOOK / f"{name}.ipynb", as_version=4)
    notebook.metadata.pop("papermill", None)
    return notebook


def edit(notebook: nbformat.NotebookNode, old: str, new: str) -> None:
    """Put `new` in the place of `old`, which stands in one cell exactly once."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source]
    assert len(cells) == 1 and cells[0].source.count(old) == 1, old
    cells[0].source = cells[0].source.replace(old, new)


def execute(
    notebook: nbformat.NotebookNode, folder: Path, **parameters: Any
) -> nbformat.NotebookNode:
    given, done = folder / "edited.ipynb", folder / "done.ipynb"
    nbformat.write(notebook, given)
    return papermill.execute_notebook(
        given, done, parameters, cwd=BOOK, progress_bar=False, kernel_name="python3"
    )


@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
@pytest.mark.parametrize("name", MEASURED)
def test_a_point_more_and_another_loop_are_measured(name, tmp_path, monkeypatch):
    """As far as the cell that measures: the rest of the page is read off those rows."""
    monkeypatch.setenv("TLB_DATA", str(tmp_path / "data"))
    kernel, more, lines, old, new = MEASURED[name]
    small = {"machine": "this", "profile": "smoke", "repeats": 1, "max_working_set": "1MiB"}
    seen = []
    for patch in ("", f"chapter.patch({kernel!r}, {old!r}, {new!r})\n"):
        notebook = sources(name)
        line = f"points = {name}.grid.points(chapter.scope)"
        edit(notebook, line, f"{patch}{line} + {more}")
        last = next(i for i, cell in enumerate(notebook.cells) if line in cell.source)
        notebook.cells = [
            *notebook.cells[: last + 1],
            nbformat.v4.new_code_cell("assert len(a.frame)"),
        ]
        execute(notebook, tmp_path, **small)
        rows = [
            json.loads(text)
            for path in (tmp_path / "data" / "own").glob("*/*.jsonl")
            for text in path.read_text().splitlines()
        ]
        assert any(
            (row["record"]["kernel"], row["record"]["lines"]) == (kernel, lines) for row in rows
        )
        seen.append({row["kernel_digest"] for row in rows if row["record"]["kernel"] == kernel})
    assert len(seen[1]) == len(seen[0]) + 1 and seen[0] < seen[1]
