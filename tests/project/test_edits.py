"""A page is its experiment: a copy of each notebook, edited as a reader would, measures other rows, draws and judges otherwise."""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from experiments.article.parameters import BOOK, table_of_contents
from experiments.article.verdicts import REGISTRY

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(600)]

_CHASE = "for (uint64_t i = hops / 16; i; i--) {"
_WALK = "for (; turns; turns--) {\n        uint64_t random = draw(&state);\n        UNROLL"
_WAIT = "for (volatile int n = 0; n < 9; n++)\n            ;\n"
# A chapter's kernel, a point more, its lines, and the timed loop, before and after a change.
MEASURED = {
    "stlb_cliff": ("page_chase", "chapter.scope.chase('page_chase', '4k', 49)", 49, _CHASE, f"{_CHASE}\n        {_WAIT}"),
    "graph_walk": ("graph_walk", "[chapter.scope.point('graph_walk', mode='plain', vertices=512)]", 512, _WALK,
                   _WALK.replace("{\n", "{\n        " + _WAIT, 1)),
}


@dataclass(frozen=True)
class Edits:
    """What a reader might change of a page: a definition and the figure that it is drawn in, a band and the claim that it decides."""

    definition: tuple[str, str]
    figure: str
    band: tuple[str, str]
    claim: str  # its id


EDITS: dict[str, Edits] = {
    "your_machine": Edits(("a.price = a.spread - a.packed", "a.price = a.spread / a.packed"), "staircase",
                          ('"pool_pages": claims.POOL_PAGES', '"pool_pages": 1'), "entries-cover-a-pool"),
    "stlb_cliff": Edits(("a.price = a.price_of(a.spread, a.packed)", "a.price = a.spread / a.packed"), "price",
                        ('{"most": claims.FLAT}', '{"most": 1.0}'), "price-flat-below-reach"),
    "strides": Edits(("curve.between(least, most)", "curve.between(64, most)"), "strides",
                     ('{"band": (0.75, 1.25)}', '{"band": (0.1, 9.0)}'), "strides-4k-and-8k-alike"),
    "walk_anatomy": Edits(("curve.between(least, most)", "curve.between(1024, most)"), "staircase",
                          ('"full_walks_hurt": {"band": (1.0, float("inf"))}', '"full_walks_hurt": {"band": (0.0, 1.0)}'),
                          "full-walks-would-hurt"),
    "hugepages": Edits(("spread[pages] - packed[pages]", "spread[pages] / packed[pages]"), "page_prices",
                       ("bands = {", 'bands = {"thp_is_like_the_pool": {"same": 0.5}, '), "thp-like-pool"),
    "keeping_pages": Edits(("far[pages] - near[pages]", "far[pages] / near[pages]"), "ladder",
                           ('{"band": claims.SIX}', '{"band": (0.1, 1.0)}'), "thp-faults-six-times"),
    "graph_walk": Edits(("(1 - reach / sizes)", "(1 - reach / sizes / 2)"), "walk_misses",
                        ('{"band": claims.TWICE}', '{"band": (1.0, 2.0), "from_bytes": 1}'), "tail-twice-the-median"),
    "tlb_blocking": Edits(('2 ** fan_out["bits"]', '4 ** fan_out["bits"]'), "fan_out",
                          ("bands = {", 'bands = {"join_partitions_first": {"same": 9.9}, '), "join-partitions-first"),
    "churn": Edits(("price.between(1, 1 << 20)", "price.between(512, 1 << 20)"), "switches",
                   ('{"a_cold_start_pays": {"band": (1.0, float("inf"))}', '{"a_cold_start_pays": {"band": (0.0, 1.0)}'),
                   "cold-starts-pay-a-tax"),
    "code": Edits(("alias.between(least, most)", "alias.between(1024, most)"), "translation",
                  ('{"many_pages_cost": {"band": (1.0, float("inf"))}', '{"many_pages_cost": {"band": (0.0, 1.0)}'),
                  "many-code-pages-cost"),
    "page_faults": Edits(("rates[rates[\"threads\"] <= most]", "rates[rates[\"threads\"] < 3]"), "churn",
                         ('"faults_cost_latency": {"band": (1.0, float("inf"))}', '"faults_cost_latency": {"band": (0.0, 1.0)}'),
                         "runtime-faults-cost-latency"),
    "virtualization": Edits(("curve - packed[chase]", "curve / packed[chase]"), "guest_steps",
                            ('{"same": claims.SAME}', '{"same": 0.5}'), "containers-add-nothing"),
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


def execute(notebook: nbformat.NotebookNode, folder: Path, **parameters: Any) -> nbformat.NotebookNode:
    given, done = folder / "edited.ipynb", folder / "done.ipynb"
    nbformat.write(notebook, given)
    return papermill.execute_notebook(given, done, parameters, cwd=BOOK, progress_bar=False, kernel_name="python3")


def figures(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    """The data of each figure's chart, by the figure's name."""
    text = " ".join("".join(output.get("data", {}).get("text/html", "")) for cell in notebook.cells for output in cell.get("outputs", []))
    return {name: json.loads(html.unescape(spec)).get("datasets") for name, spec in re.findall(
        r'id="tlb-figure-([a-z0-9_-]+)".*?class="tlb-spec">(.*?)</script>', text, re.DOTALL)}


def verdicts(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """The verdict on each claim, by its sentence."""
    texts = ["".join(output["data"]["text/plain"]) for cell in notebook.cells for output in cell.get("outputs", [])
             if "tlb-verdicts" in "".join(output.get("data", {}).get("text/html", ""))]
    return {says: verdict for text in texts for verdict, says in re.findall(r"^([A-Z ]+): (.*?) \[(?!…])", text, re.MULTILINE)}


@cache
def edited(name: str, folder: Path) -> tuple[nbformat.NotebookNode, nbformat.NotebookNode]:
    """(a chapter as committed, and with another definition and another band, on the same rows)."""
    notebook = sources(name)
    edit(notebook, *EDITS[name].definition)
    edit(notebook, *EDITS[name].band)
    return sources(name), execute(notebook, folder)


def test_every_chapter_with_rows_of_its_own_is_edited():
    chapters = {name for name in table_of_contents() if find_spec(f"experiments.chapters.{name}")}
    assert set(EDITS) == chapters - {"your_program"}  # which has a document alone


@pytest.mark.parametrize("name", EDITS)
def test_another_definition_and_another_band_are_drawn_and_judged(name, tmp_path):
    before, after = edited(name, tmp_path)
    assert figures(before)[EDITS[name].figure] != figures(after)[EDITS[name].figure]
    import_module(f"experiments.chapters.{name}.claims")
    says = REGISTRY[EDITS[name].claim].says
    assert verdicts(before)[says] != verdicts(after)[says]


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
        notebook.cells = [*notebook.cells[: last + 1], nbformat.v4.new_code_cell("assert len(a.frame)")]
        execute(notebook, tmp_path, **small)
        rows = [json.loads(text) for path in (tmp_path / "data" / "own").glob("*/*.jsonl") for text in path.read_text().splitlines()]
        assert any((row["record"]["kernel"], row["record"]["lines"]) == (kernel, lines) for row in rows)
        seen.append({row["kernel_digest"] for row in rows if row["record"]["kernel"] == kernel})
    assert len(seen[1]) == len(seen[0]) + 1 and seen[0] < seen[1]
