"""The house rules as functions of a tree: each gives a sentence for each breach, which names the file. Empty is kept.

Kernels against their catalogue: tests/lab/test_kernels.py.
"""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from pybtex.database import parse_file

MOST_ROOMS, MOST_MODULE_LINES, MOST_FUNCTION_LINES = 12, 300, 40
MOST_IMPORTED_NAMES, MOST_NOTEBOOK_BYTES, CELL_LINES = 5, 400_000, range(3, 11)
CHAPTER_FILES = ("grid", "analysis", "figures", "claims", "prose")
LONG_MODULES = {"experiments/words/reasons.py": "a table of data, a reason a row"}
# How often a file may say 4096, and why. Elsewhere a base page is the machine's.
OF_4096 = {
    "experiments/lab/kernels.py": (2, "a table of a guest's, which is x86-64's alone; and a number of lines, not of bytes"),
    "experiments/lab/grid.py": (1, "the least that a parameter may ask for, on any machine"),
    "experiments/chapters/stlb_cliff/claims.py": (1, "a source's own sum, of 4 KiB on any machine"),
    "experiments/chapters/your_machine/claims.py": (1, "what a source says a base page has"),
    "experiments/chapters/virtualization/analysis.py": (1, "the base page of a guest, which is x86-64's alone"),
    "experiments/chapters/walk_anatomy/grid.py": (1, "entries, and not bytes"),
    "experiments/lab/ways.py": (1, "the programs ask for 2 MiB, which goes with such base pages"),
    "experiments/chapters/keeping_pages/languages/runtimes.py": (1, "as for those"),
}

_IMPORTS = (ast.Import, ast.ImportFrom)
Check = Callable[[Path], list[str]]
CHECKS: list[Check] = []


def _check(sentences: Callable[[Path], Iterator[str]]) -> Check:
    def listed(root: Path) -> list[str]:
        return list(sentences(root))

    listed.__name__, listed.__doc__ = sentences.__name__, sentences.__doc__
    CHECKS.append(listed)
    return listed


def _modules(root: Path, *folders: str) -> Iterator[tuple[str, ast.Module]]:
    """(path from the root, syntax tree) of each Python file."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def _line(text: str, most: int) -> str:
    """The first characters of a text, or the last, on one line."""
    words = " ".join(text.split())
    return words[:most] if most > 0 else words[most:]


def _entries(folder: Path) -> list[Path]:
    """The packages and modules at the top of a package."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._" and (path.is_dir() or path.suffix == ".py"))


@_check
def rooms(root: Path) -> Iterator[str]:
    """So few that one knows them."""
    names = [path.name for path in _entries(root / "experiments")]
    if len(names) > MOST_ROOMS:
        yield f"experiments/ has {len(names)} rooms at its top, over {MOST_ROOMS}: {', '.join(names)}."


