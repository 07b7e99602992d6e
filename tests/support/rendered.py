"""The book's pages run in this process, with cells as they are or edited, about a published
machine."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from experiments.overview import CHAPTERS, index
from experiments.overview.machine_verdicts import chapter_analysis, chapter_name
from tlb.measure.store import Store, data_root
from tlb.report import page, parameters
from tlb.report.analysis import Analysis
from tlb.report.chapter import Chapter
from tlb.report.page import Cell
from tlb.report.render import Figure

CHAPTER_NAMES = [*map(chapter_name, CHAPTERS)]


class Shown(NamedTuple):
    """What a page shows, as text."""

    texts: tuple[str, ...]
    figures: tuple[str, ...]  # with their data
    verdicts: tuple[str, ...]  # and other tables


def analysis(notebook: str, machine: str, names: dict[str, Any]) -> Analysis:
    """A page's Analysis over its names. Raises Unavailable where the machine has no rows."""
    chapter = Chapter(
        notebook,
        parameters.check(notebook, {"machine": machine, "minutes": 0.0}),
        Store(data_root()),
    )
    if notebook not in CHAPTER_NAMES:
        module = import_module(f"experiments.overview.{notebook}")
        return (
            index.Analysis(chapter, names=names)
            if module is index
            else module.Analysis(chapter, names)
        )
    return chapter_analysis(import_module(f"experiments.{notebook}"), chapter, names)


def render(
    notebook: str, machine: str = "reference", cells: tuple[Cell, ...] | None = None
) -> Shown:
    """Run a page's cells, or these in their place. Raises what a cell raises."""
    texts, figures, tables = list[str](), list[str](), list[str]()

    def put(shown: Any) -> None:
        if isinstance(shown, page.Text):
            texts.append(shown.markdown)
        elif isinstance(shown, Figure):
            figures.append(shown.alt + shown.csv())
        elif hasattr(shown, "text"):
            tables.append(shown.text)

    names: dict[str, Any] = {}
    a = analysis(notebook, machine, names)
    names |= {"a": a, "chapter": a.about}
    page.run(page.Page(notebook, put), names, cells)
    return Shown(tuple(texts), tuple(figures), tuple(tables))


def written(notebook: str, make: Callable[[dict[str, Any]], Analysis]) -> str:
    """Return all that a page's cells show, as text. make: gives its Analysis over its names."""
    shown, names = list[str](), dict[str, Any]()
    names |= {"a": (a := make(names)), "chapter": a.about}

    def put(made: Any) -> None:
        shown.append(made.markdown if isinstance(made, page.Text) else getattr(made, "text", ""))

    page.run(page.Page(notebook, put), names)
    return "\n\n".join(shown)


@cache
def committed(notebook: str) -> Shown:
    return render(notebook)


def definitions(notebook: str) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """Each statement of a page's cells that defines something, and the cells without it."""
    cells = page.cells(notebook)
    for place, cell in enumerate(cells):
        if (
            cell.kind != "code"
            or {*cell.metadata.get("tags", ())} & {"parameters"}
            or "begin(" in cell.source
        ):
            continue
        body = ast.parse(cell.source).body
        for number, statement in enumerate(body):
            if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.FunctionDef)):
                kept = "\n".join(
                    ast.unparse(other) for other in (*body[:number], *body[number + 1 :])
                )
                yield (
                    ast.unparse(statement).splitlines()[0],
                    (*cells[:place], cell._replace(source=kept), *cells[place + 1 :]),
                )


def edited(cells: tuple[Cell, ...], *edits: tuple[str, str]) -> tuple[Cell, ...]:
    """Cells with the second text of each edit in the place of the first, which stands in them
    exactly once."""
    for old, new in edits:
        assert sum(cell.source.count(old) for cell in cells if cell.kind == "code") == 1, old
        cells = tuple(
            cell._replace(source=cell.source.replace(old, new)) if cell.kind == "code" else cell
            for cell in cells
        )
    return cells
