"""CONTRIBUTING's recipes, each executed in a copy of the checkout: the result runs, and no other
file had to change."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from support.copies import Copy, copy_of_checkout

from tlb.report.answers import ANSWERS_DOCUMENT
from tlb.report.article import recorded
from tlb.report.quantities import QUANTITIES_DOCUMENT
from tlb.system.files import ROOT

pytestmark = pytest.mark.endurance

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
SMALL = ("-p", "profile", "smoke", "-p", "repeats", "1", "-p", "max_working_set", "1MiB")


@pytest.fixture
def copy(tmp_path) -> Copy:
    return copy_of_checkout(tmp_path / "copy", tmp_path / "data")


def assert_is_all(copy: Copy, title: str, files: set[str]) -> None:
    """Nothing but `files` changed, as many as the recipe promises, and its text names each."""
    found = re.search(
        rf"^### {title}.*?: (\d+) files?\n(.*?)(?=^##)", CONTRIBUTING, re.MULTILINE | re.DOTALL
    )
    assert found, title
    assert copy.changed() == files and len(files) == int(found[1])
    for file in files:
        assert Path(file).suffix in found[2], file
        assert any(part in found[2] for part in Path(file).parts), file


def run_tests(copy: Copy, *paths: str) -> None:
    copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *paths)


@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_a_kernel(copy):
    source = (ROOT / "kernels/page_gather.c").read_text()
    copy.write("kernels/line_sum.c", source.replace("page_gather", "line_sum"))
    copy.edit(
        "tlb/measure/catalogue.py",
        (
            '    "page_gather": ',
            '    "line_sum": KernelDeclaration(least_cycles=0.1),\n    "page_gather": ',
        ),
    )
    copy.write("tests/kernels/test_line_sum.py", LINE_SUM)
    run_tests(copy, "tests/kernels/test_line_sum.py", "tests/measure/test_kernels.py")
    record = json.loads(copy.tlb("measure", "line_sum", "--lines", "64", "--region-ms", "1").stdout)
    assert (record["kernel"], record["lines"]) == ("line_sum", 64)
    assert_is_all(
        copy,
        "A kernel",
        {"kernels/line_sum.c", "tlb/measure/catalogue.py", "tests/kernels/test_line_sum.py"},
    )


LINE_SUM = '''"""line_sum visits what page_gather visits."""

import json
import subprocess

from tlb.measure import build


def test_it_visits_what_page_gather_visits():
    words = "--pages 4k --layout spread --order cycle --lines 64 --seed 1 --region-ms 1".split()
    sums = set()
    for name in ("line_sum", "page_gather"):
        command = [*build.kernel(name).command, *words]
        sums.add(json.loads(subprocess.check_output(command))["checksum"])
    assert len(sums) == 1
'''


def test_a_claim(copy):
    copy = Copy(copy.path)  # the committed rows
    for file, more in (
        ("data/literature/claims.csv", STATEMENT),
        ("experiments/tlb_blocking/claims.py", CLAIM),
    ):
        path = copy.path / file
        path.write_text(path.read_text() + more)
    book = copy.path / "book/tlb_blocking.ipynb"
    committed = {path: path.read_text() for path in (book, *copy.path.glob("data/*/claims.json"))}
    copy.tlb("refresh", "tlb_blocking")
    notebook = nbformat.read(book, as_version=4)
    verdicts = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "tlb-verdicts" in str(output)
    ]
    assert "HOLDS: “A join takes time.”" in verdicts[0]["data"]["text/plain"]
    run_tests(copy, "tests/project/test_house.py", "tests/project/test_claims.py")
    for path, text in committed.items():  # what `refresh` wrote
        path.write_text(text)
    assert_is_all(
        copy, "A claim", {"data/literature/claims.csv", "experiments/tlb_blocking/claims.py"}
    )


STATEMENT = (
    "join-takes-time,boncz1999,A section,A join takes time.,time of a row,0,,ns,join,4k,,,judged,"
    "tlb_blocking,,\n"
)
CLAIM = """

@claim("join-takes-time", points=lambda point, scope: point.kernel == "radix_partition")
def join_takes_time(a: Analysis, band: tuple[float, float]) -> Answer:
    took = a.scattered("4k", bits=12, passes=1)
    return effect_inside_band(took, *band), f"A row takes {took:.1f} ns."