@_check
def imports(root: Path) -> Iterator[str]:
    """Downwards only, by import-linter's contracts in pyproject.toml."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache", "--no-logo"], cwd=root, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(root), "COLUMNS": "1000", "NO_COLOR": "1"})
    # The rest of a chain that begins with a breach is told without a dash.
    for importer, imported, line in dict.fromkeys(re.findall(r"- +(\S+) -> (\S+) \(l\.(\d+)", done.stdout)):
        path = importer.replace(".", "/")
        path += "/__init__.py" if (root / path).is_dir() else ".py"
        yield f"{path}:{line} leads to an import of {imported}, which is not of a room below its own."
    if done.returncode and "->" not in done.stdout:
        yield f"pyproject.toml has contracts that import-linter cannot check: {_line(done.stdout + done.stderr, -300)}"


@_check
def chapters(root: Path) -> Iterator[str]:
    """The same files in each."""
    for chapter in _entries(root / "experiments" / "chapters"):
        if chapter.is_file():
            yield f"experiments/chapters/{chapter.name} is a module and no chapter."
            continue
        for name in (*CHAPTER_FILES, "__init__"):
            if not (chapter / f"{name}.py").is_file():
                yield f"experiments/chapters/{chapter.name}/{name}.py is missing: a chapter has {', '.join(CHAPTER_FILES)}."


def claims_in(root: Path) -> Iterator[tuple[str, str, str]]:
    """(place, id, source) of each @claim: the source that it names, or its row of claims.csv has; "" for none."""
    table = root / "data" / "literature" / "claims.csv"
    of_row = {row["id"]: row["source"] for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())} if table.is_file() else {}
    for path, tree in _modules(root, "experiments/chapters"):
        for node in ast.walk(tree):
            for call in reversed(getattr(node, "decorator_list", ())):  # the order in which they act
                if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) == "claim":
                    given = {keyword.arg: keyword.value for keyword in call.keywords} | dict(zip(("id",), call.args, strict=False))
                    name, source = (str(getattr(given.get(word), "value", "")) for word in ("id", "source"))
                    yield f"{path}:{call.lineno}", name, source or of_row.get(name, "")


@_check
def claims(root: Path) -> Iterator[str]:
    """Each with an id of its own and a source of the bibliography."""
    sources = parse_file(str(root / "book" / "references.bib")).entries
    first: dict[str, str] = {}
    for place, name, source in claims_in(root):
        if name in first:
            yield f"{place} has the id {name!r}, which {first[name]} has already."
        first.setdefault(name, place)
        if not source:
            yield f"{place} names no source for the claim {name!r}."
        elif source not in sources:
            yield f"{place} names the source {source!r}, which is not in book/references.bib."


@_check
def lengths(root: Path) -> Iterator[str]:
    """Modules and functions that fit a screen or a few."""
    for path, tree in _modules(root, "experiments", "book/_ext"):
        lines = len((root / path).read_text(encoding="utf-8").splitlines())
        if lines > MOST_MODULE_LINES and path not in LONG_MODULES:
            yield f"{path} has {lines} lines, over {MOST_MODULE_LINES}."
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                begin = min((decorator.lineno for decorator in node.decorator_list), default=node.lineno)
                if (lines := node.end_lineno - begin + 1) > MOST_FUNCTION_LINES:
                    yield f"{path}:{begin} {node.name} has {lines} lines, over {MOST_FUNCTION_LINES}."


@_check
def base_pages(root: Path) -> Iterator[str]:
    """No 4096 by assumption."""
    for path, tree in _modules(root, "experiments", "book/_ext"):
        lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant) and repr(node.value) == "4096"]
        allowed, _ = OF_4096.get(path, (0, ""))
        if len(lines) != allowed:
            yield f"{path} says 4096 {len(lines)} times (lines {', '.join(map(str, lines))}), where {allowed} have a reason."


@_check
def tests(root: Path) -> Iterator[str]:
    """What test files share is in tests/support/."""
    names = {path.stem for path in (root / "tests").rglob("test_*.py")}
    for path, tree in _modules(root, "tests"):
        for node in ast.walk(tree):
            if isinstance(node, _IMPORTS):
                parts = ".".join([*(alias.name for alias in node.names), getattr(node, "module", "") or ""]).split(".")
                for name in sorted(names.intersection(parts)):
                    yield f"{path}:{node.lineno} imports {name}.py: put what they share into tests/support/."


def _cells(notebook: dict) -> Iterator[tuple[str, str, list[str]]]:
    """(the section's title, source, tags) of each code cell."""
    section = ""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            yield section, source, cell["metadata"].get("tags", [])
        for title in re.findall(r"^#+ +(.+)$", source, re.MULTILINE) if cell["cell_type"] == "markdown" else ():
            section = title


def _called(tree: ast.Module) -> set[str]:
    """The names that a cell of one statement calls or hands on: those of `chapter.show(tables.matrix, a)` are show and matrix."""
    call = getattr(tree.body[0], "value", None) if len(tree.body) == 1 else None
    nodes = [call.func, *call.args] if isinstance(call, ast.Call) else []
    return {name for node in nodes if (name := getattr(node, "attr", getattr(node, "id", "")))}


@_check
def notebooks(root: Path) -> Iterator[str]:
    """Pages that are their experiments: few names, cells that define something, no pictures."""
    for path in sorted((root / "book").glob("*.ipynb")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        imported: Counter[str] = Counter()
        for n, (section, source, tags) in enumerate(_cells(json.loads(text))):
            tree = ast.parse(source)
            imports_here = [node for node in tree.body if isinstance(node, _IMPORTS)]
            imported.update(alias.asname or alias.name for node in imports_here for alias in node.names)
            if "parameters" in tags or imports_here == tree.body:
                continue
            lines, slug = len(source.splitlines()), "_".join(re.findall(r"\w+", section.lower()))
            if lines > CELL_LINES[-1] or (lines < CELL_LINES[0] and "hide-input" not in tags and "remove-cell" not in tags):
                yield f"{name}, code cell {n}, has {lines} lines and not {CELL_LINES[0]} to {CELL_LINES[-1]}: {_line(source, 60)}"
            if slug and {called.removeprefix("show_") for called in _called(tree)} & {slug, slug.removeprefix("the_")}:
                yield f"{name}, code cell {n}, only calls what its section is named after: {_line(source, 60)}"
        if len(imported) > MOST_IMPORTED_NAMES:
            yield f"{name} imports {len(imported)} names, over {MOST_IMPORTED_NAMES}: {', '.join(imported)}."
        if path.stat().st_size >= MOST_NOTEBOOK_BYTES:
            yield f"{name} has {path.stat().st_size:,} bytes, over {MOST_NOTEBOOK_BYTES:,}."
        if '"image/png"' in text:
            yield f"{name} holds a PNG: those are made for LaTeX alone, and not committed."
