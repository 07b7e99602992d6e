"""The book's pages run in this process, with cells as they are or edited, about a published
machine."""

from collections.abc import Callable
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