"""


@pytest.mark.measuring
@pytest.mark.needs("a C compiler")
def test_a_chapter(copy):
    for name, text in CHAPTER.items():
        copy.write(f"experiments/example/{name}.py", text)
    cells = nbformat.read(copy.path / "book/tlb_blocking.ipynb", as_version=4).cells
    parameters = next(cell for cell in cells if "parameters" in cell.metadata.get("tags", []))
    imports, *code = [nbformat.v4.new_code_cell(*cell) for cell in EXAMPLE_CELLS]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("# An example"), imports, parameters, *code]
    )
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "3", "language": "python"}
    for cell, metadata in zip(code, METADATA, strict=False):
        cell.metadata |= metadata
    nbformat.write(notebook, copy.path / "book/example.ipynb")
    entry = "      - file: book/tlb_blocking\n"
    copy.edit("_toc.yml", (entry, entry.replace("tlb_blocking", "example") + entry))
    copy.write("tests/chapters/example/test_analysis.py", EXAMPLE_TEST)
    run_tests(copy, "tests/chapters/example")
    executed = copy.path.parent / "example.ipynb"
    copy.tlb("run", "example", *SMALL, "--output", str(executed))
    made = nbformat.read(executed, as_version=4)
    assert "tlb-figure-chases" in str(made)
    assert recorded(made, QUANTITIES_DOCUMENT)["example"]["load_ns"]["reason"] == "sweep-short"
    assert [*recorded(made, ANSWERS_DOCUMENT)["example"]] == ["example-takes-time"]
    copy.run("-c", IS_DISCOVERED)
    files = {f"experiments/example/{name}.py" for name in CHAPTER}
    files |= {"book/example.ipynb", "_toc.yml", "tests/chapters/example/test_analysis.py"}
    assert_is_all(copy, "A chapter", files)


IS_DISCOVERED = """
from tlb.report import notebooks
(example,) = [chapter for chapter in notebooks.chapter_modules() if chapter.__name__ == "experiments.example"]
assert example.grid.points and example.claims and example.Analysis
"""
FIGURE = {"mystnb": {"figure": {"name": "fig-chases", "caption": "Two chases."}}}
METADATA = ({}, FIGURE, {"tags": ["remove-input"]})
EXAMPLE_CELLS = [
    [
        """import altair as alt
import pandas as pd

from experiments.example import claims, grid
from experiments.example.analysis import Analysis
from experiments.example.analysis import Quantities
from tlb.report import begin, judge, on_this_computer, quantities_of, say, show_chart"""
    ],
    [
        """chapter = begin("example", globals())
quantities, reference = quantities_of(chapter, Quantities)
rows = chapter.measure(grid.points(chapter.scope))
analysis = Analysis(rows, chapter)"""
    ],
    [
        """def chases(prices: pd.DataFrame) -> alt.Chart:
    return alt.Chart(prices).mark_point().encode(x="lines:Q", y="median:Q")

show_chart(chases, analysis.price.table, "Two points.")
quantities.record(rows, load_ns=lambda: analysis.spread.last)"""
    ],
    ["say(f'A load takes {reference.load_ns}.')"],
    ["on_this_computer(quantities, reference)"],
    ["judge(claims, analysis)"],
]
EXAMPLE_TEST = """from support.common import About
from support.synthetic import Stated, Truth, frame, grid

from experiments.example.analysis import Analysis


def test_the_price_is_that_of_the_machine():
    a = Analysis(frame(Truth(noise=0.0), grid()), About(Stated().host()))
    assert abs(a.price.get(1024).value - 2.0) < 1e-9
"""
CHAPTER = {
    "grid": '''"""Two sizes."""

from tlb.measure.grid import Scope
from tlb.measure.record import Point


def points(scope: Scope) -> list[Point]:
    return [point for lines in (64, 128) for point in scope.chase("page_chase", "4k", lines)]
''',
    "analysis": '''"""The chase on base pages."""

from functools import cached_property

from tlb.stats import curves
from tlb.stats.curves import Curve
from tlb.report import analysis, quantities
from tlb.report.quantities import QuantityDeclaration


class Quantities(quantities.Quantities):
    load_ns = QuantityDeclaration("a load", "ns", 1)


class Analysis(analysis.Analysis):
    @cached_property
    def spread(self) -> Curve:
        return curves.spread_curve(self.frame)

    @cached_property
    def packed(self) -> Curve:
        return curves.packed_curve(self.frame)

    @property
    def price(self) -> Curve:
        return self.spread - self.packed
''',
    "claims": '''"""One claim."""

from experiments.example.analysis import Analysis
from tlb.report.claims import Answer, claim
from tlb.stats.effects import effect_inside_band

POINTS = lambda point, scope: point.kernel == "page_chase"


@claim("example-takes-time", source="boncz1999", says="A load takes time.", points=POINTS)
def takes_time(a: Analysis) -> Answer:
    return effect_inside_band(a.spread.last, 0), f"A load takes {a.spread.last:.1f} ns."
''',
}
