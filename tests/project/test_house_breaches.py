"""Each breach of the house rules, planted in a copy, is one sentence that names the file. (Of kernels and their catalogue:
tests/lab/test_kernels.py.)"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support import house

from experiments.system.files import ROOT

pytestmark = pytest.mark.slow  # thirty copies
BLOCKING = "experiments/chapters/tlb_blocking"
LONG = "\n".join(["def long(x: int) -> int:", *(f"    x += {n}" for n in range(39)), "    return x", ""])


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the checks read; of pages and tests one each."""
    root = tmp_path_factory.mktemp("original")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "experiments", root / "experiments", ignore=ignored)
    write(root / "book" / "references.bib", (ROOT / "book" / "references.bib").read_text(encoding="utf-8"))
    write(root / "pyproject.toml", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    write(root / "tests" / "inference" / "test_curves.py", "from support.common import make_record\n")
    write(root / "book" / "tlb_blocking.ipynb", json.dumps(PAGE))
    return root


@pytest.fixture
def tree(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "tree")


def cell(source: str, *tags: str, kind: str = "code") -> dict:
    return {"cell_type": kind, "source": source, "metadata": {"tags": list(tags)}}


PAGE = {"cells": [
    cell("from experiments.article import begin\nfrom experiments.chapters import tlb_blocking", "remove-cell"),
    cell('machine: str = "reference"', "parameters"), cell("## The blocks", kind="markdown"),
    cell("blocks = a.blocks\ngain = blocks / 2\nchapter.show(figures.blocks, a)", "remove-output"),
    cell("chapter.show(tables.remedies, a)", "hide-input")]}


def page(tree: Path, *cells: dict, **more: object) -> None:
    write(tree / "book" / "tlb_blocking.ipynb", json.dumps({**PAGE, "cells": [*PAGE["cells"], *cells], **more}))


def append(tree: Path, file: str, text: str) -> None:
    write(tree / file, (tree / file).read_text(encoding="utf-8") + text)


def claim(**given: str) -> str:
    words = ", ".join(f"{name}={value!r}" for name, value in ({"says": "A load takes time."} | given).items() if name != "id")
    return f"\n\n@claim({given['id']!r}, {words})\ndef planted(a):\n    return True, ''\n"


before = cache(lambda check, original: check(original))
# The check, what is done to the copy, the file that is named, and a word that says what is wrong.
BREACHES: dict[str, tuple[house.Check, Callable[[Path], None], str, str]] = {
    **{f"a chapter without its {name}": (
        house.chapters, lambda tree, name=name: (tree / BLOCKING / f"{name}.py").unlink(), f"{BLOCKING}/{name}.py", "missing")
        for name in house.CHAPTER_FILES},
    "a new chapter of one file": (
        house.chapters, lambda tree: write(tree / "experiments/chapters/churn.py", ""), "experiments/chapters/churn.py", "no chapter"),
    "a claim without source": (house.claims, lambda tree: append(tree, f"{BLOCKING}/claims.py", claim(id="planted")),
                               f"{BLOCKING}/claims.py", "no source"),
    "a claim with an empty source": (house.claims, lambda tree: append(tree, f"{BLOCKING}/claims.py", claim(id="planted", source="")),
                                     f"{BLOCKING}/claims.py", "no source"),
    "a source that is not in the bibliography": (
        house.claims, lambda tree: append(tree, f"{BLOCKING}/claims.py", claim(id="planted", source="nobody1900")),
        f"{BLOCKING}/claims.py", "nobody1900"),
    "an id of another chapter": (
        house.claims, lambda tree: append(tree, "experiments/chapters/virtualization/claims.py",
                                          claim(id="prefetch-walks", source="matthews_tlbperf")),
        "experiments/chapters/virtualization/claims.py", f"{BLOCKING}/claims.py"),
    "an id of the same chapter": (
        house.claims, lambda tree: append(tree, f"{BLOCKING}/claims.py", claim(id="prefetch-walks", source="matthews_tlbperf")),
        f"{BLOCKING}/claims.py", "prefetch-walks"),
    "an import upwards": (house.imports, lambda tree: append(tree, "experiments/words/units.py", "\n\nfrom experiments.lab import store\n"),
                          "experiments/words/units.py", "experiments.lab.store"),
    "an import upwards inside a function": (
        house.imports, lambda tree: append(tree, "experiments/lab/noise.py", "\n\ndef f():\n    from experiments.article import card\n"),
        "experiments/lab/noise.py", "experiments.article.card"),
    "an import of another chapter": (
        house.imports, lambda tree: append(tree, f"{BLOCKING}/grid.py", "\n\nfrom experiments.chapters.virtualization import grid\n"),
        f"{BLOCKING}/grid.py", "experiments.chapters.virtualization.grid"),
    "a room that is not in the order": (
        house.imports, lambda tree: write(tree / "experiments/attic/__init__.py", ""), "pyproject.toml", "experiments.attic"),
    "a module of 301 lines": (house.lengths, lambda tree: write(tree / "experiments/words/long.py", "x = 1\n" * 301),
                              "experiments/words/long.py", "301 lines"),
    "a function of 41 lines": (house.lengths, lambda tree: write(tree / "experiments/words/long.py", LONG),
                               "experiments/words/long.py", "41 lines"),
    "a function of 40 lines and its decorator": (
        house.lengths, lambda tree: write(tree / "experiments/words/long.py", "@cache\n" + LONG.replace("    x += 1\n", "")),
        "experiments/words/long.py", "41 lines"),
    "a page of 4096 bytes": (house.base_pages, lambda tree: append(tree, f"{BLOCKING}/grid.py", "\nPAGE = 0x1000\n"),
                             f"{BLOCKING}/grid.py", "4096 1 times"),
    "a thirteenth room": (
        house.rooms, lambda tree: [write(tree / f"experiments/attic_{n}/__init__.py", "") for n in range(13)], "experiments/", "attic_7"),
    "a test file that imports another": (
        house.tests, lambda tree: write(tree / "tests/test_own.py", "def f():\n    from test_curves import rows\n"),
        "tests/test_own.py", "test_curves.py"),
    "a test file that imports another by its path": (
        house.tests, lambda tree: write(tree / "tests/test_own.py", "from tests.inference import test_curves\n"),
        "tests/test_own.py", "test_curves.py"),
    "a sixth name": (house.notebooks, lambda tree: page(tree, cell("import a\nimport b as c, d\nfrom e import f")),
                     "book/tlb_blocking.ipynb", "6 names"),
    "a cell of eleven lines": (house.notebooks, lambda tree: page(tree, cell("x = 1\n" * 11)), "book/tlb_blocking.ipynb", "11 lines"),
    "a cell of two lines that is no table": (
        house.notebooks, lambda tree: page(tree, cell("x = 1\nx")), "book/tlb_blocking.ipynb", "2 lines"),
    "a cell that only calls its section": (
        house.notebooks,
        lambda tree: page(tree, cell("## The matrix", kind="markdown"), cell("chapter.show(tables.matrix, a)", "hide-input")),
        "book/tlb_blocking.ipynb", "named after"),
    "a cell that calls show_ and its section": (
        house.notebooks, lambda tree: page(tree, cell("# Walk costs", kind="markdown"), cell("show_walk_costs(\n    about,\n)")),
        "book/tlb_blocking.ipynb", "named after"),
    "a PNG": (house.notebooks, lambda tree: page(tree, outputs={"image/png": ""}), "book/tlb_blocking.ipynb", "PNG"),
    "a notebook of 400 kB": (house.notebooks, lambda tree: page(tree, fill="x" * 400_000), "book/tlb_blocking.ipynb", "bytes"),
}


@pytest.mark.parametrize(("check", "plant", "file", "word"), BREACHES.values(), ids=BREACHES)
def test_a_breach_is_one_sentence_that_names_the_file(original: Path, tree: Path, check: house.Check, plant: Callable, file: str,
                                                      word: str):
    plant(tree)
    (sentence,) = [sentence for sentence in check(tree) if sentence not in before(check, original)]
    assert sentence.startswith(file) and word in sentence and "\n" not in sentence


def test_modules_and_functions_at_their_limits_are_let_be(tree: Path):
    write(tree / "experiments/words/short.py", "x = 1\n" * 300)
    write(tree / "experiments/words/shorter.py", LONG.replace("    x += 1\n", ""))
    assert not [sentence for sentence in house.lengths(tree) if "short" in sentence]
