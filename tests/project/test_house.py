"""The house rules, each a function of a tree that gives a sentence for each breach.

Kernels against their catalogue: tests/measure/test_kernels.py. Imports: `make lint`.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tlb.measure.grid import Scope, load_profile
from tlb.report.claims import claims_of
from tlb.system.files import ROOT

MOST_FUNCTION_LINES, MOST_NOTEBOOK_BYTES = 40, 400_000
# How often a file may contain 4096, and why. Elsewhere a base page is the machine's.
OF_4096 = {
    "experiments/hugepages/figures.py": (1, "both machines are x86-64"),
    "tlb/system/page_sizes.py": (1, "what sentences about published machines mean, all of x86-64"),
    "tlb/measure/catalogue.py": (1, "a guest's page table, which is x86-64's alone"),
    "tlb/measure/kernels.py": (1, "a number of lines, and not of bytes"),
    "tlb/measure/grid.py": (1, "the least that a parameter may ask for, on any machine"),
    "experiments/page_walks/grid.py": (1, "entries, and not bytes"),
    "tlb/measure/granted_pages.py": (
        1,
        "the programs ask for 2 MiB, which goes with such base pages",
    ),
    "experiments/keeping_pages/documents.py": (1, "as for those"),
}

Check = Callable[[Path], Iterator[str]]


@cache
def _modules(root: Path) -> list[tuple[str, ast.Module]]:
    """(path from the root, syntax tree) of each Python file of the package and of Sphinx's
    extension."""
    paths = [
        path
        for folder in ("tlb", "experiments", "book/_ext")
        for path in sorted((root / folder).rglob("*.py"))
    ]
    return [
        (path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
    ]


def lengths(root: Path) -> Iterator[str]:
    """Yield each function that is too long."""
    for path, tree in _modules(root):
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                begin = min(
                    (decorator.lineno for decorator in node.decorator_list), default=node.lineno
                )
                if (lines := node.end_lineno - begin + 1) > MOST_FUNCTION_LINES:
                    yield f"{path}:{begin} {node.name} has {lines} lines, over {MOST_FUNCTION_LINES}"


def base_pages(root: Path) -> Iterator[str]:
    """Yield each file that takes a page of 4096 bytes for granted."""
    for path, tree in _modules(root):
        lines = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and repr(node.value) == "4096"
        ]
        allowed, _ = OF_4096.get(path, (0, ""))
        if len(lines) != allowed:
            where = ", ".join(map(str, lines))
            yield f"{path} contains 4096 {len(lines)} times ({where}); {allowed} have a reason."


def notebooks(root: Path) -> Iterator[str]:
    """Yield each notebook that is too large, or has a picture where a chart belongs."""
    for path in sorted((root / "book").glob("*.ipynb")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        if path.stat().st_size >= MOST_NOTEBOOK_BYTES:
            yield f"{name} has {path.stat().st_size:,} bytes, over {MOST_NOTEBOOK_BYTES:,}."
        if '"image/png"' in text:
            yield f"{name} has a PNG: those are made for LaTeX alone, and not committed."


CHECKS: list[Check] = [lengths, base_pages, notebooks]


CHAPTERS = sorted(
    path.name for path in (ROOT / "experiments").iterdir() if (path / "claims.py").is_file()
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_house_keeps_its_rules(check):
    breaches = list(check(ROOT))
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_claim_compares_points_of_its_chapter_s_grid(chapter):
    claims = claims_of(import_module(f"experiments.{chapter}.claims"))
    scope = Scope(load_profile("full"), entries=(64, 1536), cpus=2, base_page_bytes=4096)
    grid = import_module(f"experiments.{chapter}.grid").points(scope)
    assert (
        claims
        and [
            claim.place
            for claim in claims
            if claim.points and not any(claim.points(point, scope) for point in grid)
        ]
        == []
    )
